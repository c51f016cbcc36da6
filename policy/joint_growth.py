"""Draft passes that a batch makes together: one that a single request asks for costs all of them.

Everything is in milliseconds of the batch: what a token spares its request's place, against the price of a whole pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treewise.data.cost import CostGrid, share_of_call
from treewise.policy.budget import Float64Array, verify_curve
from treewise.policy.hook import Deployment, Nodes, RoundContext
from treewise.policy.planner import PLANNED_LEVELS, IndexArray

PLANNED_GROWTHS = 64  # candidates of one level that a plan weighs, over the batch
PLANNED_ROWS = 96  # rows that a plan may add
PRICED_ROWS = 128  # rows that a plan weighs them against
_LEVELS = np.arange(1, PLANNED_LEVELS + 1)


@dataclass(frozen=True, slots=True)
class BatchPrices:
    """What a batch pays for passes of all its requests."""

    verify: Float64Array  # [rows + 1] ms of a verify pass of all roots and so many nodes; enough for every plan
    draft: CostGrid
    capacity: int  # tokens of the longest cache
    call_ms: float  # of one more level

    @classmethod
    def of(cls, deployment: Deployment, context: RoundContext, rows_scale: float = 1.0) -> BatchPrices:
        """The prices of a round of `deployment`, whose profile is that of whole passes; `rows_scale` times of rows."""
        roots, capacity, cost = len(context.request_id), int(context.position.max()), deployment.cost
        verify = verify_curve(deployment, roots - 1 + PRICED_ROWS + PLANNED_ROWS, capacity)[roots - 1 :]
        return cls(
            verify * rows_scale, cost.draft, capacity, roots * (share_of_call(cost.policy_ms, roots) + cost.level_ms)
        )

    def of_rows(self, saved_ms: Float64Array) -> Float64Array:
        """What 0 .. `PLANNED_ROWS` more rows take from the best kept set of rows that save `saved_ms` [rows]."""
        best = np.sort(saved_ms)[::-1][:PRICED_ROWS]
        totals = np.concatenate([[0.0], best.cumsum()])
        passes = np.lib.stride_tricks.sliding_window_view(self.verify, len(totals))[: PLANNED_ROWS + 1]
        left = (totals - passes).max(axis=1)
        return np.asarray(left[0] - left)

    def of_growth(self, tokens: NDArray[np.int64]) -> Float64Array:
        """Milliseconds of one growth of `tokens` [n] tokens, and of the level that it opens."""
        return self.draft.at(tokens, self.capacity) + self.call_ms


@dataclass(frozen=True, slots=True)
class Running:
    """What growths on candidates would run the draft on: themselves, and ancestors that it has not seen."""

    rows: IndexArray  # [runs] of the forest
    runs: NDArray[np.int64]  # [candidates] of `rows`, the first so many, for the first 1, 2, .. candidates
    tokens: NDArray[np.int64]  # [candidates] that the first growth runs for them, catch-up included

    @classmethod
    def of(cls, candidates: IndexArray, forest: Nodes, catch_up: NDArray[np.integer]) -> Running:
        """For `candidates`, best first; `catch_up` [requests] is what each request's draft has not seen."""
        parent, drafted = forest.parent, forest.drafted
        rows: dict[int, None] = {}
        runs, tokens = np.empty((2, len(candidates)), dtype=np.int64)
        extra = 0
        for place, row in enumerate(candidates.tolist()):
            while row not in rows and not drafted[row]:
                rows[row] = None
                if parent[row] < 0:
                    extra += int(catch_up[row])  # a root's row is its request's place
                    break
                row = int(parent[row])
            runs[place], tokens[place] = len(rows), len(rows) + extra
        return cls(np.fromiter(rows, dtype=np.intp), runs, tokens)


def grow_together(
    saved_ms: Float64Array,
    holds: Float64Array,
    candidates: IndexArray,
    forest: Nodes,
    context: RoundContext,
    max_depth: int,
    row_price_ms: Float64Array,
    prices: BatchPrices,
    scale: float = 1.0,
) -> IndexArray:
    """Those of `candidates` (forest rows of all requests) to run the draft on in one pass; empty: no pass pays.

    `saved_ms` and `holds` are of all forest rows: what a row's survival saves, and the chance that the draft offers the
    next token below it and no free source does. A plan of h levels makes h passes; every row goes as deep in it as pays
    at the price of one more verified row (`row_price_ms`, of `BatchPrices.of_rows`). The best plan's first pass is
    asked for; `scale` multiplies the price of passes.
    """
    best = (-(saved_ms[candidates] * holds[candidates])).argsort(kind="stable")[:PLANNED_GROWTHS]
    candidates = candidates[best]
    running = Running.of(candidates, forest, context.catch_up)
    run = running.rows
    if not run.size:
        return candidates[:0]
    deepest = np.minimum(max_depth, context.remaining_tokens - 1)
    room = deepest[forest.request[run]] - forest.depth[run]
    levels = min(int(room.max()), PLANNED_LEVELS)
    if levels < 1:
        return candidates[:0]
    steps: Float64Array = np.repeat(holds[run][:, None], levels, axis=1).cumprod(axis=1)
    steps[_LEVELS[:levels] > room[:, None]] = 0.0
    gains = saved_ms[run][:, None] * steps.cumsum(axis=1)
    # In a plan of h levels a row adds its best count of levels up to h, a verified row each.
    net = gains - float(row_price_ms[1]) * _LEVELS[:levels]
    own = np.where(net >= np.maximum.accumulate(net, axis=1), np.arange(levels), 0)
    own = np.maximum.accumulate(own, axis=1)
    added = (own + 1).cumsum(axis=0)[running.runs - 1]
    total = np.take_along_axis(gains, own, axis=1).cumsum(axis=0)[running.runs - 1]
    passes = prices.of_growth(running.tokens)[:, None] + prices.of_growth(running.runs)[:, None] * np.arange(levels)
    worth = total - row_price_ms[np.minimum(added, PLANNED_ROWS)] - scale * passes
    worth[added > PLANNED_ROWS] = -np.inf
    of_each = worth.max(axis=1)
    count = int(of_each.argmax())
    return candidates[: count + 1] if of_each[count] > 0.0 else candidates[:0]
