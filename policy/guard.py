"""The guarded policy: the learned one, recalibrated by what it sees; steps aside while something simpler is faster."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from treewise.data.errors import require
from treewise.policy.budget import SharedDeployments, modelled_ms
from treewise.policy.bundle import Bundle
from treewise.policy.comparison import Arm, Comparison, ComparisonCounters, ComparisonSettings
from treewise.policy.hook import (
    BoolArray,
    Deployment,
    Expansion,
    ForestView,
    Level,
    Reach,
    RequestInfo,
    RoundOutcome,
    State,
    TreePolicy,
)
from treewise.policy.learned import Compiled, LearnedPolicy, ScorerName
from treewise.policy.plain import PlainPolicy
from treewise.policy.recalibration import RecalibratedScorer, Recalibration, RecalibrationSettings
from treewise.policy.registry import parse_policy
from treewise.policy.row_scores import RowScores

FIXED = "fixed_policy"  # of a bundle's provenance: spec of the best fixed tree where it was trained


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """Settings of `GuardedPolicy`."""

    fixed: str = ""  # spec of the fixed tree to compare with; empty: what the bundle names, else none
    recalibration: RecalibrationSettings = field(default_factory=RecalibrationSettings)
    comparison: ComparisonSettings = field(default_factory=ComparisonSettings)


class GuardedPolicy(LearnedPolicy):
    """The learned policy with a memory of the session: what it predicted and what its rounds cost.

    Match probabilities are recalibrated by the rows whose match became known (`Recalibration`). A round is decided as a
    whole by one arm (`Comparison`); from another arm's round nothing is learned about matches, and the price of a
    millisecond stays what the learned policy's own rounds made it. All milliseconds are the cost profile's: where the
    profile is wrong the guard cannot know.
    """

    state: State = "session"

    def __init__(
        self,
        bundle: Bundle,
        scorer: ScorerName = "auto",
        folder: str | Path = "",
        compiled: Compiled = "auto",
        guard: GuardSettings | None = None,
    ) -> None:
        """As the learned policy. Raises `PolicySpecError` or `ParameterError` on a fixed tree that cannot serve."""
        super().__init__(bundle, scorer, folder, compiled)
        self.guard = guard or GuardSettings()
        self.recalibration = Recalibration(self.guard.recalibration)
        self._match = RecalibratedScorer(self._match, self.recalibration)
        self._plain = PlainPolicy()
        spec = self.guard.fixed or str(bundle.provenance.get(FIXED, ""))
        self._fixed: TreePolicy | None = parse_policy(spec) if spec else None
        if self._fixed is not None:
            require(self._fixed.state != "session", "fixed", "a policy that remembers no session", spec)
        self.comparison = Comparison(self.guard.comparison, self._fixed is not None)
        self._arm: Arm = "learned"  # of the round in progress
        self._is_decided = False  # the arm has selected this round's nodes
        self._priced: dict[Arm, SharedDeployments] = {}  # what the rounds of the other arms are priced by

    @property
    def spec(self) -> str:
        """The spec string that makes this policy again, at default settings."""
        return f"guarded:{self._folder}"

    @property
    def counters(self) -> ComparisonCounters:
        """Rounds of each arm, and how often they took turns."""
        return self.comparison.counters

    @property
    def reach(self) -> Reach:
        """The most that any arm may ask for."""
        mine = super().reach
        if self._fixed is None:
            return mine
        theirs = self._fixed.reach
        return Reach(max(mine.depth, theirs.depth), max(mine.draft_width, theirs.draft_width))

    def bind(self, deployment: Deployment) -> None:
        """Bind every arm. Raises `BundleError` as the learned policy does."""
        super().bind(deployment)
        self._plain.bind(deployment)
        free = replace(deployment.cost, policy_ms=0.0)  # plain decoding asks nobody
        self._priced = {
            "fixed": SharedDeployments(deployment),
            "plain": SharedDeployments(replace(deployment, cost=free)),
        }
        if self._fixed is not None:
            self._fixed.bind(deployment)

    def begin(self, request: RequestInfo) -> None:
        """Every arm may be asked."""
        super().begin(request)
        if self._fixed is not None:
            self._fixed.begin(request)

    def expand(self, level: Level) -> Expansion:
        """The answer of the round's arm."""
        if level.index == 0:
            self._arm = self.comparison.arm
            self._is_decided = False
            if self._arm != "learned":
                self._scores = RowScores(0)  # nothing is expected of this round's rows
        other = self._other
        return super().expand(level) if other is None else other.expand(level)

    def select(self, forest: ForestView) -> BoolArray:
        """The answer of the round's arm."""
        other = self._other
        keep = super().select(forest) if other is None else other.select(forest)
        self._is_decided = True
        return keep

    def observe(self, outcome: RoundOutcome) -> None:
        """Recalibrate, and compare. A round that a driver's fallback finished says nothing about any arm."""
        if not self._is_decided:
            return
        self._is_decided = False
        other, context = self._other, outcome.context
        if other is None:
            each = modelled_ms(outcome, self._in_batch(context))
            self._add(outcome, each)
            spent = float(each.sum())
            known = ((outcome.match >= 0) & (outcome.nodes.parent >= 0)).nonzero()[0]
            self.recalibration.observe(self.round_match[known], outcome.match[known])
        else:
            other.observe(outcome)
            spent = float(modelled_ms(outcome, self._priced[self._arm].of(context.batch_size)).sum())
        cost, tokens = self._in_batch(context).cost, outcome.committed_tokens.tolist()
        plain = sum(
            count * cost.plain_ms(place) for count, place in zip(tokens, context.position.tolist(), strict=True)
        )
        if plain > 0.0:
            self.comparison.add(sum(tokens), plain, spent, len(tokens))

    def finish(self, request_id: int, reason: str) -> None:
        """Forget the request, not the session."""
        super().finish(request_id, reason)
        if self._fixed is not None:
            self._fixed.finish(request_id, reason)

    @property
    def _other(self) -> TreePolicy | None:
        """Who decides the round in progress in the learned policy's place."""
        if self._arm == "learned":
            return None
        return self._plain if self._arm == "plain" else self._fixed
