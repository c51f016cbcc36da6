"""Calibration: strictly increasing on any scores, right on a known law, honest where there is little."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treewise.data.errors import ParameterError
from treewise.training.calibrate import KNOTS, STEEPEST, fit_calibration, log_odds, sigmoid

SCORES = st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=400)


@given(SCORES, st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_the_curve_rises_strictly_whatever_the_outcomes(scores: list[float], seed: int, rate: float) -> None:
    draw = np.random.default_rng(seed)
    curve = fit_calibration(np.asarray(scores), (draw.random(len(scores)) < rate).astype(float))
    x, y = np.asarray(curve.knots_x), np.asarray(curve.knots_y)
    slope = np.diff(y) / np.diff(x)
    assert (np.diff(x) > 0.1).all()
    assert (slope > 0.9 / STEEPEST).all()
    assert (slope < 1.1 * STEEPEST).all()
    assert (np.float32(x) == x).all()
    assert (np.float32(y) == y).all()


def test_a_distorted_law_is_found_again() -> None:
    draw = np.random.default_rng(0)
    truth = draw.normal(-1.0, 1.5, size=60_000)
    label = draw.random(truth.size) < sigmoid(truth)
    score = 0.5 * truth + 1.0  # a model that is too sure of little
    fitted = fit_calibration(score, label)
    middle = np.abs(truth + 1.0) < 3.0
    assert np.abs(fitted.apply(score) - sigmoid(truth))[middle].max() < 0.04
    assert np.abs(sigmoid(score) - sigmoid(truth))[middle].max() > 0.2


def test_what_is_calibrated_stays_so() -> None:
    draw = np.random.default_rng(1)
    score = draw.normal(0.0, 2.0, size=40_000)
    label = draw.random(score.size) < sigmoid(score)
    assert np.abs(fit_calibration(score, label).apply(score) - sigmoid(score)).max() < 0.03


def test_few_rows_move_the_level_a_little() -> None:
    curve = fit_calibration(np.zeros(10), np.ones(10))
    assert 0.5 < float(curve.apply(np.zeros(1))[0]) < 0.7
    assert len(curve.knots_x) == KNOTS


def test_a_plateau_among_low_scores_leaves_the_upper_end_alone() -> None:
    draw = np.random.default_rng(2)
    low, high = draw.normal(-6.0, 1.0, size=30_000), draw.normal(2.0, 1.0, size=3_000)
    score = np.concatenate([low, high])
    flat = np.concatenate([np.full(low.size, 0.01), sigmoid(high)])  # below, the score says nothing
    fitted = fit_calibration(score, draw.random(score.size) < flat)
    assert np.abs(fitted.apply(high) - sigmoid(high)).max() < 0.06


def test_weights_count() -> None:
    score, label = np.zeros(2000), np.arange(2000) % 2
    heavy = fit_calibration(score, label, np.where(label == 1, 3.0, 1.0))
    assert float(heavy.apply(np.zeros(1))[0]) == pytest.approx(0.75, abs=0.01)


def test_log_odds_and_sigmoid_undo_each_other() -> None:
    probability = np.linspace(0.001, 0.999, 99)
    assert sigmoid(log_odds(probability)) == pytest.approx(probability)


@pytest.mark.parametrize(("scores", "labels"), [(0, 0), (3, 2)])
def test_rows_that_do_not_fit_are_refused(scores: int, labels: int) -> None:
    with pytest.raises(ParameterError, match="must be"):
        fit_calibration(np.zeros(scores), np.zeros(labels))
