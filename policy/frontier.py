"""The frontier rule: draft while the open frontier pays for a growth, then verify what pays for its rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from treewise.data.errors import require
from treewise.policy.budget import Float64Array, keep_by_price, modelled_ms, shared_survival
from treewise.policy.hook import (
    DRAFT,
    FREE,
    LOOKUP,
    RECYCLED,
    BoolArray,
    Deployment,
    Expansion,
    ForestView,
    Int32Array,
    Level,
    Nodes,
    RequestInfo,
    RoundContext,
    RoundOutcome,
    State,
)
from treewise.policy.prefixes import Ranked, best_prefixes
from treewise.policy.pricing import Pricing, RoundPrices
from treewise.policy.rule import RulePolicy, SourceChoice

Int64Array = NDArray[np.int64]
DECAY = 0.95  # weight of the past in the running averages
PRIOR_ROUNDS = 4.0  # rounds that the first guesses count for


@dataclass(frozen=True, slots=True)
class FrontierSettings(SourceChoice):
    """Settings of `FrontierPolicy`."""

    kappa: float | None = None  # least open mass worth a growth; none: from the price
    rate: float | None = None  # tokens per millisecond; none: the request's own running average
    match_rate: float = 0.5  # first guess: a growth holds the next token, given that its node is on the path
    beam: int = 8  # nodes of one level that the draft grows below
    probe_rounds: int = 16  # rounds without a growth after which one is made; 0: never

    def __post_init__(self) -> None:
        SourceChoice.__post_init__(self)
        require(self.kappa is None or self.kappa >= 0.0, "kappa", "at least 0, or none", self.kappa)
        require(self.rate is None or self.rate > 0.0, "rate", "above 0, or none", self.rate)
        require(0.0 < self.match_rate <= 1.0, "match_rate", "above 0 and at most 1", self.match_rate)
        require(1 <= self.beam <= 256, "beam", "between 1 and 256", self.beam)
        require(0 <= self.probe_rounds <= 1_000_000, "probe_rounds", "at least 0", self.probe_rounds)


@dataclass(slots=True)
class _Record:
    """What one request has shown so far; decayed sums."""

    tokens: float
    ms: float
    hits: float
    growths: float
    rounds_without_draft: int = 0


class FrontierPolicy(RulePolicy[FrontierSettings]):
    """Prices growths and rows in tokens: a millisecond is worth the long-run tokens per millisecond.

    Open mass of a node: the path prior minus what its offered children already cover, the probability that the text
    leaves the tree there. A growth is made where open mass times the rate at which the draft holds the next token
    exceeds what the growth and its rows cost, or, with `kappa`, while the open mass of a level's new rows is at least
    `kappa`. Below the root the rate is the draft's recent agreement with the text.
    """

    name = "frontier"
    settings_type = FrontierSettings
    state: State = "request"

    def __init__(self, settings: FrontierSettings | None = None) -> None:
        super().__init__(settings)
        self._records: dict[int, _Record] = {}
        self._deployment: Deployment | None = None
        self._priced: tuple[RoundContext, RoundPrices] | None = None  # of this round

    def bind(self, deployment: Deployment) -> None:
        """Take the price of milliseconds too."""
        super().bind(deployment)
        self._deployment, self._pricing, self._priced = deployment, Pricing(deployment), None

    def begin(self, request: RequestInfo) -> None:
        """Start from the rate of plain decoding."""
        plain_ms = self._bound.cost.plain_ms(request.prompt_tokens)
        hits = PRIOR_ROUNDS * self.settings.match_rate
        self._records[request.request_id] = _Record(PRIOR_ROUNDS, PRIOR_ROUNDS * plain_ms, hits, PRIOR_ROUNDS)

    def expand(self, level: Level) -> Expansion:
        """Admits everything, looks up everywhere, drafts where it pays."""
        candidates, forest = level.candidates, level.forest
        admit = np.ones(len(candidates.parent), dtype=np.bool_)
        grow = self._grow(level, admit, FREE)
        may_draft = np.flatnonzero(candidates.may_grow & self._bits & DRAFT) + level.start
        if not may_draft.size:
            return Expansion(admit, grow)
        requests, kappa = len(level.context.request_id), self.settings.kappa
        # The other requests' rows are left out: most trees are done with after two growths.
        asking = np.zeros(requests, dtype=np.bool_)
        asking[forest.request[may_draft]] = True
        among = asking[forest.request]
        survival = self._survival(forest, among)
        open_mass = self._uncovered_roots(candidates) if level.index == 0 else _open_mass(forest, survival, among)
        ranked = Ranked.of(may_draft, open_mass, forest.request, requests).first(self.settings.beam)
        if level.index and kappa is not None:
            fresh = [open_mass[level.start :][candidates.request == request] for request in range(requests)]
            pays = np.where([float(own.sum()) >= kappa for own in fresh], ranked.counts, 0)
        else:
            pays = self._worth_drafting(level, ranked, open_mass, survival)
        draft = np.zeros_like(admit)
        draft[ranked.rows[ranked.place < pays[ranked.owner]] - level.start] = True
        return Expansion(admit, grow | self._grow(level, draft, DRAFT))

    def select(self, forest: ForestView) -> BoolArray:
        """The node set with the most survival left after its price; each request is priced as though alone."""
        context, nodes = forest.context, forest.nodes
        most = int(np.bincount(nodes.request, minlength=len(context.request_id)).max())
        prices = self._prices(context, most)
        curves = prices.verify[:, : most + 1][prices.curve_of]
        return keep_by_price(self._survival(nodes), nodes, curves, prices.rates)

    def observe(self, outcome: RoundOutcome) -> None:
        """Update the request's rate, and how often a growth held the next token."""
        nodes, context = outcome.nodes, outcome.context
        self._priced = None
        spent = modelled_ms(outcome, self._bound)
        held, known = np.zeros((2, len(nodes.parent)), dtype=np.bool_)
        inner = nodes.parent >= 0
        held[nodes.parent[inner & (outcome.match == 1)]] = True
        known[nodes.parent[inner & (outcome.match >= 0)]] = True
        checked = known & outcome.on_path & nodes.drafted
        count = len(context.request_id)
        checks = np.bincount(nodes.request[checked], minlength=count).tolist()
        hits = np.bincount(nodes.request[checked & held], minlength=count).tolist()
        committed, drafted = outcome.committed_tokens.tolist(), nodes.drafted[:count].tolist()
        for place, (request, ms) in enumerate(zip(context.request_id.tolist(), spent.tolist(), strict=True)):
            record = self._records[request]
            record.tokens = DECAY * record.tokens + committed[place]
            record.ms = DECAY * record.ms + ms
            if checks[place]:
                record.hits = DECAY * record.hits + hits[place]
                record.growths = DECAY * record.growths + checks[place]
            record.rounds_without_draft = 0 if drafted[place] else record.rounds_without_draft + 1

    def finish(self, request_id: int, reason: str) -> None:
        """Forget the request."""
        self._records.pop(request_id, None)

    @property
    def _bound(self) -> Deployment:
        assert self._deployment is not None, "bind comes before the first request"
        return self._deployment

    def _survival(self, nodes: Nodes, among: BoolArray | None = None) -> Float64Array:
        """Probability that each row's whole path matches, by the priors, [rows]; 0 of rows that are not `among`."""
        return shared_survival(nodes, among)

    def _prices(self, context: RoundContext, nodes: int) -> RoundPrices:
        """Prices with verify curves of `nodes` nodes at least; rates are never below plain decoding's.

        Plain decoding is always open.
        """
        if self._priced is None or self._priced[0] is not context or self._priced[1].verify.shape[1] <= nodes:
            records = [self._records[request] for request in context.request_id.tolist()]
            rates = np.asarray([record.tokens / max(record.ms, 1e-9) for record in records])
            prices = self._pricing.of_round(context.position, rates, nodes)
            rate = self.settings.rate
            self._priced = context, prices if rate is None else replace(prices, rates=np.full(len(records), rate))
        return self._priced[1]

    def _uncovered_roots(self, roots: Nodes) -> Float64Array:
        """Open mass of the roots once the free sources have made their first offer, [roots]."""
        taken = np.zeros(len(roots.parent), dtype=np.float64)
        if self._bits & LOOKUP:
            table = np.asarray(self._bound.prior_table.by_match_length, dtype=np.float64)
            known = np.flatnonzero((roots.lookup_match_length > 0) & (roots.lookup_share > 0))  # NaN: no
            length = roots.lookup_match_length[known].astype(np.int64)
            taken[known] = table[np.minimum(length, len(table) - 1)] * roots.lookup_share[known].astype(np.float64)
        if self._bits & RECYCLED:
            taken = np.fmax(taken, roots.recycled_prob)
        return np.asarray(1.0 - taken)

    def _worth_drafting(
        self, level: Level, ranked: Ranked, open_mass: Float64Array, survival: Float64Array
    ) -> NDArray[np.integer]:
        """How many of each request's `ranked` rows (most open mass first) a growth should run on; 0: no growth."""
        context, cost, forest = level.context, self._bound.cost, level.forest
        # Only of requests that may draft, numbered anew: what the others keep is not asked for here.
        may_draft = ranked.counts > 0
        own, number = may_draft.nonzero()[0], may_draft.cumsum() - 1
        request, ranked = number[forest.request], ranked.of_owners(own)
        records = [self._records[each] for each in context.request_id[own].tolist()]
        held = np.asarray([record.hits / record.growths for record in records])
        if level.index == 0:
            agreement = context.draft_agreement[own].astype(np.float64)
            held = np.where(np.isnan(agreement), held, agreement)
        asked = (forest.parent >= 0) & may_draft[forest.request]
        inner = Ranked.of(np.flatnonzero(asked), survival, request, len(own))
        sure = inner.table(survival[inner.rows])
        gains = ranked.table(held[ranked.owner] * open_mass[ranked.rows])
        nodes, most = sure.shape[1], gains.shape[1]
        priced = self._prices(context, nodes + most).of(own)
        verify, curve = priced.verify, priced.curve_of
        kept = best_prefixes(sure, verify[:, : nodes + 1][curve], priced.rates)
        prices = np.zeros((len(own), most + 1))
        prices[:, 1:] = priced.draft_ms(_growth_tokens(forest, request, ranked, context.catch_up[own]))
        prices[:, 1:] += cost.policy_ms + cost.level_ms
        # Each growth is to add about one row.
        prices += verify[curve[:, None], kept[:, None] + np.arange(most + 1)] - verify[curve, kept][:, None]
        pays = np.zeros(len(may_draft), dtype=np.int64)
        pays[own] = best_prefixes(gains, prices, priced.rates)
        probe = self.settings.probe_rounds
        if level.index == 0 and probe:
            waited = np.asarray([record.rounds_without_draft for record in records])
            pays[own[waited >= probe]] = 1
        return pays


def _open_mass(forest: Nodes, survival: Float64Array, among: BoolArray) -> Float64Array:
    """Probability that the text reaches each row that is `among` [rows], and none of its offered children, [rows]."""
    inner = (among & (forest.parent >= 0)).nonzero()[0]
    covered = np.bincount(forest.parent[inner], weights=survival[inner], minlength=len(survival))
    return np.maximum(survival - covered, 0.0)


def _growth_tokens(forest: Nodes, request: NDArray[np.intp], ranked: Ranked, catch_up: Int32Array) -> Int64Array:
    """Draft tokens that growing each request's first 1, 2, .. `ranked` rows runs, [requests, most].

    `request` [rows] numbers the requests as they are ranked. Missing ancestors and catch-up [requests] are included;
    behind a request's last row its sum goes on.
    """
    parent, shape = forest.parent, (len(ranked.counts), int(ranked.counts.max(initial=0)))
    # The first place whose growth runs a row. Smaller places come last, and the last of like rows is what is stored.
    first = np.full(len(parent), shape[1], dtype=np.int64)
    line: NDArray[np.integer] = ranked.rows[::-1]
    place = ranked.place[::-1]
    while line.size:
        fresh = ~forest.drafted[line]
        line, place = line[fresh], place[fresh]
        first[line] = np.minimum(first[line], place)
        above = parent[line]
        inner = above >= 0
        line, place = above[inner], place[inner]
    run = (first < shape[1]).nonzero()[0]
    owner = request[run]
    weight = np.where(parent[run] < 0, 1 + catch_up[owner], 1)
    tokens = np.bincount(owner * shape[1] + first[run], weight, shape[0] * shape[1]).astype(np.int64).reshape(shape)
    return tokens.cumsum(axis=1)
