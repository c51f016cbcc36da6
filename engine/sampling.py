"""The verification rule: which token the target says at a position, as a pure function of logits, seed and position."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from treewise.data.errors import ModelOutputError, require
from treewise.engine.noise import gumbel

MIN_TEMPERATURE = 1e-6  # above 0


@dataclass(frozen=True, slots=True)
class Sampling:
    """Temperature 0 is greedy. Above it, the token is argmax(top_p(top_k(logits / T)) + gumbel(seed, position, token)).

    Since the noise is a stateless hash, the text depends on (target, prompt, seed) alone, whatever was guessed.
    Source: drafter-invariant decoding, arXiv 2408.07978.
    """

    temperature: float = 0.0
    top_k: int = 0  # 0: every token
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        require(0.0 <= self.temperature < float("inf"), "temperature", "finite and >= 0", self.temperature)
        # Below it, logits over temperature may leave float32 and tie at infinity.
        warm = self.temperature == 0.0 or self.temperature >= MIN_TEMPERATURE
        require(warm, "temperature", f"0 or at least {MIN_TEMPERATURE:g}", self.temperature)
        require(self.top_k >= 0, "top_k", ">= 0 (0: every token)", self.top_k)
        require(0.0 < self.top_p <= 1.0, "top_p", "above 0 and at most 1", self.top_p)
        require(0 <= self.seed < 2**63, "seed", "between 0 and 2**63 - 1", self.seed)


def target_token(logits: torch.Tensor, position: int, sampling: Sampling) -> int:
    """The token that the target says at absolute `position`, given its `logits` [vocabulary] there.

    Raises:
        ModelOutputError: logits hold NaN or infinity, or no finite value. Minus infinity is a token that is never said.
    """
    token = int(logits.argmax())
    # argmax points at a NaN where there is one, and at +inf before any finite value
    if not bool(torch.isfinite(logits[token])):
        raise ModelOutputError(f"target logits must be finite, got {float(logits[token])} at position {position}")
    if sampling.temperature == 0.0:
        return token
    tokens, scores = warp(logits, sampling)
    noise = gumbel(sampling.seed, position, tokens)
    return int(tokens[int((scores.to(torch.float32) + noise).argmax())])


def warp(logits: torch.Tensor, sampling: Sampling) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens [n] (ascending) that temperature, top-k and top-p leave, and their scaled scores [n], in that order."""
    scores = logits.to(torch.float32) / sampling.temperature
    tokens = torch.arange(scores.shape[0], device=scores.device)
    if 0 < sampling.top_k < scores.shape[0]:
        floor = torch.topk(scores, sampling.top_k).values[-1]
        tokens = tokens[scores >= floor]
        scores = scores[tokens]
    if sampling.top_p < 1.0:
        ordered, order = torch.sort(scores, descending=True, stable=True)
        mass = torch.softmax(ordered, dim=0).cumsum(0)
        # a token stays while the mass before it is below top_p: the first one always does
        stays = torch.cat((mass.new_zeros(1), mass[:-1])) < sampling.top_p
        stays[0] = True  # where top_p is below float32
        keep = order[stays].sort().values
        tokens, scores = tokens[keep], scores[keep]
    return tokens, scores


def entropy_and_margin(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Entropy in bits and p1 - p2 of the softmax of `logits` [rows, vocabulary], unwarped; both [rows], NaN for NaN."""
    log_probs = torch.log_softmax(logits.to(torch.float32), dim=-1)
    probs = log_probs.exp()
    terms = torch.where(probs == 0, torch.zeros_like(probs), probs * log_probs)  # a NaN stays one
    entropy = -terms.sum(-1) / 0.6931471805599453
    if probs.shape[-1] == 1:
        return entropy, torch.ones_like(entropy)
    first = torch.topk(probs, 2, dim=-1).values
    return entropy, first[..., 0] - first[..., 1]
