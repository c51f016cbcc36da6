"""Many ratios of totals at once, each with the interval that the choice of prompts gives it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treewise.data.errors import require
from treewise.training.statistics import LEVEL, RESAMPLES, Float64Array, bootstrap


@dataclass(frozen=True, slots=True)
class Ratios:
    """Figure f is sum over prompts of `tops[:, f]` over that of `bottoms[:, f]`; NaN where the bottoms sum to 0.

    An `Estimator` of several figures: what is [draws] there has a second axis here. All figures see the same draws, so
    that they may be compared. Assumes that prompts are independent draws from the users' prompts.
    """

    tops: Float64Array  # [prompts, figures]
    bottoms: Float64Array  # [prompts, figures]

    def __post_init__(self) -> None:
        require(self.tops.ndim == 2 and len(self.tops) > 0, "tops", "[prompts, figures]", self.tops.shape)
        require(self.bottoms.shape == self.tops.shape, "bottoms", f"of shape {self.tops.shape}", self.bottoms.shape)

    @property
    def by_prompt(self) -> Float64Array:
        """Tops, then bottoms, [prompts, 2 x figures]."""
        return np.concatenate([self.tops, self.bottoms], axis=1)

    def value(self, times: Float64Array) -> Float64Array:
        """The figures of each draw, [draws, figures]. `times` is [draws, prompts]."""
        top, bottom = times @ self.tops, times @ self.bottoms
        return np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom != 0.0)


def ratio_intervals(ratios: Ratios, resamples: int = RESAMPLES, seed: int = 0, level: float = LEVEL) -> Float64Array:
    """Value, low and high of every figure, [figures, 3]: percentile intervals of one bootstrap by prompt.

    Draws in which a figure is NaN are left out of its interval. With one prompt the bounds are NaN. Raises
    `ParameterError` as `statistics.interval`.
    """
    require(0.0 < level < 1.0, "level", "between 0 and 1", level)
    prompts = len(ratios.tops)
    found = np.full((ratios.tops.shape[1], 3), np.nan)
    found[:, 0] = ratios.value(np.ones((1, prompts)))[0]
    known = np.isfinite(found[:, 0])
    if prompts > 1 and known.any():
        draws = bootstrap(Ratios(ratios.tops[:, known], ratios.bottoms[:, known]), resamples, seed)
        shares = [(1.0 - level) / 2.0, (1.0 + level) / 2.0]
        whole = np.isfinite(draws).all(axis=0)
        bounds = np.quantile(draws, shares, axis=0)
        if not whole.all():
            bounds[:, ~whole] = np.nanquantile(draws[:, ~whole], shares, axis=0)
        found[known, 1:] = bounds.T
    return found
