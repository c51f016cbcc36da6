"""Ranks of rows: among siblings, within a request, along paths. Ties go to the lower row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.policy.hook import BoolArray, Int32Array, Nodes


def rank_in_group(score: NDArray[Any], group: NDArray[Any], eligible: BoolArray | None = None) -> Int32Array:
    """Rank of every row within its group, 0 for the highest `score` [rows]; NaN ranks last. Returns [rows].

    Rows that are not eligible rank behind those that are.
    """
    count = len(score)
    if not count:
        return np.zeros(0, dtype=np.int32)
    places = np.arange(count)
    worth = np.where(np.isnan(score), -np.inf, score)
    behind = np.zeros(count, dtype=np.bool_) if eligible is None else ~eligible
    order = np.lexsort((places, -worth, behind, group))
    ordered = group[order]
    first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    rank = np.empty(count, dtype=np.int32)
    rank[order] = places - np.maximum.accumulate(np.where(first, places, 0))
    return rank


def best_in_group(score: NDArray[Any], group: NDArray[Any], eligible: BoolArray, count: int | Int32Array) -> BoolArray:
    """The `count` best eligible rows of each group; an array [rows] gives each row its group's count."""
    return np.asarray(eligible & (rank_in_group(score, group, eligible) < count))


def top_nodes(nodes: Nodes, count: int) -> BoolArray:
    """The roots and the `count` admitted nodes of each request with the highest path prior, [rows].

    The set is closed under parents: no path prior exceeds its parent's, and parents have lower rows.
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
