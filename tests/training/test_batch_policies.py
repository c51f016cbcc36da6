"""Policies that err, mix requests up or remember, driven through many requests at once."""

from __future__ import annotations

import numpy as np
import pytest

from tests.training.batch_traces import (
    OneMinded,
    check_batched,
    check_same,
    trace,
)
from tests.training.worlds import COST, GrowAll
from treewise.policy.contain import ContainedPolicy
from treewise.policy.hook import (
    BoolArray,
    Expansion,
    ForestView,
    Level,
    RequestInfo,
    RoundContext,
    RoundOutcome,
    State,
)
from treewise.training.replay import replay


class Fickle(GrowAll):
    """Raises in the call named, for one request."""

    state: State = "request"

    def __init__(self, failing: str, number: int = 1) -> None:
        self.failing, self.number = failing, number
        self.seen: dict[int, int] = {}  # request -> tokens

    def begin(self, request: RequestInfo) -> None:
        self.seen[request.request_id] = 0
        self._maybe("begin", request.request_id == self.number)

    def expand(self, level: Level) -> Expansion:
        self._maybe("expand", self._is_due(level.context) and level.index == 1)
        return super().expand(level)

    def select(self, forest: ForestView) -> BoolArray:
        self._maybe("select", self._is_due(forest.context))
        seen = np.asarray([self.seen[own] for own in forest.context.request_id.tolist()])
        return np.asarray(forest.nodes.depth <= seen[forest.nodes.request] % 3 + 1)

    def observe(self, outcome: RoundOutcome) -> None:
        for place, request in enumerate(outcome.context.request_id.tolist()):
            self.seen[request] += int(outcome.accepted_length[place]) + 1
            self._maybe("observe", request == self.number and 3 <= self.seen[request] <= 6)

    def finish(self, request_id: int, reason: str) -> None:
        self._maybe("finish", request_id == self.number)

    def _is_due(self, context: RoundContext) -> bool:
        return self.number in context.request_id and 3 <= self.seen[self.number] <= 6

    def _maybe(self, call: str, fails: bool) -> None:
        if fails and self.failing == call:
            raise ValueError(f"no {call}")


@pytest.mark.parametrize("failing", ["begin", "expand", "select", "observe", "finish", "nothing"])
@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_failure_touches_only_its_own_request(failing: str, number: int) -> None:
    log = trace()
    setting = log.deployment(COST)
    one, many, sound = (
        ContainedPolicy(Fickle(name, number), time_limit_ms=np.inf, is_quiet=True)
        for name in (failing, failing, "nothing")
    )
    alone = replay(one, log.requests, setting, batch_requests=1)
    together = replay(many, log.requests, setting, batch_requests=3)
    check_same(together, alone)
    assert (many.num_failures, many.num_fallbacks, many.num_suspensions) == (
        one.num_failures, one.num_fallbacks, one.num_suspensions,
    )  # fmt: skip
    assert (one.num_failures > 0) == (failing != "nothing")
    untouched = replay(sound, log.requests, setting)
    others = untouched.request != number
    np.testing.assert_array_equal(untouched.digest[others], together.digest[together.request != number])


class Mindful(GrowAll):
    """Remembers over requests."""

    state: State = "session"

    def __init__(self) -> None:
        self.seen = 0
        self.sizes: set[int] = set()

    def expand(self, level: Level) -> Expansion:
        self.sizes.add(len(level.context.request_id))
        answer = super().expand(level)
        return answer if self.seen % 3 else Expansion(answer.admit, np.zeros_like(answer.grow))

    def observe(self, outcome: RoundOutcome) -> None:
        self.seen += int(outcome.accepted_length.sum()) + 1


def test_a_policy_that_mixes_requests_up_is_replayed_alone() -> None:
    check_batched(OneMinded, trace(), 4)


def test_a_session_is_replayed_in_the_logs_order() -> None:
    policies: list[Mindful] = []

    def make() -> Mindful:
        policies.append(Mindful())
        return policies[-1]

    check_batched(make, trace(), 4)
    assert policies[1].sizes == {1}


class Sizes(GrowAll):
    """Remembers the batch it was told of, and the one it saw."""

    def __init__(self) -> None:
        self.told: set[int] = set()
        self.seen: set[int] = set()

    def expand(self, level: Level) -> Expansion:
        self.told.add(level.context.batch_size)
        self.seen.add(len(level.context.request_id))
        return super().expand(level)


def test_policies_are_told_the_logs_batch() -> None:
    policy = Sizes()
    replay(policy, trace().requests, trace().deployment(COST), batch_requests=3)
    assert policy.told == {1}
    assert max(policy.seen) == 3
