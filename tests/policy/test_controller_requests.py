"""Requests of a controller: how they begin, fail and end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.policy.controlled import DRAFT_MODEL, PROMPTS, SMALL, TARGET, assert_texts, controller_of, decode
from tests.policy.loops import COST, VOCAB, Loop, greedy, plain_text
from treewise.data.errors import ParameterError, PolicySpecError, PromptError
from treewise.policy.controller import Controller, ControllerSettings
from treewise.policy.everything import EverythingPolicy
from treewise.policy.hook import Expansion, Level, RequestInfo, State


class Fails(EverythingPolicy):
    """Raises from the second round of any request on."""

    def expand(self, level: Level) -> Expansion:
        if level.context.generated_tokens[0] > 0:
            raise ValueError("no idea")
        return super().expand(level)


def test_a_failing_policy_is_told_once_counted_and_survived() -> None:
    controller = controller_of(Fails())
    with pytest.warns(RuntimeWarning, match="no idea") as told:
        first = decode(controller)
        decoded = Loop(controller, greedy(TARGET), DRAFT_MODEL)
        request = decoded.begin(PROMPTS[1], 12)
        decoded.run()
    assert_texts(first)
    assert decoded.completion(request, PROMPTS[1]) == plain_text(PROMPTS[1], greedy(TARGET), 12)
    counters = controller.counters
    assert counters.fallbacks == counters.failures == counters.rounds - 4
    assert len(told) == 1


def test_a_slow_policy_is_suspended_for_its_request_alone() -> None:
    now = [0.0]

    class Slow(EverythingPolicy):
        def expand(self, level: Level) -> Expansion:
            now[0] += 1.0 if level.context.request_id[0] == 0 else 0.001
            return super().expand(level)

    controller = Controller(
        Slow(),
        cost=COST,
        vocab_size=VOCAB,
        settings=ControllerSettings(envelope=SMALL, time_limit_ms=100.0),
        clock=lambda: now[0],
    )
    loop = Loop(controller, greedy(TARGET), DRAFT_MODEL)
    for prompt in PROMPTS[:2]:
        loop.begin(prompt, 30)
    loop.run()
    for number, prompt in enumerate(PROMPTS[:2]):
        assert loop.completion(number, prompt) == plain_text(prompt, greedy(TARGET), 30)
    assert 0 < controller.counters.suspensions < len(loop.accepted[0])
    assert controller.counters.fallbacks == 0
    assert controller.counters.policy_seconds >= 3.0


def test_a_withdrawn_tree_leaves_no_trace() -> None:
    controller = controller_of()
    loop = Loop(controller, greedy(TARGET), DRAFT_MODEL)
    loop.begin(PROMPTS[0], 25)
    while 0 not in loop.finishes:
        first = loop.propose(0)
        controller.withdraw(0)
        with pytest.raises(ParameterError, match="accept must follow propose, got request 0 without a tree"):
            controller.accept(0, [0] * first.num_rows)
        again = loop.propose(0)
        assert again.tokens.tolist() == first.tokens.tolist()
        loop.accept(0, again, loop.verify(0, again))
    assert loop.completion(0, PROMPTS[0]) == plain_text(PROMPTS[0], greedy(TARGET), 25)


class Memory(EverythingPolicy):
    """Notes what it is told of requests."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[int, str]] = []

    def begin(self, request: RequestInfo) -> None:
        self.told.append((request.request_id, f"{request.prompt_tokens}+{request.max_new_tokens}"))

    def finish(self, request_id: int, reason: str) -> None:
        self.told.append((request_id, reason))


class Remembers(EverythingPolicy):
    """No fallback: it keeps something."""

    state: State = "request"


def test_requests_end_when_the_loop_says_so() -> None:
    policy = Memory()
    controller = controller_of(policy)
    loop = Loop(controller, greedy(TARGET), DRAFT_MODEL)
    first, second = loop.begin(PROMPTS[0], 9), loop.begin(PROMPTS[1], 5)
    loop.propose(second)  # a tree that waits is no hindrance
    controller.finish(second, "error")
    assert controller.open_requests == (first,)
    with pytest.raises(ParameterError, match="request must be one that began and did not finish, got 1"):
        controller.propose(second, loop.drafts[second])
    with pytest.raises(ParameterError, match="reason must be one of eos, length, error, got 'done'"):
        controller.finish(first, "done")
    controller.finish(first, "eos")
    assert policy.told == [(0, "8+9"), (1, "1+5"), (1, "error"), (0, "eos")]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"prompt_tokens": []}, PromptError, "prompt_tokens must be at least one token, got none"),
        ({"prompt_tokens": [1, VOCAB]}, ParameterError, rf"token ids between 0 and {VOCAB - 1}, got \[{VOCAB}\]"),
        ({"prompt_tokens": [0.5]}, ParameterError, "prompt_tokens must be whole numbers"),
        ({"prompt_tokens": [[1], [2]]}, ParameterError, r"prompt_tokens must be whole numbers, .* of shape \[2, 1\]"),
        ({"max_new_tokens": 0}, ParameterError, "max_new_tokens must be >= 1, got 0"),
        ({"temperature": -1.0}, ParameterError, "temperature must be finite and >= 0, got -1.0"),
        ({"temperature": float("nan")}, ParameterError, "temperature must be finite"),
        ({"seed": 0.5}, ParameterError, "seed must be a whole number between .*, got 0.5"),
        ({"seed": -1}, ParameterError, "seed must be a whole number between .*, got -1"),
        ({"seed": 2**63}, ParameterError, f"seed must be a whole number between .*, got {2**63}"),
    ],
)
def test_requests_that_cannot_begin(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    controller = controller_of()
    with pytest.raises(error, match=message):
        controller.begin(**{"prompt_tokens": [1, 2], "max_new_tokens": 4, **arguments})
    assert controller.open_requests == () and controller.counters.requests == 0


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"policy": "topm"}, PolicySpecError, "policy must be one of .*, got 'topm'"),
        ({"policy": object()}, ParameterError, "policy must be an object with state, reach"),
        ({"cost": "a100"}, ParameterError, "cost must be a CostProfile, got 'a100'"),
        ({"vocab_size": 0}, ParameterError, "vocab_size must be >= 1, got 0"),
        ({"sources": 4}, ParameterError, "sources must be bits of LOOKUP and DRAFT, got 4"),
        ({"fallback": Remembers()}, ParameterError, "fallback must be a policy of state 'none'"),
        ({"settings": ControllerSettings(eos_token_ids=(VOCAB,))}, ParameterError, "eos_token_ids must be token ids"),
        ({"settings": ControllerSettings(corpus_tokens=(-1,))}, ParameterError, "corpus_tokens must be token ids"),
        ({"settings": ControllerSettings(row_buckets=(8, 4))}, ParameterError, "row_buckets must be ascending"),
        ({"settings": ControllerSettings(draft_token_ids=(1, 1))}, ParameterError, "draft_token_ids must be distinct"),
        ({"settings": ControllerSettings(draft_token_ids=(VOCAB,))}, ParameterError, "draft_token_ids must be between"),
        ({"settings": ControllerSettings(time_limit_ms=0.0)}, ParameterError, "time_limit_ms must be above 0, got 0.0"),
    ],
)
def test_controllers_that_cannot_be(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Controller(**{"policy": "topn", "cost": COST, "vocab_size": VOCAB, **arguments})
