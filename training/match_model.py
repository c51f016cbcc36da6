"""The match model: P(candidate matches | its parent is on the path, signals), LightGBM over grouped folds.

Held-out figures and calibration come from cross-fitting: prompts are dealt into folds, and each fold is scored by a
model that was fitted on other prompts and stopped early on yet other ones. The model that ships is refitted on all
prompts with the median number of trees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import lightgbm
import numpy as np
from numpy.typing import NDArray

from treewise.data.errors import require
from treewise.training.calibrate import fit_calibration
from treewise.training.tree_text import round_thresholds_down
from treewise.policy.scorer import Calibration

FloatArray = NDArray[np.float64]
Float32Array = NDArray[np.float32]
Int64Array = NDArray[np.int64]
Step = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ForestSettings:
    """How one ensemble of trees is fitted."""

    trees: int = 50  # at most; early stopping may end before
    leaves: int = 15
    learning_rate: float = 0.12
    min_leaf_rows: int = 40
    l2: float = 1.0
    folds: int = 5  # the most; fewer prompts give fewer
    patience: int = 10  # rounds without a better held-out log loss
    threads: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        require(1 <= self.trees <= 1000, "trees", "between 1 and 1000", self.trees)
        require(2 <= self.leaves <= 255, "leaves", "between 2 and 255", self.leaves)
        require(0.0 < self.learning_rate <= 1.0, "learning_rate", "above 0 and at most 1", self.learning_rate)
        require(self.min_leaf_rows >= 1, "min_leaf_rows", ">= 1", self.min_leaf_rows)
        require(self.folds >= 3, "folds", ">= 3", self.folds)
        require(self.threads >= 1, "threads", ">= 1", self.threads)


@dataclass(frozen=True, slots=True)
class FittedForest:
    """An ensemble that was refitted on every prompt, with what held-out folds say about it."""

    text: str  # LightGBM's text format, thresholds rounded down to float32
    features: tuple[str, ...]
    calibration: Calibration
    fold: Int64Array  # [rows] fold in which the row was held out
    held_out_score: FloatArray  # [rows] raw log-odds of models that have not seen the row's prompt
    held_out_probability: FloatArray  # [rows] the same, calibrated on the other folds
    gains: FloatArray  # [features] total gain of the refitted ensemble
    trees: int


def deal_folds(prompts: Sequence[str], tasks: Sequence[str], folds: int, seed: int) -> dict[str, int]:
    """Fold of each prompt id; the prompts of each task are spread over the folds. Raises `ParameterError` below three.

    `prompts` and `tasks` are aligned; repeated prompts (other seeds of the same prompt) share one fold.
    """
    task_of = dict(zip(prompts, tasks, strict=True))
    require(len(task_of) >= 3, "prompts", "at least three, to hold some out", len(task_of))
    count = min(folds, len(task_of))
    draw = np.random.default_rng(seed)
    dealt: list[str] = []
    for task in sorted(set(task_of.values())):
        members = sorted(prompt for prompt, kind in task_of.items() if kind == task)
        dealt += [members[place] for place in draw.permutation(len(members))]
    return {prompt: place % count for place, prompt in enumerate(dealt)}


def fit_forest(
    x: Float32Array,
    label: NDArray[np.int8],
    weight: Float32Array,
    fold: Int64Array,
    features: Sequence[str],
    settings: ForestSettings,
    step: Step = lambda words: None,
) -> FittedForest:
    """Cross-fit, calibrate and refit on `x` [rows, features] with labels in {0, 1}; `fold` [rows] by prompt.

    `step` is told what is done after each fit. Raises `ParameterError` where there is nothing to learn from.
    """
    require(x.ndim == 2 and x.shape[1] == len(features), "x", f"[rows, {len(features)}]", x.shape)
    require(len(x) > 0, "rows", "at least one", len(x))
    count = int(fold.max()) + 1
    require(count >= 3, "folds", ">= 3", count)
    score = np.zeros(len(x), dtype=np.float64)
    best: list[int] = []
    for held_out in range(count):
        stop_on = (held_out + 1) % count
        rest = (fold != held_out) & (fold != stop_on)
        booster = _fit(x[rest], label[rest], weight[rest], features, settings, settings.trees, fold == stop_on, (x, label, weight))
        best.append(max(1, int(booster.best_iteration)))
        rows = fold == held_out
        if rows.any():
            score[rows] = booster.predict(x[rows], raw_score=True, num_iteration=best[-1])
        step(f"fold {held_out + 1} of {count}")
    trees = int(np.median(best))
    final = _fit(x, label, weight, features, settings, trees, None, None)
    text = round_thresholds_down(final.model_to_string())
    step("final fit")
    calibrated = np.zeros(len(x), dtype=np.float64)
    for held_out in range(count):
        rows = fold == held_out
        if rows.any():
            others = fit_calibration(score[~rows], label[~rows], weight[~rows])
            calibrated[rows] = others.apply(score[rows])
    return FittedForest(
        text=text,
        features=tuple(features),
        calibration=fit_calibration(score, label, weight),
        fold=fold,
        held_out_score=score,
        held_out_probability=calibrated,
        gains=np.asarray(final.feature_importance("gain"), dtype=np.float64),
        trees=final.num_trees(),
    )
