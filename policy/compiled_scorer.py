"""The trees as machine code: each row walks down each tree, one comparison a level."""

from __future__ import annotations

import math

import numpy as np
from numba import float32, float64, int32, int64, void
from numpy.typing import NDArray

from treewise.data.errors import require
from treewise.policy.compiled_code import compiled, read, written
from treewise.policy.flat_scorer import FlatTrees
from treewise.policy.hook import Float32Array, Int32Array
from treewise.policy.scorer import PROBABILITY_FLOOR, Calibration

Float64Array = NDArray[np.float64]
Int64Array = NDArray[np.int64]


class CompiledScorer:
    """A LightGBM text model, calibrated here. Sums the trees in their order, as LightGBM does, whatever the batch."""

    def __init__(self, text: str, calibration: Calibration) -> None:
        """Raises `BundleError` as `FlatTrees.parse` does."""
        trees = FlatTrees.parse(text)
        self._num_features = trees.num_features
        self._trees = (
            trees.first.astype(np.int64),
            trees.column,
            trees.threshold.reshape(-1),
            trees.children.reshape(-1),
            trees.leaf.reshape(-1),
        )
        x = np.asarray(calibration.knots_x, dtype=np.float64)
        y = np.asarray(calibration.knots_y, dtype=np.float64)
        self._curve = (x, y, np.diff(y) / np.diff(x), PROBABILITY_FLOOR)

    def log_odds(self, features: Float32Array) -> Float64Array:
        """Sums over the trees, [n], of `features` [n, features]."""
        odds = np.zeros(len(features))
        sum_trees(self._checked(features), *self._trees, odds)
        return odds

    def score(self, features: Float32Array) -> Float32Array:
        """Probabilities [n]."""
        odds = self.log_odds(features)
        probability = np.empty(len(odds), dtype=np.float32)
        calibrate(odds, *self._curve, probability)
        return probability

    def _checked(self, features: Float32Array) -> Float32Array:
        rows = np.ascontiguousarray(features, dtype=np.float32)
        require(rows.shape[1:] == (self._num_features,), "features", f"[n, {self._num_features}]", rows.shape)
        return rows


@compiled(
    void(
        *(read(float32, 2), read(int64), read(int32), read(float32), read(int32), read(float64)),
        written(float64),
    )
)
def sum_trees(
    features: Float32Array,
    first: Int64Array,
    column: Int32Array,
    threshold: Float32Array,
    children: Int32Array,
    leaf: Float64Array,
    odds: Float64Array,
) -> None:
    """Add each tree's leaf to `odds` [n]; the trees are those of `FlatTrees`, flattened."""
    rows, count = features.shape
    inputs = np.empty((rows, 2 * count), dtype=np.float32)
    for row in range(rows):
        for place in range(count):
            value = features[row, place]
            unknown = math.isnan(value)
            inputs[row, place] = -np.inf if unknown else value
            inputs[row, count + place] = np.inf if unknown else value
    for start in first:
        for row in range(rows):
            node = start
            while node >= 0:
                goes_right = inputs[row, column[node]] > threshold[node]
                node = np.int64(children[2 * node + goes_right])
            odds[row] += leaf[~node]


@compiled(void(read(float64), read(float64), read(float64), read(float64), float64, written(float32)))
def calibrate(
    odds: Float64Array,
    knots_x: Float64Array,
    knots_y: Float64Array,
    slopes: Float64Array,
    floor: float,
    probability: Float32Array,
) -> None:
    """Fill `probability` [n] with those of raw log-odds `odds` [n]; the curve's end pieces go on for ever."""
    last = len(slopes) - 1
    for row in range(len(odds)):
        raw = odds[row]
        piece = 0
        while piece < last and raw >= knots_x[piece + 1]:
            piece += 1
        value = 0.5 + 0.5 * math.tanh(0.5 * (knots_y[piece] + slopes[piece] * (raw - knots_x[piece])))
        probability[row] = min(max(value, floor), 1.0 - floor)
