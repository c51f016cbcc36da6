"""What the learned policy asks the free sources for, and what their first guesses mean for the draft."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.policy.models import plain_context, tiny_bundle
from tests.policy.scripted import Played, World, example_cost, example_deployment, play
from treewise.data.cost import CostGrid
from treewise.policy.forest import Forest
from treewise.policy.hook import DRAFT, FREE, LOOKUP, RECYCLED, BoolArray, ForestView, Level, RoundContext, UInt8Array
from treewise.policy.learned import Compiled, LearnedPolicy, uses_compiled
from treewise.policy.planner import PlannerSettings
from treewise.policy.weighing import Weighing

COST = replace(example_cost(1.0), verify=CostGrid((1, 64), (0,), ((20.0, 26.3),)))  # .1 ms a row
DEPLOYMENT = example_deployment(DRAFT | FREE, COST)
WAYS: list[Compiled] = ["off", "on"] if uses_compiled("auto") else ["off"]
PLANNER = PlannerSettings()


def weighing(way: Compiled) -> Weighing:
    if way == "off":
        return Weighing(DEPLOYMENT, PLANNER)
    from treewise.policy.compiled_weighing import CompiledWeighing

    return CompiledWeighing(DEPLOYMENT, PLANNER)


def asked(way: Compiled, agreement: float, may_grow: list[int], survival: list[float]) -> UInt8Array:
    """Answers for children of one root that the draft is not asked below."""
    forest = Forest()
    forest.append(1 + len(may_grow))
    forest.column("parent")[1:] = 0
    forest.column("depth")[1:] = 1
    forest.column("may_grow")[1:] = may_grow
    context = replace(plain_context(), lookup_agreement=np.asarray([agreement], dtype=np.float32))
    nodes, deciding = forest.view(), weighing(way)
    scores = deciding.open(context, [0.05])
    deciding.stale(scores, nodes)
    level = Level(1, 1, forest.view(1), nodes, context)
    admit: BoolArray = np.ones(len(may_grow), dtype=np.bool_)
    answer = deciding.growths(scores, np.asarray([1.0, *survival]), level, admit, np.zeros(0, dtype=np.int64))
    return answer.grow


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("agreement", "may_grow", "survival", "expected"),
    [
        (0.9, [FREE, LOOKUP, 0], [0.8, 0.5, 0.9], [FREE, LOOKUP, 0]),
        (0.9, [FREE, LOOKUP], [0.001, 0.5], [0, LOOKUP]),  # .0009 tokens against the .005 of a row
        # A lookup that never agrees is not asked for itself, but the recycled guesses may hold the token.
        (0.0, [LOOKUP, LOOKUP], [0.8, 0.5], [0, 0]),
        (0.0, [FREE, LOOKUP, RECYCLED], [0.8, 0.5, 0.5], [FREE, 0, RECYCLED]),
        (float("nan"), [FREE, LOOKUP, RECYCLED], [0.8, 0.5, 0.5], [FREE, LOOKUP, RECYCLED]),
        (0.9, [RECYCLED], [0.01], [0]),  # .3 x .01 < .005: the lookup's agreement says nothing of it
    ],
)
def test_free_sources_are_asked_together_where_they_pay(
    way: Compiled, agreement: float, may_grow: list[int], survival: list[float], expected: list[int]
) -> None:
    assert asked(way, agreement, may_grow, survival).tolist() == expected


def opened(way: Compiled, root: dict[str, float], may_grow: int, context: RoundContext) -> int:
    """Bits of an opening where the draft holds the next token with probability .5."""
    forest = Forest()
    forest.append(1)
    forest.column("may_grow")[:] = may_grow
    for name, value in root.items():
        forest.column(name)[:] = value
    deciding = weighing(way)
    scores = deciding.open(context, [0.06])
    scores.holds[:] = 0.5
    level = Level(0, 0, forest.view(), forest.view(), context)
    return int(deciding.openings(scores, level, np.zeros(1, dtype=np.int64))[0])


SURE_LOOKUP = {"lookup_match_length": 12.0, "lookup_share": 1.0}
NO_LOOKUP = {"lookup_match_length": 0.0, "lookup_share": 0.0}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("root", "may_grow", "expected"),
    [
        (NO_LOOKUP, DRAFT | FREE, DRAFT | FREE),
        (NO_LOOKUP | {"recycled_prob": 0.0}, DRAFT | FREE, DRAFT | FREE),
        # Either source's sure guess carries the root along a level later.
        (SURE_LOOKUP, DRAFT | FREE, FREE),
        (NO_LOOKUP | {"recycled_prob": 0.95}, DRAFT | FREE, FREE),
        (SURE_LOOKUP | {"recycled_prob": 0.01}, DRAFT | FREE, FREE),
        # What may not be asked carries nothing.
        (NO_LOOKUP | {"recycled_prob": 0.95}, DRAFT | LOOKUP, DRAFT | LOOKUP),
        (SURE_LOOKUP, DRAFT | RECYCLED, DRAFT | RECYCLED),
    ],
)
def test_the_better_first_guess_decides_whether_the_draft_waits(
    way: Compiled, root: dict[str, float], may_grow: int, expected: int
) -> None:
    assert opened(way, root, may_grow, plain_context()) == expected


@pytest.mark.parametrize("way", WAYS)
def test_a_long_sure_chain_is_priced_as_far_as_a_plan_goes(way: Compiled) -> None:
    """An envelope may be deeper than the rows that a plan counts."""
    context = replace(plain_context(), remaining_tokens=np.asarray([200], dtype=np.int32))
    deep = replace(DEPLOYMENT, envelope=replace(DEPLOYMENT.envelope, max_depth=64))
    deciding = type(weighing(way))(deep, PLANNER)
    forest = Forest()
    forest.append(1)
    forest.column("may_grow")[:] = DRAFT | FREE
    forest.column("recycled_prob")[:] = 0.99
    scores = deciding.open(context, [0.06])
    scores.holds[:] = 0.9
    level = Level(0, 0, forest.view(), forest.view(), context)
    assert deciding.openings(scores, level, np.zeros(1, dtype=np.int64)).tolist() == [FREE]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sources", [RECYCLED, FREE, DRAFT | RECYCLED, DRAFT | FREE])
def test_rounds_ask_every_free_source_that_there_is(way: Compiled, sources: int) -> None:
    rounds: list[Played] = []
    policy = LearnedPolicy(tiny_bundle(), "flat", compiled=way)
    play(policy, World(1, sources), deployment=example_deployment(sources, COST), rounds=rounds)
    free = sources & FREE
    assert all(int(played.tree.forest.column("grown")[0]) & FREE == free for played in rounds[:-1])
    grown = np.concatenate([played.tree.forest.column("grown") for played in rounds])
    assert not (grown & ~np.uint8(sources)).any()


@pytest.mark.parametrize("way", WAYS)
def test_rows_of_a_batch_are_priced_as_those_of_all_its_requests(way: Compiled) -> None:
    """64 rows are nearly free for one request; in a batch of 32 the third row of each costs as much as the pass."""
    stairs = CostGrid((1, 64, 128), (0,), ((20.0, 20.5, 84.5),))
    bound = example_deployment(DRAFT | FREE, replace(COST, verify=stairs))
    forest = Forest()
    forest.append(9)
    forest.column("parent")[1:] = np.arange(8)
    forest.column("depth")[:] = np.arange(9)
    forest.column("admitted")[:] = True
    nodes, survival = forest.view(), 0.8 ** np.arange(9.0)
    deciding = type(weighing(way))(bound, PLANNER)
    kept, rates = {}, {}
    for batch_size in (1, 32, 1):
        context = replace(plain_context(), batch_size=batch_size)
        scores = deciding.open(context, [0.0])
        rates[batch_size] = scores.prices[0].rate
        deciding.stale(scores, nodes)
        kept[batch_size] = int(deciding.keep(scores, survival, ForestView(nodes, context)).sum()) - 1
        told = replace(bound, cost=bound.cost.shared_by(batch_size))  # the same by a profile that states shares
        again = type(deciding)(told, PLANNER)
        scores = again.open(plain_context(), [0.0])
        again.stale(scores, nodes)
        assert int(again.keep(scores, survival, ForestView(nodes, plain_context())).sum()) - 1 == kept[batch_size]
    assert kept == {1: 8, 32: 1}
    assert rates[1] == pytest.approx(1 / 20.0)  # plain decoding's, of one request's share
    assert rates[32] == pytest.approx(32 / float(stairs.at([32])[0]))
