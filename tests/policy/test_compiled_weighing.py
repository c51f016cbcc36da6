"""Decisions as machine code: those of numpy, on random rounds and whole requests."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.policy.models import tiny_bundle
from tests.policy.random_forests import random_context, random_forest
from tests.policy.scripted import TABLE, World, play
from treewise.data.cost import CostGrid, CostProfile
from treewise.data.envelope import Envelope
from treewise.policy.hook import DRAFT, FREE, LOOKUP, RECYCLED, Deployment, ForestView, Level, Nodes
from treewise.policy.learned import LearnedPolicy
from treewise.policy.planner import PlannerSettings
from treewise.policy.row_scores import RowScores
from treewise.policy.weighing import Weighing

pytest.importorskip("numba")
CompiledWeighing = pytest.importorskip("treewise.policy.compiled_weighing").CompiledWeighing


def random_deployment(rng: np.random.Generator) -> Deployment:
    """Stairs and slopes, flat and capacity-dependent prices, drafts that are free or dear."""
    capacities = (0, 64, 256)[: int(rng.choice([1, 3]))]
    steps = rng.choice([0.0, 0.0, 0.05, 1.0, 6.0], size=(len(capacities), 7))
    verify = 20.0 + steps.cumsum(axis=0).cumsum(axis=1)
    draft = float(rng.choice([0.0, 0.3, 2.0, 30.0])) + 0.1 * steps[:, :4].cumsum(axis=0).cumsum(axis=1)
    counts = (1, 8, 9, 32, 64, 65, 300)
    cost = CostProfile(
        name="random",
        verify=CostGrid(counts, capacities, tuple(tuple(row) for row in verify.tolist())),
        draft=CostGrid((1, 6, 40, int(rng.choice([60, 400]))), capacities, tuple(tuple(row) for row in draft.tolist())),
        policy_ms=float(rng.choice([0.0, 0.1])),
        level_ms=float(rng.choice([0.0, 1.0])),
    )
    depth = int(rng.choice([2, 6, 30, 64]))
    buckets = (1, 4, 16, 64) if rng.random() < 0.3 else ()
    return Deployment(cost, Envelope(max_depth=depth), TABLE, int(rng.choice([DRAFT, FREE, DRAFT | FREE])), 24, buckets)


def random_settings(rng: np.random.Generator) -> PlannerSettings:
    growth, opening, prune = rng.choice([0.3, 1.0, 1.7], size=3).tolist()
    return PlannerSettings(growth, opening, prune, sibling_normalise=bool(rng.random() < 0.7))


def decided(way_of: type[Weighing], seed: int, requests: int) -> dict[str, NDArray[Any]]:
    """Everything that one way decides about the random round of `seed`, in the order of the calls."""
    rng = np.random.default_rng(seed)
    way = way_of(random_deployment(rng), random_settings(rng))
    forest, context = random_forest(rng, requests), random_context(rng, requests)
    context = replace(context, batch_size=int(rng.choice([1, requests, 8])))
    rates = (rng.choice([0.01, 0.05, 0.2], size=requests) * rng.random(requests)).tolist()
    scores = way.open(context, rates)
    rows = len(forest.parent)
    roots = np.arange(requests)[(forest.may_grow[:requests] & DRAFT) > 0]
    hold = rng.random(rows)
    hold[rng.random(rows) < 0.2] = 0.0
    scores.holds[:] = hold[:requests]
    openings = way.openings(scores, Level(0, 0, forest, forest, context), roots)
    stale = way.stale(scores, forest)
    drafted = scores.drafted.copy()
    match = rng.random(rows) ** rng.choice([0.3, 1.0, 4.0])
    scores.match[requests:] = match[requests:]
    scores.holds[:] = hold
    survival = way.survival(scores, forest)
    asked = forest.drafted.nonzero()[0]  # no candidate was drafted yet
    start = int(rng.integers(max(requests, asked.max(initial=0) + 1), rows + 1))
    level = Level(1, start, _from(forest, start), forest, context)
    admission = way.admission(scores, survival, level)
    answer = way.growths(scores, survival, level, *admission)
    kept = way.keep(scores, survival, ForestView(forest, context))
    named: dict[str, NDArray[Any]] = {
        "openings": openings,
        "stale": stale,
        "drafted": drafted,
        "survival": survival,
        "kept": kept,
    }
    parts = {f"admission {place}": np.asarray(part) for place, part in enumerate(admission)}
    return {**named, **parts, "grow": answer.grow, "admit": answer.admit}


def differing(seed: int, requests: int) -> list[str]:
    """Names of what the two ways decide differently."""
    mine, theirs = (decided(way, seed, requests) for way in (Weighing, CompiledWeighing))
    return [name for name in mine if not np.array_equal(mine[name], theirs[name])]


def _from(forest: Nodes, start: int) -> Nodes:
    return replace(forest, **{field.name: getattr(forest, field.name)[start:] for field in fields(forest)})


@settings(max_examples=600, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([1, 1, 1, 2, 9]))
def test_decisions_are_those_of_numpy(seed: int, requests: int) -> None:
    assert differing(seed, requests) == []


def test_the_random_rounds_decide_something() -> None:
    """Two thousand more, and every kind of decision says yes in many of them."""
    found = []
    for seed in range(2000):
        requests = 1 + seed % 3
        assert differing(seed, requests) == []
        mine = decided(CompiledWeighing, seed, requests)
        said = [(mine["openings"] & DRAFT) > 0, *((mine["grow"] & bit) > 0 for bit in (DRAFT, LOOKUP, RECYCLED))]
        found.append([*(int(part.sum()) for part in said), int(mine["kept"].sum()) - requests])
    assert ((np.asarray(found) > 0).sum(axis=0) > 150).all()


def test_a_large_forest_has_prices_of_its_own() -> None:
    """More rows than a verify curve holds, for one request and for some of many; later rounds find longer curves."""
    for seed, requests in ((1, 1), (2, 3), (3, 1), (4, 3), (6, 5)):
        rng = np.random.default_rng(seed)
        forest, context = random_forest(rng, requests, 1500), random_context(rng, requests)
        assert len(forest.parent) > 400
        deployment = random_deployment(rng)
        kept = []
        for way in (Weighing(deployment, PlannerSettings()), CompiledWeighing(deployment, PlannerSettings())):
            scores = way.open(context, [0.001] * requests)
            way.stale(scores, forest)
            kept.append(way.keep(scores, np.full(len(forest.parent), 0.5), ForestView(forest, context)))
        np.testing.assert_array_equal(kept[0], kept[1])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 4))
def test_changed_rows_are_those_of_numpy(seed: int, roots: int) -> None:
    """The draft runs here and there while nothing else changes."""
    rng = np.random.default_rng(seed)
    deployment = random_deployment(rng)
    forest, compiled = random_forest(rng, roots), CompiledWeighing(deployment, PlannerSettings())
    scores = RowScores(roots), RowScores(roots)
    for _ in range(3):
        drafted = forest.drafted | (rng.random(len(forest.parent)) < 0.1)
        forest = replace(forest, drafted=drafted)
        np.testing.assert_array_equal(scores[0].stale(forest), compiled.stale(scores[1], forest))


@pytest.mark.parametrize("requests", [(0,), (0, 1, 2)])
@pytest.mark.parametrize("with_growth", [True, False])
def test_whole_requests_are_decided_alike(requests: tuple[int, ...], with_growth: bool) -> None:
    bundle = tiny_bundle(with_growth)
    for seed in range(3):
        world = World(seed)
        expected = play(LearnedPolicy(bundle, compiled="off"), world, requests)
        assert play(LearnedPolicy(bundle, compiled="on"), world, requests) == expected
        assert play(LearnedPolicy(bundle, "flat", compiled="on"), world, requests) == expected
