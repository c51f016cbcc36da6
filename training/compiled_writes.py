"""Forest rows of what the sources offered, written as machine code: each row's columns in one go."""

from __future__ import annotations

import numpy as np
from numba import bool_, float32, int32, int64, types, uint8, void

from treewise.policy.compiled_code import compiled, read, written
from treewise.policy.hook import BoolArray, Float32Array, Int32Array, UInt8Array

Columns = tuple[Float32Array, ...]

LOOKUP_BIT, DRAFT_BIT, RECYCLED_BIT = np.uint8(1), np.uint8(2), np.uint8(4)
_F32, _I32, _U8, _BOOL = read(float32), read(int32), read(uint8), read(bool_)
_TO_F32, _TO_I32, _TO_U8 = written(float32), written(int32), written(uint8)
_LOOKUP, _RECYCLED = types.UniTuple(_F32, 5), types.UniTuple(_F32, 4)
_SCORES, _STATE = types.UniTuple(_F32, 5), types.UniTuple(_F32, 2)
_TO_LOOKUP, _TO_RECYCLED = types.UniTuple(_TO_F32, 5), types.UniTuple(_TO_F32, 4)
_TO_SCORES, _TO_STATE = types.UniTuple(_TO_F32, 5), types.UniTuple(_TO_F32, 2)


@compiled(
    void(
        *(int64, bool_, _I32, _I32, _I32, _F32, _F32, _U8, _U8),
        *(_I32, _I32, _U8, _BOOL, _F32, _F32, _LOOKUP, _RECYCLED),
        *(_TO_I32, _TO_I32, _TO_I32, _TO_I32, _TO_I32, _TO_F32, _TO_F32, _TO_U8, _TO_U8),
        *(_TO_F32, _TO_F32, written(bool_), _TO_LOOKUP, _TO_RECYCLED),
    )
)
def write_free(
    first: int,
    has_draft: bool,
    parents: Int32Array,
    nodes: Int32Array,
    depths: Int32Array,
    priors: Float32Array,
    path_priors: Float32Array,
    spoke: UInt8Array,
    goes_on: UInt8Array,
    node_place: Int32Array,
    node_token: Int32Array,
    proposed: UInt8Array,
    in_vocab: BoolArray,
    said_length: Float32Array,
    said_order: Float32Array,
    lookup: Columns,
    recycled: Columns,
    known: Int32Array,
    request: Int32Array,
    parent: Int32Array,
    depth: Int32Array,
    token: Int32Array,
    prior: Float32Array,
    path_prior: Float32Array,
    sources: UInt8Array,
    asked: UInt8Array,
    below: Float32Array,
    below_recycled: Float32Array,
    in_draft_vocab: BoolArray,
    to_lookup: Columns,
    to_recycled: Columns,
) -> None:
    """Write what `offer_free` offered, [new rows] from `parents` to `goes_on`, to the forest's rows from `first` on.

    What stands between are columns of the log, by node or place, then the forest's columns.
    """
    for offer in range(len(nodes)):
        row, node = first + offer, np.int64(nodes[offer])
        place, bits, more = node_place[node], spoke[offer], goes_on[offer]
        known[row], token[row] = place, node_token[node]
        parent[row], depth[row], request[row] = parents[offer], depths[offer], request[parents[offer]]
        prior[row], path_prior[row] = priors[offer], path_priors[offer]
        sources[row], asked[row] = proposed[node] & bits, more
        if more & LOOKUP_BIT:
            below[row] = said_length[place]
        if more & RECYCLED_BIT:
            below_recycled[row] = said_order[place]
        if has_draft:
            in_draft_vocab[row] = in_vocab[node]
    for signal in range(5):
        column, to = lookup[signal], to_lookup[signal]
        for offer in range(len(nodes)):
            if spoke[offer] & LOOKUP_BIT:
                to[first + offer] = column[nodes[offer]]
    for signal in range(4):
        column, to = recycled[signal], to_recycled[signal]
        for offer in range(len(nodes)):
            if spoke[offer] & RECYCLED_BIT:
                to[first + offer] = column[nodes[offer]]


@compiled(
    void(
        *(int64, int64, _I32, _I32, _I32, _I32, _F32, _F32, _F32, _I32, _I32, _I32),
        *(_LOOKUP, _RECYCLED, _SCORES, _STATE, _F32, _F32),
        *(_TO_I32, _TO_I32, _TO_I32, _TO_I32, _TO_I32, _TO_F32, _TO_F32, _TO_U8),
        *(_TO_LOOKUP, _TO_RECYCLED, _TO_SCORES, _TO_STATE),
    )
)
def write_draft(
    first: int,
    num_scores: int,
    extras: Int32Array,
    parents: Int32Array,
    nodes: Int32Array,
    ranks: Int32Array,
    node_prior: Float32Array,
    looked_up: Float32Array,
    recycled_prob: Float32Array,
    node_place: Int32Array,
    place_node: Int32Array,
    node_token: Int32Array,
    lookup: Columns,
    recycled: Columns,
    scores: Columns,
    state: Columns,
    below: Float32Array,
    below_recycled: Float32Array,
    known: Int32Array,
    request: Int32Array,
    parent: Int32Array,
    depth: Int32Array,
    token: Int32Array,
    prior: Float32Array,
    path_prior: Float32Array,
    sources: UInt8Array,
    to_lookup: Columns,
    to_recycled: Columns,
    to_scores: Columns,
    to_state: Columns,
) -> None:
    """Write what `offer_draft` offered, [new rows] from `parents` to `ranks`, to the forest's rows from `first` on.

    The draft's signals go to the rows `extras` too. Where a free source was asked below the parent, a row takes what
    it said, and its prior where that is the more confident. `num_scores` of the draft's `scores` are the log's; of two,
    the second, the rank, is that of the offer. What stands between are columns of the log, by node, and the draft's
    `state`, by place; then the forest's columns.
    """
    for offer in range(len(nodes)):
        row, node, above = first + offer, np.int64(nodes[offer]), parents[offer]
        known[row], token[row], sources[row] = node_place[node], node_token[node], DRAFT_BIT
        parent[row], depth[row], request[row] = above, depth[above] + 1, request[above]
        likely = node_prior[node]
        if not (np.isnan(below[above]) or looked_up[node] <= likely):
            likely = looked_up[node]
        if not (np.isnan(below_recycled[above]) or recycled_prob[node] <= likely):
            likely = recycled_prob[node]
        prior[row], path_prior[row] = likely, path_prior[above] * likely
    for signal in range(5):
        column, to = lookup[signal], to_lookup[signal]
        for offer in range(len(nodes)):
            if not np.isnan(below[parents[offer]]):
                to[first + offer] = column[nodes[offer]]
    for signal in range(4):
        column, to = recycled[signal], to_recycled[signal]
        for offer in range(len(nodes)):
            if not np.isnan(below_recycled[parents[offer]]):
                to[first + offer] = column[nodes[offer]]
    for signal in range(num_scores):
        column, to = scores[signal], to_scores[signal]
        for row in extras:
            to[row] = column[place_node[known[row]]]
        for offer in range(len(nodes)):
            to[first + offer] = column[nodes[offer]]
    if num_scores == 2:
        to_scores[1][first : first + len(nodes)] = ranks
    for signal in range(2):
        column, to = state[signal], to_state[signal]
        for row in extras:
            to[row] = column[known[parent[row]]]
        for offer in range(len(nodes)):
            to[first + offer] = column[known[parents[offer]]]
