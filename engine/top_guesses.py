"""The target's best candidates behind a position: what the recycled guesses remember of a verify pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from treewise.data.recycled import TOP
from treewise.engine import host


@dataclass(frozen=True, slots=True)
class TopGuesses:
    """The most probable tokens of some rows of logits, unwarped, temperature 1."""

    tokens: NDArray[np.int64]  # [rows, TOP] best first; fewer columns where the vocabulary is smaller
    probs: NDArray[np.float32]  # [rows, TOP]

    def at(self, row: int) -> tuple[list[int], list[float]]:
        """Tokens and probabilities of one row."""
        return self.tokens[row].tolist(), self.probs[row].tolist()


def top_guesses(logits: torch.Tensor) -> TopGuesses:
    """The best `TOP` of `logits` [rows, vocabulary], in one copy to the host."""
    tokens, probs = host.read_together(*top_of(logits))
    return TopGuesses(tokens.astype(np.int64), probs)


def top_of(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and probabilities [rows, TOP] of the best of `logits` [rows, vocabulary], on their device."""
    wide = logits.to(torch.float32)
    scores, tokens = wide.topk(min(TOP, wide.shape[-1]), dim=-1)
    return tokens, (scores - wide.logsumexp(dim=-1, keepdim=True)).exp()
