"""Text as it is committed: rounds of an engine, turned into pieces that never change afterwards."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treewise.engine.decode import Engine
    from treewise.engine.sampling import Sampling

UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # how a tokenizer shows the first bytes of a character
STOPPED = "stopped"


class StableText:
    """Token ids in, text out: the pieces together are the decoded text, special tokens left out.

    A piece is held back while its last character may still change, as it does where a character's bytes are spread
    over several tokens.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._tokens: list[int] = []
        self._context = 0  # first token that is decoded again, so that spaces between words come out right
        self._told = 0  # tokens whose text is out

    def add(self, tokens: Sequence[int]) -> str:
        """Take more tokens; returns the text that is sure now."""
        self._tokens.extend(int(token) for token in tokens)
        piece = self._untold()
        if not piece or piece.endswith(UNFINISHED):
            return ""
        self._context, self._told = self._told, len(self._tokens)
        return piece

    def finish(self) -> str:
        """The text held back, sure or not, since nothing follows."""
        piece = self._untold()
        self._context = self._told = len(self._tokens)
        return piece

    def _untold(self) -> str:
        before = self._decode(self._tokens[self._context : self._told])
        return self._decode(self._tokens[self._context :])[len(before) :]

    def _decode(self, tokens: list[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False))


class TextStream:
    """One request as an iterator of text; may be abandoned or stopped, and the engine then takes the next request.

    The counts are those of the rounds so far. Iterate once; errors as `Engine.rounds`.
    """

    def __init__(
        self,
        engine: Engine,
        prompt: Sequence[int],
        max_new_tokens: int = 128,
        sampling: Sampling | None = None,
        task: str = "",
    ) -> None:
        self._engine = engine
        self._steps = engine.rounds(prompt, max_new_tokens, sampling, task)
        self._is_stopping = False
        self.tokens: list[int] = []
        self.rounds = 0
        self.nodes = 0  # verified
        self.seconds = 0.0  # since the prefill
        self.policy_seconds = 0.0
        self.finish = ""  # "eos", "length" or "stopped"; empty while it runs, and where it was abandoned

    def __iter__(self) -> Iterator[str]:
        text = StableText(self._engine.pair.tokenizer)
        try:
            for record in self._steps:
                self.tokens.extend(record.committed)
                self.rounds += 1
                self.nodes += record.tree.num_nodes
                self.policy_seconds += record.policy_ms / 1e3
                self.seconds = time.perf_counter() - self._engine.decode_began
                self.finish = record.finish
                if piece := text.add(record.committed):
                    yield piece
                if self._is_stopping and not self.finish:
                    self.finish = STOPPED
                    break
            if rest := text.finish():
                yield rest
        finally:
            close = getattr(self._steps, "close", None)  # a generator's: the policy hears of the end now
            if close is not None:
                close()

    def stop(self) -> None:
        """End after the round that runs."""
        self._is_stopping = True

    @property
    def tokens_per_second(self) -> float:
        """Committed tokens over decode time, prefill left out."""
        return len(self.tokens) / self.seconds if self.seconds else 0.0

    @property
    def tokens_per_round(self) -> float:
        """Committed tokens over verify passes."""
        return len(self.tokens) / max(self.rounds, 1)

    @property
    def nodes_per_round(self) -> float:
        """Verified nodes over verify passes."""
        return self.nodes / max(self.rounds, 1)

    @property
    def policy_share(self) -> float:
        """Share of decode time inside the policy's own calls."""
        return self.policy_seconds / self.seconds if self.seconds else 0.0
