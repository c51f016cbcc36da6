"""Verification rules by name: `exact`, and the lossy ones that give up equality with plain decoding for length."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from treewise.data.errors import LossyWarning, ParameterError, require
from treewise.data.trace_manifest import EXACT, VERIFICATIONS
from treewise.engine.sampling import Sampling, row_of, target_token
from treewise.engine.spoken import Spoken
from treewise.engine.warpers import probabilities, warp_row
from treewise.policy.hook import Int32Array
from treewise.policy.round import RoundTree

RELAXED, THRESHOLD = VERIFICATIONS[1:]
DEFAULT_THRESHOLD = 0.45


@dataclass(frozen=True, slots=True)
class Verification:
    """Which kept child of a row on the path is taken.

    Under every rule the target's own token is taken where it is among them. Where it is not, `exact` ends the round;
    a lossy rule takes the child of the highest target probability, if that child lies inside the target's `top_n`
    tokens (`relaxed-top-n`), or if its probability is above `threshold`. The probability is the warped one at the
    request's temperature, at temperature 0 that of the plain softmax.
    """

    rule: str = EXACT
    top_n: int = 0  # relaxed-top-n
    threshold: float = 0.0  # threshold

    def __post_init__(self) -> None:
        require(self.rule in VERIFICATIONS, "verification", f"one of {', '.join(VERIFICATIONS)}", self.rule)
        if self.rule == RELAXED:
            require(self.top_n >= 1, f"{RELAXED}'s number", ">= 1", self.top_n)
        if self.rule == THRESHOLD:
            require(0.0 <= self.threshold < 1.0, f"{THRESHOLD}'s number", "at least 0 and below 1", self.threshold)

    @classmethod
    def parse(cls, spec: str) -> Verification:
        """The rule of `exact`, `relaxed-top-n:N`, `threshold:P` or `threshold` (0.45). Raises `ParameterError`."""
        require(isinstance(spec, str), "verification", "a string", spec)
        rule, colon, number = spec.partition(":")
        try:
            if rule == RELAXED:
                return cls(rule, top_n=int(number))
            if rule == THRESHOLD:
                return cls(rule, threshold=float(number) if colon else DEFAULT_THRESHOLD)
        except ParameterError:
            raise
        except ValueError:
            pass
        else:
            if rule == EXACT and not colon:
                return cls()
        known = f"{EXACT}, {RELAXED}:N or {THRESHOLD}:P"
        raise ParameterError(f"verification must be {known}, got {spec!r}")

    @property
    def spec(self) -> str:
        """What `parse` reads back."""
        if self.rule == RELAXED:
            return f"{RELAXED}:{self.top_n}"
        return f"{THRESHOLD}:{self.threshold!r}" if self.rule == THRESHOLD else EXACT

    @property
    def is_exact(self) -> bool:
        """Whether the text is plain decoding's."""
        return self.rule == EXACT

    def warn(self) -> None:
        """Say with a `LossyWarning` what a lossy rule loses."""
        if not self.is_exact:
            warnings.warn(
                f"verification {self.spec!r} is lossy: the text no longer equals plain decoding's and depends on the "
                "policy, it is not drawn from the target's law, and its traces can neither be replayed nor trained on",
                LossyWarning,
                stacklevel=3,
            )

    def choose(self, logits: torch.Tensor, position: int, sampling: Sampling, children: Int32Array) -> int:
        """The token committed at `position`: one of the kept `children` [n], or else the target's own.

        `logits` [vocabulary] are the target's there. Raises as `target_token` does.
        """
        token = target_token(logits, position, sampling)
        if self.is_exact or not children.size or token in children:
            return token
        row = row_of(logits).astype(np.float32, copy=False)
        tokens, scores = (None, row) if sampling.temperature == 0.0 else warp_row(row, sampling)
        chances = np.zeros(len(row), dtype=np.float32)  # [vocabulary], 0 where a warper cut the token
        chances[slice(None) if tokens is None else tokens] = probabilities(scores)
        # the lowest id among equals
        best = max(children.tolist(), key=lambda child: (float(chances[child]), -child))
        chance = chances[best]
        if self.rule == THRESHOLD:
            taken = float(chance) > self.threshold
        else:
            taken = bool(chance > 0.0) and int((chances > chance).sum()) < self.top_n
        return best if taken else token


class Speaker:
    """What is committed along the paths, asked row by row, as `treewise.policy.outcome.walk` does.

    Args:
        logits: [pass rows, vocabulary] of the target.
        places: [forest rows] the pass row of each.
        positions, samplings: [requests] of the roots.
        spoken: what was read of every row beforehand, under the exact rule; None: rows are read as they are asked.
    """

    def __init__(
        self,
        tree: RoundTree,
        logits: torch.Tensor,
        places: Int32Array,
        positions: Int32Array,
        samplings: Sequence[Sampling],
        eos_token_ids: tuple[int, ...],
        verification: Verification,
        spoken: Spoken | None = None,
    ) -> None:
        self._logits = logits
        self._places = places
        self._positions = positions.tolist()
        self._samplings = samplings
        self._eos = eos_token_ids
        self._verification = verification
        self._spoken = spoken
        self._kept = tree.kept
        self._depth, self._token, self._parent = (tree.forest.column(name) for name in ("depth", "token", "parent"))

    def __call__(self, request: int, row: int) -> int:
        """The token below forest `row`, -1 where an accepted end of text is over."""
        depth = int(self._depth[row])
        if depth and int(self._token[row]) in self._eos:
            return -1
        place = self._positions[request] + depth + 1
        if self._spoken is not None:
            return self._spoken.token_at(int(self._places[row]), place)
        logits = self._logits[int(self._places[row])]
        sampling = self._samplings[request]
        if self._verification.is_exact:
            return target_token(logits, place, sampling)
        children: Int32Array = self._token[(self._parent == row) & self._kept]
        return self._verification.choose(logits, place, sampling, children)
