"""Decisions of one round by arithmetic alone: scores and prices in; admitted rows, growths and kept rows out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from treewise.policy.budget import SharedDeployments
from treewise.policy.features import growth_features, node_features
from treewise.policy.hook import (
    DRAFT,
    FREE,
    LOOKUP,
    RECYCLED,
    BoolArray,
    Deployment,
    Expansion,
    Float32Array,
    ForestView,
    Int32Array,
    Level,
    Nodes,
    RoundContext,
    UInt8Array,
)
from treewise.policy.planner import (
    Float64Array,
    IndexArray,
    Opening,
    PlannerSettings,
    Prices,
    choose_growths,
    draft_at_once,
    keep_rows,
    normalise_siblings,
    path_products,
    row_prices,
)
from treewise.policy.pricing import Pricing
from treewise.policy.row_scores import RowScores

AGREEMENT = 0.3  # a source's chance of the next token before it was seen at work
_DRAFT_BIT, _FREE_BITS = np.uint8(DRAFT), np.uint8(FREE)
_LOOKUP_BIT, _RECYCLED_BIT = np.uint8(LOOKUP), np.uint8(RECYCLED)


class Weighing:
    """The planner over the rows of a batch, in numpy, for one deployment.

    Requests of a batch share every pass, so a row of one of them is priced as though its mates did alike: what
    `batch_size` times the rows cost, divided by `batch_size`. What the mates really do changes no decision.
    """

    def __init__(self, deployment: Deployment, settings: PlannerSettings) -> None:
        self.deployment = deployment
        self.settings = settings
        self._shared = SharedDeployments(deployment)
        self._pricings: dict[int, Pricing] = {}  # by batch size
        self._pricing = self._priced(1)  # of the round in progress

    def open(self, context: RoundContext, rates: Sequence[float]) -> RowScores:
        """The scores of a round that opens; `rates` [requests] in tokens per millisecond of a request's share."""
        scores = RowScores(len(rates))
        self._pricing = self._priced(context.batch_size)
        scores.prices = [
            self._pricing.at(capacity, rate) for capacity, rate in zip(context.position.tolist(), rates, strict=True)
        ]
        scale = self.settings.prune_scale
        scores.least = np.asarray([p.rate * scale * p.curves.cheapest_row_ms for p in scores.prices])
        return scores

    def stale(self, scores: RowScores, forest: Nodes) -> IndexArray:
        """Rows to be scored, ascending; they count as scored in their present state from here on."""
        return scores.stale(forest)

    def node_features(self, forest: Nodes, rows: IndexArray, context: RoundContext) -> Float32Array:
        """What the match model reads of `rows` [n]."""
        return node_features(forest, rows, context)

    def growth_features(
        self, forest: Nodes, rows: IndexArray, context: RoundContext, described: Float32Array | None
    ) -> Float32Array:
        """What the growth model reads of `rows` [n]; `described` are the node features of the forest's last rows."""
        return growth_features(
            forest, rows, context, None if described is None else described[rows - len(forest.parent)]
        )

    def survival(self, scores: RowScores, forest: Nodes) -> Float64Array:
        """Probability that each row's whole path matches, [rows]."""
        match = scores.match
        if self.settings.sibling_normalise:
            match = normalise_siblings(match, forest.parent, scores.requests)
        return path_products(match, forest.parent, int(forest.depth.max(initial=0)))

    def admission(self, scores: RowScores, survival: Float64Array, level: Level) -> tuple[BoolArray, IndexArray]:
        """(which candidates pay, or may rise yet [candidates]; forest rows that may be drafted below)."""
        candidates = level.candidates
        pays = survival[level.start :] > scores.least[candidates.request]
        admit = pays
        if self.deployment.sources & DRAFT:
            admit = pays | ~scores.drafted[level.start :]  # a row that still waits for the draft's opinion may rise
        may_draft = (candidates.may_grow & _DRAFT_BIT).astype(np.bool_) & pays
        return admit, may_draft.nonzero()[0] + level.start

    def growths(
        self, scores: RowScores, survival: Float64Array, level: Level, admit: BoolArray, rows: IndexArray
    ) -> Expansion:
        """The answer to a level whose `admit` [candidates] and draftable `rows` are `admission`'s, `rows` scored."""
        grow = np.zeros(len(admit), dtype=np.uint8)
        for request, prices, own in self._shares(scores, level.forest.request[rows]):
            if own.size:
                drafts = self._choose_growths(scores, level, rows[own], survival, request, prices)
                grow[drafts - level.start] = _DRAFT_BIT
        self._ask_free(scores, level, survival[level.start :], grow)
        return Expansion(admit | (grow > 0), grow)

    def openings(self, scores: RowScores, level: Level, rows: IndexArray) -> UInt8Array:
        """Bits of the opening level: every free source, the draft of `rows` where it pays to ask it at once."""
        roots, context = level.candidates, level.context
        envelope, table = self.deployment.envelope, self.deployment.prior_table
        grow = roots.may_grow & _FREE_BITS
        for request in rows.tolist():
            first = 0.0
            length, share = roots.lookup_match_length[request], roots.lookup_share[request]
            if grow[request] & LOOKUP and length > 0 and share > 0:
                first = table.prior(int(length), float(share))
            recycled = float(roots.recycled_prob[request])
            if grow[request] & RECYCLED and recycled > first:
                first = recycled
            opening = Opening(
                holds=float(scores.holds[request]),
                first_match=first,
                carries=first >= envelope.min_grow_prior,
                levels=self._deepest(context, request),
                catch_up=int(context.catch_up[request]),
            )
            if draft_at_once(opening, scores.prices[request], self.settings.opening_scale):
                grow[request] |= DRAFT
        return grow

    def keep(self, scores: RowScores, survival: Float64Array, forest: ForestView) -> BoolArray:
        """The rows to verify, [rows]: the node set with the most survival left after its price."""
        nodes, roots = forest.nodes, scores.requests
        keep = np.zeros(len(survival), dtype=np.bool_)
        keep[:roots] = True
        inner = nodes.admitted[roots:].nonzero()[0] + roots
        for _, prices, own in self._shares(scores, nodes.request[inner]):
            rows = inner[own]
            covering = self._pricing.cover(prices, len(rows))
            keep[keep_rows(survival, rows, covering, self.settings.prune_scale)] = True
        return keep

    def _priced(self, batch_size: int) -> Pricing:
        """The prices of one of `batch_size` requests."""
        found = self._pricings.get(batch_size)
        if found is None:
            found = self._pricings[batch_size] = Pricing(self._shared.of(batch_size))
        return found

    def _ask_free(self, scores: RowScores, level: Level, survival: Float64Array, grow: UInt8Array) -> None:
        """Add the free sources' bits to `grow` [candidates] where they pay; `survival` is [candidates] as well.

        They are free, but a level more is not, unless the draft opens it anyway. The recycled guesses' agreement is
        not followed, so they count as a source that was not seen at work.
        """
        candidates, request = level.candidates, level.candidates.request
        free = candidates.may_grow & _FREE_BITS
        may_ask = free > 0
        if not may_ask.any():
            return
        agreement = level.context.lookup_agreement.astype(np.float64)
        looked_up = np.where(np.isnan(agreement), AGREEMENT, agreement)[request]
        held = np.where(free & _LOOKUP_BIT, looked_up, AGREEMENT)
        held = np.where(free & _RECYCLED_BIT, np.maximum(held, AGREEMENT), held)
        row_price = np.asarray([p.rate * p.curves.cheapest_row_ms for p in scores.prices])
        level_price = np.asarray([p.rate * p.call_ms for p in scores.prices])
        gain = np.where(may_ask, survival * held - row_price[request], 0.0)
        opens = np.bincount(request, weights=np.maximum(gain, 0.0), minlength=len(row_price)) > level_price
        drafts = grow > 0
        opens[request[drafts]] = True
        asked = ((gain > 0.0) & opens[request]) | (drafts & may_ask)
        grow[asked] |= free[asked]

    def _choose_growths(
        self,
        scores: RowScores,
        level: Level,
        rows: IndexArray,
        survival: Float64Array,
        request: int,
        prices: Prices,
    ) -> IndexArray:
        """Those of one request's forest `rows` to draft below."""
        forest, context, roots = level.forest, level.context, scores.requests
        inner = survival[roots:]
        if roots > 1:
            inner = inner[forest.request[roots:] == request]
        return choose_growths(
            survival,
            scores.holds,
            rows,
            forest,
            self._deepest(context, request),
            int(context.catch_up[request]),
            row_prices(inner, prices, self.settings.prune_scale),
            prices,
            self.settings.growth_scale,
        )

    def _deepest(self, context: RoundContext, request: int) -> int:
        """Deepest node that may be guessed."""
        return min(self.deployment.envelope.max_depth, int(context.remaining_tokens[request]) - 1)

    @staticmethod
    def _shares(scores: RowScores, request: Int32Array) -> Iterator[tuple[int, Prices, IndexArray]]:
        """(request, its prices, its places among `request` [n], ascending), request by request."""
        prices = scores.prices
        if len(prices) == 1:
            yield 0, prices[0], np.arange(len(request))
            return
        order = request.argsort(kind="stable")
        ends = request[order].searchsorted(np.arange(len(prices) + 1)).tolist()
        for place, own in enumerate(prices):
            yield place, own, order[ends[place] : ends[place + 1]]
