"""Speeds as ratios of totals, and what the choice of prompts makes of them.

An estimator writes one row per prompt and says what a draw of prompts is worth; draws, intervals, spreads and p-values
then come from the one bootstrap below (the manner of the Open Bandit Pipeline, arXiv 2008.07146). Whatever it assumes
stands in its docstring.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treewise.data.errors import require

Float64Array: TypeAlias = NDArray[np.float64]

RESAMPLES = 2000
LEVEL = 0.95
POWER = 0.8
_CHUNK = 500  # resamples that are drawn at a time


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and its percentile interval; both bounds are NaN where one prompt cannot give them."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """Without bounds where one prompt left none."""
        bounds = "" if math.isnan(self.low) else f" [{self.low:.3f}, {self.high:.3f}]"
        return f"{self.value:.3f}{bounds}"


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


class Estimator(Protocol):
    """One figure made from one row per prompt."""

    @property
    def by_prompt(self) -> Float64Array:
        """What each prompt brings, [prompts, columns]."""

    def value(self, times: Float64Array) -> Float64Array:
        """The figure where prompt p was drawn `times[:, p]` times. `times` is [draws, prompts]; returns [draws]."""


@dataclass(frozen=True, slots=True)
class SpeedRatio:
    """How many times faster `policy` is than `baseline`: a ratio of ratios of totals.

    (sum tokens_a / sum ms_a) / (sum tokens_b / sum ms_b), sums over prompts: what a server that runs all of the prompts
    would see, so long texts weigh more. By prompt: tokens_a, ms_a, tokens_b, ms_b.

    Assumes that prompts are independent draws from the users' prompts; rounds within a prompt need not be independent,
    and what two policies share by prompt cancels, because both are drawn together. Says nothing about other models,
    costs or kinds of prompts. Raises `ParameterError` on unequal prompts.
    """

    policy: Totals
    baseline: Totals

    def __post_init__(self) -> None:
        _check_paired(self.policy, self.baseline)

    @property
    def by_prompt(self) -> Float64Array:
        """Tokens and milliseconds of both, [prompts, 4]."""
        return np.stack([self.policy.tokens, self.policy.ms, self.baseline.tokens, self.baseline.ms], axis=1)

    def value(self, times: Float64Array) -> Float64Array:
        """Ratio of the totals of each draw, [draws]."""
        sums = times @ self.by_prompt
        return np.asarray(sums[:, 0] / sums[:, 1] * sums[:, 3] / sums[:, 2])


@dataclass(frozen=True, slots=True)
class MedianRatio:
    """How many times faster `policy` is than `baseline` on the median prompt.

    The median over prompts of (tokens_a / ms_a) / (tokens_b / ms_b): a prompt counts once however long its text, and
    one slow prompt moves nothing. By prompt: that ratio. Assumptions and errors as `SpeedRatio`.
    """

    policy: Totals
    baseline: Totals

    def __post_init__(self) -> None:
        _check_paired(self.policy, self.baseline)

    @property
    def by_prompt(self) -> Float64Array:
        """The prompt's own ratio of speeds, [prompts, 1]."""
        ratios = (self.policy.tokens / self.policy.ms) / (self.baseline.tokens / self.baseline.ms)
        return np.asarray(ratios[:, None])

    def value(self, times: Float64Array) -> Float64Array:
        """Median of each draw, [draws]."""
        ratios = self.by_prompt[:, 0]
        order = np.argsort(ratios, kind="stable")
        below = np.cumsum(times[:, order], axis=1)  # prompts drawn up to here, slowest first
        drawn = below[:, -1:]
        lower, upper = ((below <= place).sum(axis=1) for place in ((drawn - 1) // 2, drawn // 2))
        return np.asarray((ratios[order][lower] + ratios[order][upper]) / 2.0)


def _check_paired(policy: Totals, baseline: Totals) -> None:
    prompts = len(policy.tokens)
    require(len(baseline.tokens) == prompts, "baseline", f"totals of {prompts} prompts", len(baseline.tokens))


def point(estimator: Estimator) -> float:
    """The figure on the prompts as they are."""
    return float(estimator.value(np.ones((1, len(estimator.by_prompt)), dtype=np.float64))[0])


def bootstrap(estimator: Estimator, resamples: int = RESAMPLES, seed: int = 0) -> Float64Array:
    """The figure on `resamples` draws of as many prompts, with replacement, [resamples].

    Raises `ParameterError` below 2000 resamples. Efron, "Bootstrap methods: another look at the jackknife", 1979.
    """
    require(resamples >= RESAMPLES, "resamples", f">= {RESAMPLES}", resamples)
    prompts = len(estimator.by_prompt)
    rng = np.random.default_rng(seed)
    parts = []
    for start in range(0, resamples, _CHUNK):
        size = min(_CHUNK, resamples - start)
        cells = rng.integers(prompts, size=(size, prompts)) + prompts * np.arange(size)[:, None]
        times = np.bincount(cells.ravel(), minlength=size * prompts).reshape(size, prompts)
        parts.append(estimator.value(times.astype(np.float64)))
    return np.concatenate(parts)


def interval(estimator: Estimator, resamples: int = RESAMPLES, seed: int = 0, level: float = LEVEL) -> Interval:
    """The figure with its percentile interval: the shares (1 - level) / 2 and (1 + level) / 2 of `bootstrap`.

    With few prompts it is too narrow; with one both bounds are NaN. Raises `ParameterError` on fewer than 2000
    resamples or a level outside (0, 1).
    """
    require(0.0 < level < 1.0, "level", "between 0 and 1", level)
    require(resamples >= RESAMPLES, "resamples", f">= {RESAMPLES}", resamples)
    if len(estimator.by_prompt) == 1:
        return Interval(point(estimator), float("nan"), float("nan"))
    return percentiles(point(estimator), bootstrap(estimator, resamples, seed), level)


def percentiles(value: float, draws: Float64Array, level: float) -> Interval:
    """`value` between the percentiles of `draws` [resamples] that hold `level` of them."""
    low, high = np.quantile(draws, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return Interval(value, float(low), float(high))


def log_spread(draws: Float64Array, prompts: int) -> float:
    """Standard deviation that one prompt would have in the log of the figure, from `draws` [resamples] of `prompts`.

    The bootstrap's standard error times the square root of the number of prompts, so that the error at another number
    n is this over the square root of n. NaN with one prompt.
    """
    return float(np.log(draws).std() * math.sqrt(prompts)) if prompts > 1 else float("nan")


def prompts_needed(spread: float, difference: float, level: float = LEVEL, power: float = POWER) -> int:
    """Prompts at which an interval of `level` excludes "no difference" with probability `power`.

    n = ((z((1 + level) / 2) + z(power)) x spread / log(1 + difference))^2, rounded up, where `spread` is `log_spread`
    of the pair and `difference` the true difference of speeds (0.03: 3 % faster; may be negative). Assumes that the log
    of the ratio is about normal and that further prompts are like those that gave the spread. Raises `ParameterError`
    where the difference is 0 or at most -1, the power not from .5 to 1, or the level not between 0 and 1.
    """
    require(difference > -1.0 and difference != 0.0, "difference", "above -1 and not 0", difference)
    require(0.5 <= power < 1.0, "power", "at least 0.5 and below 1", power)
    require(0.0 < level < 1.0, "level", "between 0 and 1", level)
    normal = NormalDist()
    reach = normal.inv_cdf((1.0 + level) / 2.0) + normal.inv_cdf(power)
    return max(2, math.ceil((reach * spread / math.log1p(difference)) ** 2))


def speed_ratio(
    policy: Totals, baseline: Totals, resamples: int = RESAMPLES, seed: int = 0, level: float = LEVEL
) -> Interval:
    """`SpeedRatio` with its interval. Raises as `interval` and on unequal prompts."""
    return interval(SpeedRatio(policy, baseline), resamples, seed, level)


def median_ratio(
    policy: Totals, baseline: Totals, resamples: int = RESAMPLES, seed: int = 0, level: float = LEVEL
) -> Interval:
    """`MedianRatio` with its interval. Raises as `interval` and on unequal prompts."""
    return interval(MedianRatio(policy, baseline), resamples, seed, level)
