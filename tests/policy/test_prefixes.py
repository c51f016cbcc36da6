"""Rows of many requests as one table."""

import numpy as np

from treewise.policy.budget import best_prefix
from treewise.policy.prefixes import Ranked, best_prefixes


def test_every_request_gets_what_it_would_alone() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        requests, rows = int(rng.integers(1, 6)), int(rng.integers(0, 40))
        request = rng.integers(0, requests, rows).astype(np.int32)
        worth = rng.integers(0, 6, rows) / 8.0
        rates = rng.random(requests)
        ranked = Ranked.of(np.arange(rows), worth, request, requests)
        gains = ranked.table(worth[ranked.rows])
        prices = rng.random((requests, gains.shape[1] + 1)).cumsum(axis=1)
        found = best_prefixes(gains, prices, rates)
        for own in range(requests):
            mine = np.flatnonzero(request == own)
            order = mine[(-worth[mine]).argsort(kind="stable")]
            np.testing.assert_array_equal(ranked.rows[ranked.owner == own], order)
            np.testing.assert_array_equal(ranked.first(2).rows[ranked.first(2).owner == own], order[:2])
            assert found[own] == best_prefix(worth[order], prices[own, : len(order) + 1], float(rates[own]))


def test_many_rows_are_ranked_as_few_are() -> None:
    rng = np.random.default_rng(1)
    for requests, levels in ((1, 3), (7, 40), (300, 10**9)):
        request = rng.integers(0, requests, 3000).astype(np.int32)
        worth = rng.integers(0, levels, 3000) / levels
        rows = np.flatnonzero(rng.random(3000) < 0.9)
        ranked = Ranked.of(rows, worth, request, requests)
        np.testing.assert_array_equal(ranked.rows, rows[np.lexsort((-worth[rows], request[rows]))])
        assert ranked.counts.tolist() == np.bincount(request[rows], minlength=requests).tolist()


def test_owners_without_rows_are_left_out() -> None:
    ranked = Ranked.of(np.arange(4), np.array([0.1, 0.4, 0.3, 0.2]), np.array([1, 3, 1, 3], dtype=np.int32), 5)
    few = ranked.of_owners(np.array([1, 3]))
    assert few.rows.tolist() == ranked.rows.tolist() == [2, 0, 1, 3]
    assert few.owner.tolist() == [0, 0, 1, 1]
    assert few.counts.tolist() == [2, 2]


def test_the_fewest_rows_where_several_numbers_are_best() -> None:
    gains = np.array([[0.5, 0.0, -np.inf], [0.0, 0.0, 0.0]])
    assert best_prefixes(gains, np.zeros((2, 4)), np.ones(2)).tolist() == [1, 0]
