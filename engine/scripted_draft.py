"""A draft that runs for its price and says what a script says: the true next token with a given probability.

For measuring what a machine makes of trees when no trained pair is at hand: acceptance is set, costs are real.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from treewise.data.errors import ParameterError, require
from treewise.engine.batch_draft import BatchDraft
from treewise.engine.draft_head import DraftHead, Voice
from treewise.engine.draft_model import DraftModel
from treewise.engine.live_draft import LiveDraft
from treewise.engine.round_driver import RoundDriver
from treewise.policy.hook import DraftGuesses, Int32Array

SWING = 0.2  # of the probability: half of the positions are surer by it, the others less sure


@dataclass(frozen=True, slots=True)
class Script:
    """What is to be said at each absolute position of one text, and how surely."""

    tokens: NDArray[np.int32]  # [positions, width] best first
    probs: NDArray[np.float32]  # [positions, width]
    entropy: NDArray[np.float32]  # [positions] bits

    @classmethod
    def of(cls, text: Sequence[int], hit: float, width: int, vocab_size: int, seed: int = 0) -> Script:
        """Of a `text` whose next token is the draft's first with probability `hit` on average.

        The draft is calibrated and knows where it is sure: a position's first probability is `hit` plus or minus
        `SWING`, and each further candidate has half of what is left. Where the true token is none of them, other tokens
        stand in all places.
        """
        require(0.0 < hit < 1.0, "hit", "above 0 and below 1", hit)
        rng = np.random.default_rng((seed, len(text)))
        count = len(text)
        surety = np.clip(hit + SWING * rng.choice((-1.0, 1.0), size=count), 0.02, 0.98)
        probs = np.empty((count, width))
        left = np.ones(count)
        for place in range(width):
            probs[:, place] = left * (surety if place == 0 else 0.5)
            left = left - probs[:, place]
        truth = np.asarray(text, dtype=np.int64)
        # Distinct tokens that are not the true one, from a place that differs from position to position.
        steps = 1 + (rng.integers(0, vocab_size - 1, size=(count, 1)) + np.arange(width)) % (vocab_size - 1)
        tokens = (truth[:, None] + steps) % vocab_size
        rank = (rng.random(count)[:, None] >= np.cumsum(probs, axis=1)).sum(axis=1)
        said = np.flatnonzero(rank < width)
        tokens[said, rank[said]] = truth[said]
        mass = np.concatenate([probs, left[:, None]], axis=1)
        entropy = -(mass * np.log2(np.maximum(mass, 1e-12))).sum(axis=1)
        return cls(tokens.astype(np.int32), probs.astype(np.float32), entropy.astype(np.float32))


class ScriptedHead(DraftHead):
    """Computes guesses as ever, and hands out those of a script. Requests are told apart by their seeds."""

    def __init__(self, draft: DraftModel, vocab_size: int, width: int, scripts: Mapping[int, Script]) -> None:
        """`scripts`: seed of a request's sampling -> its script, at least `width` wide."""
        super().__init__(draft, vocab_size, width)
        self._scripts = scripts

    def read(
        self,
        hidden: torch.Tensor,
        positions: Int32Array,
        extra_rows: Int32Array,
        extra_tokens: Int32Array,
        voices: Sequence[tuple[Voice, int]] = (),
    ) -> DraftGuesses:
        """See `DraftHead.read`. Raises `ParameterError` where a request has no script."""
        guesses = super().read(hidden, positions, extra_rows, extra_tokens, voices)
        spoken = voices or ((self._voice, len(positions)),)
        tokens, probs = guesses.tokens.copy(), guesses.probs.copy()
        entropy, margin = guesses.entropy.copy(), guesses.margin.copy()
        first, width = 0, tokens.shape[1]
        for voice, count in spoken:
            script = self._scripts.get(voice.sampling.seed)
            if script is None:
                raise ParameterError(f"seed must be one with a script, got {voice.sampling.seed}")
            own = slice(first, first + count)
            at = np.minimum(positions[own], len(script.tokens) - 1)  # behind the end of the text nothing is true
            tokens[own], probs[own] = script.tokens[at, :width], script.probs[at, :width]
            entropy[own] = script.entropy[at]
            margin[own] = probs[own, 0] - probs[own, 1] if width > 1 else probs[own, 0]
            first += count
        same = tokens[extra_rows] == extra_tokens[:, None]
        known, place = same.any(axis=1), same.argmax(axis=1)
        # What the script does not list ranks behind it, and cannot be likelier than its last.
        other_probs = np.minimum(guesses.extra_probs, probs[extra_rows, -1])
        other_ranks = np.maximum(guesses.extra_ranks, width)
        return replace(
            guesses,
            tokens=tokens,
            probs=probs,
            entropy=entropy,
            margin=margin,
            extra_probs=np.where(known, probs[extra_rows, place], other_probs).astype(np.float32),
            extra_ranks=np.where(known, place, other_ranks).astype(np.float32),
        )


def follow(engine: RoundDriver, scripts: Mapping[int, Script]) -> None:
    """Let the draft of `engine` say what `scripts` (seed -> script) say, in plain ranking.

    Raises `ParameterError` where the engine has no draft, or ranks with noise.
    """
    source = engine._draft_source
    if not isinstance(source, LiveDraft | BatchDraft):
        raise ParameterError("engine must have a draft model to follow a script, got one without")
    require(engine.ranking == "plain", "ranking", "plain where a draft follows a script", engine.ranking)
    head = source.head
    source.head = ScriptedHead(head.draft, len(head.head_row), head.width, scripts)
