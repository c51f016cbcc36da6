"""Ranks of rows: among siblings, within a request, along paths. Ties go to the lower row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.policy.hook import BoolArray, Int32Array, Nodes

# Of `_order`: rows up to which several sorts take less than one integer's making, and what one has room for.
_SORTED_ALONE, _PACKED, _GROUPS = 256, 1 << 16, (1 << 14) - 2


def rank_in_group(score: NDArray[Any], group: NDArray[Any], eligible: BoolArray | None = None) -> Int32Array:
    """Rank of every row within its group, 0 for the highest `score` [rows]; NaN ranks last. Returns [rows].

    Rows that are not eligible rank behind those that are.
    """
    count = len(score)
    if not count:
        return np.zeros(0, dtype=np.int32)
    places = np.arange(count)
    order = _order(np.where(np.isnan(score), -np.inf, score), group, eligible)
    ordered = group[order]
    first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    rank = np.empty(count, dtype=np.int32)
    rank[order] = places - np.maximum.accumulate(np.where(first, places, 0))
    return rank


def _order(score: NDArray[Any], group: NDArray[Any], eligible: BoolArray | None) -> NDArray[np.intp]:
    """Rows by group, eligible ones first, by falling score, by number: all in one sort where one integer can say it."""
    if (
        score.dtype == np.float32
        and _SORTED_ALONE < len(score) <= _PACKED
        and -1 <= group.min() <= group.max() < _GROUPS
    ):
        bits = (score + np.float32(0.0)).view(np.int32)  # of negative numbers, all bits but the sign fall
        rises = (bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))).astype(np.int64)
        first = (group.astype(np.int64) + 1) * 2
        if eligible is not None:
            first += ~eligible
        keys = (first << 48) + ((np.int64(0x7FFFFFFF) - rises) << 16) + np.arange(len(score))
        keys.sort()
        return (keys & 0xFFFF).astype(np.intp)
    # The sort is stable, so that ties stay in the order of the rows.
    return np.lexsort((-score, group) if eligible is None else (-score, ~eligible, group))


def best_in_group(score: NDArray[Any], group: NDArray[Any], eligible: BoolArray, count: int | Int32Array) -> BoolArray:
    """The `count` best eligible rows of each group; an array [rows] gives each row its group's count."""
    rows = np.flatnonzero(eligible)
    best = np.zeros(len(score), dtype=np.bool_)
    best[rows] = rank_in_group(score[rows], group[rows]) < (count if np.ndim(count) == 0 else np.asarray(count)[rows])
    return best


def top_nodes(nodes: Nodes, count: int | Int32Array) -> BoolArray:
    """The roots and the `count` admitted nodes of each request with the highest path prior, [rows].

    An array [rows] gives each row its request's count. The set is closed under parents: no path prior exceeds its
    parent's, and parents have lower rows.
    """
    inner = nodes.admitted & (nodes.parent >= 0)
    return best_in_group(nodes.path_prior, nodes.request, inner, count) | (nodes.parent < 0)


def rooted(eligible: BoolArray, parent: Int32Array) -> BoolArray:
    """The eligible rows whose ancestors are all eligible, and the roots, [rows]."""
    roots = parent < 0
    kept = eligible | roots
    while True:
        closed = kept & (kept[parent] | roots)
        if (closed == kept).all():
            return np.asarray(kept)
        kept = closed
