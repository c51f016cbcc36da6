"""Engines of a few lines, for the adapters: they know the whole text and verify chains against it."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

VOCAB = 50
MAX_MODEL_LEN = 128
END = 80  # an engine stops at the first step that reaches this many tokens


def repetitive_text(seed: int, tokens: int = END + 20) -> list[int]:
    """A text that repeats passages of itself; what lies beyond `END` the last step may reach into."""
    rng = np.random.default_rng(seed)
    text = rng.integers(0, VOCAB, size=12).tolist()
    while len(text) < tokens:
        start = int(rng.integers(0, len(text) - 6))
        text.extend(text[start : start + int(rng.integers(3, 9))])
        text.append(int(rng.integers(0, VOCAB)))
    return [int(token) for token in text[:tokens]]


def verified(truth: list[int], length: int, guesses: list[int]) -> list[int]:
    """The tokens that a step commits behind `truth[:length]`: the guesses that agree, and one more."""
    said: list[int] = []
    for guess in [*guesses, None]:
        said.append(truth[length + len(said)])
        if guess != said[-1]:
            break
    return said


@dataclass
class StubVllm:
    """The part of vLLM's model runner that feeds a proposer: rows of texts, and the step's sampled tokens."""

    truths: list[list[int]]
    prompt_tokens: int = 16
    order: list[int] = field(default_factory=list)  # request of each row
    lengths: dict[int, int] = field(default_factory=dict)  # tokens of each request
    guesses: dict[int, list[int]] = field(default_factory=dict)
    texts: NDArray[np.int32] = field(default_factory=lambda: np.full((16, MAX_MODEL_LEN), -1, dtype=np.int32))
    steps: int = 0

    def __post_init__(self) -> None:
        self.order = list(range(len(self.truths)))

    def step(self, proposer: Any, order: list[int] | None = None, cut: int | None = None) -> None:
        """One step: verify what was guessed (cut to `cut` tokens), then ask again, rows in `order`."""
        self.order = self.order if order is None else order
        sampled, counts = [], np.zeros(len(self.texts), dtype=np.int32)
        for row, request in enumerate(self.order):
            truth, length = self.truths[request], self.lengths.get(request, self.prompt_tokens)
            said = verified(truth, length, self.guesses.get(request, [])[:cut])
            self.lengths[request] = length + len(said)
            self.texts[row] = -1
            self.texts[row, : self.lengths[request]] = truth[: self.lengths[request]]
            counts[row] = self.lengths[request]
            sampled.append(said)
        answers = proposer.propose(sampled, counts, self.texts, slot_mappings=None)
        self.guesses.update(zip(self.order, answers, strict=True))
        self.order = [request for request in self.order if self.lengths[request] < END]
        self.steps += 1

    def run(self, proposer: Any) -> int:
        """Decode to the end of every text; the number of steps."""
        while self.order:
            self.step(proposer)
        return self.steps


def vllm_config(tokens: int = 4, options: dict[str, Any] | None = None) -> Any:
    """The fields of vLLM's configuration that the proposer reads."""
    return SimpleNamespace(
        speculative_config=SimpleNamespace(num_speculative_tokens=tokens),
        model_config=SimpleNamespace(max_model_len=MAX_MODEL_LEN, get_vocab_size=lambda: VOCAB),
        additional_config={} if options is None else {"treewise": options},
    )


def run_llama(truth: list[int], prompt_tokens: int, draft_model: Any) -> tuple[int, int]:
    """`Llama.generate` with a draft model: the evaluations that it takes, and the tokens of the text."""
    buffer = np.zeros(MAX_MODEL_LEN, dtype=np.intc)  # as Llama's, overwritten in place
    buffer[: len(truth)] = truth
    guesses: list[int] = []
    length, evaluations = prompt_tokens, 0
    while length < END:
        length += len(verified(truth, length, guesses))
        evaluations += 1
        shown = np.zeros_like(buffer)
        shown[:length] = buffer[:length]
        answer = draft_model(shown[:length])
        assert answer.dtype == np.intc
        guesses = answer.astype(int).tolist()
        shown[:] = -1  # nobody may keep a view
    return evaluations, length
