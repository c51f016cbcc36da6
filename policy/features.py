"""Features of candidates: the one function that the live policy, replay and training share.

Signals stay raw where trees can read them; logarithms only tame ranges. What is not known is NaN. Nothing here depends
on the policy that drew the tree (no accepted lengths) and nothing on the target's own distribution.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.policy.hook import DRAFT, LOOKUP, Float32Array, Nodes, RoundContext

FEATURE_GROUPS: dict[str, tuple[str, ...]] = {
    "draft": ("draft_log_prob", "draft_rank", "draft_entropy", "draft_margin", "in_draft_vocab"),
    "lookup": ("lookup_match_length", "lookup_log_count", "lookup_share", "lookup_rank"),
    "agreement": ("in_both", "first_agree", "lookup_first_draft_prob", "draft_first_lookup_share"),
    "siblings": ("draft_rival_prob", "lookup_rival_share"),
    "parent": ("parent_draft_log_prob", "parent_match_length", "parent_lookup_share", "parent_in_both"),
    "path": ("depth", "log_prior"),
    "context": ("draft_agreement", "lookup_agreement", "temperature"),
}
FEATURES: tuple[str, ...] = tuple(name for group in FEATURE_GROUPS.values() for name in group)
GROWTH_FEATURES: tuple[str, ...] = (
    *("draft_log_prob", "draft_rank", "draft_entropy", "draft_margin", "in_draft_vocab"),
    *("lookup_match_length", "lookup_share", "in_both"),
    *("below_match_length", "below_log_count", "below_share", "below_log_age"),
    *("depth", "log_prior"),
    *("draft_agreement", "lookup_agreement", "temperature"),
)

_NAN = np.float32(np.nan)
_SMALLEST = np.float32(1e-12)  # probabilities below it are this one, so that logarithms stay finite
_BOTH = DRAFT | LOOKUP
_LOGS = np.asarray([FEATURES.index(name) for name in ("draft_log_prob", "parent_draft_log_prob", "log_prior")])
# Columns of the growth features among the node features; those of `below_` are overwritten.
_SHARED = np.asarray([FEATURES.index(name) if name in FEATURES else 0 for name in GROWTH_FEATURES])
_OF_ROOTS = np.asarray(
    [0.0 if name in ("in_both", "depth", "log_prior") else np.nan for name in GROWTH_FEATURES], dtype=np.float32
)
_OF_ROOTS[GROWTH_FEATURES.index("in_draft_vocab")] = 1.0
_BELOW = GROWTH_FEATURES.index("below_match_length")


def _log(values: NDArray[Any]) -> Float32Array:
    """Natural logarithm of probabilities; NaN stays NaN."""
    clipped: Float32Array = np.maximum(values, _SMALLEST)
    return np.log(clipped)


def node_features(forest: Nodes, rows: NDArray[np.integer[Any]], context: RoundContext) -> Float32Array:
    """What the match model reads of forest `rows` [n], roots excluded. Returns [n, len(FEATURES)] float32.

    `forest` holds every row offered so far, parents before children. The columns describe the present state: once the
    draft ran on a row's parent, the same row has more of them filled.
    """
    rows = np.asarray(rows, dtype=np.intp)
    table = np.empty((len(FEATURES), len(rows)), dtype=np.float32)
    parent = forest.parent
    above = np.maximum(parent[rows], 0)
    prob, rank = forest.draft_prob[rows], forest.draft_rank[rows]
    share, lookup_rank = forest.lookup_share[rows], forest.lookup_rank[rows]
    depth = forest.depth[rows]
    margin = forest.draft_margin[rows]

    table[0] = prob
    table[1] = rank
    table[2] = forest.draft_entropy[rows]
    table[3] = margin
    table[4] = forest.in_draft_vocab[rows]

    table[5] = forest.lookup_match_length[rows]
    table[6] = np.log1p(forest.lookup_count[rows])
    table[7] = share
    table[8] = lookup_rank

    # Both sources' first choices below every parent, scattered to the parent's row.
    firsts = np.full((6, len(parent)), _NAN, dtype=np.float32)
    first = (forest.draft_rank == 0).nonzero()[0]
    below = parent[first]
    firsts[0, below] = forest.draft_prob[first]
    firsts[1, below] = forest.lookup_share[first]
    firsts[2, below] = forest.lookup_rank[first]
    first = (forest.lookup_rank == 0).nonzero()[0]
    below = parent[first]
    firsts[3, below] = forest.lookup_share[first]
    firsts[4, below] = forest.draft_prob[first]
    first = (forest.lookup_rank == 1).nonzero()[0]
    firsts[5, parent[first]] = forest.lookup_share[first]
    draft_first, shared, shared_rank, lookup_first, lookup_first_prob, lookup_second = firsts[:, above]
    table[9] = forest.sources[rows] == _BOTH
    table[10] = np.where(np.isnan(shared + lookup_first), _NAN, shared_rank == 0)
    table[11] = lookup_first_prob
    table[12] = shared

    table[13] = np.where(rank == 0, prob - margin, draft_first)
    table[14] = np.where(lookup_rank == 0, lookup_second, lookup_first)

    inner = depth > 1  # the root is certain, and its lookup columns speak of its children
    table[15:19] = _NAN
    deep = above[inner]
    if deep.size:
        table[15, inner] = forest.draft_prob[deep]
        table[16, inner] = forest.lookup_match_length[deep]
        table[17, inner] = forest.lookup_share[deep]
        table[18, inner] = forest.sources[deep] == _BOTH

    table[19] = depth
    table[20] = forest.prior[rows]
    _context(table[21:24], forest, rows, context)
    table[_LOGS] = _log(table[_LOGS])
    return np.ascontiguousarray(table.T)


def growth_features(
    forest: Nodes, rows: NDArray[np.integer[Any]], context: RoundContext, described: Float32Array | None = None
) -> Float32Array:
    """What the growth model reads of forest `rows` [n], roots included, before the draft is run below them.

    The `below_` columns are the lookup's first continuation below the row, where it was offered together with the row
    (in a chain) or is shown on the root; asking the lookup and the draft in one step gives NaN, in a trace as well.
    `described`: `node_features` of the same rows, if they are at hand and no root is among them. Returns
    [n, len(GROWTH_FEATURES)] float32.
    """
    rows = np.asarray(rows, dtype=np.intp)
    parent = forest.parent
    root = parent[rows] < 0
    if described is not None:
        table = described[:, _SHARED]
    else:
        table = np.empty((len(rows), len(GROWTH_FEATURES)), dtype=np.float32)
        if not root.all():
            table[~root] = node_features(forest, rows[~root], context)[:, _SHARED]
        if root.any():
            table[root] = _OF_ROOTS  # a root's own columns say nothing: it is certain
            _context(table[:, -3:].T, forest, rows, context)

    first = (forest.lookup_rank == 0).nonzero()[0]
    above = parent[first]
    first = first[forest.level[first] <= forest.level[above]]
    source = np.full(len(parent), -1, dtype=np.intp)
    source[parent[first]] = first
    shown = np.where(root, rows, source[rows])
    below = table[:, _BELOW : _BELOW + 4]
    below[:, 0] = forest.lookup_match_length[shown]
    below[:, 1] = forest.lookup_count[shown]
    below[:, 2] = forest.lookup_share[shown]
    below[:, 3] = forest.lookup_age[shown]
    below[:, 1::2] = np.log1p(below[:, 1::2])
    below[shown < 0] = _NAN
    return table


def _context(table: Float32Array, forest: Nodes, rows: NDArray[np.integer[Any]], context: RoundContext) -> None:
    request = forest.request[rows]
    table[0] = context.draft_agreement[request]
    table[1] = context.lookup_agreement[request]
    table[2] = context.temperature[request]
