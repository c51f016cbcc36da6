"""Calibration of the match model: a strictly increasing curve from raw log-odds to calibrated log-odds.

Scores are binned to equal mass, each bin's match rate is shrunk towards the model's own mean there, violators of the
order are pooled (Ayer et al. 1955), and the pooled bins become the knots of a piecewise-linear curve in log-odds.
Pooling joins bins of equal rate as well, so the curve rises strictly: calibration never changes an order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.errors import require
from treewise.policy.scorer import PROBABILITY_FLOOR, Calibration

FloatArray = NDArray[np.float64]

MAX_KNOTS = 12  # bins before pooling
ROWS_PER_KNOT = 300  # fewer rows give fewer bins
SHRINKAGE_ROWS = 50.0  # pseudo-rows that hold the model's own opinion in each bin
MIN_STEP = 1e-3  # least distance of neighbouring knots on either axis, log-odds
STEEPEST = 4.0  # slopes are held between 1 / STEEPEST and STEEPEST


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
    x, rate, mass = _bins(score, label, weight)
    x, rate, mass = _pool(x, rate, mass)
    y = log_odds(rate)
    return _strict(x, y, mass)


def _bins(score: FloatArray, label: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean score, shrunk match rate and weight of equal-mass bins; equal scores share a bin."""
    order = np.argsort(score, kind="stable")
    score, label, weight = score[order], label[order], weight[order]
    count = int(np.clip(score.size // ROWS_PER_KNOT, 1, MAX_KNOTS))
    mass = np.cumsum(weight)
    place = np.minimum((mass - 0.5 * weight) / max(mass[-1], 1e-300) * count, count - 1).astype(np.int64)
    first = np.concatenate([[True], np.diff(score) > 0])
    place = np.maximum.accumulate(np.where(first, place, 0))  # ties take the bin of their first row
    _, index = np.unique(place, return_inverse=True)
    total = np.maximum(np.bincount(index, weight), 1e-12)
    mean = np.bincount(index, weight * score) / total
    own = np.bincount(index, weight * sigmoid(score)) / total
    rate = (np.bincount(index, weight * label) + SHRINKAGE_ROWS * own) / (total + SHRINKAGE_ROWS)
    return mean, rate, total


def _pool(x: FloatArray, rate: FloatArray, mass: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Pool adjacent bins until the rates rise strictly."""
    pooled: list[tuple[float, float, float]] = []
    for item in zip(x.tolist(), rate.tolist(), mass.tolist(), strict=True):
        pooled.append(item)
        while len(pooled) > 1 and pooled[-1][1] <= pooled[-2][1]:
            pooled.append(_merge(pooled.pop(-2), pooled.pop()))
    columns = np.asarray(pooled, dtype=np.float64).T
    return columns[0], columns[1], columns[2]


def _merge(left: tuple[float, float, float], right: tuple[float, float, float]) -> tuple[float, float, float]:
    mass = left[2] + right[2]
    share = left[2] / mass
    return share * left[0] + (1.0 - share) * right[0], share * left[1] + (1.0 - share) * right[1], mass


def _strict(x: FloatArray, y: FloatArray, mass: FloatArray) -> Calibration:
    """Knots at least `MIN_STEP` apart whose slopes stay within bounds; the heaviest knot stays where it is."""
    keep = [0]
    for place in range(1, len(x)):
        if x[place] - x[keep[-1]] >= MIN_STEP:
            keep.append(place)
    x, y, mass = x[keep], y[keep], mass[keep]
    if len(x) == 1:  # one bin says only how far the level is off
        x, y = np.asarray([x[0], x[0] + 1.0]), np.asarray([y[0], y[0] + 1.0])
        mass = np.asarray([1.0, 0.0])
    width = np.diff(x)
    slope = np.clip(np.diff(y) / width, 1.0 / STEEPEST, STEEPEST)
    anchor = int(np.argmax(mass))
    rise = np.concatenate([[0.0], np.cumsum(slope * width)])
    y = y[anchor] + rise - rise[anchor]
    return Calibration(tuple(float(np.float32(v)) for v in x), tuple(float(np.float32(v)) for v in y))
