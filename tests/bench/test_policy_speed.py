"""What one call of the learned policy costs on one core: the scorers, and whole decisions, with and without numba."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from tests.policy.models import CURVE, make_model, plain_context, tiny_bundle, train_text
from tests.policy.scripted import example_cost, example_deployment
from treewise.data.envelope import Envelope
from treewise.policy.bundle import Bundle, Model
from treewise.policy.contain import ContainedPolicy
from treewise.policy.features import FEATURES, GROWTH_FEATURES
from treewise.policy.forest import Forest
from treewise.policy.hook import DRAFT, FREE, Float32Array, ForestView, Level, Nodes, RequestInfo, TreePolicy
from treewise.policy.learned import LearnedPolicy, make_scorer
from treewise.policy.scorer import Scorer

pytest.importorskip("numba")
pytestmark = pytest.mark.bench

REPEATS = 400
SCORER_LIMIT_US, LEVEL_LIMIT_US = 100.0, 250.0  # medians for 64 candidates on an idle core
SLACK = 2.0  # for what else the machine does
CONTEXT = plain_context()
Times = dict[str, list[float]]  # microseconds by way


@cache
def noise(columns: int) -> Float32Array:
    draw = np.random.default_rng(columns)
    x = draw.normal(size=(6000, columns)).astype(np.float32)
    x[draw.random(x.shape) < 0.2] = np.nan
    return x


def noise_model(names: tuple[str, ...], trees: int, leaves: int) -> Model:
    x = noise(len(names))
    known = np.nan_to_num(x)
    label = known[:, 0] + known[:, 1] * known[:, 2] + np.random.default_rng(0).normal(size=len(x)) > 0
    return make_model(train_text(x, label.astype(np.int8), trees, leaves), names, CURVE)


@cache
def bundle() -> Bundle:
    """Models as large as trained ones."""
    match, growth = noise_model(FEATURES, 50, 15), noise_model(GROWTH_FEATURES, 15, 8)
    return replace(tiny_bundle(), match=match, growth=growth, envelope=Envelope())


def print_table(title: str, times: Mapping[int, Times]) -> None:
    names = list(next(iter(times.values())))
    print(f"\n{title}, microseconds: median (least)")
    print("candidates " + "".join(f"{name:>18}" for name in names))
    for count, took in times.items():
        cells = (f"{np.median(took[name]):.1f} ({min(took[name]):.1f})" for name in names)
        print(f"{count:>10} " + "".join(f"{cell:>18}" for cell in cells))


def test_scorers(capsys: pytest.CaptureFixture[str]) -> None:
    """Taken in turns, so that what else the machine does meets all of them."""
    scorers: dict[str, Scorer] = {
        "onnxruntime": make_scorer(bundle().match, "onnx"),
        "lightgbm": make_scorer(bundle().match, "lightgbm"),
        "flat numpy": make_scorer(bundle().match, "flat"),
        "compiled": make_scorer(bundle().match, "compiled"),
    }
    times: dict[int, Times] = {}
    for count in (8, 32, 64):
        took = times[count] = {name: list[float]() for name in scorers}
        x = np.ascontiguousarray(noise(len(FEATURES))[:count])
        for _ in range(REPEATS):
            for name, scorer in scorers.items():
                started = time.perf_counter()
                scorer.score(x)
                took[name].append(1e6 * (time.perf_counter() - started))
    with capsys.disabled():
        print_table("scorer of 50 trees", times)
    assert np.median(times[64]["compiled"]) <= SLACK * SCORER_LIMIT_US
    assert all(np.median(took["compiled"]) < np.median(took["onnxruntime"]) for took in times.values())


def forest_of(candidates: int) -> Nodes:
    """A drafted root, and `candidates` rows with every source's signals below it and below one another."""
    draw = np.random.default_rng(candidates)
    forest = Forest()
    forest.append(1 + candidates)
    column = forest.column
    parent, depth = column("parent"), column("depth")
    for row in range(1, 1 + candidates):
        parent[row] = 0 if row <= 6 else draw.integers(max(row - 9, 1), row)
        depth[row] = depth[parent[row]] + 1
    column("draft_missing")[1:] = depth[1:] - 1
    column("drafted")[0] = True
    column("level")[1:] = 1
    names = ("draft_prob", "draft_entropy", "draft_margin", "lookup_share", "recycled_prob", "prior")
    for name in (*names, "lookup_count", "lookup_match_length", "recycled_order", "recycled_weight"):
        column(name)[1:] = draw.random(candidates)
    for name in ("draft_rank", "lookup_rank", "recycled_rank"):
        column(name)[1:] = draw.integers(0, 4, size=candidates)
    column("may_grow")[:] = (depth < Envelope().max_depth) * np.uint8(DRAFT | FREE)
    column("admitted")[:] = True
    return forest.view()


def bound(policy: TreePolicy) -> TreePolicy:
    policy.bind(example_deployment(DRAFT | FREE, example_cost(0.1), Envelope()))
    policy.begin(RequestInfo(int(CONTEXT.request_id[0]), 10, 40, 0.0))
    return policy


def part(nodes: Nodes, start: int, stop: int) -> Nodes:
    return Nodes(*[getattr(nodes, name)[start:stop] for name in Nodes.__dataclass_fields__])


def test_decisions(capsys: pytest.CaptureFixture[str]) -> None:
    """All ways decide alike, and the compiled ones sooner."""
    policies = {
        "onnx, numpy": bound(LearnedPolicy(bundle(), "onnx", compiled="off")),
        "onnx, compiled": bound(LearnedPolicy(bundle(), "onnx", compiled="on")),
        "compiled": bound(LearnedPolicy(bundle(), compiled="on")),
        "contained": bound(ContainedPolicy(LearnedPolicy(bundle(), compiled="on"), time_limit_ms=float("inf"))),
    }
    stages = ("opening", "level", "selection")
    times: dict[str, dict[int, Times]] = {stage: {} for stage in stages}
    for count in (8, 25, 64):
        nodes = forest_of(count)
        root = part(nodes, 0, 1)
        opening, level = Level(0, 0, root, root, CONTEXT), Level(1, 1, part(nodes, 1, 1 + count), nodes, CONTEXT)
        answers = {}
        for stage in stages:
            times[stage][count] = {name: [] for name in policies}
        for _ in range(REPEATS):
            for name, policy in policies.items():
                marks = [time.perf_counter()]
                policy.expand(opening)
                marks.append(time.perf_counter())
                answer = policy.expand(level)
                marks.append(time.perf_counter())
                kept = policy.select(ForestView(nodes, CONTEXT))
                marks.append(time.perf_counter())
                for stage, (before, after) in zip(stages, pairwise(marks), strict=True):
                    times[stage][count][name].append(1e6 * (after - before))
                answers[name] = (answer.grow.tolist(), kept.tolist())
        assert all(other == answers["compiled"] for other in answers.values())
        assert any(bits & DRAFT for bits in answers["compiled"][0])
    with capsys.disabled():
        for stage in stages:
            print_table(stage, times[stage])
    assert np.median(times["level"][64]["compiled"]) <= SLACK * LEVEL_LIMIT_US
    by_count = [took for stage in stages for took in times[stage].values()]
    assert all(np.median(took["compiled"]) < np.median(took["onnx, numpy"]) for took in by_count)
