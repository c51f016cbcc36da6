"""Log loss by prompt, so that differences between models come with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.training.statistics import Interval, interval

FloatArray = NDArray[np.float64]

_FLOOR = 1e-6


@dataclass(frozen=True, slots=True)
class MeanByPrompt:
    """A weighted mean over rows, as an `Estimator`: prompts are drawn, their rows stay together."""

    by_prompt: FloatArray  # [prompts, 2] sum of weighted values, sum of weights

    @classmethod
    def of(cls, values: NDArray[Any], weight: NDArray[Any], prompt: NDArray[Any]) -> MeanByPrompt:
        """Of `values` [rows], weighed by `weight` [rows], of the prompts of these numbers [rows]."""
        _, place = np.unique(prompt, return_inverse=True)
        return cls(np.column_stack([np.bincount(place, weight * values), np.bincount(place, weight)]))

    def value(self, times: FloatArray) -> FloatArray:
        """The mean of each draw, [draws]."""
        sums = times @ self.by_prompt
        return np.asarray(sums[:, 0] / sums[:, 1])


def row_losses(label: NDArray[Any], probability: NDArray[Any]) -> FloatArray:
    """Log loss of each row, nats, [rows]."""
    held = np.clip(np.asarray(probability, dtype=np.float64), _FLOOR, 1.0 - _FLOOR)
    return np.asarray(np.where(np.asarray(label) > 0, -np.log(held), -np.log1p(-held)))


def mean_interval(values: NDArray[Any], weight: NDArray[Any], prompt: NDArray[Any], seed: int = 0) -> Interval:
    """The weighted mean of `values` [rows] with its 95 % interval over prompts."""
    return interval(MeanByPrompt.of(values, weight, prompt), seed=seed)
