"""What the learned policy asks of every row of a round, as machine code: changed, survival, admission, free growth.

Every sum and product is taken in numpy's order, so both ways give the same bits.
"""

from __future__ import annotations

import math

import numpy as np
from numba import bool_, float32, float64, int32, int64, uint8, void
from numpy.typing import NDArray

from treewise.policy.compiled_code import compiled, read, written
from treewise.policy.hook import BoolArray, Float32Array, Int32Array, UInt8Array

Float64Array = NDArray[np.float64]
Int64Array = NDArray[np.int64]

LOOKUP_BIT, DRAFT_BIT, RECYCLED_BIT = np.uint8(1), np.uint8(2), np.uint8(4)
_F64, _I32, _F32 = read(float64), read(int32), read(float32)


@compiled(int64(_I32, read(bool_), int64, int64, written(bool_), written(int64)))
def changed_rows(
    parent: Int32Array, drafted: BoolArray, known: int, roots: int, seen: BoolArray, rows: Int64Array
) -> int:
    """Fill `rows` with those that are new or changed, return how many; `seen`: the draft had run on the parent.

    `known` rows were scored before. As `RowScores.stale`, which it serves.
    """
    total = len(parent)
    filled = np.zeros(known, dtype=np.bool_)
    for row in range(roots, total):
        now = drafted[parent[row]]
        if row < known:
            filled[row] = now != seen[row]
        seen[row] = now
    count = 0
    for row in range(roots, known):
        if filled[row] or filled[parent[row]]:
            rows[count] = row
            count += 1
    for row in range(known, total):
        rows[count] = row
        count += 1
    return count


@compiled(written(float64)(_F64, _I32, _I32, int64, bool_))
def path_survival(
    match: Float64Array, parent: Int32Array, depth: Int32Array, roots: int, normalise: bool
) -> Float64Array:
    """`path_products` of `match` [rows], after `normalise_siblings` where asked."""
    rows = len(parent)
    survival = match.copy()
    if normalise:
        total = np.zeros(rows)
        highest = 0.0
        for row in range(roots, rows):
            total[parent[row]] += match[row]
        for row in range(rows):
            highest = max(highest, total[row])
        if highest > 1.0:
            for row in range(roots, rows):
                survival[row] = match[row] * (1.0 / max(total[parent[row]], 1.0))
    deepest = 0
    jump = np.empty(rows, dtype=np.int64)
    for row in range(rows):
        deepest = max(deepest, np.int64(depth[row]))
        jump[row] = row if parent[row] < 0 else np.int64(parent[row])
    if deepest <= 1:
        return survival
    for row in range(rows - 1, -1, -1):  # from below: what lies above is still as the last doubling left it
        survival[row] = survival[row] * survival[jump[row]]
    span = 2
    while span < deepest:
        for row in range(rows - 1, -1, -1):
            jump[row] = jump[jump[row]]
        for row in range(rows - 1, -1, -1):
            survival[row] = survival[row] * survival[jump[row]]
        span *= 2
    return survival


@compiled(int64(_F64, int64, _I32, _F64, read(bool_), read(uint8), bool_, written(bool_), written(int64)))
def admit_rows(
    survival: Float64Array,
    start: int,
    request: Int32Array,
    least: Float64Array,
    drafted: BoolArray,
    may_grow: UInt8Array,
    has_draft: bool,
    admit: BoolArray,
    rows: Int64Array,
) -> int:
    """Fill `admit` [candidates] and `rows` that may be drafted below, return how many of these."""
    count = 0
    for place in range(len(admit)):
        row = start + place
        pays = survival[row] > least[request[row]]
        admit[place] = pays or (has_draft and not drafted[row])
        if pays and may_grow[row] & DRAFT_BIT:
            rows[count] = row
            count += 1
    return count


@compiled(void(_F64, _I32, read(uint8), int64, _F32, _F64, _F64, float64, float64, written(uint8)))
def ask_free(
    survival: Float64Array,
    request: Int32Array,
    may_grow: UInt8Array,
    start: int,
    lookup_agreement: Float32Array,
    rates: Float64Array,
    cheapest_ms: Float64Array,
    call_ms: float,
    unseen: float,
    grow: UInt8Array,
) -> None:
    """Add the free sources' bits to `grow` [candidates] where they pay, as `Weighing` says."""
    requests = len(rates)
    gains = np.zeros(len(grow))
    total = np.zeros(requests)
    has_draft = np.zeros(requests, dtype=np.bool_)
    for place in range(len(grow)):
        row = start + place
        own = request[row]
        has_draft[own] = has_draft[own] or grow[place] > 0
        free = may_grow[row] & (LOOKUP_BIT | RECYCLED_BIT)
        if free:
            held = unseen
            if free & LOOKUP_BIT and not math.isnan(lookup_agreement[own]):
                held = float(lookup_agreement[own])
                if free & RECYCLED_BIT:
                    held = max(held, unseen)
            gains[place] = survival[row] * held - rates[own] * cheapest_ms[own]
            total[own] += max(gains[place], 0.0)
    for place in range(len(grow)):
        row = start + place
        own = request[row]
        opens = has_draft[own] or total[own] > rates[own] * call_ms
        if (gains[place] > 0.0 and opens) or grow[place] > 0:
            grow[place] |= may_grow[row] & (LOOKUP_BIT | RECYCLED_BIT)
