"""What an A/B says in words, and the care that several comparisons at once need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from treewise.data.errors import require
from treewise.training.statistics import (
    LEVEL,
    RESAMPLES,
    Estimator,
    Interval,
    bootstrap,
    log_spread,
    percentiles,
    point,
    prompts_needed,
)

Kind: TypeAlias = Literal["better", "worse", "not worse", "undecided"]

MARGIN = 0.02  # a loss below it may be called no loss
FEW_PROMPTS = 20  # below it percentile intervals are known to be too narrow
_TAIL_DRAWS = 10  # resamples that are to lie beyond an adjusted bound
_MAX_RESAMPLES = 40_000
_MAX_PROMPTS = 1_000_000  # beyond it nobody would collect them


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows from an interval of a ratio of speeds, and from nothing else."""

    kind: Kind
    words: str
    share: float | None  # of 1: the least gain, the least loss or the largest possible loss; None where undecided
    more_prompts: int | None  # prompts to add where undecided and a number can be given


@dataclass(frozen=True, slots=True)
class Judgement:
    """One of several comparisons with the first policy, corrected for how many there are."""

    interval: Interval  # simultaneous with those of the other comparisons
    p_value: float  # two-sided, adjusted; NaN with one prompt
    log_spread: float  # of one prompt
    comparisons: int  # how many were corrected for
    verdict: Verdict


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values, in the order given: reject those at most alpha, and the chance of any error is at most alpha.

    The k-th smallest of m becomes the largest of (m - j + 1) x p_j over j <= k, at most 1. Needs no independence.
    Holm, "A simple sequentially rejective multiple test procedure", 1979.
    """
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    scaled = values[order] * (len(values) - np.arange(len(values)))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return [float(value) for value in adjusted]


def least_prompts(comparisons: int = 1, level: float = LEVEL) -> int:
    """Fewest prompts at which any paired comparison without assumptions on the distribution can be significant.

    Under "no difference" each prompt favours either policy with probability one half, so n of n has p = 2^(1 - n).
    """
    return 1 + math.ceil(math.log2(comparisons / (1.0 - level)) - 1e-9)


def judge(
    estimators: Sequence[Estimator],
    resamples: int = RESAMPLES,
    seed: int = 0,
    level: float = LEVEL,
    margin: float = MARGIN,
) -> list[Judgement]:
    """A judgement for each of a family of ratios of speeds, all true together with probability `level`.

    Each side of each comparison is a test by inversion of the percentile interval: p = (1 + draws at or beyond 1) /
    (1 + draws), and never below 2^(-prompts), the least that a test without assumptions can reach. Each side is a
    family of m tests at (1 - level) / 2, corrected by `holm`; the p-value reported is twice the smaller side, so the
    direction is covered too. The interval is the simultaneous one that goes with Holm's test: Bonferroni's bounds, each
    at (1 - level) / (2 m), moved up or down to 1 where Holm rejects and Bonferroni does not (Guilbaud, "Simultaneous
    confidence regions corresponding to Holm's step-down procedure and other closed-testing procedures", 2008). One
    comparison alone keeps its percentile interval.

    More draws than `resamples` are made where m asks for them, up to 40,000. Assumptions as the estimators'. Raises
    `ParameterError` as `bootstrap` does, or where the margin is not between 0 and 1.
    """
    require(0.0 <= margin < 1.0, "margin", "at least 0 and below 1", margin)
    count = len(estimators)
    alpha = 1.0 - level
    draws_wanted = min(_MAX_RESAMPLES, math.ceil(2 * count * _TAIL_DRAWS / alpha))
    prompts = [len(estimator.by_prompt) for estimator in estimators]
    draws = [bootstrap(estimator, max(resamples, draws_wanted), seed) for estimator in estimators]
    points = [point(estimator) for estimator in estimators]
    gains = holm([_tail(part <= 1.0, number) for part, number in zip(draws, prompts, strict=True)])
    losses = holm([_tail(part >= 1.0, number) for part, number in zip(draws, prompts, strict=True)])
    found = []
    for place, value in enumerate(points):
        if prompts[place] == 1:
            nothing = Interval(value, math.nan, math.nan)
            verdict = verdict_of(nothing, 1, math.nan, count, level, margin)
            found.append(Judgement(nothing, math.nan, math.nan, count, verdict))
            continue
        bonferroni = percentiles(value, draws[place], 1.0 - alpha / count)
        low = max(bonferroni.low, 1.0) if gains[place] <= alpha / 2.0 else bonferroni.low
        high = min(bonferroni.high, 1.0) if losses[place] <= alpha / 2.0 else bonferroni.high
        joint = Interval(value, low, high)
        spread = log_spread(draws[place], prompts[place])
        verdict = verdict_of(joint, prompts[place], spread, count, level, margin)
        p_value = min(1.0, 2.0 * min(gains[place], losses[place]))
        found.append(Judgement(joint, p_value, spread, count, verdict))
    return found


def verdict_of(
    interval: Interval,
    prompts: int,
    spread: float,
    comparisons: int = 1,
    level: float = LEVEL,
    margin: float = MARGIN,
) -> Verdict:
    """The verdict on a ratio of speeds; shares are rounded to a tenth of a percent, towards saying less.

    better: all of the interval is at or above 1. worse: all of it is at or below 1. not worse: it holds 1 and ends no
    lower than 1 - `margin`. undecided: anything else, and whatever the interval where fewer than `least_prompts` gave
    it. The number of further prompts is that at which the difference as it stands now, or where that is within the
    margin, the absence of a loss beyond the margin, would be shown with 80 % power.
    """
    least = least_prompts(comparisons, level)
    if prompts < least:
        return Verdict("undecided", f"undecided: {prompts} prompts are too few for any verdict", None, least - prompts)
    if interval.low >= 1.0 and interval.value > 1.0:
        share = _floor(interval.low - 1.0)
        return Verdict("better", _at_least("better", share), share, None)
    if interval.high <= 1.0 and interval.value < 1.0:
        share = _floor(1.0 - interval.high)
        return Verdict("worse", _at_least("worse", share), share, None)
    loss = max(0.0, _ceiling(1.0 - interval.low))
    if interval.low >= 1.0 - margin:
        return Verdict("not worse", f"not worse by more than {_percent(loss)}", loss, None)
    level_each = 1.0 - (1.0 - level) / comparisons
    gap = interval.value - 1.0
    if abs(gap) <= margin + 1e-9:
        gap = interval.value / (1.0 - margin) - 1.0
    if abs(gap) < 1e-9:
        return Verdict("undecided", "undecided: the difference is at the margin itself", None, None)
    more = prompts_needed(spread, gap, level_each) - prompts
    if more > _MAX_PROMPTS:
        return Verdict("undecided", "undecided: no affordable number of prompts would tell", None, None)
    more = max(1, more)
    return Verdict("undecided", f"undecided: about {more:,} more prompts needed", None, more)


def _tail(beyond: NDArray[np.bool_], prompts: int) -> float:
    return max((1 + int(beyond.sum())) / (1 + len(beyond)), 0.5**prompts)


def _at_least(word: str, share: float) -> str:
    return f"{word} by at least {_percent(share)}" if share > 0.0 else word


def _percent(share: float) -> str:
    return f"{100.0 * share:.1f} %"


def _floor(share: float) -> float:
    return math.floor(1000.0 * share + 1e-9) / 1000.0


def _ceiling(share: float) -> float:
    return math.ceil(1000.0 * share - 1e-9) / 1000.0
