"""A policy that is not contained: whatever goes wrong in it is raised, so that its driver can start again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from treewise.data.errors import PolicyError
from treewise.policy.contain import checked_expansion, checked_selection
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

Answer = TypeVar("Answer")


class StrictPolicy:
    """A policy whose answers are checked and timed. Whatever it raises comes out as `PolicyError`."""

    def __init__(self, policy: TreePolicy) -> None:
        self.policy = policy
        self.seconds = 0.0

    @property
    def state(self) -> State:
        """The policy's."""
        return self.policy.state

    @property
    def reach(self) -> Reach:
        """The policy's."""
        return self.policy.reach

    def bind(self, deployment: Deployment) -> None:
        """Pass it on."""
        self.policy.bind(deployment)

    def begin(self, request: RequestInfo) -> None:
        """Pass it on."""
        self._call(lambda: self.policy.begin(request))

    def expand(self, level: Level) -> Expansion:
        """The policy's answer, checked."""
        return self._timed(lambda: checked_expansion(self.policy.expand(level), len(level.candidates.parent)))

    def select(self, forest: ForestView) -> BoolArray:
        """The policy's answer, checked."""
        return self._timed(lambda: checked_selection(self.policy.select(forest), len(forest.nodes.parent)))

    def observe(self, outcome: RoundOutcome) -> None:
        """Pass it on."""
        self._call(lambda: self.policy.observe(outcome))

    def finish(self, request_id: int, reason: str) -> None:
        """Pass it on."""
        self._call(lambda: self.policy.finish(request_id, reason))

    def _timed(self, call: Callable[[], Answer]) -> Answer:
        started = time.perf_counter()
        answer = self._call(call)
        self.seconds += time.perf_counter() - started
        return answer

    @staticmethod
    def _call(call: Callable[[], Answer]) -> Answer:
        try:
            return call()
        except Exception as error:
            raise PolicyError(f"policy failed: {type(error).__name__}: {error}") from error
