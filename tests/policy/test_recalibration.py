"""Recalibration on rows whose true rate is known."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from treewise.data.errors import ParameterError
from treewise.policy.features import FEATURES
from treewise.policy.hook import Float32Array
from treewise.policy.recalibration import (
    NO_CORRECTION,
    SLOPES,
    CorrectedScorer,
    Correction,
    RecalibratedScorer,
    Recalibration,
    RecalibrationSettings,
    log_odds,
)

Float64Array = NDArray[np.float64]


def probability(odds: Float64Array) -> Float64Array:
    return np.asarray(1.0 / (1.0 + np.exp(-odds)))


def feed(found: Recalibration, rng: np.random.Generator, rows: int, intercept: float, slope: float) -> None:
    """Rows that match with log-odds intercept + slope x, x the model's own; twenty a round."""
    for _ in range(rows // 20):
        own = rng.normal(-1.5, 2.0, 20)
        match = (rng.random(20) < probability(intercept + slope * own)).astype(np.int8)
        found.observe(found.corrected(probability(own).astype(np.float32)), match)


def largest_error(found: Recalibration, intercept: float, slope: float) -> float:
    """Of corrected probabilities, over the model's range."""
    own = np.linspace(-5.0, 3.0, 40)
    corrected = found.corrected(probability(own).astype(np.float32))
    return float(np.abs(corrected - probability(intercept + slope * own)).max())


@pytest.mark.parametrize(
    ("intercept", "slope"), [(1.5, 1.0), (-2.0, 1.0), (0.0, 0.5), (-1.0, 0.6), (0.5, 1.6), (-4.0, 1.0)]
)
def test_converges_to_the_true_rate(intercept: float, slope: float) -> None:
    found = Recalibration()
    before = largest_error(found, intercept, slope)
    feed(found, np.random.default_rng(0), 12_000, intercept, slope)
    assert largest_error(found, intercept, slope) < min(0.07, before / 2)


def test_calibrated_rows_move_it_by_no_more_than_noise() -> None:
    # 40 sessions. At about .1 p (1 - p) a row and 6000 rows of memory the intercept's error is about .05.
    moved = []
    for seed in range(40):
        found = Recalibration()
        feed(found, np.random.default_rng(seed), 6_000, 0.0, 1.0)
        moved.append((found.intercept, found.slope - 1.0))
        assert largest_error(found, 0.0, 1.0) < 0.07
    assert np.abs(np.mean(moved, axis=0)).max() < 0.03, "no drift to either side"
    assert np.std(moved, axis=0).max() < 0.1


def test_forgets_what_no_longer_holds() -> None:
    found, rng = Recalibration(RecalibrationSettings(memory_rows=2000)), np.random.default_rng(1)
    feed(found, rng, 6_000, -2.0, 1.0)
    assert found.intercept < -1.5
    feed(found, rng, 8_000, 0.0, 1.0)
    assert abs(found.intercept) < 0.3


def test_a_wide_ridge_holds_it_at_the_identity() -> None:
    free, held = Recalibration(), Recalibration(RecalibrationSettings(intercept_ridge=1e7, slope_ridge=1e7))
    for found in (free, held):
        feed(found, np.random.default_rng(2), 4_000, 1.5, 1.0)
    assert free.intercept > 1.0
    assert abs(held.intercept) < 0.01


def test_nothing_changes_before_the_first_refit() -> None:
    found = Recalibration(RecalibrationSettings(refit_rows=64))
    own = np.asarray([0.1, 0.7, 1e-9, 1.0], dtype=np.float32)
    found.observe(np.full(63, 0.5), np.ones(63))
    assert found.corrected(own) is own
    found.observe(np.full(0, 0.5), np.ones(0))
    assert found.refits == 0
    found.observe(np.full(1, 0.5), np.ones(1))
    assert (found.refits, found.rows) == (1, 64)
    assert (found.corrected(own)[:2] > own[:2]).all()


def test_sure_and_wrong_throughout_stays_finite_and_in_order() -> None:
    found = Recalibration()
    for _ in range(40):
        p = found.corrected(np.full(64, 1.0 - 1e-7, dtype=np.float32))
        found.observe(p, np.zeros(64))
    own = np.asarray([0.01, 0.5, 0.99], dtype=np.float32)
    corrected = found.corrected(own)
    assert np.isfinite(corrected).all()
    assert (np.diff(corrected) > 0).all()
    assert float(found.corrected(np.asarray([1.0 - 1e-7], dtype=np.float32))[0]) < 0.2


def test_a_recalibrated_scorer_is_the_scorer_and_its_correction() -> None:
    class Constant:
        def score(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
            return np.full(len(features), 0.9, dtype=np.float32)

    found = Recalibration(RecalibrationSettings(refit_rows=100))
    scorer = RecalibratedScorer(Constant(), found)
    rows = np.zeros((200, 3), dtype=np.float32)
    assert scorer.score(rows)[0] == np.float32(0.9)
    for _ in range(30):
        found.observe(scorer.score(rows), np.arange(200) < 60)
    assert scorer.score(rows)[0] == pytest.approx(0.3, abs=0.03)


def test_log_odds_stay_within_the_floor() -> None:
    found = log_odds(np.asarray([0.0, 0.5, 1.0]))
    assert np.isfinite(found).all()
    assert found[1] == 0.0


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("memory_rows", 0, "memory_rows must be at least 1, got 0"),
        ("refit_rows", 0, "refit_rows must be at least 1, got 0"),
        ("intercept_ridge", 0.0, "intercept_ridge must be finite and above 0, got 0.0"),
        ("slope_ridge", float("inf"), "slope_ridge must be finite and above 0, got inf"),
    ],
)
def test_bad_settings_are_refused(name: str, value: float, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        RecalibrationSettings(**{name: value})  # type: ignore[arg-type]


def test_a_correction_of_odds_that_say_the_contrary_is_at_the_bounds() -> None:
    """Rows on which the best slope is negative: the least one that is allowed comes out, to the bit."""
    rng = np.random.default_rng(55)
    rows = int(rng.integers(300, 3000))
    odds = rng.normal(rng.normal() * 3, rng.uniform(0.1, 5), rows)
    stated = (1 / (1 + np.exp(-odds))).astype(np.float32)
    match = rng.random(rows) < 1 - stated
    fitted = Recalibration(RecalibrationSettings(memory_rows=10**9, refit_rows=rows))
    fitted.observe(stated, match)
    assert fitted.slope == SLOPES[0]
    assert Correction(fitted.intercept, fitted.slope).slope == SLOPES[0]


def test_a_correction_stays_as_it_is_set() -> None:
    class Fixed:
        def score(self, features: Float32Array) -> Float32Array:
            return features[:, 0]

    scorer = CorrectedScorer(Fixed())
    features = np.zeros((4, len(FEATURES)), dtype=np.float32)
    features[:, 0], features[:, FEATURES.index("depth")] = (0.2, 0.7, 0.7, 0.7), (1.0, 1.0, 3.0, 9.0)
    np.testing.assert_array_equal(scorer.score(features), features[:, 0])
    scorer.correction = Correction(-0.5, 0.8)
    np.testing.assert_allclose(log_odds(scorer.score(features)), -0.5 + 0.8 * log_odds(features[:, 0]), rtol=1e-5)
    own, depth = features[:, 0], features[:, FEATURES.index("depth")]
    scorer.correction = Correction(-0.5, 0.8, -0.25)  # a quarter less a level, for five levels
    expected = -0.5 + 0.8 * log_odds(own) - 0.25 * np.asarray([0.0, 0.0, 2.0, 5.0])
    np.testing.assert_allclose(log_odds(scorer.score(features)), expected, rtol=1e-5)
    assert NO_CORRECTION.corrected(own, depth) is own
    with pytest.raises(ParameterError, match=r"tilt must be within 2, got 2\.5"):
        Correction(tilt=2.5)
    with pytest.raises(ParameterError, match=r"slope must be between 0.1 and 4, got 0"):
        Correction(0.0, 0.0)
    with pytest.raises(ParameterError, match="intercept must be within 6, got nan"):
        Correction(float("nan"))
