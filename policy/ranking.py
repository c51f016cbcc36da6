"""Ranks of rows: among siblings, within a request, along paths. Ties go to the lower row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.policy.hook import BoolArray, Int32Array, Nodes


def rank_in_group(score: NDArray[Any], group: NDArray[Any]) -> Int32Array:
    """Rank of every row within its group, 0 for the highest `score` [rows]; NaN ranks last. Returns [rows]."""
    count = len(score)
    if not count:
        return np.zeros(0, dtype=np.int32)
    places = np.arange(count)
    worth = np.where(np.isnan(score), -np.inf, score)
    order = np.lexsort((places, -worth, group))
    ordered = group[order]
    first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    rank = np.empty(count, dtype=np.int32)
    rank[order] = places - np.maximum.accumulate(np.where(first, places, 0))
    return rank


def best_in_group(score: NDArray[Any], group: NDArray[Any], eligible: BoolArray, count: int | Int32Array) -> BoolArray:
    """The `count` best eligible rows of each group; an array [rows] gives each row its group's count."""
    worth = np.where(eligible, np.where(np.isnan(score), -np.inf, score), -np.inf)
    order = rank_in_group(np.where(eligible, 1.0, 0.0), group)  # counts the eligible ahead of a tie at minus infinity
    rank = rank_in_group(worth, group) if np.isfinite(worth[eligible]).all() else order
    return np.asarray(eligible & (rank < count))


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
