"""Training end to end on a made-up world: a bundle that loads, figures that beat the prior, the same bytes twice."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.worlds import COST, HEAD, VOCAB, World, as_trace, dense_trace, deployment, manifest, simulate
from treewise.data.envelope import Envelope
from treewise.data.errors import BundleError, ParameterError, TraceError
from treewise.data.pair import PairDescription
from treewise.data.trace_schema import concatenate
from treewise.data.trace_writer import TraceWriter
from treewise.policy.bundle import INDEX, Bundle
from treewise.policy.learned import LearnedPolicy
from treewise.policy.topn import TopNPolicy
from treewise.training.dataset import DatasetSettings
from treewise.training.fit import NamedTrace, TrainSettings, train, train_on
from treewise.training.logged_trace import LoggedTrace
from treewise.training.planner_fit import PlannerFitSettings, choose_requests
from treewise.training.replay import replay
from treewise.training.report import Comparison, TrainReport, calibration_error, compare, figures

ENVELOPE = Envelope(max_depth=4, draft_width=3, lookup_width=2, min_path_prior=0.03, min_grow_prior=0.08)
PAIR = PairDescription("world", "a" * 64, "b" * 64, VOCAB, "law", "c" * 64, HEAD)
FAST = TrainSettings(
    rows=DatasetSettings(max_positions=150), planner=PlannerFitSettings(requests=3, rate_rounds=2, tune=False)
)


def of_pair(trace: LoggedTrace, pair: PairDescription = PAIR) -> LoggedTrace:
    """The trace with a full description of its pair."""
    return replace(trace, manifest=replace(trace.manifest, pair=pair.to_json()))


@pytest.fixture(scope="module")
def world() -> World:
    return World(seed=2, num_texts=6, answer_tokens=64)


@pytest.fixture(scope="module")
def trace(world: World) -> LoggedTrace:
    return of_pair(dense_trace(world, ENVELOPE))


@pytest.fixture(scope="module")
def trained(trace: LoggedTrace, tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainReport, Path, list[Any]]:
    folder = tmp_path_factory.mktemp("trained") / "bundle"
    seen: list[Any] = []
    report = train_on([NamedTrace(trace, "h")], COST, folder, FAST, "made by a test", lambda *step: seen.append(step))
    return report, folder, seen


def better(row: Comparison) -> bool:
    """Whether a model is ahead of its baseline in log loss."""
    return row.model.log_loss < row.baseline.log_loss


def test_held_out_figures_beat_the_prior(trained: tuple[TrainReport, Path, list[Any]]) -> None:
    report = trained[0]
    assert [row.name for row in report.match] == ["all", "both", "free only", "draft only"]
    assert all(better(row) for row in report.match)
    assert better(report.survival)
    assert report.match[0].rows == sum(row.rows for row in report.match[1:]) < report.match_rows
    assert report.match[0].model.ece < 0.05 < report.match[0].baseline.ece
    assert report.match[0].model.auc > report.match[0].baseline.auc
    assert report.growth.rows == report.growth_rows > 200


def test_the_bundle_loads_and_decides(trained: tuple[TrainReport, Path, list[Any]], trace: LoggedTrace) -> None:
    report, folder, _ = trained
    bundle = Bundle.load(folder)
    bundle.check_pair(PAIR)
    assert bundle.growth is not None
    assert bundle.call_ms == report.call_ms > 0.0
    assert bundle.planner.to_json() == report.planner
    assert bundle.provenance["command"] == "made by a test"
    assert bundle.provenance["traces"] == {"world": "h"}
    assert bundle.report["match"][0]["model"]["auc"] == pytest.approx(report.match[0].model.auc)
    assert report.parity <= 1e-5
    result = replay(LearnedPolicy.load(folder), trace.requests, trace.deployment(COST))
    assert not result.fallback.any()
    assert result.committed_tokens.sum() / len(result) > 1.2
    assert result.verified_nodes.sum() > 0


def test_the_bundle_serves_the_envelope_that_the_log_covers(trained: tuple[TrainReport, Path, list[Any]]) -> None:
    """A live deployment at the envelope itself, not at the log's slack, is inside the bundle's."""
    policy = LearnedPolicy.load(trained[1])
    policy.bind(deployment(ENVELOPE))  # raises where the bundle is narrower
    assert policy.bundle.envelope.covers(ENVELOPE) == []


def test_progress_ends_where_it_said(trained: tuple[TrainReport, Path, list[Any]]) -> None:
    stages: dict[str, tuple[int, int]] = {}
    for stage, done, total in trained[2]:
        assert 0 < done <= total
        stages[stage] = (done, total)
    assert list(stages) == ["rows", "models", "replays"]
    assert all(done == total for done, total in stages.values())


def test_two_runs_make_the_same_bundle(
    trained: tuple[TrainReport, Path, list[Any]], trace: LoggedTrace, tmp_path: Path
) -> None:
    train_on([NamedTrace(trace, "h")], COST, tmp_path / "again", FAST, "made by a test")
    first, again = trained[1], tmp_path / "again"
    assert sorted(path.name for path in first.iterdir()) == sorted(path.name for path in again.iterdir())
    for path in first.iterdir():
        if path.name != INDEX:
            assert path.read_bytes() == (again / path.name).read_bytes()
    one, two = (json.loads((folder / INDEX).read_text()) for folder in (first, again))
    for index in (one, two):
        index.pop("call_ms")
        index["provenance"].pop("created")
    assert one == two


def test_another_seed_makes_another_bundle(
    trained: tuple[TrainReport, Path, list[Any]], trace: LoggedTrace, tmp_path: Path
) -> None:
    train_on([NamedTrace(trace, "h")], COST, tmp_path / "other", replace(FAST, seed=1))
    assert Bundle.load(trained[1]).match.text != Bundle.load(tmp_path / "other").match.text


def test_the_rate_is_a_fixed_point(trained: tuple[TrainReport, Path, list[Any]]) -> None:
    assert 1.05 < trained[0].planner["rate_over_plain"] < 3.0
    assert trained[0].tuning == ()


def test_scales_move_only_where_held_out_prompts_agree(trace: LoggedTrace, tmp_path: Path) -> None:
    settings = replace(FAST, planner=PlannerFitSettings(requests=3, rate_rounds=1, grid=(0.5,), tune=True))
    report = train_on([NamedTrace(trace, "h")], COST, tmp_path / "tuned", settings)
    assert [item.name for item in report.tuning] == ["prune_scale", "growth_scale", "opening_scale"]
    for item in report.tuning:
        assert item.value in (0.5, 1.0)
        assert item.is_taken == (item.value != 1.0 and item.held_out_ratio > 1.002)
        assert report.planner[item.name] == (item.value if item.is_taken else 1.0)
        assert item.ratio >= 1.0


def test_training_from_disk_names_the_trace_by_its_hash(trace: LoggedTrace, tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "dense", trace.manifest) as writer:
        for request in trace.requests:
            offsets = request.shard.node_offsets
            rows = np.asarray(sorted(request.rows.values()))
            part = request.shard.take(rows)
            assert len(part.nodes) == int(offsets[rows[-1] + 1] - offsets[rows[0]])
            writer.add(part.rounds, part.nodes)
    report = train([tmp_path / "dense"], COST, tmp_path / "bundle", FAST)
    assert report.traces == ("dense",)
    assert len(report.trace_hashes[0]) == 64
    assert Bundle.load(tmp_path / "bundle").provenance["traces"] == {"dense": report.trace_hashes[0]}


def test_live_traces_alone_train_without_replay(world: World, tmp_path: Path) -> None:
    policy = TopNPolicy()
    setting = deployment(ENVELOPE)
    policy.bind(setting)
    shard = concatenate([simulate(world, text, policy, setting)[1] for text in world.texts])
    live = of_pair(as_trace(shard, manifest("live", ENVELOPE, policy.spec)))
    report = train_on([NamedTrace(live, "l")], COST, tmp_path / "live", FAST)
    assert report.growth_trees == 0
    assert math.isnan(report.growth.rate)
    assert report.to_json()["growth"]["rate"] is None
    assert Bundle.load(tmp_path / "live").growth is None
    assert report.call_ms == COST.policy_ms


def test_requests_are_spread_over_tasks(trace: LoggedTrace) -> None:
    ((_, chosen),) = choose_requests([trace], PlannerFitSettings(requests=4))
    tasks = [request.task for request in chosen]
    assert len(chosen) == len({request.prompt_id for request in chosen}) == 4
    assert tasks.count("copy") == tasks.count("chat") == 2


def refusals(trace: LoggedTrace) -> Sequence[tuple[list[LoggedTrace], type[Exception], str]]:
    """Traces that training refuses."""
    stranger = of_pair(trace, replace(PAIR, target_sha256="d" * 64))
    bare = replace(trace, manifest=replace(trace.manifest, pair={"target": "world"}))
    few = replace(trace, requests=trace.requests[:2])
    return (
        ([], ParameterError, "traces must be at least one"),
        ([trace, stranger], TraceError, "traces must be of one pair, got world with target_sha256"),
        ([bare], TraceError, "must describe its pair"),
        ([few], ParameterError, "prompts must be at least three"),
    )


@pytest.mark.parametrize("number", range(4))
def test_traces_that_do_not_fit_are_refused(trace: LoggedTrace, number: int, tmp_path: Path) -> None:
    traces, error, words = refusals(trace)[number]
    with pytest.raises(error, match=words):
        train_on([NamedTrace(part, "h") for part in traces], COST, tmp_path / "b", FAST)
    assert not (tmp_path / "b").exists()


def test_a_folder_of_something_else_is_left_alone(trace: LoggedTrace, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(BundleError, match="folder must be new, empty or a bundle"):
        train_on([NamedTrace(trace, "h")], COST, tmp_path, FAST)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_figures_on_known_values() -> None:
    ones = np.ones(4)
    label = np.asarray([0.0, 0.0, 1.0, 1.0])
    assert figures(label, np.asarray([0.1, 0.2, 0.3, 0.4]), ones).auc == 1.0
    assert figures(label, np.full(4, 0.5), ones).auc == 0.5
    assert figures(label, np.asarray([0.1, 0.3, 0.2, 0.4]), ones).auc == 0.75
    assert math.isnan(figures(np.ones(4), label, ones).auc)
    assert calibration_error(label, label, ones) == 0.0
    assert calibration_error(label, np.full(4, 0.5), ones, bins=1) == 0.0
    assert calibration_error(label, np.full(4, 0.9), ones, bins=1) == pytest.approx(0.4)
    row = compare("x", label, np.full(4, 0.5), np.full(4, 0.5))
    assert row.model.log_loss == pytest.approx(math.log(2))
