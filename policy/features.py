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
    "recycled": ("recycled_log_prob", "recycled_rank", "recycled_order", "recycled_log_weight"),
    "siblings": ("draft_rival_prob", "lookup_rival_share", "recycled_rival_prob"),
    "parent": ("parent_draft_log_prob", "parent_match_length", "parent_lookup_share", "parent_in_both"),
    "path": ("depth", "log_prior"),
    "context": ("draft_agreement", "lookup_agreement", "temperature"),
    "drawn": ("draft_drawn_log_prob", "draft_gap"),
}
FEATURES: tuple[str, ...] = tuple(name for group in FEATURE_GROUPS.values() for name in group)
GROWTH_FEATURES: tuple[str, ...] = (
    *("draft_log_prob", "draft_rank", "draft_entropy", "draft_margin", "in_draft_vocab"),
    *("lookup_match_length", "lookup_share", "in_both"),
    "recycled_log_prob",
    *("below_match_length", "below_log_count", "below_share", "below_log_age"),
    *("below_recycled_prob", "below_recycled_order", "below_recycled_log_weight"),
    *("depth", "log_prior"),
    *("draft_agreement", "lookup_agreement", "temperature"),
)

_NAN = np.float32(np.nan)
_FIRST, _SECOND = np.float32(0.0), np.float32(1.0)  # ranks
_SMALLEST = np.float32(1e-12)  # probabilities below it are this one, so that logarithms stay finite
_BOTH = np.uint8(DRAFT | LOOKUP)
_LOGS = np.asarray([place for place, name in enumerate(FEATURES) if name.endswith(("log_prob", "log_prior"))])
_AGREE = FEATURES.index("first_agree")
_OF_PARENT = slice(FEATURES.index("parent_draft_log_prob"), FEATURES.index("parent_in_both") + 1)
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
    above, depth, request = forest.parent[rows], forest.depth[rows], forest.request[rows]
    prob, rank, margin = forest.draft_prob[rows], forest.draft_rank[rows], forest.draft_margin[rows]
    share, lookup_rank = forest.lookup_share[rows], forest.lookup_rank[rows]
    recycled, recycled_rank = forest.recycled_prob[rows], forest.recycled_rank[rows]
    firsts = _first_choices(forest)[:, above]
    draft_first, shared, shared_rank, lookup_first, lookup_first_prob, lookup_second = firsts[:6]
    columns = (
        *(prob, rank, forest.draft_entropy[rows], margin, forest.in_draft_vocab[rows]),
        *(forest.lookup_match_length[rows], np.log1p(forest.lookup_count[rows]), share, lookup_rank),
        *(forest.sources[rows] & _BOTH == _BOTH, shared_rank == _FIRST, lookup_first_prob, shared),
        *(recycled, recycled_rank, forest.recycled_order[rows], np.log1p(forest.recycled_weight[rows])),
        np.where(rank == _FIRST, prob - margin, draft_first),
        np.where(lookup_rank == _FIRST, lookup_second, lookup_first),
        np.where(recycled_rank == _FIRST, firsts[7], firsts[6]),
        *(forest.draft_prob[above], forest.lookup_match_length[above], forest.lookup_share[above]),
        forest.sources[above] & _BOTH == _BOTH,
        *(depth, forest.prior[rows]),
        *(context.draft_agreement[request], context.lookup_agreement[request], context.temperature[request]),
        *(forest.draft_drawn_prob[rows], forest.draft_gap[rows]),
    )
    table = np.concatenate(columns, dtype=np.float32, casting="same_kind").reshape(len(FEATURES), len(rows))
    table[_AGREE, np.isnan(shared + lookup_first)] = _NAN
    table[_OF_PARENT, depth <= 1] = _NAN  # the root is certain, and its lookup columns speak of its children
    table[_LOGS] = _log(table[_LOGS])
    return np.ascontiguousarray(table.T)


def _first_choices(forest: Nodes) -> Float32Array:
    """First choices below every row, [8, rows], NaN where there is none.

    Of the draft's: its probability, lookup share and lookup rank; of the lookup's: its share and draft probability;
    then the share of the lookup's second, and the probabilities of the first and second recycled guess.
    """
    parent = forest.parent
    firsts = np.empty((8, len(parent)), dtype=np.float32)
    firsts.fill(_NAN)
    draft_first, shared, shared_rank, lookup_first, lookup_first_prob, lookup_second = firsts[:6]
    first = (forest.draft_rank == _FIRST).nonzero()[0]
    below = parent[first]
    draft_first[below] = forest.draft_prob[first]
    shared[below] = forest.lookup_share[first]
    shared_rank[below] = forest.lookup_rank[first]
    first = (forest.lookup_rank == _FIRST).nonzero()[0]
    below = parent[first]
    lookup_first[below] = forest.lookup_share[first]
    lookup_first_prob[below] = forest.draft_prob[first]
    second = (forest.lookup_rank == _SECOND).nonzero()[0]
    lookup_second[parent[second]] = forest.lookup_share[second]
    for place, nth in ((6, _FIRST), (7, _SECOND)):
        found = (forest.recycled_rank == nth).nonzero()[0]
        firsts[place, parent[found]] = forest.recycled_prob[found]
    return firsts


def growth_features(
    forest: Nodes, rows: NDArray[np.integer[Any]], context: RoundContext, described: Float32Array | None = None
) -> Float32Array:
    """What the growth model reads of forest `rows` [n], roots included, before the draft is run below them.

    The `below_` columns are the first continuation of the lookup, and of the recycled guesses, below the row, where it
    was offered together with the row (in a chain) or is shown on the root; asking a free source and the draft in one
    step gives NaN, in a trace as well.
    `described`: `node_features` of the same rows, if they are at hand and no root is among them. Returns
    [n, len(GROWTH_FEATURES)] float32.
    """
    rows = np.asarray(rows, dtype=np.intp)
    parent = forest.parent
    root = parent[rows] < 0
    has_roots = described is None and bool(root.any())
    if described is not None:
        table = described[:, _SHARED]
    elif not has_roots:
        table = node_features(forest, rows, context)[:, _SHARED]
    else:
        table = np.empty((len(rows), len(GROWTH_FEATURES)), dtype=np.float32)
        if not root.all():
            table[~root] = node_features(forest, rows[~root], context)[:, _SHARED]
        table[root] = _OF_ROOTS  # a root's own columns say nothing: it is certain
        _context(table[:, -3:].T, forest, rows, context)

    shown = _shown_below(forest, forest.lookup_rank, rows)
    if has_roots:
        shown[root] = rows[root]
    below = table[:, _BELOW : _BELOW + 4]
    below[:, 0] = forest.lookup_match_length[shown]
    below[:, 1] = np.log1p(forest.lookup_count[shown])
    below[:, 2] = forest.lookup_share[shown]
    below[:, 3] = np.log1p(forest.lookup_age[shown])
    below[shown < 0] = _NAN
    shown = _shown_below(forest, forest.recycled_rank, rows)
    if has_roots:
        shown[root] = rows[root]
    below = table[:, _BELOW + 4 : _BELOW + 7]
    below[:, 0] = forest.recycled_prob[shown]
    below[:, 1] = forest.recycled_order[shown]
    below[:, 2] = np.log1p(forest.recycled_weight[shown])
    below[shown < 0] = _NAN
    return table


def _shown_below(forest: Nodes, ranks: Float32Array, rows: NDArray[np.integer[Any]]) -> NDArray[np.intp]:
    """The row of rank 0 below each of `rows` [n] that was offered together with it; -1 where there is none."""
    first = (ranks == _FIRST).nonzero()[0]
    above = forest.parent[first]
    together = forest.level[first] <= forest.level[above]
    source = np.empty(len(forest.parent), dtype=np.intp)
    source.fill(-1)
    source[above[together]] = first[together]
    return np.asarray(source[rows])


def _context(table: Float32Array, forest: Nodes, rows: NDArray[np.integer[Any]], context: RoundContext) -> None:
    request = forest.request[rows]
    for column, values in zip(
        table, (context.draft_agreement, context.lookup_agreement, context.temperature), strict=True
    ):
        column[:] = values[request]
