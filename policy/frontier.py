"""The frontier rule: draft while the open frontier pays for a growth, then verify what pays for its rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from treewise.data.errors import require
from treewise.policy.budget import Float64Array, best_first, best_prefix, keep_by_price, modelled_ms, shared_survival
from treewise.policy.hook import (
    DRAFT,
    FREE,
    LOOKUP,
    RECYCLED,
    BoolArray,
    Deployment,
    Expansion,
    ForestView,
    Level,
    Nodes,
    RequestInfo,
    RoundOutcome,
    State,
)
from treewise.policy.planner import Prices
from treewise.policy.pricing import Pricing
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

    def bind(self, deployment: Deployment) -> None:
        """Take the price of milliseconds too."""
        super().bind(deployment)
        self._deployment, self._pricing = deployment, Pricing(deployment)

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
        survival = self._survival(forest)
        open_mass = self._uncovered_roots(candidates) if level.index == 0 else _open_mass(forest, survival)
        requests = len(level.context.request_id)
        draft = np.zeros_like(admit)
        inner = best_first(np.flatnonzero(forest.parent >= 0), survival, forest, requests)
        for request, rows in enumerate(best_first(may_draft, open_mass, forest, requests)):
            if not rows.size:
                continue
            rows = rows[: self.settings.beam]
            kappa = self.settings.kappa
            if level.index and kappa is not None:
                fresh = forest.request[level.start :] == request
                pays = len(rows) if float(open_mass[level.start :][fresh].sum()) >= kappa else 0
            else:
                pays = self._worth_drafting(level, request, rows, open_mass[rows], survival[inner[request]])
            draft[rows[:pays] - level.start] = True
        return Expansion(admit, grow | self._grow(level, draft, DRAFT))

    def select(self, forest: ForestView) -> BoolArray:
        """The node set with the most survival left after its price; each request is priced as though alone."""
        context, nodes = forest.context, forest.nodes
        sizes = np.bincount(nodes.request, minlength=len(context.request_id))
        places = zip(context.request_id.tolist(), context.position.tolist(), sizes.tolist(), strict=True)
        prices = [self._prices(*place) for place in places]
        rates = np.asarray([own.rate for own in prices])
        return keep_by_price(self._survival(nodes), nodes, [own.curves.verify for own in prices], rates)

    def observe(self, outcome: RoundOutcome) -> None:
        """Update the request's rate, and how often a growth held the next token."""
        nodes, context = outcome.nodes, outcome.context
        spent = modelled_ms(outcome, self._bound)
        held, known = np.zeros((2, len(nodes.parent)), dtype=np.bool_)
        inner = nodes.parent >= 0
        held[nodes.parent[inner & (outcome.match == 1)]] = True
        known[nodes.parent[inner & (outcome.match >= 0)]] = True
        checked = known & outcome.on_path & nodes.drafted
        count = len(context.request_id)
        checks = np.bincount(nodes.request[checked], minlength=count).tolist()
        hits = np.bincount(nodes.request[checked & held], minlength=count).tolist()
        for place, request in enumerate(context.request_id.tolist()):
            record = self._records[request]
            record.tokens = DECAY * record.tokens + float(outcome.committed_tokens[place])
            record.ms = DECAY * record.ms + float(spent[place])
            if checks[place]:
                record.hits = DECAY * record.hits + hits[place]
                record.growths = DECAY * record.growths + checks[place]
            record.rounds_without_draft = 0 if nodes.drafted[place] else record.rounds_without_draft + 1

    def finish(self, request_id: int, reason: str) -> None:
        """Forget the request."""
        self._records.pop(request_id, None)

    @property
    def _bound(self) -> Deployment:
        assert self._deployment is not None, "bind comes before the first request"
        return self._deployment

    def _survival(self, nodes: Nodes) -> Float64Array:
        """Probability that each row's whole path matches, by the priors, [rows]."""
        return shared_survival(nodes)

    def _prices(self, request_id: int, position: int, nodes: int) -> Prices:
        """Prices with a verify curve of `nodes` nodes at least; the rate is never below plain decoding's.

        Plain decoding is always open.
        """
        record = self._records[request_id]
        prices = self._pricing.cover(self._pricing.at(position, record.tokens / max(record.ms, 1e-9)), nodes)
        return prices if self.settings.rate is None else replace(prices, rate=self.settings.rate)

    def _uncovered_roots(self, roots: Nodes) -> Float64Array:
        """Open mass of the roots once the free sources have made their first offer, [roots]."""
        taken = np.zeros(len(roots.parent), dtype=np.float64)
        if self._bits & LOOKUP:
            pairs = zip(roots.lookup_match_length.tolist(), roots.lookup_share.tolist(), strict=True)
            table = self._bound.prior_table
            taken[:] = [table.prior(int(m), s) if m > 0 and s > 0 else 0.0 for m, s in pairs]
        if self._bits & RECYCLED:
            taken = np.fmax(taken, roots.recycled_prob)
        return np.asarray(1.0 - taken)

    def _worth_drafting(
        self, level: Level, request: int, rows: NDArray[np.integer], open_mass: Float64Array, sure: Float64Array
    ) -> int:
        """How many of `rows` (most open mass first) a growth should run on; 0: no growth.

        `sure` is the survival of the request's nodes so far, falling.
        """
        context, cost = level.context, self._bound.cost
        record = self._records[int(context.request_id[request])]
        held = record.hits / record.growths
        probe = self.settings.probe_rounds
        if level.index == 0:
            if 0 < probe <= record.rounds_without_draft:
                return 1
            agreement = float(context.draft_agreement[request])
            held = held if np.isnan(agreement) else agreement
        nodes = len(sure) + len(rows)
        priced = self._prices(int(context.request_id[request]), int(context.position[request]), nodes)
        curve = priced.curves.verify
        kept = best_prefix(sure, curve[: len(sure) + 1], priced.rate)
        tokens = _growth_tokens(level.forest, rows, int(context.catch_up[request]))
        prices = np.zeros(len(rows) + 1, dtype=np.float64)
        prices[1:] = priced.curves.draft_ms(tokens) + cost.policy_ms + cost.level_ms
        prices += curve[kept : kept + len(rows) + 1] - curve[kept]  # each growth is to add about one row
        return best_prefix(held * open_mass, prices, priced.rate)


def _open_mass(forest: Nodes, survival: Float64Array) -> Float64Array:
    """Probability that the text reaches the row and none of its offered children, [rows]."""
    inner = forest.parent >= 0
    covered = np.bincount(forest.parent[inner], weights=survival[inner], minlength=len(survival))
    return np.maximum(survival - covered, 0.0)


def _growth_tokens(forest: Nodes, rows: NDArray[np.integer], catch_up: int) -> Int64Array:
    """Draft tokens that growing the first 1, 2, .. of `rows` runs, missing ancestors and catch-up included, [rows]."""
    run: set[int] = set()
    extra = 0
    counts = []
    for row in rows.tolist():
        while row >= 0 and row not in run and not forest.drafted[row]:
            run.add(row)
            extra += catch_up if forest.parent[row] < 0 else 0
            row = int(forest.parent[row])
        counts.append(len(run) + extra)
    return np.asarray(counts, dtype=np.int64)
