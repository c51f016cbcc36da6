"""The learned policy: models score rows, the planner weighs tokens against milliseconds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import numpy as np

from treewise.data.errors import MissingExtraError, require
from treewise.policy.budget import modelled_ms
from treewise.policy.bundle import Bundle, Model
from treewise.policy.features import FEATURES, growth_features, node_features
from treewise.policy.flat_scorer import FlatScorer
from treewise.policy.hook import (
    DRAFT,
    LOOKUP,
    BoolArray,
    Deployment,
    Expansion,
    Float32Array,
    ForestView,
    Level,
    Nodes,
    Reach,
    RequestInfo,
    RoundContext,
    RoundOutcome,
    State,
)
from treewise.policy.planner import (
    PLANNED_ROWS,
    PRICED_NODES,
    Curves,
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
from treewise.policy.scorer import LightGBMScorer, OnnxScorer, Scorer

ScorerName: TypeAlias = Literal["auto", "onnx", "lightgbm", "flat"]

RATE_ROUNDS = 30.0  # rounds that the first guess of the throughput counts for
AGREEMENT = 0.3  # a source's chance of the next token before it was seen at work


def make_scorer(model: Model, name: ScorerName = "auto") -> Scorer:
    """A scorer of `model`; "auto" takes the fastest that is installed.

    Raises `ParameterError` on another name, `MissingExtraError` where its package is not installed.
    """
    require(name in get_args(ScorerName), "scorer", f"one of {', '.join(get_args(ScorerName))}", name)
    if name == "lightgbm":
        return LightGBMScorer(model.text, model.calibration)
    if name == "flat":
        return FlatScorer(model.text, model.calibration)
    try:
        return OnnxScorer(model.graph)
    except MissingExtraError:
        if name == "onnx":
            raise
    return FlatScorer(model.text, model.calibration)


@dataclass(slots=True)
class _Record:
    """What one request has brought so far, and the first guess as though it were rounds."""

    tokens: float
    ms: float


class _Scores:
    """What is known of the rows of the round in progress."""

    def __init__(self, requests: int) -> None:
        self.match: Float64Array = np.ones(requests)  # [rows] calibrated match probability
        self.holds: Float64Array = np.zeros(requests)  # [rows] the draft holds what the lookup does not
        self.drafted: BoolArray = np.zeros(requests, dtype=np.bool_)  # [rows] the draft had run on the parent
        self.prices: list[Prices] = []  # [requests]

    def stale(self, forest: Nodes) -> IndexArray:
        """Rows that are new, or whose own or parent's signals the draft has filled in since they were scored."""
        known = len(self.match)
        more = np.zeros(len(forest.parent) - known)
        if more.size:
            self.match = np.concatenate([self.match, more])
            self.holds = np.concatenate([self.holds, more])
            self.drafted = np.concatenate([self.drafted, more > 0.0])
        above = np.maximum(forest.parent, 0)
        drafted = forest.drafted[above] & (forest.parent >= 0)
        filled = drafted != self.drafted
        self.drafted = drafted
        changed = filled | filled[above]  # a parent's own signals are features too
        changed[known:] = True
        return np.flatnonzero(changed)


class LearnedPolicy:
    """Decides width, depth and budget by learned match probabilities and the deployment's own prices.

    One bundle serves any cost profile. The throughput that prices a millisecond starts at the bundle's guess and
    follows what the request's own rounds reach, in profile milliseconds.
    """

    state: State = "request"

    def __init__(self, bundle: Bundle, scorer: ScorerName = "auto", folder: str | Path = "") -> None:
        self.bundle = bundle
        self.settings: PlannerSettings = bundle.planner
        self._folder = str(folder)
        self._match = make_scorer(bundle.match, scorer)
        self._growth = make_scorer(bundle.growth, scorer) if bundle.growth is not None else None
        self._records: dict[int, _Record] = {}
        self._deployment: Deployment | None = None
        self._scores = _Scores(0)
        self._padded = np.ones(1, dtype=np.int64)
        self._kept_curves: Curves | None = None
        self._described: Float32Array = np.zeros((0, len(FEATURES)), dtype=np.float32)  # rows scored by the last call

    @classmethod
    def load(cls, folder: str | Path, scorer: ScorerName = "auto") -> LearnedPolicy:
        """The policy of the bundle in `folder`. Raises as `Bundle.load` and `make_scorer` do."""
        return cls(Bundle.load(folder), scorer, folder)

    @property
    def spec(self) -> str:
        """The spec string that makes this policy again."""
        return f"learned:{self._folder}"

    @property
    def call_ms(self) -> float:
        """Mean milliseconds of one call, measured where the bundle was trained."""
        return self.bundle.call_ms

    @property
    def reach(self) -> Reach:
        """The deployment's envelope; the bundle's before `bind`."""
        deployment = self._deployment
        envelope = self.bundle.envelope if deployment is None else deployment.envelope
        drafts = deployment is None or bool(deployment.sources & DRAFT)
        return Reach(envelope.max_depth, envelope.draft_width if drafts else 0)

    def bind(self, deployment: Deployment) -> None:
        """Take the prices. Raises `BundleError` where the deployment reaches outside the bundle's envelope."""
        self.bundle.check_deployment(deployment)
        # Its own calls are priced by its own time.
        cost = replace(deployment.cost, policy_ms=self.call_ms)
        self._deployment = replace(deployment, cost=cost)
        self._padded = np.ones(1, dtype=np.int64)
        self._kept_curves = None

    def begin(self, request: RequestInfo) -> None:
        """Start from the bundle's guess of the throughput."""
        plain_ms = max(self._bound.cost.plain_ms(request.prompt_tokens), 1e-9)
        self._records[request.request_id] = _Record(RATE_ROUNDS * self.settings.rate_over_plain, RATE_ROUNDS * plain_ms)

    def expand(self, level: Level) -> Expansion:
        """Scores the new rows, then weighs what each growth adds against its price."""
        if level.index == 0:
            return self._open(level)
        forest, candidates = level.forest, level.candidates
        survival = self._survival(forest, level.context)
        mine = survival[level.start :]
        waiting = ~self._scores.drafted[level.start :] & bool(self._bound.sources & DRAFT)
        may_draft = (candidates.may_grow & DRAFT) > 0
        may_look_up = (candidates.may_grow & LOOKUP) > 0
        least = np.asarray([p.rate * self.settings.prune_scale * p.curves.cheapest_row_ms for p in self._scores.prices])
        pays = mine > least[candidates.request]
        admit = waiting | pays  # a row that still waits for the draft's opinion may rise
        self._score_growth(forest, (may_draft & pays).nonzero()[0] + level.start, level.context)
        grow = np.zeros(len(mine), dtype=np.uint8)
        for request, prices in enumerate(self._scores.prices):
            own = candidates.request == request
            drafts = self._choose_growths(level, (own & may_draft & pays).nonzero()[0], survival, request)
            grow[drafts - level.start] |= DRAFT
            held = _chance(float(level.context.lookup_agreement[request]))
            # The lookup is free, but a level more is not, unless the draft opens it anyway.
            gain = np.where(own & may_look_up, mine * held - prices.rate * prices.curves.cheapest_row_ms, 0.0)
            if drafts.size or float(np.maximum(gain, 0.0).sum()) > prices.rate * prices.call_ms:
                grow[gain > 0.0] |= LOOKUP
                grow[drafts - level.start] |= candidates.may_grow[drafts - level.start] & LOOKUP
        return Expansion(admit | (grow > 0), grow)

    def select(self, forest: ForestView) -> BoolArray:
        """The node set with the most survival left after its price."""
        nodes = forest.nodes
        survival = self._survival(nodes, forest.context)
        keep = np.asarray(nodes.parent < 0).copy()
        inner = nodes.admitted & ~keep
        for request, prices in enumerate(self._scores.prices):
            rows = (inner & (nodes.request == request)).nonzero()[0]
            keep[keep_rows(survival, rows, self._cover(prices, len(rows)), self.settings.prune_scale)] = True
        return keep

    def observe(self, outcome: RoundOutcome) -> None:
        """Update each request's throughput."""
        spent = modelled_ms(outcome, self._bound)
        for place, request in enumerate(outcome.context.request_id.tolist()):
            record = self._records[request]
            record.tokens += float(outcome.committed_tokens[place])
            record.ms += float(spent[place])

    def finish(self, request_id: int, reason: str) -> None:
        """Forget the request."""
        self._records.pop(request_id, None)

    def rate(self, request_id: int) -> float:
        """Throughput of this request so far, tokens per millisecond. Prices never go below plain decoding's."""
        record = self._records[request_id]
        return record.tokens / record.ms

    @property
    def _bound(self) -> Deployment:
        assert self._deployment is not None, "bind comes before the first request"
        return self._deployment

    def _open(self, level: Level) -> Expansion:
        """The opening level: the lookup wherever there is one, the draft where it pays to ask it at once."""
        context, roots = level.context, level.candidates
        count = len(context.request_id)
        self._scores = _Scores(count)
        self._described = self._described[:0]
        self._scores.prices = [self._prices(context, request) for request in range(count)]
        grow = roots.may_grow & np.uint8(LOOKUP)
        rows = ((roots.may_grow & DRAFT) > 0).nonzero()[0]
        self._score_growth(level.forest, rows, context)
        envelope, table = self._bound.envelope, self._bound.prior_table
        for request in rows.tolist():
            length, share = roots.lookup_match_length[request], roots.lookup_share[request]
            known = bool(grow[request]) and bool(length > 0) and bool(share > 0)
            first = table.prior(int(length), float(share)) if known else 0.0
            levels = self._deepest(context, request)
            carries = first >= envelope.min_grow_prior
            opening = Opening(
                float(self._scores.holds[request]), first, carries, levels, int(context.catch_up[request])
            )
            if draft_at_once(opening, self._scores.prices[request], self.settings.opening_scale):
                grow[request] |= DRAFT
        return Expansion(np.ones(count, dtype=np.bool_), grow)

    def _choose_growths(self, level: Level, places: IndexArray, survival: Float64Array, request: int) -> IndexArray:
        """Forest rows of one request to draft below, among its candidates `places`."""
        rows = places + level.start
        if not rows.size:
            return rows
        forest, context, scores = level.forest, level.context, self._scores
        inner = ((forest.request == request) & (forest.parent >= 0)).nonzero()[0]
        prices = self._cover(scores.prices[request], len(inner) + PLANNED_ROWS)
        return choose_growths(
            survival,
            scores.holds,
            rows,
            forest,
            self._deepest(context, request),
            int(context.catch_up[request]),
            row_prices(survival[inner], prices, self.settings.prune_scale),
            prices,
            self.settings.growth_scale,
        )

    def _deepest(self, context: RoundContext, request: int) -> int:
        """Deepest node that may be guessed."""
        return min(self._bound.envelope.max_depth, int(context.remaining_tokens[request]) - 1)

    def _survival(self, forest: Nodes, context: RoundContext) -> Float64Array:
        """Probability that each row's whole path matches, [rows]; scores what is new or has changed."""
        scores = self._scores
        rows = scores.stale(forest)
        if rows.size:
            self._described = node_features(forest, rows, context)  # new rows are the last ones
            scores.match[rows] = self._match.score(self._described)
        match = scores.match
        if self.settings.sibling_normalise:
            match = normalise_siblings(match, forest.parent)
        return path_products(match, forest.parent, int(forest.depth.max(initial=0)))

    def _score_growth(self, forest: Nodes, rows: IndexArray, context: RoundContext) -> None:
        """Fill `holds` of `rows`: the chance that a growth brings the next token."""
        if not rows.size:
            return
        if self._growth is not None:
            described = self._described[rows - len(forest.parent)] if len(self._described) else None
            self._scores.holds[rows] = self._growth.score(growth_features(forest, rows, context, described))
            return
        # Without a growth model: what the offered children leave open, times the draft's recent agreement.
        inner = forest.parent >= 0
        taken = np.bincount(
            forest.parent[inner], weights=self._scores.match[: len(inner)][inner], minlength=len(forest.parent)
        )
        at_root = (forest.parent[rows] < 0) & (forest.lookup_match_length[rows] > 0)
        table = self._bound.prior_table
        for row in rows[at_root].tolist():
            first = table.prior(int(forest.lookup_match_length[row]), float(forest.lookup_share[row]))
            taken[row] = max(taken[row], first)
        held = np.asarray([_chance(float(value)) for value in context.draft_agreement])
        self._scores.holds[rows] = held[forest.request[rows]] * np.clip(1.0 - taken[rows], 0.0, 1.0)

    def _prices(self, context: RoundContext, request: int) -> Prices:
        cost = self._bound.cost
        capacity = int(context.position[request])
        rate = max(self.rate(int(context.request_id[request])), 1.0 / max(cost.plain_ms(capacity), 1e-9))
        return Prices(rate, self._curves(capacity, PRICED_NODES), self.call_ms + cost.level_ms)

    def _cover(self, prices: Prices, nodes: int) -> Prices:
        """The same prices, with a verify curve that holds at least `nodes` nodes."""
        if len(prices.curves.verify) > nodes:
            return prices
        return replace(prices, curves=self._curves(prices.curves.capacity, nodes))

    def _curves(self, capacity: int, nodes: int) -> Curves:
        """Curves at `capacity` tokens of cache for at least `nodes` nodes; kept while the capacity does not matter."""
        cost = self._bound.cost
        kept = self._kept_curves
        if kept is not None and len(kept.verify) > nodes:
            return kept
        if len(self._padded) <= nodes:
            padded = [self._bound.padded_rows(1 + count) for count in range(2 * nodes + 1)]
            self._padded = np.asarray(padded, dtype=np.int64)
        curves = Curves.at(cost.verify_ms(self._padded, capacity), cost.draft, capacity)
        if len(cost.verify.capacities) == len(cost.draft.capacities) == 1:
            self._kept_curves = curves
        return curves


def _chance(agreement: float) -> float:
    return AGREEMENT if np.isnan(agreement) else agreement
