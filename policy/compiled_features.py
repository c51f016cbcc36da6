"""The features as machine code: the bits of `treewise.policy.features`, row by row instead of column by column.

Logarithms stay numpy's, whose last bits are its own: the machine code lays out what they are taken of.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import bool_, float32, int32, int64, uint8, void
from numpy.typing import NDArray

from treewise.policy.compiled_code import compiled, read, written
from treewise.policy.features import FEATURES, GROWTH_FEATURES
from treewise.policy.hook import BoolArray, Float32Array, Int32Array, Nodes, RoundContext, UInt8Array

Int64Array = NDArray[np.int64]

# The columns in the order in which the machine code writes them: logarithms, logarithms of 1 + x, the others.
LOGS = ("draft_log_prob", "recycled_log_prob", "parent_draft_log_prob", "log_prior", "draft_drawn_log_prob")
LOGS_PLUS_ONE = ("lookup_log_count", "recycled_log_weight")
OTHERS = (
    *("draft_rank", "draft_entropy", "draft_margin", "in_draft_vocab"),
    *("lookup_match_length", "lookup_share", "lookup_rank"),
    *("in_both", "first_agree", "lookup_first_draft_prob", "draft_first_lookup_share"),
    *("recycled_rank", "recycled_order"),
    *("draft_rival_prob", "lookup_rival_share", "recycled_rival_prob"),
    *("parent_match_length", "parent_lookup_share", "parent_in_both"),
    *("depth", "draft_agreement", "lookup_agreement", "temperature", "draft_gap"),
)
_PLACES = np.asarray([FEATURES.index(name) for name in LOGS + LOGS_PLUS_ONE + OTHERS], dtype=np.int64)

BELOW_LOGS = ("below_log_count", "below_log_age", "below_recycled_log_weight")  # of 1 + x
BELOW_OTHERS = ("below_match_length", "below_share", "below_recycled_prob", "below_recycled_order")
CONTEXT = ("draft_agreement", "lookup_agreement", "temperature")
_BELOW_PLACES = np.asarray(
    [GROWTH_FEATURES.index(name) for name in BELOW_LOGS + BELOW_OTHERS + CONTEXT], dtype=np.int64
)
_SHARED = np.asarray([FEATURES.index(name) if name in FEATURES else -1 for name in GROWTH_FEATURES], dtype=np.int64)
_OF_ROOTS = np.full(len(GROWTH_FEATURES), np.nan, dtype=np.float32)
for _name, _value in (("in_both", 0.0), ("depth", 0.0), ("log_prior", 0.0), ("in_draft_vocab", 1.0)):
    _OF_ROOTS[GROWTH_FEATURES.index(_name)] = _value
_NOTHING = np.zeros((0, len(FEATURES)), dtype=np.float32)


def node_features(forest: Nodes, rows: NDArray[np.integer[Any]], context: RoundContext) -> Float32Array:
    """As `treewise.policy.features.node_features`."""
    rows = np.ascontiguousarray(rows, dtype=np.int64)
    count = len(rows)
    table = np.empty((count, len(FEATURES)), dtype=np.float32)
    logs = np.empty((len(LOGS) + len(LOGS_PLUS_ONE), count), dtype=np.float32)
    gather_nodes(
        *(rows, forest.parent, forest.depth, forest.request, forest.sources, forest.prior),
        *(forest.draft_prob, forest.draft_rank, forest.draft_entropy, forest.draft_margin, forest.in_draft_vocab),
        *(forest.draft_drawn_prob, forest.draft_gap),
        *(forest.lookup_match_length, forest.lookup_count, forest.lookup_share, forest.lookup_rank),
        *(forest.recycled_prob, forest.recycled_order, forest.recycled_weight, forest.recycled_rank),
        *(context.draft_agreement, context.lookup_agreement, context.temperature),
        *(_PLACES, table, logs),
    )
    plain, shifted = logs[: len(LOGS)], logs[len(LOGS) :]
    np.log(plain, out=plain)
    np.log1p(shifted, out=shifted)
    place_columns(logs, _PLACES, table)
    return table


def growth_features(
    forest: Nodes, rows: NDArray[np.integer[Any]], context: RoundContext, described: Float32Array | None = None
) -> Float32Array:
    """As `treewise.policy.features.growth_features`.

    `described` may hold further rows before them: those of the forest's last rows, in order.
    """
    rows = np.ascontiguousarray(rows, dtype=np.int64)
    count = len(rows)
    own = np.full(count, -1)  # places in `described`; roots have none
    if described is None:
        described = _NOTHING
        inner = (forest.parent[rows] >= 0).nonzero()[0]
        if inner.size:
            own[inner] = np.arange(len(inner))
            described = node_features(forest, rows[inner], context)
    elif len(described) == count:
        own = np.arange(count)
    else:
        own = rows + (len(described) - len(forest.parent))
    table = np.empty((count, len(GROWTH_FEATURES)), dtype=np.float32)
    logs = np.empty((len(BELOW_LOGS), count), dtype=np.float32)
    gather_below(
        *(rows, own, described, forest.parent, forest.request, forest.level),
        *(forest.lookup_match_length, forest.lookup_count, forest.lookup_share, forest.lookup_age),
        *(forest.lookup_rank, forest.recycled_prob, forest.recycled_order, forest.recycled_weight),
        *(forest.recycled_rank, context.draft_agreement, context.lookup_agreement, context.temperature),
        *(_SHARED, _OF_ROOTS, _BELOW_PLACES, table, logs),
    )
    np.log1p(logs, out=logs)
    place_columns(logs, _BELOW_PLACES, table)
    return table


_F32 = read(float32)


@compiled(
    void(
        *(read(int64), read(int32), read(int32), read(int32), read(uint8), _F32),
        *(_F32, _F32, _F32, _F32, read(bool_)),
        *(_F32, _F32),
        *(_F32, _F32, _F32, _F32),
        *(_F32, _F32, _F32, _F32),
        *(_F32, _F32, _F32),
        *(read(int64), written(float32, 2), written(float32, 2)),
    )
)
def gather_nodes(
    rows: Int64Array,
    parent: Int32Array,
    depth: Int32Array,
    request: Int32Array,
    sources: UInt8Array,
    prior: Float32Array,
    draft_prob: Float32Array,
    draft_rank: Float32Array,
    draft_entropy: Float32Array,
    draft_margin: Float32Array,
    in_draft_vocab: BoolArray,
    drawn_prob: Float32Array,
    gap: Float32Array,
    match_length: Float32Array,
    lookup_count: Float32Array,
    share: Float32Array,
    lookup_rank: Float32Array,
    recycled_prob: Float32Array,
    recycled_order: Float32Array,
    recycled_weight: Float32Array,
    recycled_rank: Float32Array,
    draft_agreement: Float32Array,
    lookup_agreement: Float32Array,
    temperature: Float32Array,
    places: Int64Array,
    table: Float32Array,
    logs: Float32Array,
) -> None:
    """Fill `table` [n, features] but for the columns of logarithms, and `logs` [logarithms, n] before they are taken.

    `places` [features] is where each column goes, in this module's order.
    """
    nan, smallest = np.float32(np.nan), np.float32(1e-12)
    # First choices below every row, as forest rows; -1: there is none.
    first = np.full((5, len(parent)), -1, dtype=np.int32)
    draft_first, lookup_first, lookup_second = first[0], first[1], first[2]
    recycled_first, recycled_second = first[3], first[4]
    for row in range(len(parent)):
        above = parent[row]
        if above < 0:
            continue
        if draft_rank[row] == 0.0:
            draft_first[above] = row
        if lookup_rank[row] == 0.0:
            lookup_first[above] = row
        elif lookup_rank[row] == 1.0:
            lookup_second[above] = row
        if recycled_rank[row] == 0.0:
            recycled_first[above] = row
        elif recycled_rank[row] == 1.0:
            recycled_second[above] = row
    others = len(logs)
    for place in range(len(rows)):
        row = rows[place]
        above, own = parent[row], request[row]
        is_deep = depth[row] > 1  # the root is certain, and its lookup columns speak of its children
        logs[0, place] = draft_prob[row]
        logs[1, place] = recycled_prob[row]
        logs[2, place] = draft_prob[above] if is_deep else nan
        logs[3, place] = prior[row]
        logs[4, place] = drawn_prob[row]
        logs[5, place] = lookup_count[row]
        logs[6, place] = recycled_weight[row]
        for number in range(5):
            if logs[number, place] < smallest:
                logs[number, place] = smallest
        by_draft, by_lookup = draft_first[above], lookup_first[above]
        shared = nan if by_draft < 0 else share[by_draft]
        agrees = np.float32(by_draft >= 0 and lookup_rank[by_draft] == 0.0)
        if by_lookup < 0 or math.isnan(share[by_lookup]) or math.isnan(shared):
            agrees = nan
        rival = nan if by_draft < 0 else draft_prob[by_draft]
        if draft_rank[row] == 0.0:
            rival = draft_prob[row] - draft_margin[row]
        other = lookup_second[above] if lookup_rank[row] == 0.0 else by_lookup
        again = recycled_second[above] if recycled_rank[row] == 0.0 else recycled_first[above]
        line = table[place]
        line[places[others]] = draft_rank[row]
        line[places[others + 1]] = draft_entropy[row]
        line[places[others + 2]] = draft_margin[row]
        line[places[others + 3]] = in_draft_vocab[row]
        line[places[others + 4]] = match_length[row]
        line[places[others + 5]] = share[row]
        line[places[others + 6]] = lookup_rank[row]
        line[places[others + 7]] = sources[row] & 3 == 3
        line[places[others + 8]] = agrees
        line[places[others + 9]] = nan if by_lookup < 0 else draft_prob[by_lookup]
        line[places[others + 10]] = shared
        line[places[others + 11]] = recycled_rank[row]
        line[places[others + 12]] = recycled_order[row]
        line[places[others + 13]] = rival
        line[places[others + 14]] = nan if other < 0 else share[other]
        line[places[others + 15]] = nan if again < 0 else recycled_prob[again]
        line[places[others + 16]] = match_length[above] if is_deep else nan
        line[places[others + 17]] = share[above] if is_deep else nan
        line[places[others + 18]] = np.float32(sources[above] & 3 == 3) if is_deep else nan
        line[places[others + 19]] = depth[row]
        line[places[others + 20]] = draft_agreement[own]
        line[places[others + 21]] = lookup_agreement[own]
        line[places[others + 22]] = temperature[own]
        line[places[others + 23]] = gap[row]


@compiled(
    void(
        *(read(int64), read(int64), read(float32, 2), read(int32), read(int32), read(int32)),
        *(_F32, _F32, _F32, _F32),
        *(_F32, _F32, _F32, _F32),
        *(_F32, _F32, _F32, _F32),
        *(read(int64), _F32, read(int64), written(float32, 2), written(float32, 2)),
    )
)
def gather_below(
    rows: Int64Array,
    own: Int64Array,
    described: Float32Array,
    parent: Int32Array,
    request: Int32Array,
    level: Int32Array,
    match_length: Float32Array,
    lookup_count: Float32Array,
    share: Float32Array,
    age: Float32Array,
    lookup_rank: Float32Array,
    recycled_prob: Float32Array,
    recycled_order: Float32Array,
    recycled_weight: Float32Array,
    recycled_rank: Float32Array,
    draft_agreement: Float32Array,
    lookup_agreement: Float32Array,
    temperature: Float32Array,
    shared: Int64Array,
    of_roots: Float32Array,
    places: Int64Array,
    table: Float32Array,
    logs: Float32Array,
) -> None:
    """Fill `table` [n, growth features] but for the logarithms, and `logs` [logarithms, n] before they are taken.

    `own` [n] is each row's place in `described`, -1 for a root; `shared` [growth features] the columns taken from
    there; `places` where the columns below and those of the context go.
    """
    nan = np.float32(np.nan)
    known = np.full((2, len(parent)), -1, dtype=np.int32)  # the first shown below every row, by either free source
    for row in range(len(parent)):
        above = parent[row]
        if above >= 0 and level[row] <= level[above]:
            if lookup_rank[row] == 0.0:
                known[0, above] = row
            if recycled_rank[row] == 0.0:
                known[1, above] = row
    for place in range(len(rows)):
        row = rows[place]
        line = table[place]
        if own[place] >= 0:
            for column in range(len(shared)):
                if shared[column] >= 0:
                    line[column] = described[own[place], shared[column]]
        else:
            for column in range(len(of_roots)):
                line[column] = of_roots[column]
            line[places[7]] = draft_agreement[request[row]]
            line[places[8]] = lookup_agreement[request[row]]
            line[places[9]] = temperature[request[row]]
        is_root = parent[row] < 0  # its own columns speak of its children
        first = row if is_root else np.int64(known[0, row])
        logs[0, place] = nan if first < 0 else lookup_count[first]
        logs[1, place] = nan if first < 0 else age[first]
        line[places[3]] = nan if first < 0 else match_length[first]
        line[places[4]] = nan if first < 0 else share[first]
        first = row if is_root else np.int64(known[1, row])
        logs[2, place] = nan if first < 0 else recycled_weight[first]
        line[places[5]] = nan if first < 0 else recycled_prob[first]
        line[places[6]] = nan if first < 0 else recycled_order[first]


@compiled(void(read(float32, 2), read(int64), written(float32, 2)))
def place_columns(columns: Float32Array, places: Int64Array, table: Float32Array) -> None:
    """Write `columns` [k, n] to the first k `places` of `table` [n, features]."""
    for number in range(len(columns)):
        for row in range(len(table)):
            table[row, places[number]] = columns[number, row]
