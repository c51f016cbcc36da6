"""Ratios of totals and their intervals, against the one bootstrap."""

from __future__ import annotations

import numpy as np
import pytest

from treewise.data.errors import ParameterError
from treewise.training.ratios import Ratios, ratio_intervals
from treewise.training.statistics import Float64Array, SpeedRatio, Totals, interval


def test_values_are_sums_over_sums() -> None:
    found = ratio_intervals(Ratios(np.asarray([[1.0, 4.0], [2.0, 0.0]]), np.asarray([[2.0, 8.0], [4.0, 8.0]])))
    np.testing.assert_allclose(found[:, 0], [0.5, 0.25])
    np.testing.assert_allclose(found[0], 0.5)  # the same in every prompt: no spread
    np.testing.assert_allclose(found[1, 1:], [0.0, 0.5])  # either prompt twice


def test_intervals_are_those_of_the_speed_ratio() -> None:
    rng = np.random.default_rng(4)
    tokens, ms = rng.random(12) + 1.0, rng.random(12) + 1.0
    expected = interval(SpeedRatio(Totals(tokens, ms), Totals(np.ones(12), np.ones(12))), seed=3)
    (found,) = ratio_intervals(Ratios(tokens[:, None], ms[:, None]), seed=3)
    np.testing.assert_allclose(found, [expected.value, expected.low, expected.high])


def test_what_nothing_is_known_of_is_nan() -> None:
    bottoms = np.asarray([[0.0, 0.0], [0.0, 2.0], [0.0, 2.0]])
    found = ratio_intervals(Ratios(np.ones((3, 2)), bottoms))
    assert np.isnan(found[0]).all()
    assert found[1, 0] == 0.75
    assert np.isfinite(found[1]).all()  # draws of the first prompt alone are left out
    alone = ratio_intervals(Ratios(np.ones((1, 1)), np.full((1, 1), 4.0)))
    assert alone[0, 0] == 0.25
    assert np.isnan(alone[0, 1:]).all()


@pytest.mark.parametrize(
    ("tops", "bottoms", "message"),
    [
        (np.ones((0, 2)), np.ones((0, 2)), "tops must be"),
        (np.ones(3), np.ones(3), "tops must be"),
        (np.ones((2, 2)), np.ones((2, 1)), r"bottoms must be of shape \(2, 2\), got \(2, 1\)"),
    ],
)
def test_shapes_are_checked(tops: Float64Array, bottoms: Float64Array, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Ratios(tops, bottoms)
