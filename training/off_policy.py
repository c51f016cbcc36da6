"""Estimators of what another policy would have done, from logs of pruned trees. None of them is exact.

Each writes one row per prompt, so that draws and intervals come from `statistics.bootstrap`, in the manner of the Open
Bandit Pipeline (arXiv 2008.07146). What fails where an assumption does stands in the docstring, and is shown against a
world of known truth in the tests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from treewise.data.errors import require
from treewise.training.replay_result import Float64Array
from treewise.training.statistics import LEVEL, RESAMPLES, Estimator, Interval, bootstrap, percentiles, point


@dataclass(frozen=True, slots=True)
class DirectMethod:
    """How many times faster a policy is than `baseline`, replayed on logs that a model completes.

        (sum tokens / sum_p mean_m ms_pm) / (sum tokens / sum_p mean_m baseline_pm)

    over prompts p and imputations m: the policy walks the known text on its own roots; what the draft says is the
    log's wherever any round of it asked, else the answer of a donor (`donors.DraftDonors`), drawn anew in each
    imputation. Text and tokens are those of the log. By prompt: mean ms, mean baseline ms. The spread between
    imputations widens the interval (Rubin, "Multiple imputation for nonresponse in surveys", 1987).

    Assumes that rows of like path prior, each policy that wrote the log weighing as if it had decided alone, answer
    alike whether or not the log asked them, and that a free source which no round asked knows nothing. A log that one
    greedy policy pruned breaks the first: it asked where it was confident, so that donors flatter the rest, and the
    estimate is too fast for policies that grow further, with an interval that does not say so. Exploration mends that.
    The second makes policies that ask more free sources than the log's look too slow.

    The direct method is that of Beygelzimer and Langford, "The offset tree for learning with partial labels", 2009.
    Raises `ParameterError` on shapes that do not fit.
    """

    ms: Float64Array  # [imputations, prompts]
    baseline: Float64Array  # [imputations, prompts]

    def __post_init__(self) -> None:
        _check(self.ms, self.baseline, 2)

    @property
    def by_prompt(self) -> Float64Array:
        """Milliseconds of the policy and of the baseline, [prompts, 2]."""
        return np.stack([self.ms.mean(axis=0), self.baseline.mean(axis=0)], axis=1)

    def value(self, times: Float64Array) -> Float64Array:
        """Ratio of the totals of each draw, [draws]."""
        sums = times @ self.by_prompt
        return np.asarray(sums[:, 1] / sums[:, 0])

    @property
    def log_noise(self) -> float:
        """Standard error of the log of the ratio that imputing adds: sqrt((1 + 1/M) x variance between imputations)."""
        count = len(self.ms)
        logs = np.log(self.baseline.sum(axis=1) / self.ms.sum(axis=1))
        return math.sqrt((1.0 + 1.0 / count) * float(logs.var(ddof=1))) if count > 1 else 0.0


@dataclass(frozen=True, slots=True)
class SelfNormalizedInversePropensity:
    """How many times faster a policy is than plain decoding, from the requests that it decided itself.

        sum_p w_p plain_p / sum_p w_p ms_p,   w_p = 1{the policy decided p} / propensity_p

    over prompts p. Tokens cancel: both would have committed the same text. By prompt: w plain ms, w ms. Dividing by
    weighted totals instead of the number of prompts keeps the estimate inside what was seen (Swaminathan and Joachims,
    "The self-normalized estimator for counterfactual learning", 2015); its bias falls as 1 / effective prompts.

    Assumes that who decided was drawn with the propensity that is logged, apart from anything that the prompt tells,
    and that the policy could be drawn: one that never decided has no estimate. Where requests were routed by task or
    length under a constant propensity, the estimate is of the wrong prompts; where the propensity is small, few
    requests carry it all: see `effective_prompts`. Raises `ParameterError` on shapes that do not fit.
    """

    weight: Float64Array  # [prompts] 0 where another policy decided
    ms: Float64Array  # [prompts] where the policy decided; elsewhere ignored
    plain: Float64Array  # [prompts] of plain decoding

    def __post_init__(self) -> None:
        _check(self.ms, self.plain, 1)
        require(self.weight.shape == self.ms.shape, "weight", f"of shape {self.ms.shape}", self.weight.shape)
        require(bool((self.weight >= 0).all() and self.weight.any()), "weight", ">= 0, once above", self.weight.max())

    @property
    def by_prompt(self) -> Float64Array:
        """Weighted milliseconds of the policy and of plain decoding, [prompts, 2]."""
        return np.stack([self.weight * self.ms, self.weight * self.plain], axis=1)

    def value(self, times: Float64Array) -> Float64Array:
        """Ratio of the weighted totals of each draw, [draws]; NaN where none of its prompts was decided."""
        sums = times @ self.by_prompt
        return np.asarray(np.divide(sums[:, 1], sums[:, 0], out=np.full(len(sums), np.nan), where=sums[:, 0] > 0))

    @property
    def effective_prompts(self) -> float:
        """(sum w)^2 / sum w^2: equally weighted prompts that would be worth as much. Kish, "Survey sampling", 1965."""
        return float(self.weight.sum() ** 2 / (self.weight**2).sum())


@dataclass(frozen=True, slots=True)
class RatioOf:
    """One estimate over another on the same draws of prompts: two policies, each estimated against plain decoding."""

    policy: SelfNormalizedInversePropensity
    baseline: SelfNormalizedInversePropensity

    @property
    def by_prompt(self) -> Float64Array:
        """Those of both, [prompts, 4]."""
        return np.concatenate([self.policy.by_prompt, self.baseline.by_prompt], axis=1)

    def value(self, times: Float64Array) -> Float64Array:
        """Ratio of the two on each draw, [draws]."""
        return np.asarray(self.policy.value(times) / self.baseline.value(times))


def estimated(estimator: Estimator, resamples: int = RESAMPLES, seed: int = 0, level: float = LEVEL) -> Interval:
    """The estimate with its interval: percentiles of the bootstrap over prompts, spread by the imputations' noise.

    Both bounds are NaN with one prompt, and where more than a hundredth of the draws held no prompt to go by.
    """
    value = point(estimator)
    if len(estimator.by_prompt) == 1:
        return Interval(value, math.nan, math.nan)
    draws = bootstrap(estimator, resamples, seed)
    known = draws[~np.isnan(draws)]
    if len(known) < 0.99 * len(draws):
        return Interval(value, math.nan, math.nan)
    if isinstance(estimator, DirectMethod) and estimator.log_noise > 0.0:
        rng = np.random.default_rng([seed, 1])
        known = known * np.exp(estimator.log_noise * rng.standard_t(len(estimator.ms) - 1, size=len(known)))
    return percentiles(value, known, level)


def _check(ms: Float64Array, other: Float64Array, axes: int) -> None:
    require(ms.ndim == axes and ms.size > 0, "ms", f"at least one prompt on the last of {axes} axes", ms.shape)
    require(other.shape == ms.shape, "baseline", f"of shape {ms.shape}", other.shape)
