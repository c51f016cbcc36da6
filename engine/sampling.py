"""The verification rule: which token the target says at a position, as a pure function of logits, seed and position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from treewise.data.errors import ModelOutputError, require
from treewise.data.noise import best_perturbed
from treewise.engine import host
from treewise.engine.warpers import TokenRow, warp_row

MIN_TEMPERATURE = 1e-6  # above 0
LOG_2 = 0.6931471805599453


@dataclass(frozen=True, slots=True)
class Sampling:
    """Temperature 0 is greedy. Above it, the token is argmax(warped(logits / T) + gumbel(seed, position, token)).

    The warpers are top-k, top-p, min-p and typical-p, in this order. Since the noise is a stateless hash, the text
    depends on (target, prompt, seed) alone, whatever was guessed and whatever else is decoded.
    Source: drafter-invariant decoding, arXiv 2408.07978.
    """

    temperature: float = 0.0
    top_k: int = 0  # 0: every token
    top_p: float = 1.0
    seed: int = 0
    min_p: float = 0.0  # share of the best token's probability; 0: off
    typical_p: float = 1.0  # 1: off

    def __post_init__(self) -> None:
        require(0.0 <= self.temperature < float("inf"), "temperature", "finite and >= 0", self.temperature)
        # Below it, logits over temperature may leave float32 and tie at infinity.
        warm = self.temperature == 0.0 or self.temperature >= MIN_TEMPERATURE
        require(warm, "temperature", f"0 or at least {MIN_TEMPERATURE:g}", self.temperature)
        for name in ("top_k", "seed"):
            require(isinstance(getattr(self, name), int), name, "a whole number", getattr(self, name))
        require(self.top_k >= 0, "top_k", ">= 0 (0: every token)", self.top_k)
        require(0.0 < self.top_p <= 1.0, "top_p", "above 0 and at most 1", self.top_p)
        require(0.0 <= self.min_p <= 1.0, "min_p", "between 0 and 1", self.min_p)
        require(0.0 < self.typical_p <= 1.0, "typical_p", "above 0 and at most 1", self.typical_p)
        require(0 <= self.seed < 2**63, "seed", "between 0 and 2**63 - 1", self.seed)


def target_token(logits: torch.Tensor, position: int, sampling: Sampling) -> int:
    """The token that the target says at absolute `position`, given its `logits` [vocabulary] there; ties: lowest id.

    Raises:
        ModelOutputError: logits hold NaN or infinity, or no finite value. Minus infinity is a token that is never said.
    """
    row = row_of(logits)
    token = int(row.argmax())
    # argmax points at a NaN where there is one, and at +inf before any finite value
    if not np.isfinite(row[token]):
        raise ModelOutputError(f"target logits must be finite, got {float(row[token])} at position {position}")
    if sampling.temperature == 0.0:
        return token
    tokens, scores = warp_row(row.astype(np.float32, copy=False), sampling)
    place = int(best_perturbed(scores, sampling.seed, position, tokens=tokens)[0][0])
    return place if tokens is None else int(tokens[place])


def warp(logits: torch.Tensor, sampling: Sampling) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens [n] (rising) that the warpers leave of `logits` [vocabulary], and their scores [n] float32."""
    tokens, scores = warp_row(row_of(logits).astype(np.float32, copy=False), sampling)
    ids: TokenRow = np.arange(len(scores), dtype=np.int64) if tokens is None else tokens
    return torch.from_numpy(ids).to(logits.device), torch.from_numpy(scores).to(logits.device)


def over_temperature(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """`logits` over `temperature` in float32, rounded once, on any device.

    A GPU divides by a plain number as it multiplies by its reciprocal, which rounds twice.
    """
    divisor = torch.full((1,), temperature, dtype=torch.float32, device=logits.device)
    return logits.to(torch.float32) / divisor


def row_of(logits: torch.Tensor) -> NDArray[Any]:
    """`logits` [n] on the CPU, in float32 unless they are float64; a view where nothing has to change."""
    wide = logits if logits.dtype in (torch.float32, torch.float64) else logits.to(torch.float32)
    return host.to_host(wide)


def entropy_and_margin(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Entropy in bits and p1 - p2 of the softmax of `logits` [rows, vocabulary], unwarped; both [rows], NaN for NaN."""
    wide = logits.to(torch.float32)
    top, place = wide.max(dim=-1, keepdim=True)
    # exp(-200) is 0 in float32: tokens of minus infinity count as 0 x -200, not as NaN
    shifted = (wide - top).clamp_(min=-200.0)
    weights = shifted.exp()
    total = weights.sum(dim=-1)
    entropy = entropy_bits(shifted, weights, total)
    if weights.shape[-1] == 1:
        return entropy, torch.ones_like(entropy)
    runner_up = weights.scatter_(-1, place, 0.0).amax(dim=-1)  # the best one's weight is 1
    return entropy, (1.0 - runner_up) / total


def entropy_bits(shifted: torch.Tensor, weights: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    """Entropy [rows] of the softmax of scores [rows, n] in bits; `shifted`, the scores minus their best, is used up.

    `weights` [rows, n] are the exponentials of `shifted` and `total` [rows] their sums.
    """
    return (total.log() - shifted.mul_(weights).sum(dim=-1) / total) / LOG_2
