"""Warpers: which tokens top-k, top-p, min-p and typical-p leave, by the definitions and in the order of transformers.

All of them are functions of one distribution, so they hold along every path of a tree. They run on the CPU in float32,
in numpy, whatever device the logits come from: the committed text does not depend on a device's sort or sum.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

FloatRow = NDArray[np.float32]
TokenRow = NDArray[np.int64]

NUCLEUS_STEPS = (512, 8192)  # tokens sorted at first when the nucleus is looked for; the whole row last


class WarpSettings(Protocol):
    """What a warp reads; see `treewise.engine.sampling.Sampling`."""

    @property
    def temperature(self) -> float: ...
    @property
    def top_k(self) -> int: ...
    @property
    def top_p(self) -> float: ...
    @property
    def min_p(self) -> float: ...
    @property
    def typical_p(self) -> float: ...


def warp_row(logits: FloatRow, settings: WarpSettings) -> tuple[TokenRow | None, FloatRow]:
    """Tokens [n] (rising; None: all of them) that the warpers leave of `logits` [vocabulary], and their scores [n].

    Scores are logits over temperature, at least one. Temperature must be above 0; a token of minus infinity may stay
    and is never said. A row with NaN, with plus infinity or without a finite value is left whole.
    """
    with np.errstate(over="ignore"):
        scores = logits / np.float32(settings.temperature)
    tokens: TokenRow | None = None
    if not np.isfinite(scores.max()):
        return tokens, scores
    if 0 < settings.top_k < len(scores):
        floor = np.partition(scores, -settings.top_k)[-settings.top_k]
        tokens, scores = _cut(tokens, scores, np.flatnonzero(scores >= floor))  # ties with the last one stay
    if settings.top_p < 1.0:
        tokens, scores = _cut(tokens, scores, nucleus(scores, settings.top_p))
    if settings.min_p > 0.0:
        weights = np.exp(scores - scores.max())
        tokens, scores = _cut(tokens, scores, np.flatnonzero(weights >= np.float32(settings.min_p)))
    if settings.typical_p < 1.0:
        tokens, scores = _cut(tokens, scores, typical(scores, settings.typical_p))
    return tokens, scores


def probabilities(scores: FloatRow) -> FloatRow:
    """Softmax of `scores` [n]."""
    weights = np.exp(scores - scores.max())
    return np.asarray(weights / weights.sum(), dtype=np.float32)


def nucleus(scores: FloatRow, top_p: float) -> TokenRow:
    """Places, rising, of the `scores` [n] that stay: falling, as long as the mass before a token is below `top_p`.

    Equal scores are taken by place; the first always stays. Only as many as are needed are sorted.
    """
    weights = np.exp(scores - scores.max())
    total = float(weights.sum(dtype=np.float64))
    for few in (*NUCLEUS_STEPS, len(scores)):
        places = np.arange(len(scores))
        if few < len(scores):
            places = np.flatnonzero(scores >= np.partition(scores, -few)[-few])
        order = places[np.argsort(-scores[places], kind="stable")]
        mass = np.cumsum(weights[order], dtype=np.float64) / total
        stay = 1 + int(np.searchsorted(mass[:-1], top_p, side="left"))
        if stay < len(order) or len(places) == len(scores):
            break
    return np.sort(order[:stay])


def typical(scores: FloatRow, typical_p: float) -> TokenRow:
    """Places, rising, of the `scores` [n] that stay: those whose surprise is nearest to the entropy.

    As many as hold `typical_p`; ties with the last one stay. Source: locally typical sampling, arXiv 2202.00666.
    """
    shifted = scores - scores.max()
    log_probs = shifted - np.log(np.exp(shifted).sum())
    probs = np.exp(log_probs)
    some = probs > 0.0
    entropy = -(log_probs[some] * probs[some]).sum()
    distance = np.abs(-log_probs - entropy)
    order = np.argsort(distance, kind="stable")
    mass = np.cumsum(probs[order], dtype=np.float64)
    last = min(int(np.searchsorted(mass, typical_p, side="left")), len(order) - 1)
    return np.flatnonzero(distance <= distance[order[last]])


def _cut(tokens: TokenRow | None, scores: FloatRow, places: TokenRow) -> tuple[TokenRow, FloatRow]:
    return places if tokens is None else tokens[places], scores[places]
