"""The planner as machine code, for all requests of a round at once: what `treewise.policy.weighing` decides.

Every sum and product is taken in numpy's order, so both ways give the same bits. The formulas are explained in
`treewise.policy.planner`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import bool_, float32, float64, int32, int64, types, uint8, void
from numpy.typing import NDArray

from treewise.policy.compiled_code import compiled, read, written
from treewise.policy.hook import BoolArray, Float32Array, Int32Array, UInt8Array

Float64Array = NDArray[np.float64]
Int64Array = NDArray[np.int64]

LOOKUP_BIT, DRAFT_BIT, RECYCLED_BIT = np.uint8(1), np.uint8(2), np.uint8(4)
_F64, _I64, _I32, _F32 = read(float64), read(int64), read(int32), read(float32)
# What every decision about money reads: rates and curve numbers [requests], then verify [curves, nodes + 1],
# draft [curves, tokens + 1], and the grid beyond it: counts [points], milliseconds [curves, points].
_PRICES: tuple[Any, ...] = (_F64, _I64, read(float64, 2), read(float64, 2), _F64, read(float64, 2))
_GROUPS = types.UniTuple(written(int64), 2)


@compiled(_GROUPS(_I64, _I32, int64))
def by_request(rows: Int64Array, request: Int32Array, requests: int) -> tuple[Int64Array, Int64Array]:
    """(`rows` in order of their request, else as they come; where each request's begin, [requests + 1])."""
    ends = np.zeros(requests + 1, dtype=np.int64)
    for row in rows:
        ends[request[row] + 1] += 1
    for place in range(requests):
        ends[place + 1] += ends[place]
    order = np.empty(len(rows), dtype=np.int64)
    filled = ends.copy()
    for row in rows:
        own = request[row]
        order[filled[own]] = row
        filled[own] += 1
    return order, ends


@compiled(float64(_F64, _F64, _F64, int64))
def growth_ms(draft: Float64Array, counts: Float64Array, grid_ms: Float64Array, tokens: int) -> float:
    """Milliseconds of one draft growth of `tokens` tokens: off the curve, else as `CostGrid.at`."""
    if tokens < len(draft):
        return draft[tokens]
    last = len(counts) - 1
    count = float(tokens)
    if count > counts[last]:
        if last == 0:
            return grid_ms[last]
        slope = (grid_ms[last] - grid_ms[last - 1]) / (counts[last] - counts[last - 1])
        return grid_ms[last] + (count - counts[last]) * max(slope, 0.0)
    if count <= counts[0]:
        return grid_ms[0]
    piece = 0
    while piece < last - 1 and count >= counts[piece + 1]:
        piece += 1
    if count == counts[last]:
        return grid_ms[last]
    slope = (grid_ms[piece + 1] - grid_ms[piece]) / (counts[piece + 1] - counts[piece])
    return slope * (count - counts[piece]) + grid_ms[piece]


@compiled(void(_F64, _F64, float64, int64, written(float64)))
def price_rows(
    survival: Float64Array, verify: Float64Array, rate: float, priced_rows: int, price: Float64Array
) -> None:
    """`row_prices` of rows with `survival` [n] into `price`, at `rate` tokens a millisecond."""
    order = -survival
    order.sort()
    price[:] = -np.inf
    total = 0.0
    for kept in range(min(len(order), priced_rows) + 1):
        if kept:
            total += -order[kept - 1]
        for more in range(len(price)):
            price[more] = max(price[more], total - rate * verify[kept + more])
    best = price[0]
    for more in range(len(price)):
        price[more] = best - price[more]


@compiled(
    int64(
        *(_F64, _F64, _I64, _I32, _I32, read(bool_), _I32, int64, int64),
        *(_F64, float64, float64, _F64, _F64, _F64, int64, int64, written(int64)),
    )
)
def choose_growths(
    survival: Float64Array,
    holds: Float64Array,
    rows: Int64Array,
    parent: Int32Array,
    depth: Int32Array,
    drafted: BoolArray,
    missing: Int32Array,
    deepest: int,
    catch_up: int,
    price: Float64Array,
    rate: float,
    call_ms: float,
    draft: Float64Array,
    counts: Float64Array,
    grid_ms: Float64Array,
    most_growths: int,
    most_levels: int,
    chosen: Int64Array,
) -> int:
    """As `treewise.policy.planner.choose_growths`: fill `chosen` with the rows, return how many."""
    gain = np.empty(len(rows))
    for place in range(len(rows)):
        gain[place] = -(survival[rows[place]] * holds[rows[place]])
    ranked = rows[gain.argsort(kind="mergesort")[:most_growths]]
    has_missing = False
    for row in ranked:
        has_missing = has_missing or missing[row] != 0
    # What the draft runs for the first 1, 2, .. rows: `run[:nodes]`, of which the root brings `extra` further tokens.
    run = np.empty(len(ranked) + (len(parent) if has_missing else 0), dtype=np.int64)
    nodes = np.empty(len(ranked), dtype=np.int64)
    runs, extra = 0, 0
    seen = drafted.copy()
    for place in range(len(ranked)):
        row = ranked[place]
        if has_missing:
            while row >= 0 and not seen[row]:
                seen[row] = True
                run[runs] = row
                runs += 1
                row = np.int64(parent[row])
                if row < 0:
                    extra = catch_up
        else:
            run[runs] = row
            runs += 1
        nodes[place] = runs
    levels = 0
    for row in run[:runs]:
        levels = max(levels, deepest - depth[row])
    levels = min(levels, most_levels)
    if levels < 1:
        return 0
    most_rows = len(price) - 1
    gains = np.zeros(levels)  # of the rows so far, by levels
    best, count, done = 0.0, 0, 0
    for place in range(len(ranked)):
        for row in run[done : nodes[place]]:
            step, ahead = 1.0, 0.0
            for level in range(levels):
                step *= holds[row]
                if level + 1 <= deepest - depth[row]:
                    ahead += step
                gains[level] += survival[row] * ahead
        done = nodes[place]
        later_ms = growth_ms(draft, counts, grid_ms, done) + call_ms
        first_ms = growth_ms(draft, counts, grid_ms, done + extra) + call_ms
        for level in range(levels):
            children = done * (level + 1)
            if children <= most_rows:
                net = gains[level] - rate * (first_ms + later_ms * level) - price[children]
                if net > best:
                    best, count = net, place + 1
    chosen[:count] = ranked[:count]
    return count


@compiled(
    void(
        *(_F64, _F64, _I64, _I32, _I32, _I32, read(bool_), _I32, int64, int64),
        *(_I32, _I32, *_PRICES, float64, float64, float64, _I64, written(uint8)),
    )
)
def draft_rows(
    survival: Float64Array,
    holds: Float64Array,
    rows: Int64Array,
    parent: Int32Array,
    depth: Int32Array,
    request: Int32Array,
    drafted: BoolArray,
    missing: Int32Array,
    start: int,
    max_depth: int,
    remaining: Int32Array,
    catch_up: Int32Array,
    rates: Float64Array,
    curve_of: Int64Array,
    verify: Float64Array,
    draft: Float64Array,
    counts: Float64Array,
    grid_ms: Float64Array,
    call_ms: float,
    prune_scale: float,
    growth_scale: float,
    limits: Int64Array,
    grow: UInt8Array,
) -> None:
    """Set the draft's bit in `grow` [candidates] below those of `rows` where it pays, request by request.

    `limits`: planned growths, levels and rows, and the rows they are weighed against.
    """
    requests = len(rates)
    wanted, ends = by_request(rows, request, requests)
    every, bounds = by_request(np.arange(requests, len(parent)), request, requests)
    price = np.empty(limits[2] + 1)
    chosen = np.empty(len(rows), dtype=np.int64)
    for own in range(requests):
        mine = wanted[ends[own] : ends[own + 1]]
        if not len(mine):
            continue
        rate, curve = rates[own], curve_of[own]
        price_rows(survival[every[bounds[own] : bounds[own + 1]]], verify[curve], rate * prune_scale, limits[3], price)
        deepest = min(max_depth, np.int64(remaining[own]) - 1)
        count = choose_growths(
            survival,
            holds,
            mine,
            parent,
            depth,
            drafted,
            missing,
            deepest,
            np.int64(catch_up[own]),
            price,
            rate * growth_scale,
            call_ms,
            draft[curve],
            counts,
            grid_ms[curve],
            limits[0],
            limits[1],
            chosen,
        )
        for row in chosen[:count]:
            grow[row - start] |= DRAFT_BIT


@compiled(void(_F64, _I64, _I32, _F64, _I64, read(float64, 2), float64, written(bool_)))
def keep_rows(
    survival: Float64Array,
    rows: Int64Array,
    request: Int32Array,
    rates: Float64Array,
    curve_of: Int64Array,
    verify: Float64Array,
    scale: float,
    keep: BoolArray,
) -> None:
    """Set `keep` [forest rows] of those `rows` whose verification pays, request by request."""
    order, ends = by_request(rows, request, len(rates))
    for own in range(len(rates)):
        mine = order[ends[own] : ends[own + 1]]
        ranked = mine[(-survival[mine]).argsort(kind="mergesort")]
        rate, curve = rates[own] * scale, verify[curve_of[own]]
        best, count, total = -(rate * curve[0]), 0, 0.0
        for kept in range(len(ranked)):
            total += survival[ranked[kept]]
            net = total - rate * curve[kept + 1]
            if net > best:
                best, count = net, kept + 1
        for row in ranked[:count]:
            keep[row] = True


@compiled(
    void(
        *(_I64, _F64, _F32, _F32, _F32, _F64, float64, int64, _I32, _I32),
        *(*_PRICES, float64, float64, _I64, written(uint8)),
    )
)
def open_drafts(
    rows: Int64Array,
    holds: Float64Array,
    match_length: Float32Array,
    share: Float32Array,
    recycled_prob: Float32Array,
    prior_table: Float64Array,
    min_grow_prior: float,
    max_depth: int,
    remaining: Int32Array,
    catch_up: Int32Array,
    rates: Float64Array,
    curve_of: Int64Array,
    verify: Float64Array,
    draft: Float64Array,
    counts: Float64Array,
    grid_ms: Float64Array,
    call_ms: float,
    scale: float,
    limits: Int64Array,
    grow: UInt8Array,
) -> None:
    """Set the draft's bit in `grow` [requests] at those of the roots `rows` where `draft_at_once` says so."""
    price = np.empty(limits[2] + 1)
    most = limits[2]
    for row in rows:
        hold, levels = holds[row], min(max_depth, np.int64(remaining[row]) - 1)
        if hold <= 0.0 or levels < 1:
            continue
        match = 0.0
        if grow[row] & LOOKUP_BIT and match_length[row] > 0.0 and share[row] > 0.0:
            length = min(np.int64(match_length[row]), len(prior_table) - 1)
            match = prior_table[length] * float(share[row])
        if grow[row] & RECYCLED_BIT and float(recycled_prob[row]) > match:
            match = float(recycled_prob[row])
        chain = np.full(levels if match > 0.0 else 0, match)
        for place in range(1, len(chain)):
            chain[place] = chain[place - 1] * match
        own = curve_of[row]
        rate, tokens = rates[row] * scale, np.int64(catch_up[row])
        price_rows(chain, verify[own], rates[row], limits[3], price)
        first_ms = growth_ms(draft[own], counts, grid_ms[own], 1 + tokens) + call_ms
        next_ms = growth_ms(draft[own], counts, grid_ms[own], 1) + call_ms
        gain, step, now, depth = 0.0, 1.0, -np.inf, 0
        for level in range(1, min(levels, limits[1]) + 1):
            step *= hold
            gain += step
            net = gain - rate * (first_ms + (level - 1) * next_ms) - price[level]
            if net > now:
                now, depth = net, level
        if now <= 0.0:
            continue
        if match >= min_grow_prior and levels >= 2:
            more, together, then, survival = 0.0, -np.inf, 0.0, 1.0
            for nodes in range(1, levels):
                survival *= match
                more += survival * hold
                taken = price[min(depth + nodes, most)] - price[depth]
                joint_ms = growth_ms(draft[own], counts, grid_ms[own], 1 + nodes + tokens) + call_ms - first_ms
                later_ms = growth_ms(draft[own], counts, grid_ms[own], nodes) + call_ms
                together = max(together, more - taken - rate * joint_ms)
                then = max(then, more - taken - rate * later_ms)
            if not then > together - rate * call_ms:
                continue
        grow[row] |= DRAFT_BIT
