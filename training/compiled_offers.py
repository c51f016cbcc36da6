"""What the sources offer below forest rows, as machine code: `BatchFreeGrowth` and `DraftGrowth` over a log's columns.

Every product is taken and rounded as numpy does, so both ways give the same bits.
"""

from __future__ import annotations

import math

import numpy as np
from numba import bool_, float32, float64, int32, int64, uint8
from numpy.typing import NDArray

from treewise.policy.compiled_code import compiled, read, written
from treewise.policy.hook import BoolArray, Float32Array, Int32Array, UInt8Array

Int64Array = NDArray[np.int64]

LOOKUP_BIT, DRAFT_BIT, RECYCLED_BIT = np.uint8(1), np.uint8(2), np.uint8(4)
BOUNDED = np.uint8(1)  # what may be asked below rows under `Envelope.min_grow_prior`: the lookup
# Instead of a number of rows: minus the bit of the source that the log did not ask there, or arrays that are full.
NO_LOOKUP, NO_DRAFT, NO_RECYCLED, NO_ROOM = -1, -2, -4, -8
_F32, _I32, _I64, _U8 = read(float32), read(int32), read(int64), read(uint8)


@compiled(
    int64(
        *(_I64, _U8, _I32, _I32, _I32, _F32, _I32, written(float32), written(float32)),
        *(read(int32, 2), _I32, _I32, _U8, _F32, _F32, _F32, _F32, float64, float64),
        *(written(int64), *(written(int32),) * 3, written(float32), written(float32), written(uint8), written(uint8)),
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
    looked_up: Float32Array,
    recycled_prob: Float32Array,
    floor: float,
    bound: float,
    top_of: Int64Array,
    parent_of: Int32Array,
    node_of: Int32Array,
    depth_of: Int32Array,
    prior_of: Float32Array,
    path_of: Float32Array,
    spoke_of: UInt8Array,
    goes_on: UInt8Array,
) -> int:
    """What the free sources of `bits` [n] offer below forest `rows` [n], in the order of `FreeGrowth`.

    Fills the columns from `top_of` on, [new rows], and returns how many rows there are, or why there are none;
    `parent_of` counts new rows from the forest's end on. Writes `below` and `below_recycled` of the `rows`.
    `looked_up` and `recycled_prob` are what each source makes of a log's nodes.
    """
    base, count = len(request), 0
    for place in range(len(rows)):
        top = rows[place]
        limit = limits[request[top]]
        if depth[top] >= limit:
            continue
        # One width of integer in the loop.
        row, at, ask = np.int64(top), np.int64(known[top]), bits[place]
        deep, above = np.int64(depth[top]), path_prior[top]
        below[top] = said_length[at] if ask & LOOKUP_BIT else np.float32(np.nan)
        below_recycled[top] = said_order[at] if ask & RECYCLED_BIT else np.float32(np.nan)
        head = count
        while True:
            lacks = ask & ~said[at]
            if lacks & LOOKUP_BIT:
                return NO_LOOKUP
            if lacks & RECYCLED_BIT:
                return NO_RECYCLED
            which = (ask & LOOKUP_BIT) + (ask & RECYCLED_BIT) // 2 - 1
            first, end = starts[which, at], starts[which, at + 1]
            if count + end - first > len(node_of):
                return NO_ROOM
            deep += 1
            for entry in range(first, end):
                node = offers[entry]
                prior = np.float32(0.0)
                if ask & LOOKUP_BIT:
                    prior = looked_up[node]
                if ask & RECYCLED_BIT and not recycled_prob[node] <= prior:
                    prior = recycled_prob[node]
                path = above * prior
                if not np.float64(path) >= floor:
                    continue
                top_of[count], parent_of[count], node_of[count], depth_of[count] = top, row, node, deep
                prior_of[count], path_of[count], spoke_of[count] = prior, path, ask
                goes = ask if np.float64(path) >= bound else ask & BOUNDED
                goes_on[count] = goes if deep < limit else np.uint8(0)
                count += 1
            while head < count and not goes_on[head]:
                head += 1
            if head == count:
                break
            row, at, ask = base + head, np.int64(node_place[node_of[head]]), goes_on[head]
            deep, above = np.int64(depth_of[head]), path_of[head]
            head += 1
    return count


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
