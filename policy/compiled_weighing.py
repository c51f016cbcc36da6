"""The learned policy's decisions as machine code: all requests of a round in a few calls, whatever their number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treewise.policy.compiled_features import growth_features, node_features
from treewise.policy.compiled_planner import draft_rows, keep_rows, open_drafts
from treewise.policy.compiled_rows import admit_rows, ask_free, changed_rows, path_survival
from treewise.policy.hook import (
    DRAFT,
    FREE,
    BoolArray,
    Deployment,
    Expansion,
    Float32Array,
    ForestView,
    Level,
    Nodes,
    RoundContext,
    UInt8Array,
)
from treewise.policy.planner import (
    PLANNED_GROWTHS,
    PLANNED_LEVELS,
    PLANNED_ROWS,
    PRICED_ROWS,
    Float64Array,
    IndexArray,
    PlannerSettings,
    Prices,
)
from treewise.policy.row_scores import RowScores
from treewise.policy.weighing import AGREEMENT, Weighing

Int64Array = NDArray[np.int64]
_LIMITS = np.asarray([PLANNED_GROWTHS, PLANNED_LEVELS, PLANNED_ROWS, PRICED_ROWS], dtype=np.int64)
_FREE_BITS = np.uint8(FREE)
_DRAFT_BIT = np.uint8(DRAFT)


@dataclass(frozen=True, slots=True)
class PriceTable:
    """The prices of all requests of a round."""

    rates: Float64Array  # [requests] tokens per millisecond
    curve_of: Int64Array  # [requests]
    verify: Float64Array  # [curves, nodes + 1] milliseconds
    draft: Float64Array  # [curves, tokens + 1]
    counts: Float64Array  # [points] tokens of the draft's measured grid
    grid_ms: Float64Array  # [curves, points]
    cheapest_ms: Float64Array  # [requests] of one more row
    call_ms: float

    @classmethod
    def of(cls, prices: Sequence[Prices]) -> PriceTable:
        """The table of `prices` [requests]; requests that share their curves share them here too."""
        first = prices[0].curves
        if all(p.curves is first for p in prices):
            curves, curve_of = [first], np.zeros(len(prices), dtype=np.int64)
        else:
            curves, curve_of = [p.curves for p in prices], np.arange(len(prices))
        return cls(
            rates=np.asarray([p.rate for p in prices]),
            curve_of=curve_of,
            verify=_stack([c.verify for c in curves]),
            draft=_stack([c.draft for c in curves]),
            counts=np.asarray(first.grid.counts, dtype=np.float64),
            grid_ms=_stack([c.grid.curve(c.capacity) for c in curves]),
            cheapest_ms=np.asarray([p.curves.cheapest_row_ms for p in prices]),
            call_ms=float(prices[0].call_ms),
        )

    @property
    def arrays(self) -> tuple[Float64Array, Int64Array, Float64Array, Float64Array, Float64Array, Float64Array]:
        """Its columns in the order in which the machine code takes them."""
        return self.rates, self.curve_of, self.verify, self.draft, self.counts, self.grid_ms


class CompiledWeighing(Weighing):
    """The same decisions as `Weighing`, compiled when this module is imported."""

    def __init__(self, deployment: Deployment, settings: PlannerSettings) -> None:
        super().__init__(deployment, settings)
        self._has_draft = bool(deployment.sources & DRAFT)
        self._priors = np.asarray(deployment.prior_table.by_match_length, dtype=np.float64)
        self._table: PriceTable | None = None  # of the round in progress

    def open(self, context: RoundContext, rates: Sequence[float]) -> RowScores:
        """The scores of a round that opens."""
        scores = super().open(context, rates)
        self._table = PriceTable.of(scores.prices)
        return scores

    def stale(self, scores: RowScores, forest: Nodes) -> IndexArray:
        """Rows to be scored."""
        known = scores.rows
        scores.cover(len(forest.parent))
        rows = np.empty(scores.rows, dtype=np.int64)
        return rows[: changed_rows(forest.parent, forest.drafted, known, scores.requests, scores.drafted, rows)]

    def node_features(self, forest: Nodes, rows: IndexArray, context: RoundContext) -> Float32Array:
        """What the match model reads."""
        return node_features(forest, rows, context)

    def growth_features(
        self, forest: Nodes, rows: IndexArray, context: RoundContext, described: Float32Array | None
    ) -> Float32Array:
        """What the growth model reads."""
        return growth_features(forest, rows, context, described)

    def survival(self, scores: RowScores, forest: Nodes) -> Float64Array:
        """Probability that each row's whole path matches, [rows]."""
        return path_survival(
            scores.match, forest.parent, forest.depth, scores.requests, self.settings.sibling_normalise
        )

    def admission(self, scores: RowScores, survival: Float64Array, level: Level) -> tuple[BoolArray, IndexArray]:
        """(which candidates pay, or may rise yet; forest rows that may be drafted below)."""
        forest, count = level.forest, len(survival) - level.start
        admit, rows = np.empty(count, dtype=np.bool_), np.empty(count, dtype=np.int64)
        wanted = admit_rows(
            survival,
            level.start,
            forest.request,
            scores.least,
            scores.drafted,
            forest.may_grow,
            self._has_draft,
            admit,
            rows,
        )
        return admit, rows[:wanted]

    def growths(
        self, scores: RowScores, survival: Float64Array, level: Level, admit: BoolArray, rows: IndexArray
    ) -> Expansion:
        """The answer to a level."""
        forest, context, settings, prices = level.forest, level.context, self.settings, self._prices
        grow = np.zeros(len(admit), dtype=np.uint8)
        if rows.size:
            draft_rows(
                *(survival, scores.holds, rows, forest.parent, forest.depth, forest.request),
                *(forest.drafted, forest.draft_missing, level.start, self.deployment.envelope.max_depth),
                *(context.remaining_tokens, context.catch_up, *prices.arrays, prices.call_ms),
                *(settings.prune_scale, settings.growth_scale, _LIMITS, grow),
            )
        ask_free(
            *(survival, forest.request, forest.may_grow, level.start, context.lookup_agreement),
            *(prices.rates, prices.cheapest_ms, prices.call_ms, AGREEMENT, grow),
        )
        return Expansion(admit | (grow > 0), grow)

    def openings(self, scores: RowScores, level: Level, rows: IndexArray) -> UInt8Array:
        """Bits of the opening level."""
        roots, context, prices, envelope = level.forest, level.context, self._prices, self.deployment.envelope
        grow = level.candidates.may_grow & _FREE_BITS
        if rows.size:
            open_drafts(
                *(rows, scores.holds, roots.lookup_match_length, roots.lookup_share, roots.recycled_prob),
                *(self._priors, envelope.min_grow_prior, envelope.max_depth),
                *(context.remaining_tokens, context.catch_up, *prices.arrays, prices.call_ms),
                *(self.settings.opening_scale, _LIMITS, grow),
            )
        return grow

    def keep(self, scores: RowScores, survival: Float64Array, forest: ForestView) -> BoolArray:
        """The rows to verify."""
        nodes, roots = forest.nodes, scores.requests
        keep = np.zeros(len(survival), dtype=np.bool_)
        keep[:roots] = True
        rows = nodes.admitted[roots:].nonzero()[0] + roots
        prices = self._prices
        if len(rows) >= prices.verify.shape[1]:
            most = int(np.bincount(nodes.request[rows]).max())
            prices = PriceTable.of([self._pricing.cover(own, most) for own in scores.prices])
        keep_rows(
            *(survival, rows, nodes.request, prices.rates, prices.curve_of, prices.verify),
            *(self.settings.prune_scale, keep),
        )
        return keep

    @property
    def _prices(self) -> PriceTable:
        assert self._table is not None, "a round opens before it is decided"
        return self._table


def _stack(curves: Sequence[Float64Array]) -> Float64Array:
    """[curves, the length of the shortest]: some were once extended for a large forest, all are long enough."""
    if len(curves) == 1:
        return curves[0][None]
    length = min(len(curve) for curve in curves)
    return np.stack([curve[:length] for curve in curves])
