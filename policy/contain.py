"""Containment: a policy that raises, answers nonsense or dawdles never loses a round."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from treewise.data.errors import PolicyError, require
from treewise.policy.hook import (
    BoolArray,
    Deployment,
    Expansion,
    ForestView,
    Level,
    Nodes,
    Reach,
    RequestInfo,
    RoundContext,
    RoundOutcome,
    State,
    TreePolicy,
)
from treewise.policy.request_part import RequestPart, expand_in_parts, select_in_parts
from treewise.policy.topn import TopNPolicy, TopNSettings

MAX_OVERRUNS = 3  # in a row
HOOK = ("state", "reach", "bind", "begin", "expand", "select", "observe", "finish")
Answer = TypeVar("Answer")


class ContainedPolicy:
    """Stands between a driver and a policy; a failed round is finished by the stateless `fallback`.

    Every failure is counted and kept as `last_error`, the first one is told with a `RuntimeWarning` unless `is_quiet`;
    the next round tries the policy again. Three calls in a row over `time_limit_ms` suspend it until the next `begin`.
    In a batch that suspension is everybody's. A request that the policy could not begin is suspended alone, as long as
    it lasts: the fallback decides its part of every round, and the policy is shown the others as though it was not
    there, but for the batch size that prices are shared by. Only `bind` may raise.
    """

    def __init__(
        self,
        policy: TreePolicy,
        fallback: TreePolicy | None = None,
        time_limit_ms: float = 50.0,
        clock: Callable[[], float] = time.perf_counter,  # seconds
        is_quiet: bool = False,
    ) -> None:
        require(time_limit_ms > 0.0, "time_limit_ms", "above 0", time_limit_ms)
        missing = [name for name in HOOK if not hasattr(policy, name)]
        require(
            not missing, "policy", f"an object with {', '.join(HOOK)}", f"{type(policy).__name__} without {missing}"
        )
        self.policy = policy
        self.fallback: TreePolicy = TopNPolicy(TopNSettings(nodes=8, depth=2)) if fallback is None else fallback
        require(self.fallback.state == "none", "fallback", "a policy of state 'none'", self.fallback.state)
        self.time_limit_ms = time_limit_ms
        self.num_fallbacks = 0  # rounds that the fallback finished after a failure
        self.num_failures = 0  # exceptions and violations, of any call
        self.num_suspensions = 0
        self.last_error: Exception | None = None
        self.round_fallback = False  # this round was finished by the fallback after a failure
        self.round_suspended = False  # this round never reached the policy, for no request
        self.round_calls = 0  # expand and select of this round that reached the policy
        self.round_ms = 0.0  # what they took
        self.is_quiet = is_quiet  # failures are told no more
        self._clock = clock
        self._overruns = 0
        self._suspended = False
        self._unbegun: set[int] = set()  # requests that the policy could not begin

    @property
    def state(self) -> State:
        """The policy's."""
        return self.policy.state

    @property
    def reach(self) -> Reach:
        """What the policy or its fallback may ask for."""
        mine, spare = self.policy.reach, self.fallback.reach
        return Reach(max(mine.depth, spare.depth), max(mine.draft_width, spare.draft_width))

    def bind(self, deployment: Deployment) -> None:
        """Bind both. Raises what the policy raises where it cannot serve this deployment."""
        self.policy.bind(deployment)
        self.fallback.bind(deployment)

    def begin(self, request: RequestInfo) -> None:
        """Lift a suspension; a policy that cannot even begin is suspended for this request alone."""
        self._suspended = False
        self._overruns = 0
        self._unbegun.discard(request.request_id)
        self.fallback.begin(request)
        try:
            self.policy.begin(request)
        except Exception as error:
            self._fail(error)
            self.num_suspensions += 1
            self._unbegun.add(request.request_id)

    def expand(self, level: Level) -> Expansion:
        """The policy's answer if it is one, else the fallback's; in parts where the policy began some requests only."""
        part = self._part(level.context, level.forest)
        if level.index == 0:
            self.round_fallback = False
            self.round_suspended = self._suspended or (part is not None and not part.chosen.any())
            self.round_calls = 0
            self.round_ms = 0.0
        if not (self.round_suspended or self.round_fallback):
            try:
                if part is None:
                    return self._expand(level)
                return expand_in_parts([(self._expand, part), (self.fallback.expand, part.rest)], level)
            except Exception as error:
                self._fall_back(error)
        return self.fallback.expand(level)

    def select(self, forest: ForestView) -> BoolArray:
        """The policy's answer if it is one, else the fallback's; in parts as `expand`."""
        if not (self.round_suspended or self.round_fallback):
            try:
                part = self._part(forest.context, forest.nodes)
                if part is None:
                    return self._select(forest)
                return select_in_parts([(self._select, part), (self.fallback.select, part.rest)], forest)
            except Exception as error:
                self._fall_back(error)
        return self.fallback.select(forest)

    def observe(self, outcome: RoundOutcome) -> None:
        """Tell the policy of the requests that it began, unless it is suspended."""
        part = self._part(outcome.context, outcome.nodes)
        if not self._suspended and (part is None or part.chosen.any()):
            try:
                self.policy.observe(outcome if part is None else part.outcome(outcome))
            except Exception as error:
                self._fail(error)

    def finish(self, request_id: int, reason: str) -> None:
        """Tell the policy."""
        self._unbegun.discard(request_id)
        try:
            self.policy.finish(request_id, reason)
        except Exception as error:
            self._fail(error)

    def is_suspended(self, request_id: int) -> bool:
        """Whether the round in progress, or the last one, never reached the policy for a request that takes part."""
        return self.round_suspended or request_id in self._unbegun

    def _part(self, context: RoundContext, forest: Nodes) -> RequestPart | None:
        """The requests of a round that the policy began; None where it began all."""
        if not self._unbegun:
            return None
        begun = [request not in self._unbegun for request in context.request_id.tolist()]
        return None if all(begun) else RequestPart(np.asarray(begun, dtype=np.bool_), forest)

    def _expand(self, level: Level) -> Expansion:
        return self._timed(lambda: checked_expansion(self.policy.expand(level), len(level.candidates.parent)))

    def _select(self, forest: ForestView) -> BoolArray:
        return self._timed(lambda: checked_selection(self.policy.select(forest), len(forest.nodes.parent)))

    def _timed(self, call: Callable[[], Answer]) -> Answer:
        """Run one call of the policy; a late answer still counts as an answer."""
        started = self._clock()
        try:
            return call()
        finally:
            took_ms = 1000.0 * (self._clock() - started)
            self.round_calls += 1
            self.round_ms += took_ms
            self._overruns = self._overruns + 1 if took_ms > self.time_limit_ms else 0
            if self._overruns >= MAX_OVERRUNS:
                self._suspend()  # from the next round on: this one is still the policy's

    def _suspend(self) -> None:
        if not self._suspended:
            self._suspended = True
            self.num_suspensions += 1

    def _fall_back(self, error: Exception) -> None:
        self.round_fallback = True
        self.num_fallbacks += 1
        self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.num_failures += 1
        self.last_error = error
        if not self.is_quiet:
            self.is_quiet = True
            warnings.warn(
                f"policy {type(self.policy).__name__} failed and its fallback took over "
                f"({type(error).__name__}: {error}); further failures are counted without a warning",
                RuntimeWarning,
                stacklevel=4,
            )


def checked_expansion(answer: object, candidates: int) -> Expansion:
    """`answer`, if it is an expansion of `candidates` candidates. Raises `PolicyError` where it is not."""
    if not isinstance(answer, Expansion):
        raise PolicyError(f"expand must return an Expansion, got {type(answer).__name__}")
    _check_array("admit", answer.admit, np.bool_, candidates)
    _check_array("grow", answer.grow, np.uint8, candidates)
    stray = int(((answer.grow > 0) & ~answer.admit).sum())
    if stray:
        raise PolicyError(f"grow must be 0 where admit is False, got {stray} candidates that grow without admission")
    return answer


def checked_selection(answer: object, rows: int) -> BoolArray:
    """`answer`, if it selects among `rows` rows. Raises `PolicyError` where it does not."""
    _check_array("selection", answer, np.bool_, rows)
    assert isinstance(answer, np.ndarray)
    return answer


def _check_array(name: str, value: object, dtype: type, length: int) -> None:
    if not isinstance(value, np.ndarray):
        raise PolicyError(f"{name} must be a numpy array, got {type(value).__name__}")
    if value.dtype != dtype:
        nan = value.dtype.kind == "f" and bool(np.isnan(value).any())
        raise PolicyError(f"{name} must be {np.dtype(dtype)}, got {value.dtype}{' with NaN' if nan else ''}")
    if value.shape != (length,):
        raise PolicyError(f"{name} must have shape ({length},), got {value.shape}")
