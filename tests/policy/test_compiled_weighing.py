"""Decisions as machine code: those of numpy, on random rounds and whole requests."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


def compare_round(seed: int, requests: int) -> tuple[int, ...]:
    """Both ways over one random round; returns how often each kind of decision said yes."""
    rng = np.random.default_rng(seed)
    deployment, planner = random_deployment(rng), random_settings(rng)
    forest, context = random_forest(rng, requests), random_context(rng, requests)
    rates = (rng.choice([0.01, 0.05, 0.2], size=requests) * rng.random(requests)).tolist()
    ways = [Weighing(deployment, planner), CompiledWeighing(deployment, planner)]
    opened = [way.open(context, rates) for way in ways]
    rows = len(forest.parent)
    roots = np.arange(requests)[(forest.may_grow[:requests] & DRAFT) > 0]
    hold = rng.random(rows)
    hold[rng.random(rows) < 0.2] = 0.0
    for scores in opened:
        scores.holds[:] = hold[:requests]
    first = Level(0, 0, forest, forest, context)
    openings = [way.openings(scores, first, roots) for way, scores in zip(ways, opened, strict=True)]
    np.testing.assert_array_equal(*openings)

    stale = [way.stale(scores, forest) for way, scores in zip(ways, opened, strict=True)]
    np.testing.assert_array_equal(*stale)
    np.testing.assert_array_equal(opened[0].drafted, opened[1].drafted)
    match = rng.random(rows) ** rng.choice([0.3, 1.0, 4.0])
    for scores in opened:
        scores.match[requests:] = match[requests:]
        scores.holds[:] = hold
    survival = [way.survival(scores, forest) for way, scores in zip(ways, opened, strict=True)]
    np.testing.assert_array_equal(*survival)

    asked = forest.drafted.nonzero()[0]  # no candidate was drafted yet
    start = int(rng.integers(max(requests, asked.max(initial=0) + 1), rows + 1))
    level = Level(1, start, _from(forest, start), forest, context)
    admitted = [way.admission(scores, survival[0], level) for way, scores in zip(ways, opened, strict=True)]
    for mine, theirs in zip(*admitted, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    answers = [
        way.growths(scores, survival[0], level, *own) for way, scores, own in zip(ways, opened, admitted, strict=True)
    ]
    np.testing.assert_array_equal(answers[0].grow, answers[1].grow)
    np.testing.assert_array_equal(answers[0].admit, answers[1].admit)

    view = ForestView(forest, context)
    kept = [way.keep(scores, survival[0], view) for way, scores in zip(ways, opened, strict=True)]
    np.testing.assert_array_equal(kept[0], kept[1])
    grow = answers[0].grow
    bits = [int(((grow & bit) > 0).sum()) for bit in (DRAFT, LOOKUP, RECYCLED)]
    return (int(((openings[0] & DRAFT) > 0).sum()), *bits, int(kept[0].sum()) - requests)


def _from(forest: Nodes, start: int) -> Nodes:
    return replace(forest, **{field.name: getattr(forest, field.name)[start:] for field in fields(forest)})


@settings(max_examples=600, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([1, 1, 1, 2, 9]))
def test_decisions_are_those_of_numpy(seed: int, requests: int) -> None:
    compare_round(seed, requests)


def test_the_random_rounds_decide_something() -> None:
    """Two thousand more, and every kind of decision says yes in many of them."""
    found = np.asarray([compare_round(seed, 1 + seed % 3) for seed in range(2000)])
    assert ((found > 0).sum(axis=0) > 150).all()


def test_a_large_forest_has_prices_of_its_own() -> None:
    """More rows than a verify curve holds, for one request and for some of many."""
    for seed, requests in ((1, 1), (2, 3), (3, 1)):
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
