"""Fitting a hand table: shrunk counts by bin, never falling where the draft is surer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression

from treewise.data.errors import require
from treewise.policy.features import FEATURES
from treewise.policy.hand_table import HandTable, TableBins
from treewise.policy.hook import Float32Array
from treewise.training.rows import Dataset

Float64Array = NDArray[np.float64]
SHRINK_ROWS = 30.0  # weight of the coarser table in each cell of the finer one
_LEAST = 1e-3  # of a probability; one never seen is not impossible


def fit_hand_table(rows: Dataset, bins: TableBins | None = None, origin: tuple[str, ...] = ()) -> HandTable:
    """A table of `rows`, the training rows of the match model: candidates whose parent is on the path.

    Each cell is its rate of matches drawn towards that of a coarser table, by `SHRINK_ROWS` rows: all rows, then the
    draft's bin, then draft, match length and agreement, then the recycled bin too. Along the draft's bins the cells
    are made ascending by isotonic regression (pool adjacent violators), all else equal.
    """
    bins = bins or TableBins()
    match = rows.match
    require(len(match.label) > 0, "rows", "at least one row", 0)
    places = bins.places(
        _probability(match.x, "draft_log_prob"),
        match.x[:, FEATURES.index("lookup_match_length")],
        _probability(match.x, "recycled_log_prob"),
        match.x[:, FEATURES.index("lookup_share")],
    )
    size = int(np.prod(bins.shape))
    weight = match.weight.astype(np.float64)
    seen, hits = (
        np.bincount(places, weights=part, minlength=size).astype(np.float64).reshape(bins.shape)
        for part in (weight, weight * match.label)
    )
    rate = np.full((1, 1, 1, 1), float(hits.sum() / seen.sum()))
    for pooled in ((1, 2, 3), (2,), ()):
        count, found = (part.sum(axis=pooled, keepdims=True) for part in (seen, hits))
        rate = (found + SHRINK_ROWS * rate) / (count + SHRINK_ROWS)
    return HandTable(
        _ascending(np.clip(rate, _LEAST, 1.0 - _LEAST), seen), bins, len(rows.prompts), len(match.label), origin
    )


def _probability(x: Float32Array, feature: str) -> Float64Array:
    """Probabilities of a column of logarithms, [rows]; NaN stays NaN."""
    return np.exp(x[:, FEATURES.index(feature)].astype(np.float64))


def _ascending(rate: Float64Array, seen: Float64Array) -> Float64Array:
    """`rate` made ascending along the draft's bins, those without the draft left alone."""
    found = rate.copy()
    order = np.arange(rate.shape[0] - 1)
    for place in np.ndindex(rate.shape[1:]):
        column = (slice(1, None), *place)
        weight = seen[column] + 1.0
        found[column] = IsotonicRegression().fit_transform(order, rate[column], sample_weight=weight)
    return found
