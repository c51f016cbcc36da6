"""The learned policy: models score rows, the planner weighs tokens against milliseconds."""

from __future__ import annotations

from collections.abc import Iterator
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
    Int32Array,
    Level,
    Nodes,
    Reach,
    RequestInfo,
    RoundContext,
    RoundOutcome,
    State,
    UInt8Array,
)
from treewise.policy.planner import (
    PLANNED_ROWS,
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
from treewise.policy.scorer import LightGBMScorer, OnnxScorer, Scorer

ScorerName: TypeAlias = Literal["auto", "onnx", "lightgbm", "flat"]

_LOOKUP_BIT, _DRAFT_BIT = np.uint8(LOOKUP), np.uint8(DRAFT)
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
        self._pricing: Pricing | None = None
        self._scores = RowScores(0)
        self._least: Float64Array = np.zeros(0)  # [requests] survival below which a row does not pay
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
        self._pricing = Pricing(self._deployment)

    def begin(self, request: RequestInfo) -> None:
        """Start from the bundle's guess of the throughput."""
        plain_ms = max(self._bound.cost.plain_ms(request.prompt_tokens), 1e-9)
        self._records[request.request_id] = _Record(RATE_ROUNDS * self.settings.rate_over_plain, RATE_ROUNDS * plain_ms)

    def expand(self, level: Level) -> Expansion:
        """Scores the new rows, then weighs what each growth adds against its price."""
        if level.index == 0:
            return self._open(level)
        forest, candidates = level.forest, level.candidates
        scores = self._scores
        survival = self._survival(forest, level.context)
        mine = survival[level.start :]
        pays = mine > self._least[candidates.request]
        admit = pays
        if self._bound.sources & DRAFT:
            admit = pays | ~scores.drafted[level.start :]  # a row that still waits for the draft's opinion may rise
        may_draft = (candidates.may_grow & _DRAFT_BIT).astype(np.bool_) & pays
        may_look_up = (candidates.may_grow & _LOOKUP_BIT).astype(np.bool_)
        wanted = may_draft.nonzero()[0]
        self._score_growth(forest, wanted + level.start, level.context)
        grow = np.zeros(len(mine), dtype=np.uint8)
        for request, _, own in self._shares(candidates.request[wanted]):
            if own.size:
                drafts = self._choose_growths(level, wanted[own] + level.start, survival, request)
                grow[drafts - level.start] = _DRAFT_BIT
        if may_look_up.any():
            self._look_up(level, mine, may_look_up, grow)
        return Expansion(admit | (grow > 0), grow)

    def select(self, forest: ForestView) -> BoolArray:
        """The node set with the most survival left after its price."""
        nodes = forest.nodes
        survival = self._survival(nodes, forest.context)
        roots = len(self._scores.prices)
        keep = np.zeros(len(survival), dtype=np.bool_)
        keep[:roots] = True
        inner = nodes.admitted[roots:].nonzero()[0] + roots
        for _, prices, own in self._shares(nodes.request[inner]):
            rows = inner[own]
            covering = self._bound_pricing.cover(prices, len(rows))
            keep[keep_rows(survival, rows, covering, self.settings.prune_scale)] = True
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

    @property
    def round_match(self) -> Float64Array:
        """Calibrated match probability of every row of the round in progress, [rows]; roots: 1."""
        return self._scores.match

    @property
    def survival(self) -> Float64Array | None:
        """Probability that the whole path of each row of the latest round matches, [rows]; None before a scoring."""
        return self._scores.survival

    def rate(self, request_id: int) -> float:
        """Throughput of this request so far, tokens per millisecond. Prices never go below plain decoding's."""
        record = self._records[request_id]
        return record.tokens / record.ms

    @property
    def _bound(self) -> Deployment:
        assert self._deployment is not None, "bind comes before the first request"
        return self._deployment

    @property
    def _bound_pricing(self) -> Pricing:
        assert self._pricing is not None, "bind comes before the first request"
        return self._pricing

    def _open(self, level: Level) -> Expansion:
        """The opening level: the lookup wherever there is one, the draft where it pays to ask it at once."""
        context, roots = level.context, level.candidates
        count = len(context.request_id)
        scores = self._scores = RowScores(count)
        self._described = self._described[:0]
        scores.prices = [
            self._bound_pricing.at(int(position), self.rate(int(request)))
            for position, request in zip(context.position, context.request_id, strict=True)
        ]
        scale = self.settings.prune_scale
        self._least = np.asarray([p.rate * scale * p.curves.cheapest_row_ms for p in scores.prices])
        grow = roots.may_grow & _LOOKUP_BIT
        rows = (roots.may_grow & _DRAFT_BIT).nonzero()[0]
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

    def _look_up(self, level: Level, survival: Float64Array, may_look_up: BoolArray, grow: UInt8Array) -> None:
        """Add the lookup's bit to `grow` where it pays; all arrays are [candidates].

        The lookup is free, but a level more is not, unless the draft opens it anyway.
        """
        request = level.candidates.request
        agreement = level.context.lookup_agreement.astype(np.float64)
        held = np.where(np.isnan(agreement), AGREEMENT, agreement)
        prices = self._scores.prices
        row_price = np.asarray([p.rate * p.curves.cheapest_row_ms for p in prices])
        level_price = np.asarray([p.rate * p.call_ms for p in prices])
        gain = np.where(may_look_up, survival * held[request] - row_price[request], 0.0)
        opens = np.bincount(request, weights=np.maximum(gain, 0.0), minlength=len(prices)) > level_price
        drafts = grow > 0
        opens[request[drafts]] = True
        grow[((gain > 0.0) & opens[request]) | (drafts & may_look_up)] |= _LOOKUP_BIT

    def _shares(self, request: Int32Array) -> Iterator[tuple[int, Prices, IndexArray]]:
        """(request, its prices, its places among `request` [n], ascending), request by request."""
        prices = self._scores.prices
        if len(prices) == 1:
            yield 0, prices[0], np.arange(len(request))
            return
        order = request.argsort(kind="stable")
        ends = request[order].searchsorted(np.arange(len(prices) + 1)).tolist()
        for place, own in enumerate(prices):
            yield place, own, order[ends[place] : ends[place + 1]]

    def _choose_growths(self, level: Level, rows: IndexArray, survival: Float64Array, request: int) -> IndexArray:
        """Those of one request's forest `rows` to draft below."""
        forest, context, scores = level.forest, level.context, self._scores
        roots = len(scores.prices)
        inner = survival[roots:]
        if roots > 1:
            inner = inner[forest.request[roots:] == request]
        prices = self._bound_pricing.cover(scores.prices[request], len(inner) + PLANNED_ROWS)
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
        return min(self._bound.envelope.max_depth, int(context.remaining_tokens[request]) - 1)

    def _survival(self, forest: Nodes, context: RoundContext) -> Float64Array:
        """Probability that each row's whole path matches, [rows]; scores what is new or has changed."""
        scores = self._scores
        rows = scores.stale(forest)
        if rows.size:
            self._described = node_features(forest, rows, context)  # new rows are the last ones
            scores.match[rows] = self._match.score(self._described)
        elif scores.survival is not None:
            return scores.survival
        match = scores.match
        if self.settings.sibling_normalise:
            match = normalise_siblings(match, forest.parent, scores.requests)
        scores.survival = path_products(match, forest.parent, int(forest.depth.max(initial=0)))
        return scores.survival

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


def _chance(agreement: float) -> float:
    return AGREEMENT if np.isnan(agreement) else agreement
