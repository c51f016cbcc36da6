"""Recalibration: a slowly forgetting logistic correction of match probabilities, learned from what was verified.

A row whose parent is on the committed path says whether it matched. Its corrected log-odds are a + b x, x the model's
own, (a, b) the most probable value under (1, x)-logistic regression with a Gaussian ridge at the identity (0, 1) and
exponential forgetting of older rows: Newton's method on each batch of new rows, the past kept as its quadratic
(discounted dynamic generalised linear models: West, Harrison, Migon, 1985; the logistic form of a miscalibration:
Platt, 1999). The correction stays the identity, to the bit, until the first batch is full.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treewise.data.errors import require
from treewise.policy.features import FEATURES
from treewise.policy.hook import Float32Array
from treewise.policy.scorer import PROBABILITY_FLOOR, Scorer

Float64Array = NDArray[np.float64]

NEWTON_STEPS = 8
LONGEST_STEP = 1.0  # of either parameter in one step: far from the optimum the curvature says little
SLOPES = (0.1, 4.0)  # a correction never turns the order of rows around
LARGEST_INTERCEPT = 6.0
LARGEST_TILT = 2.0
TILTED_LEVELS = 5  # below the first; a correction changes no more from there on
_IDENTITY = np.asarray([0.0, 1.0])
_DEPTH = FEATURES.index("depth")


@dataclass(frozen=True, slots=True)
class RecalibrationSettings:
    """Settings of `Recalibration`."""

    memory_rows: int = 6000  # rows after which a row counts for 1 / e
    refit_rows: int = 256  # rows between two corrections
    intercept_ridge: float = 20.0  # pulls towards the identity, in units of information: rows times p (1 - p)
    slope_ridge: float = 60.0

    def __post_init__(self) -> None:
        require(self.memory_rows >= 1, "memory_rows", "at least 1", self.memory_rows)
        require(self.refit_rows >= 1, "refit_rows", "at least 1", self.refit_rows)
        for name in ("intercept_ridge", "slope_ridge"):
            value = getattr(self, name)
            require(0.0 < value < float("inf"), name, "finite and above 0", value)


class Recalibration:
    """A correction a + b x of log-odds that follows what rows did."""

    def __init__(self, settings: RecalibrationSettings | None = None) -> None:
        self.settings = settings or RecalibrationSettings()
        self.rows = 0  # seen
        self.refits = 0
        self._theta: Float64Array = _IDENTITY.copy()  # [2] intercept and slope
        self._past: Float64Array = np.zeros((2, 2))  # information of the rows so far
        self._pull: Float64Array = np.zeros(2)  # that information times where it has its optimum
        self._waiting: list[tuple[Float64Array, Float64Array]] = []  # (log-odds, match) of rows not yet fitted
        self._num_waiting = 0

    @property
    def intercept(self) -> float:
        """Added to log-odds."""
        return float(self._theta[0])

    @property
    def slope(self) -> float:
        """Times log-odds."""
        return float(self._theta[1])

    def corrected(self, probability: Float32Array) -> Float32Array:
        """Probabilities [n] for the model's `probability` [n]; the same array before the first refit."""
        if not self.refits:
            return probability
        odds = self._theta[0] + self._theta[1] * log_odds(probability)
        return _probability(odds).astype(np.float32)

    def observe(self, probability: Float32Array | Float64Array, match: NDArray[np.generic]) -> None:
        """Learn from rows [n] with the *corrected* `probability` and whether they matched, 1 or 0."""
        if not len(probability):
            return
        odds = (log_odds(probability) - self._theta[0]) / self._theta[1]
        self._waiting.append((odds, match.astype(np.float64)))
        self._num_waiting += len(odds)
        self.rows += len(odds)
        if self._num_waiting >= self.settings.refit_rows:
            self._refit()

    def _refit(self) -> None:
        """Move to the most probable correction, given the ridge, the faded past and the rows that wait."""
        odds, match = (np.concatenate(part) for part in zip(*self._waiting, strict=True))
        settings = self.settings
        fade = float(np.exp(-len(odds) / settings.memory_rows))
        ridge = np.diag([settings.intercept_ridge, settings.slope_ridge])
        past = fade * self._past + ridge
        pull = fade * self._pull + ridge @ _IDENTITY
        design = np.stack([np.ones_like(odds), odds])  # [2, rows]
        theta = self._theta
        for _ in range(NEWTON_STEPS):
            expected = _probability(theta @ design)
            curvature = past + (design * (expected * (1.0 - expected))) @ design.T
            uphill = design @ (match - expected) + pull - past @ theta
            step = np.linalg.solve(curvature, uphill)
            bounded = float(np.clip(theta[1] + step[1], *SLOPES)) - float(theta[1])
            if bounded != step[1]:  # the best intercept at that slope
                step = np.asarray([(uphill[0] - curvature[0, 1] * bounded) / curvature[0, 0], bounded])
            step *= min(1.0, LONGEST_STEP / max(float(np.abs(step).max()), 1e-12))
            theta = theta + step
            theta[0] = np.clip(theta[0], -LARGEST_INTERCEPT, LARGEST_INTERCEPT)
            theta[1] = np.clip(theta[1], *SLOPES)  # a sum of differences may end a hair outside
            if float(np.abs(step).max()) < 1e-4:
                break
        expected = _probability(theta @ design)
        information = (design * (expected * (1.0 - expected))) @ design.T
        self._past = fade * self._past + information
        self._pull = (past + information) @ theta - ridge @ _IDENTITY
        self._theta = theta
        self._waiting.clear()
        self._num_waiting = 0
        self.refits += 1


@dataclass(frozen=True, slots=True)
class Correction:
    """A correction that stays: intercept + slope times log-odds + tilt times levels below the first."""

    intercept: float = 0.0
    slope: float = 1.0
    tilt: float = 0.0  # log-odds a level, for the first `TILTED_LEVELS` of them

    def __post_init__(self) -> None:
        least, most = SLOPES
        require(abs(self.intercept) <= LARGEST_INTERCEPT, "intercept", f"within {LARGEST_INTERCEPT:g}", self.intercept)
        require(least <= self.slope <= most, "slope", f"between {least:g} and {most:g}", self.slope)
        require(abs(self.tilt) <= LARGEST_TILT, "tilt", f"within {LARGEST_TILT:g}", self.tilt)

    def corrected(self, probability: Float32Array, depth: NDArray[np.generic]) -> Float32Array:
        """Probabilities [n] for the model's `probability` [n] at `depth` [n]; the same array at the identity."""
        if self == NO_CORRECTION:
            return probability
        odds = self.intercept + self.slope * log_odds(probability) + self.tilt * levels_below(depth)
        return _probability(odds).astype(np.float32)


NO_CORRECTION = Correction()


class CorrectedScorer:
    """A scorer behind a correction that is set where it is bound."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self.correction = NO_CORRECTION

    def score(self, features: Float32Array) -> Float32Array:
        """Corrected probabilities [n] of feature rows [n, features]."""
        return self.correction.corrected(self._scorer.score(features), features[:, _DEPTH])


class RecalibratedScorer:
    """A scorer behind a correction."""

    def __init__(self, scorer: Scorer, recalibration: Recalibration) -> None:
        self._scorer = scorer
        self._recalibration = recalibration

    def score(self, features: Float32Array) -> Float32Array:
        """Corrected probabilities [n] of feature rows [n, features]."""
        return self._recalibration.corrected(self._scorer.score(features))


def levels_below(depth: NDArray[np.generic]) -> Float64Array:
    """How far below the first level nodes at `depth` [n] count as, [n]."""
    return np.asarray(np.clip(depth.astype(np.float64) - 1.0, 0.0, TILTED_LEVELS))


def log_odds(probability: NDArray[np.floating]) -> Float64Array:
    """Log-odds [n] of `probability` [n], which is held within the floor of calibrated probabilities."""
    p = np.minimum(np.maximum(probability.astype(np.float64), PROBABILITY_FLOOR), 1.0 - PROBABILITY_FLOOR)
    return np.asarray(np.log(p) - np.log1p(-p))


def _probability(odds: Float64Array) -> Float64Array:
    p = 0.5 + 0.5 * np.tanh(0.5 * odds)
    return np.asarray(np.minimum(np.maximum(p, PROBABILITY_FLOOR), 1.0 - PROBABILITY_FLOOR))
