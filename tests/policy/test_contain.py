"""Containment of misbehaving policies."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.policy.conformance import CHECKS, Check, Wrapped, check_spec
from tests.policy.scripted import World, example_deployment, play
from treewise.data.errors import ParameterError, PolicyError
from treewise.policy.contain import ContainedPolicy
from treewise.policy.hook import (
    DRAFT,
    LOOKUP,
    BoolArray,
    Deployment,
    Expansion,
    ForestView,
    Level,
    RequestInfo,
    RoundOutcome,
)
from treewise.policy.registry import parse_policy

WORLD = World(0)
FALLBACK = "topn:8x2"


@pytest.mark.parametrize("check", [check for check in CHECKS if check is not check_spec])
def test_a_good_policy_passes_through(check: Check) -> None:
    assert check(lambda: ContainedPolicy(parse_policy("entropy"), time_limit_ms=1e9)) > 0
    contained = ContainedPolicy(parse_policy("entropy"), time_limit_ms=1e9)
    assert play(contained, WORLD) == play(parse_policy("entropy"), WORLD)
    assert (contained.num_fallbacks, contained.num_failures, contained.num_suspensions) == (0, 0, 0)


class Broken(Wrapped):
    """The entropy rule until its nth expand or select, where `spoil` stands in."""

    def __init__(self, spoil: Callable[[Any], Any], call: str, on: int = 1) -> None:
        super().__init__(parse_policy("entropy"))
        self.spoil, self.call, self.on, self.calls = spoil, call, on, 0

    def _turn(self, call: str) -> bool:
        self.calls += call == self.call
        return call == self.call and self.calls == self.on

    def expand(self, level: Level) -> Expansion:
        turn, answer = self._turn("expand"), self.policy.expand(level)
        return self.spoil(answer) if turn else answer

    def select(self, forest: ForestView) -> BoolArray:
        turn, answer = self._turn("select"), self.policy.select(forest)
        return self.spoil(answer) if turn else answer


def throw(answer: object) -> None:
    raise ValueError("lost my way")


@pytest.mark.parametrize(
    ("call", "spoil", "message"),
    [
        ("expand", throw, "lost my way"),
        ("expand", lambda a: None, "expand must return an Expansion, got NoneType"),
        ("expand", lambda a: (a.admit, a.grow), "expand must return an Expansion, got tuple"),
        ("expand", lambda a: Expansion(a.admit[:0], a.grow), r"admit must have shape \(1,\), got \(0,\)"),
        ("expand", lambda a: Expansion(a.admit, a.grow[None]), r"grow must have shape \(1,\), got \(1, 1\)"),
        ("expand", lambda a: Expansion(a.admit, a.grow * np.nan), "grow must be uint8, got float.* with NaN"),
        ("expand", lambda a: Expansion(a.admit.astype(int), a.grow), "admit must be bool, got int64"),
        ("expand", lambda a: Expansion(a.admit.tolist(), a.grow), "admit must be a numpy array, got list"),
        ("expand", lambda a: Expansion(~a.admit, a.grow), "grow must be 0 where admit is False, got 1 candidates"),
        ("select", throw, "lost my way"),
        ("select", lambda a: a.astype(np.float32) * np.nan, "selection must be bool, got float32 with NaN"),
        ("select", lambda a: a[1:], r"selection must have shape"),
        ("select", lambda a: None, "selection must be a numpy array, got NoneType"),
    ],
)
def test_a_failed_round_is_finished_by_the_fallback(call: str, spoil: Callable[[Any], Any], message: str) -> None:
    broken = Broken(spoil, call)
    contained = ContainedPolicy(broken, time_limit_ms=1e9)
    with pytest.warns(RuntimeWarning, match="policy Broken failed and its fallback took over"):
        decisions = play(contained, WORLD)[0]
    assert (contained.num_fallbacks, contained.num_failures, contained.num_suspensions) == (1, 1, 0)
    with pytest.raises((PolicyError, ValueError), match=message):
        raise contained.last_error or AssertionError("no error was kept")
    if call == "expand":  # broke at the first opening level: the whole round is the fallback's
        assert decisions[0] == play(parse_policy(FALLBACK), WORLD)[0][0]
    assert broken.calls > 1, "the next round tries the policy again"


def test_flags_tell_which_rounds_fell_back_and_the_warning_comes_once() -> None:
    class Always(Wrapped):
        def expand(self, level: Level) -> Expansion:
            if level.index == 1:
                raise ZeroDivisionError("again")
            return super().expand(level)

        def observe(self, outcome: RoundOutcome) -> None:
            flags.append((contained.round_fallback, contained.round_suspended, contained.round_calls))

    flags: list[tuple[bool, bool, int]] = []
    contained = ContainedPolicy(Always(parse_policy("entropy")), time_limit_ms=1e9)
    with pytest.warns(RuntimeWarning) as told:
        play(contained, WORLD, max_new_tokens=20)
    assert len(told) == 1
    assert contained.num_fallbacks == sum(fell for fell, _, _ in flags) > 2
    assert {flag for flag in flags if flag[0]} == {(True, False, 2)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        play(contained, WORLD)  # already told


class Clock:
    """Advances by a scripted number of milliseconds per policy call."""

    def __init__(self, *call_ms: float) -> None:
        self.call_ms, self.reads, self.now_ms = call_ms, 0, 0.0

    def __call__(self) -> float:
        if self.reads % 2:
            self.now_ms += self.call_ms[(self.reads // 2) % len(self.call_ms)]
        self.reads += 1
        return self.now_ms / 1000.0


def test_three_overruns_in_a_row_suspend_for_the_request() -> None:
    seen: list[tuple[bool, int, float]] = []

    class Noted(ContainedPolicy):
        def observe(self, outcome: RoundOutcome) -> None:
            seen.append((self.round_suspended, self.round_calls, self.round_ms))
            super().observe(outcome)

    contained = Noted(parse_policy("static:2x3"), clock=Clock(51.0))
    decisions = play(contained, WORLD)[0]
    assert contained.num_suspensions == 1
    assert contained.num_fallbacks == 0
    assert not seen[0][0]
    assert seen[0][2] == pytest.approx(51.0 * seen[0][1])
    assert all(suspended and calls == 0 for suspended, calls, _ in seen[1:])
    assert decisions[0] == play(parse_policy("static:2x3"), WORLD)[0][0]
    assert decisions[1:] != play(parse_policy("static:2x3"), WORLD)[0][1:]
    seen.clear()
    play(contained, WORLD)
    assert not seen[0][0], "begin lifts the suspension"
    assert contained.num_suspensions == 2


def test_overruns_that_are_not_in_a_row_are_forgiven() -> None:
    contained = ContainedPolicy(parse_policy("static:2x3"), clock=Clock(51.0, 51.0, 49.0))
    assert play(contained, WORLD) == play(parse_policy("static:2x3"), WORLD)
    assert contained.num_suspensions == 0


def test_failures_of_begin_observe_and_finish_do_not_stop_the_request() -> None:
    class Sour(Wrapped):
        def begin(self, request: RequestInfo) -> None:
            raise KeyError("begin")

        def observe(self, outcome: RoundOutcome) -> None:
            raise KeyError("observe")

        def finish(self, request_id: int, reason: str) -> None:
            raise KeyError("finish")

    contained = ContainedPolicy(Sour(parse_policy("entropy")), time_limit_ms=1e9)
    with pytest.warns(RuntimeWarning, match="KeyError: 'begin'"):
        assert play(contained, WORLD) == play(parse_policy(FALLBACK), WORLD)
    assert (contained.num_failures, contained.num_suspensions) == (2, 1)  # begin and finish; suspended in between


def test_interrupts_and_refusals_to_bind_pass_through() -> None:
    class Interrupted(Wrapped):
        def expand(self, level: Level) -> Expansion:
            raise KeyboardInterrupt

    class Refusing(Wrapped):
        def bind(self, deployment: Deployment) -> None:
            raise PolicyError("not here")

    with pytest.raises(KeyboardInterrupt):
        play(ContainedPolicy(Interrupted(parse_policy("plain"))), WORLD)
    with pytest.raises(PolicyError, match="not here"):
        ContainedPolicy(Refusing(parse_policy("plain"))).bind(example_deployment(LOOKUP | DRAFT))


def test_settings_are_checked() -> None:
    with pytest.raises(ParameterError, match="time_limit_ms must be above 0, got 0"):
        ContainedPolicy(parse_policy("plain"), time_limit_ms=0)
    with pytest.raises(ParameterError, match="fallback must be a policy of state 'none', got 'request'"):
        ContainedPolicy(parse_policy("plain"), fallback=parse_policy("frontier"))
