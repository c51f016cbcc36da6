"""One pass of the draft for a batch: whether it pays, for whom, and how deep the plan goes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.policy.models import ENVELOPE, tiny_bundle
from tests.policy.scripted import Played, World, example_cost, example_deployment, play
from treewise.data.cost import CALL_GROWTH, CostGrid
from treewise.policy.budget import best_prefix
from treewise.policy.hook import DRAFT, LOOKUP, BoolArray, Deployment, Expansion, ForestView, Level, Nodes, RoundContext
from treewise.policy.joint_growth import PLANNED_ROWS, BatchPrices, Running, grow_together
from treewise.policy.shared_budget import SharedBudgetPolicy

BATCH = (0, 1, 2)


def bound(draft_ms: float) -> Deployment:
    given = example_deployment(DRAFT | LOOKUP, example_cost(draft_ms=draft_ms))
    return replace(given, envelope=ENVELOPE, prior_table=tiny_bundle().prior_table)


def opening(deployment: Deployment) -> tuple[Nodes, RoundContext]:
    """The roots of a batch of three, as its first round has them."""
    seen: list[Level] = []

    class Noted(SharedBudgetPolicy):
        def expand(self, level: Level) -> Expansion:
            seen.append(level)
            return super().expand(level)

    play(Noted(tiny_bundle(), "flat", compiled="off"), World(2, DRAFT | LOOKUP), BATCH, deployment=deployment)
    forest = seen[0].forest
    return replace(forest, drafted=np.zeros(len(forest.parent), dtype=np.bool_)), seen[0].context


def prices(pass_ms: float, row_ms: float = 0.0, call_ms: float = 0.0) -> BatchPrices:
    grid = CostGrid((1, 64), (0,), ((pass_ms, pass_ms),))
    return BatchPrices(10.0 + row_ms * np.arange(300.0), grid, 0, call_ms)


@pytest.mark.parametrize(
    ("saved_ms", "pass_ms", "grows"),
    [
        ((1.0, 1.0, 1.0), 1.4, [0, 1, 2]),  # half a token each: together 1.5 ms
        ((1.0, 1.0, 1.0), 3.0, []),  # and what later levels bring does not pay for later passes
        ((4.0, 0.0, 0.0), 1.4, [0]),
        ((1.0, 0.1, 0.0), 1.4, []),
    ],
)
def test_a_pass_is_paid_by_those_who_ask_for_it(saved_ms: tuple[float, ...], pass_ms: float, grows: list[int]) -> None:
    forest, context = opening(bound(1.0))
    price = prices(pass_ms)
    found = grow_together(
        np.asarray(saved_ms), np.full(3, 0.5), np.arange(3), forest, context, 1, price.of_rows(np.zeros(0)), price
    )
    assert sorted(found.tolist()) == grows


def test_deeper_plans_pay_for_passes_that_one_level_does_not() -> None:
    forest, context = opening(bound(1.0))
    price = prices(1.0)
    arguments = (np.asarray([1.05, 0.0, 0.0]), np.full(3, 0.98), np.asarray([0]), forest, context)
    row_price = price.of_rows(np.zeros(0))
    assert grow_together(*arguments, 1, row_price, price).tolist() == [0]
    assert grow_together(*arguments, 1, row_price, price, 1.2).size == 0
    dear_calls = prices(1.0, call_ms=0.2)
    assert grow_together(*arguments, 4, dear_calls.of_rows(np.zeros(0)), dear_calls).size == 0
    dear_rows = prices(0.5, row_ms=0.6)
    assert grow_together(*arguments, 4, dear_rows.of_rows(np.zeros(0)), dear_rows).size == 0


def test_more_rows_cost_what_they_take_from_the_best_kept_set() -> None:
    steps = prices(0.0, row_ms=0.3)
    saved = np.asarray([0.2, 1.0, 0.5, 0.31])
    best = np.sort(saved)[::-1]
    left = []
    for added in range(PLANNED_ROWS + 1):
        curve = steps.verify[added : added + 5]
        count = best_prefix(best, curve, 1.0)
        left.append(best[:count].sum() - curve[count])
    np.testing.assert_allclose(steps.of_rows(saved), left[0] - np.asarray(left), atol=1e-12)


def test_ancestors_and_catch_up_run_once() -> None:
    forest, _ = opening(bound(1.0))
    roots = len(forest.parent)
    size = roots + 3
    parent = np.asarray([*([-1] * roots), 0, roots, roots], dtype=np.int32)  # two candidates below one undrafted chain
    grown = replace(forest, parent=parent, drafted=np.zeros(size, dtype=np.bool_))
    running = Running.of(np.asarray([roots + 1, roots + 2]), grown, np.asarray([5, 0, 0]))
    assert running.rows.tolist() == [roots + 1, roots, 0, roots + 2]
    assert running.runs.tolist() == [3, 4] and running.tokens.tolist() == [8, 9]


def test_prices_are_those_of_the_whole_batch() -> None:
    deployment = bound(2.0)
    _, context = opening(deployment)
    found = BatchPrices.of(deployment, context, 2.0)
    capacity = int(context.position.max())
    np.testing.assert_allclose(found.verify[:3], 2.0 * deployment.cost.verify_ms([3, 4, 5], capacity))
    cost = deployment.cost
    assert found.call_ms == pytest.approx(cost.policy_ms * (1 + 2 * CALL_GROWTH) + 3 * cost.level_ms)
    assert found.of_growth(np.asarray([1]))[0] == pytest.approx(2.0 + found.call_ms)


def test_a_batch_makes_no_pass_that_costs_more_than_it_brings() -> None:

    def passes(draft_ms: float) -> int:
        policy = SharedBudgetPolicy(tiny_bundle(), "flat", compiled="off")
        rounds: list[Played] = []
        play(policy, World(2, DRAFT | LOOKUP), BATCH, deployment=bound(draft_ms), rounds=rounds)
        forests = [played.tree.forest for played in rounds]
        return sum(len(np.unique(forest.column("level")[forest.column("grown") & DRAFT > 0])) for forest in forests)

    made = [passes(draft_ms) for draft_ms in (0.01, 3.0, 1000.0)]
    assert made[0] > made[1] > made[2] == 0


def test_what_is_kept_of_trees_grown_together_has_its_parents() -> None:
    seen: list[BoolArray] = []

    class Noted(SharedBudgetPolicy):
        def select(self, forest: ForestView) -> BoolArray:
            keep = super().select(forest)
            assert keep[forest.nodes.parent[keep & (forest.nodes.parent >= 0)]].all()
            seen.append(keep)
            return keep

    play(Noted(tiny_bundle(), "flat"), World(2, DRAFT | LOOKUP), BATCH, deployment=bound(0.5))
    assert len(seen) > 2
