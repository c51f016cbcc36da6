"""Decoding by transformers itself: generate, its assisted generation and its prompt lookup, timed as a whole call."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from transformers import GenerationConfig

from treewise.data.errors import ParameterError, require
from treewise.engine.assistant import assistant_model
from treewise.engine.pair import Pair
from treewise.engine.quiet import no_warnings_of_itself

Way: TypeAlias = Literal["generate", "assisted", "lookup"]
LOOKUP_TOKENS = 10  # what transformers' documentation shows; `generate` itself has no default


@dataclass(frozen=True, slots=True)
class Rival:
    """One way of transformers to decode greedily."""

    way: Way
    tokens: int = 0  # guesses at a time; 0: the default of assisted generation, `LOOKUP_TOKENS` of prompt lookup
    threshold: float | None = None  # assisted: stop guessing below this probability; 0: never; None: the default

    def __post_init__(self) -> None:
        require(self.way in ("generate", "assisted", "lookup"), "way", "generate, assisted or lookup", self.way)
        require(self.tokens >= 0, "tokens", ">= 0 (0: the default)", self.tokens)

    @property
    def spec(self) -> str:
        """In words of the command line, such as `assisted:5,threshold=0`."""
        parts = [str(self.tokens)] if self.tokens else []
        parts += [f"threshold={self.threshold:g}"] if self.threshold is not None else []
        return f"{self.way}:{','.join(parts)}" if parts else self.way


@dataclass(frozen=True, slots=True)
class RivalAnswer:
    """One text by transformers."""

    tokens: tuple[int, ...]  # completion, end of text included
    passes: int  # of the target, prefill included: its logits give the first token
    seconds: float  # the whole call, prefill included


class RivalDecoder:
    """Decodes greedily with transformers and the pair's own models; nothing of this engine runs."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self._assistant = None if pair.draft is None else assistant_model(pair.draft, pair.target)
        self._passes = 0

    def decode(self, rival: Rival, prompt: Sequence[int], max_new_tokens: int) -> RivalAnswer:
        """Answer `prompt` (token ids) with at most `max_new_tokens`.

        Raises:
            ParameterError: assisted generation without a draft.
        """
        if rival.way == "assisted" and self._assistant is None:
            raise ParameterError("rival must not be assisted where the pair has no draft, got assisted")
        limit = min(max_new_tokens, self.pair.max_context_tokens - len(prompt))
        require(limit >= 1, "prompt", f"shorter than {self.pair.max_context_tokens} tokens", len(prompt))
        more = self._more(rival)
        config = self._config(max_new_tokens=limit, **({} if rival.way == "assisted" else more))
        extra: dict[str, Any] = {}
        if rival.way == "assisted" and self._assistant is not None:
            # Assisted generation reads its settings off the assistant, and some schedules write them back.
            self._assistant.generation_config = self._config(**more)
            extra["assistant_model"] = self._assistant
        with self._as_made(), no_warnings_of_itself(), torch.inference_mode():
            ids = torch.tensor([list(prompt)], device=self.pair.target.device)
            seen = torch.ones_like(ids)
            generate: Any = self.pair.target.generate
            before = self._passes
            began = time.perf_counter()
            whole = generate(ids, attention_mask=seen, generation_config=config, **extra)
            tokens = tuple(int(token) for token in whole[0, len(prompt) :].tolist())
            seconds = time.perf_counter() - began  # the list waited for the device
        return RivalAnswer(tokens, self._passes - before, seconds)

    def _more(self, rival: Rival) -> dict[str, Any]:
        match rival.way:
            case "generate":
                return {}
            case "lookup":
                return {"prompt_lookup_num_tokens": rival.tokens or LOOKUP_TOKENS}
            case "assisted":
                more: dict[str, Any] = {"num_assistant_tokens": rival.tokens} if rival.tokens else {}
                if rival.threshold is not None:
                    more["assistant_confidence_threshold"] = rival.threshold
                return more

    def _config(self, **more: Any) -> GenerationConfig:
        eos = list(self.pair.eos_token_ids)
        return GenerationConfig(
            do_sample=False, use_cache=True, eos_token_id=eos or None, pad_token_id=eos[0] if eos else 0, **more
        )

    @contextmanager
    def _as_made(self) -> Iterator[None]:
        """Count the target's passes; its stored defaults, such as a repetition penalty, do not apply here."""
        target = self.pair.target
        before = target.generation_config
        target.generation_config = self._config()
        counting = target.register_forward_hook(self._count)
        try:
            yield
        finally:
            counting.remove()
            target.generation_config = before

    def _count(self, *_: object) -> None:
        self._passes += 1
