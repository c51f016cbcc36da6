"""What the learned policy computes over rows at once, against the same said row by row, on random rounds."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.policy.random_forests import random_context, random_forest
from tests.policy.reference_policy import growth_table, growths, node_table, row_price, stale_rows
from tests.policy.scripted import TABLE
from tests.policy.test_round_reference import CASES, Case, build
from treewise.data.cost import CostGrid
from treewise.policy.features import growth_features, node_features
from treewise.policy.forest import Forest
from treewise.policy.hook import Nodes, RoundContext
from treewise.policy.planner import PRICED_NODES, Curves, Prices, choose_growths, row_prices
from treewise.policy.progress import Progress, build_context
from treewise.policy.round import RoundBuilder
from treewise.policy.row_scores import RowScores


def random_round(case: Case) -> tuple[Nodes, RoundContext]:
    """A forest as drivers grow it, and a context with something in every column."""
    tree, _, _ = build(case, RoundBuilder(case.envelope, TABLE, case.whole_chains, case.ranking), case.seed)
    rng = np.random.default_rng(case.seed)
    context = build_context([Progress(request, 10, 40) for request in range(case.requests)])
    agreement = rng.random((2, case.requests)).astype(np.float32)
    return tree.forest.view(), replace(context, draft_agreement=agreement[0], lookup_agreement=agreement[1])


@settings(max_examples=400, deadline=None)
@given(CASES, st.integers(0, 2**31))
def test_features_are_those_of_each_row_alone(case: Case, seed: int) -> None:
    forest, context = random_round(case)
    rows = np.random.default_rng(seed).permutation(len(forest.parent))[:25]
    inner = rows[forest.parent[rows] >= 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        features = node_features(forest, inner, context)
        below = growth_features(forest, rows, context)
    if inner.size:
        np.testing.assert_allclose(features, node_table(forest, inner, context), rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(below, growth_table(forest, rows, context), rtol=2e-6, atol=1e-6)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([1, 3]))
def test_features_of_rows_with_anything_in_their_columns(seed: int, requests: int) -> None:
    rng = np.random.default_rng(seed)
    forest, context = random_forest(rng, requests, 25), random_context(rng, requests)
    inner = (forest.parent >= 0).nonzero()[0]
    if inner.size:
        found = node_features(forest, inner, context)
        np.testing.assert_allclose(found, node_table(forest, inner, context), rtol=2e-6, atol=1e-6)
    rows = np.arange(len(forest.parent))
    below = growth_features(forest, rows, context)
    np.testing.assert_allclose(below, growth_table(forest, rows, context), rtol=2e-6, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 4), st.sampled_from([20, 400]))
def test_rows_are_scored_again_where_their_signals_have_changed(seed: int, roots: int, most: int) -> None:
    """Rows come and the draft runs in any order; beyond the first capacity as well."""
    rng = np.random.default_rng(seed)
    forest, scores = Forest(), RowScores(roots)
    forest.append(roots)
    before = np.zeros(roots, dtype=np.bool_)
    while forest.num_rows < most:
        known = forest.num_rows
        for _ in range(int(rng.integers(0, most // 3))):
            above = int(rng.integers(0, forest.num_rows))
            forest.append(1)
            forest.column("parent")[-1] = above
        drafted = forest.column("drafted")
        drafted |= rng.random(len(drafted)) < 0.1
        padded = np.concatenate([before, np.zeros(len(drafted) - known, dtype=np.bool_)])
        is_known = np.arange(len(drafted)) < known
        expected = stale_rows(is_known, forest.column("parent").tolist(), padded, drafted)
        assert scores.stale(forest.view()).tolist() == expected
        assert (len(scores.match), len(scores.holds), len(scores.drafted)) == (len(drafted),) * 3
        assert (scores.match[:roots] == 1.0).all()
        assert (scores.holds[known:] == 0.0).all()
        scores.holds[:] = 1.0
        before = drafted.copy()


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**31),
    st.sampled_from([0.02, 0.1, 0.4]),
    st.sampled_from([0.0, 1.0, 9.0]),
    st.integers(0, 5),
)
def test_growths_are_the_best_of_all_counts_and_levels(seed: int, rate: float, draft_ms: float, catch_up: int) -> None:
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(2, 60))
    forest = Forest()
    forest.append(rows)
    column = forest.column
    drafted = rng.random() < 0.5  # then every new row's parent has draft KV
    for row in range(1, rows):
        column("parent")[row] = above = int(rng.integers(max(0, row - 8), row))
        column("depth")[row] = column("depth")[above] + 1
    column("drafted")[0] = drafted or rng.random() < 0.5
    new = np.arange(rows - int(rng.integers(1, rows)), rows)
    if drafted:
        column("drafted")[column("parent")[new]] = True
        column("drafted")[: new[0]] = True
        new = new[~column("drafted")[new]]
    for row in range(1, rows):
        above = column("parent")[row]
        column("draft_missing")[row] = 0 if column("drafted")[above] else column("draft_missing")[above] + 1
    deepest = int(column("depth").max()) + 1 + int(rng.integers(0, 3))
    survival, holds = rng.random(rows), rng.random(rows)
    survival[0] = 1.0
    verify = 20.0 + np.cumsum(rng.choice([0.0, 0.0, 0.3, 2.0], size=PRICED_NODES + 1))
    grid = CostGrid((1, 101), (0,), ((draft_ms, draft_ms + 20.0),))
    prices = Prices(rate, Curves.at(verify, grid, 0), 0.05)
    nodes = forest.view()
    inner = survival[1:]
    price = row_prices(inner, prices)
    for more in (0, 1, 7, 48):
        np.testing.assert_allclose(price[more], row_price(inner.tolist(), more, prices), atol=1e-9)
    chosen = choose_growths(survival, holds, new, nodes, deepest, catch_up, price, prices)
    assert chosen.tolist() == growths(survival.tolist(), holds.tolist(), new.tolist(), nodes, deepest, catch_up, prices)
