"""Prices by capacity: kept curves are those that the profile gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.policy.scripted import example_cost, example_deployment
from treewise.data.cost import CostGrid
from treewise.policy.hook import DRAFT, LOOKUP
from treewise.policy.pricing import KEPT_CURVES, Pricing

VERIFY = CostGrid((1, 8, 64), (100, 300), ((20.0, 21.0, 40.0), (24.0, 26.0, 60.0)))
DRAFTS = CostGrid((1, 32), (200,), ((1.0, 2.0),))
DEPLOYMENT = example_deployment(DRAFT | LOOKUP, replace(example_cost(), verify=VERIFY, draft=DRAFTS))


@pytest.mark.parametrize("capacity", [0, 100, 101, 200, 299, 300, 5000])
def test_curves_are_the_profiles_at_any_capacity(capacity: int) -> None:
    pricing = Pricing(DEPLOYMENT)
    for _ in range(2):  # as made, and as kept
        curves = pricing.at(capacity, 0.01).curves
        np.testing.assert_array_equal(curves.verify[:100], VERIFY.at(np.arange(1, 101), capacity))
        np.testing.assert_array_equal(curves.draft[:100], DRAFTS.at(np.arange(100), capacity))
    prices = pricing.at(capacity, 0.01)
    assert prices.rate == pytest.approx(1.0 / DEPLOYMENT.cost.plain_ms(capacity))
    longer = pricing.cover(prices, 900)
    np.testing.assert_array_equal(longer.curves.verify[:901], VERIFY.at(np.arange(1, 902), capacity))
    assert pricing.cover(longer, 500) is longer


def test_curves_are_shared_where_capacity_changes_nothing() -> None:
    pricing = Pricing(DEPLOYMENT)
    assert pricing.at(300, 0.1).curves is pricing.at(9999, 0.2).curves
    assert pricing.at(150, 0.1).curves is not pricing.at(151, 0.1).curves


def test_no_more_curves_are_kept_than_agreed() -> None:
    wide = replace(VERIFY, capacities=(0, 3 * KEPT_CURVES))
    pricing = Pricing(replace(DEPLOYMENT, cost=replace(DEPLOYMENT.cost, verify=wide)))
    first = pricing.at(1, 0.1).curves
    for capacity in range(2, KEPT_CURVES + 3):
        pricing.at(capacity, 0.1)
    again = pricing.at(1, 0.1).curves
    assert again is not first
    np.testing.assert_array_equal(again.verify, first.verify)


def test_a_rounds_prices_of_some_requests_are_theirs() -> None:
    rates = np.array([0.01, 9.0, 0.2])
    whole = Pricing(DEPLOYMENT).of_round(np.array([5, 900, 5], dtype=np.int32), rates, 8)
    some = whole.of(np.array([1, 2]))
    tokens = np.array([[1, 2], [3, 4], [3, 6]])
    np.testing.assert_array_equal(some.rates, whole.rates[1:])
    np.testing.assert_array_equal(some.verify[some.curve_of], whole.verify[whole.curve_of[1:]])
    np.testing.assert_array_equal(some.draft_ms(tokens[1:]), whole.draft_ms(tokens)[1:])
