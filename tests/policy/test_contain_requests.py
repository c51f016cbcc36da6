"""A policy that cannot begin one request of a batch: that request is the fallback's, the others stay its own."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.policy.conformance import WORLDS, Watched, Wrapped, arrays_of
from tests.policy.models import tiny_bundle
from tests.policy.scripted import Decision, World, play
from treewise.policy.contain import ContainedPolicy
from treewise.policy.hook import (
    BoolArray,
    Expansion,
    ForestView,
    Level,
    RequestInfo,
    RoundOutcome,
    TreePolicy,
    shares_budget,
)
from treewise.policy.learned import LearnedPolicy
from treewise.policy.registry import RULES, parse_policy
from treewise.policy.shared_budget import SharedBudgetPolicy

BATCH = (0, 1, 2)
pytestmark = pytest.mark.filterwarnings("ignore:policy .* failed:RuntimeWarning")


class Choosy(Watched):
    """Cannot begin some requests, and must never hear of them again but at their end; keeps what it was shown."""

    def __init__(self, policy: TreePolicy, refused: Collection[int] = ()) -> None:
        super().__init__(policy)
        self.refused = refused
        self.shown: list[list[np.ndarray[Any, Any]]] = []

    def begin(self, request: RequestInfo) -> None:
        if request.request_id in self.refused:
            raise ValueError("not this one")
        super().begin(request)

    def expand(self, level: Level) -> Expansion:
        self._note("expand", level.candidates, level.forest, level.context)
        assert level.start + len(level.candidates.parent) == len(level.forest.parent)
        assert len(level.candidates.parent), "a level without candidates is no question"
        return super().expand(level)

    def select(self, forest: ForestView) -> BoolArray:
        self._note("select", forest.nodes, forest.context)
        return super().select(forest)

    def observe(self, outcome: RoundOutcome) -> None:
        own = [getattr(outcome, item.name) for item in fields(outcome)]
        self._note("observe", outcome.nodes, outcome.context)
        self.shown[-1] += [array.copy() for array in own if isinstance(array, np.ndarray)]
        super().observe(outcome)

    def _note(self, call: str, *parts: Any) -> None:
        assert not set(parts[-1].request_id.tolist()) & set(self.refused)
        sizes = np.asarray([parts[-1].batch_size, len(call)])
        self.shown.append([sizes, *(array.copy() for array in arrays_of(*parts))])


def learned() -> TreePolicy:
    return LearnedPolicy(tiny_bundle(), "flat", compiled="off")


MAKERS: dict[str, Callable[[], TreePolicy]] = {name: partial(parse_policy, name) for name in RULES}
MAKERS["learned"] = learned


def played(policy: TreePolicy, world: World, requests: tuple[int, ...] = BATCH) -> dict[int, list[Decision]]:
    return play(policy, world, requests, batch_size=len(BATCH))


@pytest.mark.parametrize("refused", [(1,), (0, 2)])
@pytest.mark.parametrize("name", MAKERS)
def test_each_request_is_decided_as_it_would_be_alone(name: str, refused: tuple[int, ...]) -> None:
    make = MAKERS[name]
    for world in (WORLDS[2], WORLDS[4]):
        contained = ContainedPolicy(Choosy(make(), refused), time_limit_ms=1e9)
        together = played(contained, world)
        assert (contained.num_failures, contained.num_fallbacks) == (len(refused), 0), contained.last_error
        assert contained.num_suspensions == len(refused)
        for request in BATCH:
            own = contained.fallback if request in refused else make()
            assert together[request] == played(own, world, (request,))[request]


@pytest.mark.parametrize("name", ["frontier", "learned"])
def test_a_policy_is_shown_what_it_would_be_without_the_others(name: str) -> None:
    for world in WORLDS:
        few, alone = Choosy(MAKERS[name](), (0, 2)), Choosy(MAKERS[name]())
        played(ContainedPolicy(few, time_limit_ms=1e9), world)
        played(alone, world, (1,))
        assert len(few.shown) == len(alone.shown) > 6
        for found, expected in zip(few.shown, alone.shown, strict=True):
            for array, other in zip(found, expected, strict=True):
                np.testing.assert_array_equal(array, other)
                assert array.dtype == other.dtype


def test_a_shared_budget_is_shared_by_those_who_began() -> None:
    def make() -> TreePolicy:
        return SharedBudgetPolicy(tiny_bundle(), "flat", compiled="off", nodes=2)

    assert shares_budget(make())
    moved = 0
    for world in WORLDS:
        few, both = (
            played(ContainedPolicy(Choosy(make(), refused), time_limit_ms=1e9), world, requests)
            for refused, requests in (((1,), BATCH), ((), (0, 2)))
        )
        assert all(few[request][0] == both[request][0] for request in (0, 2))
        moved += played(make(), world)[0][0] != few[0][0]
    assert moved, "the budget of the whole batch should be another"


class Failing(Choosy):
    """Fails in every second round, at the call named."""

    def __init__(self, call: str, refused: Collection[int]) -> None:
        super().__init__(parse_policy("static:2x3"), refused)
        self.call, self.rounds = call, 0

    def expand(self, level: Level) -> Expansion:
        self.rounds += level.index == 0
        if self.call == "expand" and level.index == 1 and self.rounds % 2 == 0:
            raise ValueError("lost my way")
        return super().expand(level)

    def select(self, forest: ForestView) -> BoolArray:
        if self.call == "select" and self.rounds % 2 == 0:
            raise ValueError("lost my way")
        return super().select(forest)


@pytest.mark.parametrize("call", ["expand", "select"])
def test_a_round_that_fails_is_the_fallbacks_for_those_who_began(call: str) -> None:
    contained = ContainedPolicy(Failing(call, (1,)), time_limit_ms=1e9)
    decisions = played(contained, WORLDS[2])
    assert contained.num_fallbacks == contained.num_failures - 1 > 1
    assert decisions[1] == played(contained.fallback, WORLDS[2], (1,))[1]
    assert decisions[0][0] == played(parse_policy("static:2x3"), WORLDS[2], (0,))[0][0]


def test_a_suspension_is_the_requests_own_and_ends_with_it() -> None:
    told: list[tuple[bool, ...]] = []

    class Noted(ContainedPolicy):
        def observe(self, outcome: RoundOutcome) -> None:
            ids = outcome.context.request_id.tolist()
            told.append((self.round_suspended, *(self.is_suspended(request) for request in ids)))
            assert (self.round_calls > 0) == (not self.round_suspended)
            super().observe(outcome)

    choosy = Choosy(parse_policy("entropy"), (0, 2))
    contained = Noted(choosy, parse_policy("plain"), time_limit_ms=1e9)
    played(contained, WORLDS[2])
    assert told[0] == (False, True, False, True)
    assert told[-1][:2] == (True, True), "requests that it could not begin should be left over"
    told.clear()
    choosy.refused = ()  # whatever it was is mended
    played(contained, WORLDS[2])
    assert {flag for flags in told for flag in flags} == {False}


def test_a_request_that_begins_again_is_the_policys() -> None:
    choosy = Choosy(parse_policy("entropy"), (0,))
    contained = ContainedPolicy(choosy, time_limit_ms=1e9)
    info = RequestInfo(0, 10, 12, 0.0)
    contained.begin(info)
    assert contained.is_suspended(0)
    choosy.refused = ()
    contained.begin(info)
    assert not contained.is_suspended(0)


def test_three_slow_calls_suspend_the_whole_batch() -> None:
    now = iter(range(10**6))
    contained = ContainedPolicy(Wrapped(parse_policy("static:2x3")), clock=lambda: float(next(now)))
    played(contained, WORLDS[2])
    assert contained.num_suspensions == 1
    assert all(contained.is_suspended(request) for request in BATCH)
