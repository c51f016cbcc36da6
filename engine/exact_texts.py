"""Whether every way to run passes says what plain decoding says, on a target of random weights."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from torch import nn

from treewise.data.cost import CostProfile
from treewise.engine.batch import BatchEngine, BatchRequest
from treewise.engine.completion import Completion
from treewise.engine.decode import Engine
from treewise.engine.engine_settings import EngineSettings
from treewise.engine.pair import Pair
from treewise.engine.passes import EAGER
from treewise.engine.sampling import Sampling
from treewise.engine.scripted_draft import Script, follow
from treewise.engine.split_attention import use_attention
from treewise.policy.draft_ranking import PLAIN
from treewise.policy.plain import PlainPolicy
from treewise.policy.registry import parse_policy

HIT = 0.8  # of the draft's script, so that paths are several tokens deep
TIME_LIMIT_MS = 1e4


@dataclass(frozen=True, slots=True)
class TextRow:
    """The texts of one way against those of plain decoding."""

    way: str  # passes and attention, or the processor
    policy: str
    temperature: float
    tokens: int
    tokens_per_round: float
    differing: int  # texts that are not plain decoding's
    first_difference: int  # token of the answer at which the first of them parts; -1: none does


class ExactTexts:
    """Plain texts of one pair, and those that others say instead."""

    def __init__(self, pair: Pair, prompts: Sequence[list[int]], new_tokens: int) -> None:
        self.pair, self.new_tokens = pair, new_tokens
        self._prompts = list(prompts)
        self._cost = CostProfile.load("example-a100-70b")
        self._plain: dict[float, list[tuple[int, ...]]] = {}

    def rows(self, ways: Sequence[tuple[str, str]], policies: Sequence[str], temperature: float) -> Iterator[TextRow]:
        """Each of `ways` (passes, attention) with each of `policies` against plain decoding; one row after another."""
        for passes, attention in ways:
            for policy in policies:
                answers, deep = self._decode(policy, passes, attention, temperature)
                yield self._row(f"{passes} {attention}", policy, temperature, answers, deep)

    def side_by_side(self, way: tuple[str, str], policy: str, temperature: float) -> TextRow:
        """All prompts as one batch, run by `way` (passes, attention)."""
        passes, attention = way
        size = len(self._prompts)
        self._attend(attention)
        # Few shapes, so that the longest part is not recording them.
        settings = replace(self._settings(passes), slot_buckets=(size,), row_buckets=(size, 8 * size, 32 * size))
        engine = BatchEngine(self.pair, parse_policy(policy), self._cost, settings, size)
        self._follow(engine, temperature)
        requests = [
            BatchRequest(prompt, self.new_tokens, Sampling(temperature, seed=number))
            for number, prompt in enumerate(self._prompts)
        ]
        answers = engine.generate_many(requests)
        named = f"{passes} {attention}, batch of {size}"
        return self._row(named, policy, temperature, [answer.tokens for answer in answers], _a_round(answers))

    def on_the_cpu(self, temperature: float, at_most: int) -> TextRow:
        """Plain decoding of the same weights on the CPU, of the first prompt: the noise and the rule are the same."""
        target = copy.deepcopy(self.pair.target)
        nn.Module.to(target, "cpu")
        elsewhere = ExactTexts(replace(self.pair, target=target, draft=None), self._prompts[:1], at_most)
        answers, deep = elsewhere._decode("plain", EAGER, "sdpa", temperature)
        return self._row("CPU", "plain", temperature, answers, deep)

    def _row(self, way: str, policy: str, temperature: float, answers: list[tuple[int, ...]], deep: float) -> TextRow:
        parts = [
            next((at for at, (own, true) in enumerate(zip(answer, plain, strict=False)) if own != true), -1)
            for answer, plain in zip(answers, self._plain_at(temperature), strict=False)
        ]
        apart = [at for at in parts if at >= 0]
        tokens = sum(len(answer) for answer in answers)
        return TextRow(way, policy, temperature, tokens, deep, len(apart), min(apart, default=-1))

    def _plain_at(self, temperature: float) -> list[tuple[int, ...]]:
        if temperature not in self._plain:
            self._plain[temperature], _ = self._decode("plain", EAGER, "sdpa", temperature)
        return self._plain[temperature]

    def _decode(
        self, policy: str, passes: str, attention: str, temperature: float
    ) -> tuple[list[tuple[int, ...]], float]:
        """Texts, and tokens per round."""
        self._attend(attention)
        is_plain = policy == "plain"
        pair = replace(self.pair, draft=None) if is_plain else self.pair
        chosen = PlainPolicy() if is_plain else parse_policy(policy)
        engine = Engine(pair, chosen, self._cost, self._settings(passes))
        if pair.draft is not None:
            self._follow(engine, temperature)
        answers = [
            engine.generate(prompt, self.new_tokens, Sampling(temperature, seed=number))
            for number, prompt in enumerate(self._prompts)
        ]
        return [answer.tokens for answer in answers], _a_round(answers)

    def _attend(self, attention: str) -> None:
        draft = self.pair.draft
        use_attention([self.pair.target] if draft is None else [self.pair.target, draft.model], attention)

    @staticmethod
    def _settings(passes: str) -> EngineSettings:
        return EngineSettings(ranking=PLAIN, time_limit_ms=TIME_LIMIT_MS, passes=passes)

    def _follow(self, engine: Engine | BatchEngine, temperature: float) -> None:
        """Let the draft say the plain texts, most of the time."""
        width = max(engine.settings.envelope.draft_width, 1)
        size = self.pair.description.vocab_size
        texts = zip(self._prompts, self._plain_at(temperature), strict=True)
        scripts = {
            number: Script.of([*prompt, *answer], HIT, width, size, seed=number)
            for number, (prompt, answer) in enumerate(texts)
        }
        follow(engine, scripts)


def _a_round(answers: Sequence[Completion]) -> float:
    """Tokens per round."""
    return sum(len(answer.tokens) for answer in answers) / sum(answer.num_rounds for answer in answers)
