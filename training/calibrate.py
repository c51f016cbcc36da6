"""Calibration of the match model: a strictly increasing curve from raw log-odds to calibrated log-odds.

The curve is piecewise linear in log-odds over evenly spaced knots; its slopes are exponentials, so it rises strictly
and never changes an order. Offset and log-slopes minimise the weighted log loss plus a ridge towards the identity:
Platt's logistic calibration (1999) with more than one slope. Rates of bins, pooled where they fall, were tried first;
with few prompts a plateau among the many low scores bent the whole upper end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from treewise.data.errors import require
from treewise.policy.scorer import PROBABILITY_FLOOR, Calibration

FloatArray = NDArray[np.float64]

KNOTS = 7
RIDGE = 10.0  # pseudo-rows that pull each parameter towards the identity
STEEPEST = 4.0  # slopes are held between 1 / STEEPEST and STEEPEST
MIN_RANGE = 1.0  # least distance of the outer knots, log-odds
GROUPS = 20_000  # neighbouring scores, so many that the curve is straight within each


def log_odds(probability: FloatArray) -> FloatArray:
    """ln(p / (1 - p)) of probabilities [n] held inside the clipping bounds."""
    held = np.clip(np.asarray(probability, dtype=np.float64), PROBABILITY_FLOOR, 1.0 - PROBABILITY_FLOOR)
    return np.asarray(np.log(held) - np.log1p(-held))


def sigmoid(score: FloatArray) -> FloatArray:
    """1 / (1 + exp(-score)), [n]."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * np.asarray(score, dtype=np.float64))))


def fit_calibration(score: NDArray[Any], label: NDArray[Any], weight: NDArray[Any] | None = None) -> Calibration:
    """The curve for raw log-odds `score` [rows], outcomes `label` [rows] in {0, 1} and row weights [rows].

    `score` must come from models that have not seen the rows. Raises `ParameterError` on no rows or unequal lengths.
    """
    score = np.asarray(score, dtype=np.float64)
    label = np.asarray(label, dtype=np.float64)
    weight = np.ones_like(score) if weight is None else np.asarray(weight, dtype=np.float64)
    require(score.size > 0, "score", "at least one row", score.size)
    require(score.shape == label.shape == weight.shape, "label and weight", "as long as score", label.shape)
    low, high = np.quantile(score, (0.02, 0.98))
    score, label, weight = _grouped(score, label, weight)
    spare = max(MIN_RANGE - (high - low), 0.0) / 2.0
    knots = np.linspace(low - spare, high + spare, KNOTS)
    width = float(knots[1] - knots[0])
    # Every score as its part of each segment; the outer segments go on beyond their knots.
    place = (score - knots[0]) / width
    part = np.clip(place[:, None] - np.arange(KNOTS - 1), 0.0, 1.0)
    part[:, 0] += np.minimum(place, 0.0)
    part[:, -1] += np.maximum(place - (KNOTS - 1), 0.0)
    part *= width

    def loss(parameters: FloatArray) -> tuple[float, FloatArray]:
        slope = np.exp(parameters[1:])
        odds = knots[0] + parameters[0] + part @ slope
        # log(1 + exp(odds)) - label * odds, weighted, and its gradient
        value = float(weight @ (np.logaddexp(0.0, odds) - label * odds))
        pull = weight * (sigmoid(odds) - label)
        gradient = np.concatenate([[pull.sum()], (pull @ part) * slope])
        return value + RIDGE * float(parameters @ parameters), gradient + 2.0 * RIDGE * parameters

    steep = float(np.log(STEEPEST))
    bounds = [(None, None)] + [(-steep, steep)] * (KNOTS - 1)
    found = minimize(loss, np.zeros(KNOTS), jac=True, method="L-BFGS-B", bounds=bounds)
    heights = knots[0] + found.x[0] + width * np.concatenate([[0.0], np.cumsum(np.exp(found.x[1:]))])
    return Calibration(tuple(float(np.float32(x)) for x in knots), tuple(float(np.float32(y)) for y in heights))


def _grouped(score: FloatArray, label: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Rows [at most `GROUPS`] of neighbouring scores taken together: mean score, rate and weight of each group."""
    if len(score) <= GROUPS:
        return score, label, weight
    order = np.argsort(score, kind="stable")
    starts = np.arange(GROUPS) * len(score) // GROUPS
    mass, weighted, positive = (
        np.add.reduceat(values[order], starts) for values in (weight, weight * score, weight * label)
    )
    some = mass > 0
    return weighted[some] / mass[some], positive[some] / mass[some], mass[some]
