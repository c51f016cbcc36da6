"""Tokens against milliseconds."""

from dataclasses import replace
from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy.conformance import Wrapped
from tests.policy.scripted import Played, World, example_cost, example_deployment, play
from treewise.policy.budget import (
    SharedDeployments,
    best_prefix,
    keep_by_price,
    modelled_ms,
    padded_sizes,
    shared_survival,
    verify_curve,
)
from treewise.policy.hook import DRAFT, LOOKUP, RoundOutcome
from treewise.policy.registry import parse_policy

BOTH = LOOKUP | DRAFT


@given(
    st.lists(st.floats(0, 1, width=32), max_size=12),
    st.lists(st.floats(0, 30), min_size=13, max_size=13),
    st.floats(0, 1),
)
def test_best_prefix_is_the_global_argmax(gains: list[float], steps: list[float], rate: float) -> None:
    sure = np.array(sorted(gains, reverse=True), dtype=np.float64)
    prefix_ms = np.cumsum(steps)[: len(sure) + 1]
    values = [sure[:k].sum() - rate * prefix_ms[k] for k in range(len(sure) + 1)]
    assert values[best_prefix(sure, prefix_ms, rate)] == pytest.approx(max(values), abs=1e-9)


def test_a_step_is_crossed_when_what_lies_behind_it_pays() -> None:
    prefix_ms = np.array([10.0, 10.0, 20.0, 20.0, 20.0, 20.0])
    assert best_prefix(np.array([0.9, 0.4, 0.0, 0.0, 0.0]), prefix_ms, 0.1) == 1
    assert best_prefix(np.array([0.9, 0.4, 0.4, 0.4, 0.0]), prefix_ms, 0.1) == 4  # and no row that adds nothing


def test_keep_by_price_is_the_best_of_all_closed_sets() -> None:
    rounds: list[Played] = []
    bound = example_deployment(BOTH)
    play(parse_policy("topn:9x2,beam=2"), World(0), max_new_tokens=4, rounds=rounds)
    nodes = rounds[0].tree.forest.view()
    inner = np.flatnonzero(nodes.parent >= 0)
    nodes = replace(nodes, admitted=(nodes.parent < 0) | np.isin(np.arange(len(nodes.parent)), inner[:10]))
    curve = verify_curve(bound, 10)
    for rate in (0.001, 0.05, 0.3):
        keep = keep_by_price(nodes.path_prior, nodes, [curve], np.array([rate]))
        assert keep[0]
        assert keep[nodes.parent[np.flatnonzero(keep)[1:]]].all()
        subsets = chain.from_iterable(combinations(inner[:10].tolist(), size) for size in range(11))
        best = max(float(nodes.path_prior[list(s)].sum()) - rate * curve[len(s)] for s in subsets)
        chosen = np.flatnonzero(keep)[1:]
        assert float(nodes.path_prior[chosen].sum()) - rate * curve[len(chosen)] == pytest.approx(best, abs=1e-5)


def test_padding_makes_rows_free_up_to_the_bucket() -> None:
    curve = verify_curve(replace(example_deployment(BOTH), row_buckets=(4, 16)), 6)
    assert curve[0] == curve[3] < curve[4] == curve[6]


@pytest.mark.parametrize("buckets", [(), (1,), (4, 16), (2, 3, 40)])
def test_padded_sizes_are_the_deployments(buckets: tuple[int, ...]) -> None:
    bound = replace(example_deployment(BOTH), row_buckets=buckets)
    assert padded_sizes(bound, 30).tolist() == [bound.padded_rows(1 + nodes) for nodes in range(31)]


def test_the_modelled_round_is_the_sum_of_its_parts() -> None:
    bound = example_deployment(BOTH, example_cost(draft_ms=2.0))
    cost = bound.cost
    rounds: list[Played] = []
    outcomes: list[RoundOutcome] = []

    class Noted(Wrapped):
        def observe(self, outcome: RoundOutcome) -> None:
            outcomes.append(outcome)

    play(Noted(parse_policy("topn:12x3")), World(0), deployment=bound, rounds=rounds)
    for played, outcome in zip(rounds, outcomes, strict=True):
        tree = played.tree
        expected = (
            float(cost.verify_ms(1 + tree.num_nodes))
            + float(cost.draft_ms(tree.growth_tokens).sum() if tree.growth_tokens else 0.0)
            + cost.policy_ms * tree.policy_calls
        )
        # a missing ancestor may be booked with an earlier growth than it ran in; the price per token is the same
        assert modelled_ms(outcome, bound)[0] == pytest.approx(expected, abs=1e-6)


def test_siblings_share_one_text() -> None:
    rounds: list[Played] = []
    play(parse_policy("topn:64x4"), World(0), rounds=rounds)
    shrunk = 0
    for played in rounds:
        nodes = played.tree.forest.view()
        survival = shared_survival(nodes)
        inner = nodes.parent >= 0
        children = np.bincount(nodes.parent[inner], weights=survival[inner], minlength=len(survival))
        assert (children <= survival + 1e-9).all()
        assert (survival <= nodes.path_prior + 1e-6).all()
        shrunk += int((survival < nodes.path_prior - 1e-3).sum())
        mass = np.bincount(nodes.parent[inner], weights=nodes.prior[inner], minlength=len(survival))
        modest = inner & (nodes.parent == 0) & (mass[nodes.parent] <= 1.0)
        np.testing.assert_allclose(survival[modest], nodes.path_prior[modest], rtol=1e-6)
    assert shrunk > 10


def test_rows_that_are_left_out_leave_the_others_their_survival() -> None:
    rounds: list[Played] = []
    play(parse_policy("topn:64x4"), World(0), rounds=rounds)
    rng, seen = np.random.default_rng(0), 0
    for played in rounds[:8]:
        nodes = played.tree.forest.view()
        among = rng.random(len(nodes.parent)) < 0.7
        found = shared_survival(nodes, among)
        without = replace(nodes, prior=np.where(among, nodes.prior, np.float32(0.0)))
        np.testing.assert_array_equal(found, shared_survival(without))
        left_out = ~among & (nodes.parent >= 0)
        assert not found[left_out].any()
        seen += int(left_out.sum())
    assert seen > 10


def test_deployments_of_batches_share_passes_and_whole_buckets() -> None:
    alone = replace(example_deployment(DRAFT), row_buckets=(1, 4, 16, 64))
    shared = SharedDeployments(alone)
    assert shared.of(1) is alone
    of_eight = shared.of(8)
    assert shared.of(8) is of_eight
    assert of_eight.cost == alone.cost.shared_by(8)
    assert of_eight.row_buckets == (2, 8)  # 16 and 64 rows of all
    states_shares = replace(alone, cost=alone.cost.shared_by(4))
    assert SharedDeployments(states_shares).of(8) is states_shares
