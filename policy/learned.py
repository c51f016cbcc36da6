"""The learned policy: models score rows, the planner weighs tokens against milliseconds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import numpy as np

from treewise.data.cost import share_of_call
from treewise.data.errors import BundleError, MissingExtraError, require
from treewise.policy.budget import SharedDeployments, modelled_ms
from treewise.policy.bundle import Bundle, Model
from treewise.policy.features import FEATURES
from treewise.policy.flat_scorer import FlatScorer
from treewise.policy.hook import (
    DRAFT,
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
from treewise.policy.planner import Float64Array, IndexArray, PlannerSettings
from treewise.policy.recalibration import NO_CORRECTION, CorrectedScorer
from treewise.policy.row_scores import RowScores
from treewise.policy.scorer import LightGBMScorer, OnnxScorer, Scorer
from treewise.policy.weighing import AGREEMENT as AGREEMENT
from treewise.policy.weighing import Weighing

ScorerName: TypeAlias = Literal["auto", "compiled", "onnx", "lightgbm", "flat"]
Compiled: TypeAlias = Literal["auto", "on", "off"]

_DRAFT_BIT = np.uint8(DRAFT)
RATE_ROUNDS = 30.0  # rounds that the first guess of the throughput counts for


def uses_compiled(choice: Compiled) -> bool:
    """Whether machine code is used: where numba is installed, always or never.

    Raises `ParameterError` on another choice, `MissingExtraError` where it is "on" and numba is not installed.
    """
    require(choice in get_args(Compiled), "compiled", f"one of {', '.join(get_args(Compiled))}", choice)
    is_there = find_spec("numba") is not None
    if choice == "on" and not is_there:
        raise MissingExtraError("numba", "fast")
    return is_there and choice != "off"


def make_scorer(model: Model, name: ScorerName = "auto", compiled: Compiled = "auto") -> Scorer:
    """A scorer of `model`; "auto" takes the fastest that is installed, of those that `compiled` allows.

    Raises `ParameterError` on another name, `MissingExtraError` where its package is not installed.
    """
    require(name in get_args(ScorerName), "scorer", f"one of {', '.join(get_args(ScorerName))}", name)
    if name == "lightgbm":
        return LightGBMScorer(model.text, model.calibration)
    if name == "flat":
        return FlatScorer(model.text, model.calibration)
    if name == "compiled" or (name == "auto" and uses_compiled(compiled)):
        uses_compiled("on")
        from treewise.policy.compiled_scorer import CompiledScorer

        try:
            return CompiledScorer(model.text, model.calibration)
        except BundleError:  # trees that only the graph's own runtime repeats
            if name == "compiled":
                raise
    try:
        return OnnxScorer(model.graph)
    except MissingExtraError:
        if name == "onnx":
            raise
    return FlatScorer(model.text, model.calibration)


@dataclass(slots=True)
class _Record:
    """What one request has brought so far."""

    tokens: float = 0.0
    plain_tokens: float = 0.0  # that plain decoding would have brought in the same milliseconds


class LearnedPolicy:
    """Decides width, depth and budget by learned match probabilities and the deployment's own prices.

    One bundle serves any cost profile and batch size. The throughput that prices a millisecond starts at the bundle's
    guess and follows what the request's own rounds reach, in profile milliseconds; in a batch both tokens and
    milliseconds are one request's share, so the renewal argument holds for the batch as it does for one.
    """

    state: State = "request"

    def __init__(
        self, bundle: Bundle, scorer: ScorerName = "auto", folder: str | Path = "", compiled: Compiled = "auto"
    ) -> None:
        """`compiled`: whether the arithmetic runs as machine code, see `uses_compiled`; decisions are the same."""
        self.bundle = bundle
        self.settings: PlannerSettings = bundle.planner
        self._folder = str(folder)
        self._weigh: type[Weighing] = Weighing
        if uses_compiled(compiled):
            from treewise.policy.compiled_weighing import CompiledWeighing

            self._weigh = CompiledWeighing
        self._corrected = CorrectedScorer(make_scorer(bundle.match, scorer, compiled))
        self._match: Scorer = self._corrected
        self._growth = make_scorer(bundle.growth, scorer, compiled) if bundle.growth is not None else None
        self._records: dict[int, _Record] = {}
        self._deployment: Deployment | None = None
        self._shared: SharedDeployments | None = None
        self._weighing: Weighing | None = None
        self._scores = RowScores(0)
        self._described: Float32Array = np.zeros((0, len(FEATURES)), dtype=np.float32)  # rows scored by the last call

    @classmethod
    def load(cls, folder: str | Path, scorer: ScorerName = "auto", compiled: Compiled = "auto") -> LearnedPolicy:
        """The policy of the bundle in `folder`. Raises as `Bundle.load`, `uses_compiled` and `make_scorer` do."""
        return cls(Bundle.load(folder), scorer, folder, compiled)

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
        self._corrected.correction = self.bundle.corrections.get(deployment.sources, NO_CORRECTION)
        # Its own calls are priced by its own time.
        cost = replace(deployment.cost, policy_ms=share_of_call(self.call_ms, deployment.cost.requests))
        self._deployment = replace(deployment, cost=cost)
        self._shared = SharedDeployments(self._deployment)
        self._weighing = self._weigh(self._deployment, self.settings)

    def begin(self, request: RequestInfo) -> None:
        """Start from the bundle's guess of the throughput."""
        self._records[request.request_id] = _Record()

    def expand(self, level: Level) -> Expansion:
        """Scores the new rows, then weighs what each growth adds against its price."""
        if level.index == 0:
            return self._open(level)
        weighing, scores = self._bound_weighing, self._scores
        survival = self._survival(level.forest, level.context)
        admit, rows = weighing.admission(scores, survival, level)
        self._score_growth(level.forest, rows, level.context)
        return weighing.growths(scores, survival, level, admit, rows)

    def select(self, forest: ForestView) -> BoolArray:
        """The node set with the most survival left after its price."""
        survival = self._survival(forest.nodes, forest.context)
        return self._bound_weighing.keep(self._scores, survival, forest)

    def observe(self, outcome: RoundOutcome) -> None:
        """Update each request's throughput."""
        self._add(outcome, modelled_ms(outcome, self._in_batch(outcome.context)))

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

    def speedup(self, request_id: int) -> float:
        """Throughput of this request so far over plain decoding, the first guess counting as `RATE_ROUNDS` of it."""
        record = self._records[request_id]
        guess = RATE_ROUNDS * self.settings.rate_over_plain
        return (guess + record.tokens) / (RATE_ROUNDS + record.plain_tokens)

    @property
    def _bound(self) -> Deployment:
        assert self._deployment is not None, "bind comes before the first request"
        return self._deployment

    @property
    def _bound_weighing(self) -> Weighing:
        assert self._weighing is not None, "bind comes before the first request"
        return self._weighing

    def _in_batch(self, context: RoundContext) -> Deployment:
        """The deployment as one request of the round's batch pays for it."""
        assert self._shared is not None, "bind comes before the first request"
        return self._shared.of(context.batch_size)

    def _add(self, outcome: RoundOutcome, spent: Float64Array) -> None:
        """Add a round that took `spent` [requests] milliseconds to each request's throughput."""
        context, cost = outcome.context, self._in_batch(outcome.context).cost
        for place, request in enumerate(context.request_id.tolist()):
            record = self._records[request]
            record.tokens += float(outcome.committed_tokens[place])
            record.plain_tokens += float(spent[place]) / max(cost.plain_ms(int(context.position[place])), 1e-9)

    def _open(self, level: Level) -> Expansion:
        """The opening level: the free sources wherever there are any, the draft where it pays to ask it at once."""
        self._start(level.context)
        rows = (level.candidates.may_grow & _DRAFT_BIT).nonzero()[0]
        self._score_growth(level.forest, rows, level.context)
        grow = self._bound_weighing.openings(self._scores, level, rows)
        return Expansion(np.ones(len(grow), dtype=np.bool_), grow)

    def _start(self, context: RoundContext) -> None:
        """Scores of a round that opens: of nothing yet, with each request's prices."""
        cost = self._in_batch(context).cost
        places = zip(context.request_id.tolist(), context.position.tolist(), strict=True)
        rates = [self.speedup(request) / max(cost.plain_ms(position), 1e-9) for request, position in places]
        self._scores = self._bound_weighing.open(context, rates)
        self._described = self._described[:0]

    def _survival(self, forest: Nodes, context: RoundContext) -> Float64Array:
        """Probability that each row's whole path matches, [rows]; scores what is new or has changed."""
        scores, weighing = self._scores, self._bound_weighing
        rows = weighing.stale(scores, forest)
        if not rows.size and scores.survival is not None:
            return scores.survival
        if rows.size:
            self._described = weighing.node_features(forest, rows, context)  # new rows are the last ones
            scores.match[rows] = self._match.score(self._described)
        scores.survival = weighing.survival(scores, forest)
        return scores.survival

    def _score_growth(self, forest: Nodes, rows: IndexArray, context: RoundContext) -> None:
        """Fill `holds` of `rows`: the chance that a growth brings the next token."""
        if not rows.size:
            return
        if self._growth is not None:
            described = self._described if len(self._described) else None
            features = self._bound_weighing.growth_features(forest, rows, context, described)
            self._scores.holds[rows] = self._growth.score(features)
            return
        # Without a growth model: what the offered children leave open, times the draft's recent agreement.
        table = self._bound.prior_table
        inner = forest.parent >= 0
        taken = np.bincount(
            forest.parent[inner], weights=self._scores.match[: len(inner)][inner], minlength=len(forest.parent)
        )
        at_root = rows[forest.parent[rows] < 0]
        for row in at_root[forest.lookup_match_length[at_root] > 0].tolist():
            taken[row] = table.prior(int(forest.lookup_match_length[row]), float(forest.lookup_share[row]))
        taken[at_root] = np.fmax(taken[at_root], forest.recycled_prob[at_root])
        held = np.asarray([_chance(float(value)) for value in context.draft_agreement])
        self._scores.holds[rows] = held[forest.request[rows]] * np.clip(1.0 - taken[rows], 0.0, 1.0)


def _chance(agreement: float) -> float:
    return AGREEMENT if np.isnan(agreement) else agreement
