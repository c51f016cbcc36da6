"""Tokens per second of policies on a target whose text is known, with a draft that hits it as often as it is told."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from transformers import LlamaForCausalLM

from treewise.data.cost import CostProfile
from treewise.data.envelope import Envelope
from treewise.engine.batch import BatchEngine, BatchRequest
from treewise.engine.completion import Completion
from treewise.engine.decode import Engine
from treewise.engine.engine_settings import EngineSettings
from treewise.engine.pair import Pair
from treewise.engine.passes import EAGER
from treewise.engine.predictable import make_predictable, text_behind
from treewise.engine.sampling import Sampling
from treewise.engine.scripted_draft import Script, follow
from treewise.engine.split_attention import use_attention
from treewise.policy.draft_ranking import PLAIN
from treewise.policy.hook import TreePolicy

ROWS_A_REQUEST = (1, 2, 4, 8, 16, 32)  # on average, that static passes of a batch are padded to
TIME_LIMIT_MS = 1e4  # of a policy call: the first ones load what they need


@dataclass(frozen=True, slots=True)
class SpeedRow:
    """One policy in one way to run passes."""

    policy: str
    hit: float  # probability that the draft's first token is the true one
    passes: str
    attention: str
    batch: int  # requests in flight; 0: an engine of one request
    tokens: int
    seconds: float  # of decoding, prefill aside
    rounds: int
    nodes_per_round: float
    policy_ms: float  # mean of a policy call
    fallbacks: int
    is_true_text: bool  # every text is the known one

    @property
    def tokens_per_second(self) -> float:
        """Over all requests."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def tokens_per_round(self) -> float:
        """Of one request."""
        return self.tokens / max(self.rounds, 1)


class ScriptedSpeed:
    """Measures policies on one pair; its target is made predictable, in place."""

    def __init__(
        self,
        pair: Pair,
        cost: CostProfile,
        prompts: Sequence[list[int]],
        new_tokens: int,
        row_buckets: Sequence[int] = (),
        envelope: Envelope | None = None,
        seed: int = 0,
    ) -> None:
        assert isinstance(pair.target, LlamaForCausalLM), "shapes are of that family"
        self.pair, self.cost, self.new_tokens = pair, cost, new_tokens
        self._row_buckets = tuple(row_buckets)
        self._envelope = envelope or Envelope()
        successor = make_predictable(pair.target, seed)
        self.prompts = list(prompts)
        self._shared: dict[tuple[int, str, str], BatchEngine] = {}  # the last engine of a batch
        self._texts = [text_behind(successor, prompt, new_tokens) for prompt in self.prompts]

    def single(self, name: str, policy: TreePolicy, hit: float, passes: str, attention: str, requests: int) -> SpeedRow:
        """The first `requests` prompts one after another; the first is decoded once more before, untimed."""
        self._attend(attention)
        engine = Engine(self.pair, policy, self.cost, self._settings(passes))
        self._script(engine, hit)
        chosen = range(min(requests, len(self.prompts)))
        answers = []
        for number in (0, *chosen):
            answers.append(engine.generate(self.prompts[number], self.new_tokens, Sampling(seed=number)))
        seconds = sum(answer.decode_seconds for answer in answers[1:])
        return self._row(name, hit, (passes, attention), 0, answers[1:], list(chosen), seconds)

    def batch(
        self, name: str, policy: TreePolicy, hit: float, size: int, passes: str = EAGER, attention: str = "sdpa"
    ) -> SpeedRow:
        """`size` requests side by side, each one's prefill left out.

        Calls of one size and way, one after another, share buffers and recordings, whatever the policy.
        """
        self._attend(attention)
        key, settings = (size, passes, attention), self._settings(passes)
        if passes != EAGER:
            rows = tuple(size * each for each in ROWS_A_REQUEST)
            settings = replace(settings, slot_buckets=(size,), row_buckets=rows)
        shares = self._shared.get(key)
        if shares is None:
            self.forget()  # before new buffers are allocated
        engine = BatchEngine(self.pair, policy, self.cost, settings, max_batch=size, shares=shares)
        self._shared[key] = engine
        self._script(engine, hit)
        for warm_up in (True, False):
            numbers = [engine.submit(self._request(number, 4 if warm_up else 0)) for number in range(size)]
            began = time.perf_counter()
            while engine.in_flight or engine.num_waiting:
                engine.step()
            seconds = time.perf_counter() - began
            answers = [engine.take(number) for number in numbers]
        seconds -= sum(answer.prefill_seconds for answer in answers)
        return self._row(name, hit, (passes, attention), size, answers, list(range(size)), seconds)

    def forget(self) -> None:
        """Let go of what the last batch held."""
        self._shared.clear()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _request(self, number: int, at_most: int) -> BatchRequest:
        return BatchRequest(self.prompts[number], at_most or self.new_tokens, Sampling(seed=number))

    def _attend(self, attention: str) -> None:
        models = [self.pair.target] if self.pair.draft is None else [self.pair.target, self.pair.draft.model]
        use_attention(models, attention)

    def _settings(self, passes: str) -> EngineSettings:
        return EngineSettings(
            envelope=self._envelope,
            row_buckets=() if passes == EAGER else self._row_buckets,
            ranking=PLAIN,
            time_limit_ms=TIME_LIMIT_MS,
            passes=passes,
        )

    def _script(self, engine: Engine | BatchEngine, hit: float) -> None:
        if self.pair.draft is None:
            return
        width = max(self._envelope.draft_width, 1)
        vocab_size = self.pair.description.vocab_size
        scripts = {
            number: Script.of(text, hit, width, vocab_size, seed=number) for number, text in enumerate(self._texts)
        }
        follow(engine, scripts)

    def _row(
        self,
        name: str,
        hit: float,
        way: tuple[str, str],
        size: int,
        answers: Sequence[Completion],
        numbers: Sequence[int],
        seconds: float,
    ) -> SpeedRow:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # what an engine's buffers leave
        rounds = sum(answer.num_rounds for answer in answers)
        # Requests of one length go side by side: a call serves all of them, and each counts it.
        calls = sum(answer.policy_calls for answer in answers) / max(size, 1)
        passes, attention = way
        return SpeedRow(
            policy=name,
            hit=hit,
            passes=passes,
            attention=attention,
            batch=size,
            tokens=sum(len(answer.tokens) for answer in answers),
            seconds=seconds,
            rounds=rounds,
            nodes_per_round=sum(sum(answer.verified_nodes) for answer in answers) / max(rounds, 1),
            policy_ms=1e3 * sum(answer.policy_seconds for answer in answers) / max(calls, 1),
            fallbacks=sum(answer.fallbacks for answer in answers),
            is_true_text=all(
                list(answer.tokens) == self._texts[number][len(self.prompts[number]) :]
                for number, answer in zip(numbers, answers, strict=True)
            ),
        )
