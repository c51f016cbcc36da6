"""What the learned policy computes over rows at once, said row by row: features, stale rows, growths."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from treewise.policy.features import FEATURES, GROWTH_FEATURES
from treewise.policy.hook import DRAFT, LOOKUP, BoolArray, Float32Array, Nodes, RoundContext
from treewise.policy.planner import PLANNED_GROWTHS, PLANNED_LEVELS, PLANNED_ROWS, PRICED_ROWS, Prices

NAN = math.nan


def log(value: float) -> float:
    """Of a probability."""
    return value if math.isnan(value) else math.log(max(value, float(np.float32(1e-12))))


def log1p(value: float) -> float:
    return math.log1p(value)


def describe(forest: Nodes, row: int, context: RoundContext) -> dict[str, float]:
    """The match model's features of one row that is not a root."""
    parent, request = int(forest.parent[row]), int(forest.request[row])
    siblings = [other for other in range(len(forest.parent)) if forest.parent[other] == parent]
    draft_first = next((s for s in reversed(siblings) if forest.draft_rank[s] == 0), None)
    lookup_first = next((s for s in reversed(siblings) if forest.lookup_rank[s] == 0), None)
    recycled_first = next((s for s in reversed(siblings) if forest.recycled_rank[s] == 0), None)
    recycled_second = next((s for s in reversed(siblings) if forest.recycled_rank[s] == 1), None)
    lookup_second = next((s for s in reversed(siblings) if forest.lookup_rank[s] == 1), None)

    def of(column: NDArray[np.float32], sibling: int | None) -> float:
        return NAN if sibling is None else float(column[sibling])

    shared, first_share = of(forest.lookup_share, draft_first), of(forest.lookup_share, lookup_first)
    agree = float(of(forest.lookup_rank, draft_first) == 0)
    if math.isnan(shared) or math.isnan(first_share):
        agree = NAN
    prob, margin = forest.draft_prob[row], forest.draft_margin[row]
    is_draft_first, is_lookup_first = forest.draft_rank[row] == 0, forest.lookup_rank[row] == 0
    is_recycled_first = forest.recycled_rank[row] == 0
    inner = forest.depth[row] > 1
    return {
        "draft_log_prob": log(float(prob)),
        "draft_rank": float(forest.draft_rank[row]),
        "draft_entropy": float(forest.draft_entropy[row]),
        "draft_margin": float(margin),
        "in_draft_vocab": float(forest.in_draft_vocab[row]),
        "lookup_match_length": float(forest.lookup_match_length[row]),
        "lookup_log_count": log1p(float(forest.lookup_count[row])),
        "lookup_share": float(forest.lookup_share[row]),
        "lookup_rank": float(forest.lookup_rank[row]),
        "in_both": float(forest.sources[row] & (DRAFT | LOOKUP) == DRAFT | LOOKUP),
        "first_agree": agree,
        "lookup_first_draft_prob": of(forest.draft_prob, lookup_first),
        "draft_first_lookup_share": shared,
        "recycled_log_prob": log(float(forest.recycled_prob[row])),
        "recycled_rank": float(forest.recycled_rank[row]),
        "recycled_order": float(forest.recycled_order[row]),
        "recycled_log_weight": log1p(float(forest.recycled_weight[row])),
        "recycled_rival_prob": of(forest.recycled_prob, recycled_second if is_recycled_first else recycled_first),
        "draft_rival_prob": float(prob - margin) if is_draft_first else of(forest.draft_prob, draft_first),
        "lookup_rival_share": of(forest.lookup_share, lookup_second if is_lookup_first else lookup_first),
        "parent_draft_log_prob": log(float(forest.draft_prob[parent])) if inner else NAN,
        "parent_match_length": float(forest.lookup_match_length[parent]) if inner else NAN,
        "parent_lookup_share": float(forest.lookup_share[parent]) if inner else NAN,
        "parent_in_both": float(forest.sources[parent] & (DRAFT | LOOKUP) == DRAFT | LOOKUP) if inner else NAN,
        "depth": float(forest.depth[row]),
        "log_prior": log(float(forest.prior[row])),
        "draft_agreement": float(context.draft_agreement[request]),
        "lookup_agreement": float(context.lookup_agreement[request]),
        "temperature": float(context.temperature[request]),
        "draft_drawn_log_prob": log(float(forest.draft_drawn_prob[row])),
        "draft_gap": float(forest.draft_gap[row]),
    }


def describe_below(forest: Nodes, row: int, context: RoundContext) -> dict[str, float]:
    """The growth model's features of one row."""
    request = int(forest.request[row])
    is_root = forest.parent[row] < 0
    first: int | None = row if is_root else None
    guess: int | None = row if is_root else None
    for child in range(len(forest.parent)):
        chained = forest.level[child] <= forest.level[row]  # offered together with the row
        if not is_root and forest.parent[child] == row and forest.lookup_rank[child] == 0 and chained:
            first = child
        if not is_root and forest.parent[child] == row and forest.recycled_rank[child] == 0 and chained:
            guess = child
    if is_root:
        own = dict.fromkeys(GROWTH_FEATURES, NAN) | {"in_both": 0.0, "depth": 0.0, "log_prior": 0.0}
        own |= {"in_draft_vocab": 1.0, "temperature": float(context.temperature[request])}
        own |= {"draft_agreement": float(context.draft_agreement[request])}
        own |= {"lookup_agreement": float(context.lookup_agreement[request])}
    else:
        own = describe(forest, row, context)
    known, remembered = first is not None, guess is not None
    below = {
        "below_match_length": float(forest.lookup_match_length[first]) if known else NAN,
        "below_log_count": log1p(float(forest.lookup_count[first])) if known else NAN,
        "below_share": float(forest.lookup_share[first]) if known else NAN,
        "below_log_age": log1p(float(forest.lookup_age[first])) if known else NAN,
        "below_recycled_prob": float(forest.recycled_prob[guess]) if remembered else NAN,
        "below_recycled_order": float(forest.recycled_order[guess]) if remembered else NAN,
        "below_recycled_log_weight": log1p(float(forest.recycled_weight[guess])) if remembered else NAN,
    }
    return {name: below.get(name, own.get(name, NAN)) for name in GROWTH_FEATURES}


def node_table(forest: Nodes, rows: NDArray[np.intp], context: RoundContext) -> Float32Array:
    """[n, features]"""
    described = [describe(forest, row, context) for row in rows.tolist()]
    return np.asarray([[row[name] for name in FEATURES] for row in described], dtype=np.float32)


def growth_table(forest: Nodes, rows: NDArray[np.intp], context: RoundContext) -> Float32Array:
    """[n, growth features]"""
    described = [describe_below(forest, row, context) for row in rows.tolist()]
    return np.asarray([[row[name] for name in GROWTH_FEATURES] for row in described], dtype=np.float32)


def stale_rows(known: BoolArray, parent: list[int], before: BoolArray, drafted: BoolArray) -> list[int]:
    """Rows not `known`, or whose parent's or grandparent's `drafted` was not so `before`; arrays are [rows]."""
    stale = []
    for row, above in enumerate(parent):
        if above < 0:
            continue
        changed = drafted[above] != before[above]
        higher = parent[above]
        changed = changed or (higher >= 0 and drafted[higher] != before[higher])
        if changed or not known[row]:
            stale.append(row)
    return stale


def row_price(survival: list[float], more: int, prices: Prices) -> float:
    """Tokens that `more` rows take from the best kept set."""
    ordered = sorted(survival, reverse=True)[:PRICED_ROWS]

    def best(extra: int) -> float:
        curve = prices.curves.verify
        return max(sum(ordered[:kept]) - prices.rate * float(curve[kept + extra]) for kept in range(len(ordered) + 1))

    return best(0) - best(more)


def growths(
    survival: list[float],
    holds: list[float],
    rows: list[int],
    forest: Nodes,
    deepest: int,
    catch_up: int,
    prices: Prices,
) -> list[int]:
    """The growth with the most tokens left after its price, over all counts of rows and of levels."""
    parent, depth, drafted = forest.parent.tolist(), forest.depth.tolist(), forest.drafted.tolist()
    inner = [survival[row] for row in range(len(parent)) if parent[row] >= 0]
    ranked = sorted(rows, key=lambda row: -survival[row] * holds[row])[:PLANNED_GROWTHS]
    best, chosen = 0.0, 0
    runs: list[list[int]] = []
    run: list[int] = []
    for row in ranked:
        while row >= 0 and row not in run and not drafted[row]:
            run.append(row)
            row = parent[row]
        runs.append(list(run))
    ahead = min(max(deepest - depth[row] for row in run), PLANNED_LEVELS) if run else 0
    for count, run in enumerate(runs, start=1):
        extra = catch_up if any(parent[row] < 0 for row in run) else 0
        for levels in range(1, ahead + 1):
            if len(run) * levels > PLANNED_ROWS:
                continue
            gain = sum(
                survival[row] * sum(holds[row] ** h for h in range(1, min(levels, deepest - depth[row]) + 1))
                for row in run
            )
            ms = prices.growth_ms(len(run) + extra) + (levels - 1) * prices.growth_ms(len(run))
            net = gain - prices.rate * ms - row_price(inner, len(run) * levels, prices)
            if net > best + 1e-12:
                best, chosen = net, count
    return ranked[:chosen]
