"""A controller on the made-up loop, and what its texts must be."""

from __future__ import annotations

from typing import Any

from tests.policy.loops import COST, VOCAB, Loop, TableModel, greedy, plain_text
from treewise.data.envelope import Envelope
from treewise.policy.controller import Controller, ControllerSettings
from treewise.policy.hook import DRAFT, LOOKUP

TARGET, DRAFT_MODEL = TableModel(), TableModel(noise=1.0)


PROMPTS = [[3, 7, 1, 3, 7, 2, 3, 7], [5], [9, 9, 9, 4]]


SMALL = Envelope(max_depth=5, draft_width=3)


def controller_of(policy: Any = "topn:12x3", sources: int = LOOKUP | DRAFT, **settings: Any) -> Controller:
    settings.setdefault("envelope", SMALL)
    return Controller(policy, cost=COST, vocab_size=VOCAB, sources=sources, settings=ControllerSettings(**settings))


def decode(controller: Controller, max_new_tokens: int = 30) -> Loop:
    draft = DRAFT_MODEL if controller.deployment.sources & DRAFT else None
    loop = Loop(controller, greedy(TARGET), draft)
    for number, prompt in enumerate(PROMPTS):
        loop.begin(prompt, max_new_tokens + number)
    loop.run()
    return loop


def assert_texts(loop: Loop, max_new_tokens: int = 30) -> None:
    for number, prompt in enumerate(PROMPTS):
        expected = plain_text(prompt, greedy(TARGET), max_new_tokens + number)
        assert loop.completion(number, prompt) == expected
