"""Speeds as ratios of totals, and what the choice of prompts makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treewise.data.errors import require

Float64Array: TypeAlias = NDArray[np.float64]

RESAMPLES = 2000
LEVEL = 0.95
_CHUNK = 500  # resamples that are drawn at a time


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and its percentile interval; both bounds are NaN where one prompt cannot give them."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True, slots=True)
class Totals:
    """Tokens and milliseconds of one policy by prompt, in the same order of prompts for every policy."""

    tokens: Float64Array  # [prompts]
    ms: Float64Array  # [prompts]

    def __post_init__(self) -> None:
        require(self.tokens.ndim == 1 and self.tokens.size > 0, "tokens", "at least one prompt", self.tokens.shape)
        require(self.ms.shape == self.tokens.shape, "ms", f"of shape {self.tokens.shape}", self.ms.shape)
        require(bool((self.ms > 0).all()), "ms", "above 0 for every prompt", float(self.ms.min()))

    @property
    def speed(self) -> float:
        """Tokens per millisecond: all tokens over all milliseconds."""
        return float(self.tokens.sum() / self.ms.sum())


def totals_by_prompt(prompts: NDArray[np.str_], tokens: ArrayLike, ms: ArrayLike) -> Totals:
    """Sums over the requests of each prompt; `prompts`, `tokens` and `ms` are [requests]. Prompts come out sorted."""
    names, place = np.unique(prompts, return_inverse=True)
    count = len(names)
    return Totals(
        np.bincount(place, np.asarray(tokens, dtype=np.float64), count).astype(np.float64),
        np.bincount(place, np.asarray(ms, dtype=np.float64), count).astype(np.float64),
    )


def speed_ratio(
    policy: Totals, baseline: Totals, resamples: int = RESAMPLES, seed: int = 0, level: float = LEVEL
) -> Interval:
    """How many times faster `policy` is than `baseline`, with a paired bootstrap interval.

    Value: (sum tokens_a / sum ms_a) / (sum tokens_b / sum ms_b), sums over prompts. Interval: prompts are drawn with
    replacement, both policies on the same draw, and the ratio of totals is taken anew; the bounds are the percentiles
    (1 - level) / 2 and (1 + level) / 2.

    Assumes that prompts are independent draws from the users' prompts; rounds within a prompt need not be independent.
    It says nothing about other models, costs or kinds of prompts, and with few prompts it is too narrow. Raises
    `ParameterError` on unequal prompts, fewer than 2000 resamples, or a level outside (0, 1).

    Efron, "Bootstrap methods: another look at the jackknife", 1979.
    """
    require(resamples >= RESAMPLES, "resamples", f">= {RESAMPLES}", resamples)
    require(0.0 < level < 1.0, "level", "between 0 and 1", level)
    prompts = len(policy.tokens)
    require(len(baseline.tokens) == prompts, "baseline", f"totals of {prompts} prompts", len(baseline.tokens))
    value = policy.speed / baseline.speed
    if prompts == 1:
        return Interval(value, float("nan"), float("nan"))
    rng = np.random.default_rng(seed)
    columns = np.stack([policy.tokens, policy.ms, baseline.tokens, baseline.ms], axis=1)
    even = np.full(prompts, 1.0 / prompts)
    ratios = []
    for start in range(0, resamples, _CHUNK):
        times = rng.multinomial(prompts, even, size=min(_CHUNK, resamples - start))  # [chunk, prompts] times drawn
        sums = times @ columns
        ratios.append(sums[:, 0] / sums[:, 1] * sums[:, 3] / sums[:, 2])
    low, high = np.quantile(np.concatenate(ratios), [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return Interval(value, float(low), float(high))
