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


@compiled(written(int64)(_F64))
def downward(values: Float64Array) -> Int64Array:
    """Places of `values` [n] from the highest to the lowest, equal ones as they come: merged run by run.

    numpy's own sort would give the same, and take seconds to compile.
    """
    count = len(values)
    order, merged = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    for place in range(count):
        order[place] = place
    width = 1
    while width < count:
        for start in range(0, count, 2 * width):
            left, middle = start, min(start + width, count)
            right, end = middle, min(start + 2 * width, count)
            for place in range(start, end):
                if left < middle and (right >= end or values[order[left]] >= values[order[right]]):
                    merged[place] = order[left]
                    left += 1
                else:
                    merged[place] = order[right]
                    right += 1
        order, merged = merged, order
        width *= 2
    return order


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
    order = downward(survival)
    total = 0.0
    for more in range(len(price)):
        price[more] = -np.inf
    for kept in range(min(len(order), priced_rows) + 1):
        if kept:
            total += survival[order[kept - 1]]
        for more in range(len(price)):
            price[more] = max(price[more], total - rate * verify[kept + more])
    best = price[0]
    for more in range(len(price)):
        price[more] = best - price[more]


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
    inside = np.empty(len(parent) - requests, dtype=np.int64)
    for place in range(len(inside)):
        inside[place] = requests + place
    every, bounds = by_request(inside, request, requests)
    price = np.empty(limits[2] + 1)
    seen, run = drafted.copy(), np.empty(len(parent), dtype=np.int64)
    for own in range(requests):
        mine = wanted[ends[own] : ends[own + 1]]
        if not len(mine):
            continue
        rate, curve = rates[own], curve_of[own]
        inner = np.empty(bounds[own + 1] - bounds[own])
        for place in range(len(inner)):
            inner[place] = survival[every[bounds[own] + place]]
        price_rows(inner, verify[curve], rate * prune_scale, limits[3], price)
        deepest = min(max_depth, np.int64(remaining[own]) - 1)
        scaled = rate * growth_scale
        gain = np.empty(len(mine))
        for place in range(len(mine)):
            gain[place] = survival[mine[place]] * holds[mine[place]]
        order = downward(gain)
        ranked = np.empty(min(len(mine), limits[0]), dtype=np.int64)
        for place in range(len(ranked)):
            ranked[place] = mine[order[place]]
        has_missing = False
        for row in ranked:
            has_missing = has_missing or missing[row] != 0
        # The draft runs `run[:nodes]` for the first 1, 2, .. rows; the root among them brings `extra` further tokens.
        nodes = np.empty(len(ranked), dtype=np.int64)
        runs, extra = 0, 0
        for place in range(len(ranked)):
            row = ranked[place]
            if has_missing:
                while row >= 0 and not seen[row]:
                    seen[row] = True
                    run[runs] = row
                    runs += 1
                    row = np.int64(parent[row])
                    if row < 0:
                        extra = np.int64(catch_up[own])
            else:
                run[runs] = row
                runs += 1
            nodes[place] = runs
        levels = 0
        for row in run[:runs]:
            levels = max(levels, deepest - depth[row])
        levels = min(levels, limits[1])
        if levels < 1:
            continue
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
            later_ms = growth_ms(draft[curve], counts, grid_ms[curve], done) + call_ms
            first_ms = growth_ms(draft[curve], counts, grid_ms[curve], done + extra) + call_ms
            for level in range(levels):
                children = done * (level + 1)
                if children <= limits[2]:
                    net = gains[level] - scaled * (first_ms + later_ms * level) - price[children]
                    if net > best:
                        best, count = net, place + 1
        for place in range(count):
            grow[ranked[place] - start] |= DRAFT_BIT


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
        value = np.empty(len(mine))
        for place in range(len(mine)):
            value[place] = survival[mine[place]]
        ranked = downward(value)
        rate, curve = rates[own] * scale, verify[curve_of[own]]
        best, count, total = -(rate * curve[0]), 0, 0.0
        for kept in range(len(ranked)):
            total += value[ranked[kept]]
            net = total - rate * curve[kept + 1]
            if net > best:
                best, count = net, kept + 1
        for place in range(count):
            keep[mine[ranked[place]]] = True


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
