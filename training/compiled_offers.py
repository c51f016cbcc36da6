"""What the sources offer below forest rows, as machine code: `BatchFreeGrowth` and `DraftGrowth` over a log's columns.

Every product is taken and rounded as numpy does, so both ways give the same bits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import bool_, float32, float64, int32, int64, types, uint8, void
from numpy.typing import NDArray

from treewise.policy.compiled_code import compiled, read, written
from treewise.policy.hook import BoolArray, Float32Array, Int32Array, UInt8Array

Int64Array = NDArray[np.int64]
Float64Array = NDArray[np.float64]

LOOKUP_BIT, DRAFT_BIT, RECYCLED_BIT = np.uint8(1), np.uint8(2), np.uint8(4)
BOUNDED = np.uint8(1)  # what may be asked below rows under `Envelope.min_grow_prior`: the lookup
# Instead of a number of rows: minus the bit of the source that the log did not ask there, or arrays that are full.
NO_LOOKUP, NO_DRAFT, NO_RECYCLED, NO_ROOM = -1, -2, -4, -8
_F32, _F64, _I32, _I64, _U8 = read(float32), read(float64), read(int32), read(int64), read(uint8)
_LOOKUP, _RECYCLED = types.UniTuple(_F32, 5), types.UniTuple(_F32, 4)


@compiled(float32(int64, uint8, _F32, _F32, _F32, _F64))
def free_prior(
    node: int, asked: int, length: Float32Array, share: Float32Array, prob: Float32Array, table: Float64Array
) -> Any:
    """The most confident free source's probability of a log's `node`, of those of `asked`; columns are [nodes]."""
    prior = np.float32(0.0)
    if asked & LOOKUP_BIT:
        prior = np.float32(table[min(np.int64(length[node]), len(table) - 1)] * np.float64(share[node]))
    if asked & RECYCLED_BIT and not prob[node] <= prior:
        prior = prob[node]
    return prior


@compiled(
    int64(
        *(_I64, _U8, _I32, _I32, _I32, _F32, _I32, written(float32), written(float32)),
        *(read(int32, 2), _I32, _I32, _U8, _F32, _F32, _F32, _F32, _F32, _F64, float64, float64),
        *(written(int64), *(written(int32),) * 4, written(float32), written(float32), written(uint8), written(uint8)),
        *(written(float32), written(float32)),
    )
)
def offer_free(
    rows: Int64Array,
    bits: UInt8Array,
    known: Int32Array,
    request: Int32Array,
    depth: Int32Array,
    path_prior: Float32Array,
    limits: Int32Array,
    below: Float32Array,
    below_recycled: Float32Array,
    starts: Int32Array,
    offers: Int32Array,
    node_place: Int32Array,
    said: UInt8Array,
    said_length: Float32Array,
    said_order: Float32Array,
    length: Float32Array,
    share: Float32Array,
    prob: Float32Array,
    table: Float64Array,
    floor: float,
    bound: float,
    top_of: Int64Array,
    parent_of: Int32Array,
    node_of: Int32Array,
    request_of: Int32Array,
    depth_of: Int32Array,
    prior_of: Float32Array,
    path_of: Float32Array,
    spoke_of: UInt8Array,
    goes_on: UInt8Array,
    below_of: Float32Array,
    recycled_of: Float32Array,
) -> int:
    """What the free sources of `bits` [n] offer below forest `rows` [n], in the order of `FreeGrowth`.

    Fills the columns from `top_of` on, [new rows], and returns how many rows there are, or why there are none;
    `parent_of` counts new rows from the forest's end on. Writes `below` and `below_recycled` of the `rows`.
    """
    base, count = len(request), 0
    for place in range(len(rows)):
        top = rows[place]
        own = request[top]
        limit = limits[own]
        if depth[top] >= limit:
            continue
        row, at, ask, deep, above = top, known[top], bits[place], depth[top], path_prior[top]
        head = count
        while True:
            lacks = ask & ~said[at]
            if lacks & LOOKUP_BIT:
                return NO_LOOKUP
            if lacks & RECYCLED_BIT:
                return NO_RECYCLED
            matched = said_length[at] if ask & LOOKUP_BIT else np.float32(np.nan)
            remembered = said_order[at] if ask & RECYCLED_BIT else np.float32(np.nan)
            if row == top:
                below[top], below_recycled[top] = matched, remembered
            else:
                below_of[row - base], recycled_of[row - base] = matched, remembered
            both = (ask & LOOKUP_BIT) + (ask & RECYCLED_BIT) // 2 - 1
            for entry in range(starts[both, at], starts[both, at + 1]):
                node = offers[entry]
                prior = free_prior(node, ask, length, share, prob, table)
                path = above * prior
                if not np.float64(path) >= floor:
                    continue
                if count == len(node_of):
                    return NO_ROOM
                top_of[count], parent_of[count], node_of[count] = top, row, node
                request_of[count], depth_of[count] = own, deep + 1
                prior_of[count], path_of[count], spoke_of[count] = prior, path, ask
                below_of[count], recycled_of[count] = np.nan, np.nan
                goes = ask if np.float64(path) >= bound else ask & BOUNDED
                goes_on[count] = goes if deep + 1 < limit else np.uint8(0)
                count += 1
            while head < count and not goes_on[head]:
                head += 1
            if head == count:
                break
            row, at, ask, deep, above = (
                base + head, node_place[node_of[head]], goes_on[head], depth_of[head], path_of[head]
            )  # fmt: skip
            head += 1
    return count


@compiled(
    void(
        *(_I32, _U8, int64, _LOOKUP, _RECYCLED),
        *(types.UniTuple(written(float32), 5), types.UniTuple(written(float32), 4)),
    )
)
def speak(
    nodes: Int32Array,
    asked: UInt8Array,
    first: int,
    lookup: tuple[Float32Array, ...],
    recycled: tuple[Float32Array, ...],
    to_lookup: tuple[Float32Array, ...],
    to_recycled: tuple[Float32Array, ...],
) -> None:
    """Write what the free sources of `asked` [n] said of log `nodes` [n] to the forest's rows from `first` on.

    `lookup` and `recycled` are the signals' columns in the log, the others those of the forest.
    """
    for place in range(len(nodes)):
        node, row = nodes[place], first + place
        if asked[place] & LOOKUP_BIT:
            for signal in range(5):
                to_lookup[signal][row] = lookup[signal][node]
        if asked[place] & RECYCLED_BIT:
            for signal in range(4):
                to_recycled[signal][row] = recycled[signal][node]


@compiled(void(_I32, _U8, _F32, _F32, _F32, _F64, written(float32)))
def raise_priors(
    nodes: Int32Array,
    asked: UInt8Array,
    length: Float32Array,
    share: Float32Array,
    prob: Float32Array,
    table: Float64Array,
    priors: Float32Array,
) -> None:
    """Raise `priors` [n] to the free sources', of those of `asked` [n], where these are the more confident."""
    for place in range(len(nodes)):
        if asked[place]:
            prior = free_prior(nodes[place], asked[place], length, share, prob, table)
            if not prior <= priors[place]:
                priors[place] = prior


@compiled(int64(_I64, _I32, _I32, written(bool_), _I32, written(int64), written(int32)))
def run_draft(
    rows: Int64Array,
    parent: Int32Array,
    request: Int32Array,
    drafted: BoolArray,
    catch_up: Int32Array,
    tokens: Int64Array,
    run: Int32Array,
) -> int:
    """Fill `run` with forest `rows` and their ancestors without draft KV, ascending; returns how many.

    Marks them in `drafted`, and adds the tokens that the draft runs for each request to `tokens` [requests].
    """
    wanted = np.zeros(len(parent), dtype=np.bool_)
    for row in rows:
        line = np.int64(row)
        while line >= 0 and not wanted[line] and not drafted[line]:
            wanted[line] = True
            line = np.int64(parent[line])
    count = 0
    for line in range(len(parent)):
        if wanted[line]:
            own = request[line]
            tokens[own] += 1 + (catch_up[own] if parent[line] < 0 else 0)
            drafted[line] = True
            run[count] = line
            count += 1
    return count


@compiled(
    int64(
        *(_I32, _I32, _I32, _I32, _I32, _I32, int64, written(float32), written(float32), written(uint8)),
        *(_I32, _I32, read(bool_), _I32, _I32, _F32, read(bool_), int64, int64, float64),
        *(written(int32), *(written(int32),) * 3),
    )
)
def offer_draft(
    run: Int32Array,
    parent: Int32Array,
    request: Int32Array,
    depth: Int32Array,
    known: Int32Array,
    limits: Int32Array,
    roots: int,
    prior: Float32Array,
    path_prior: Float32Array,
    sources: UInt8Array,
    starts: Int32Array,
    offers: Int32Array,
    ran: BoolArray,
    place_node: Int32Array,
    node_place: Int32Array,
    node_prior: Float32Array,
    is_proposed: BoolArray,
    width: int,
    most: int,
    floor: float,
    extras: Int32Array,
    parent_of: Int32Array,
    node_of: Int32Array,
    column_of: Int32Array,
) -> int:
    """What the draft offers below forest rows `run`: fills the columns from `parent_of` on, and returns how many rows.

    Rows of a free source that stand there already are put into `extras`, their number into its last entry; the draft's
    prior is theirs too where it is the more confident, and every path prior follows. A candidate is in the draft's list
    where it is in one of its first `width` columns (-1: where it `is_proposed`), of which there are `most`.
    """
    total = len(parent)
    of = np.full(total, -1, dtype=np.int32)
    for place in range(len(run)):
        if not ran[known[run[place]]]:
            return NO_DRAFT
        of[run[place]] = place
    child, sibling = np.full(len(run), -1, dtype=np.int32), np.empty(total, dtype=np.int32)
    filled = 0
    for row in range(roots, total):
        place = of[parent[row]]
        if place < 0:
            continue
        sibling[row], child[place] = child[place], row
        extras[filled] = row
        filled += 1
        node = place_node[known[row]]
        said = node_prior[node]
        if math.isnan(prior[row]) or said > prior[row]:
            prior[row] = said
        if is_proposed[node]:
            sources[row] |= DRAFT_BIT
    extras[total] = filled
    if filled:
        for row in range(roots, total):
            path_prior[row] = path_prior[parent[row]] * prior[row]
    count = 0
    for place in range(len(run)):
        row = run[place]
        if depth[row] >= limits[request[row]]:
            continue
        first = starts[known[row]]
        for column in range(min(np.int64(starts[known[row] + 1] - first), most)):
            node = offers[first + column]
            if not np.float64(path_prior[row] * node_prior[node]) >= floor:
                break
            if not (column < width if width >= 0 else is_proposed[node]):
                continue
            taken = child[place]
            while taken >= 0 and known[taken] != node_place[node]:
                taken = sibling[taken]
            if taken < 0:
                parent_of[count], node_of[count], column_of[count] = row, node, column
                count += 1
    return count
