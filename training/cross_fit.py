"""Cross-fitting: held-out figures, calibration and the model that ships, for any class of match model.

Prompts are dealt into folds. Each fold is scored by a model that was fitted on other prompts and sized on yet other
ones; the model that ships is refitted on all prompts with the median size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import lightgbm
import numpy as np
from numpy.typing import NDArray

from treewise.data.errors import require
from treewise.policy.scorer import Calibration
from treewise.training.calibrate import fit_calibration
from treewise.training.tree_text import round_thresholds_down

FloatArray = NDArray[np.float64]
Float32Array = NDArray[np.float32]
Int8Array = NDArray[np.int8]
Int64Array = NDArray[np.int64]
IndexArray = NDArray[np.intp]
Step = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class FitRows:
    """What a model is fitted on. Raises `ParameterError` where there is nothing to learn from."""

    x: Float32Array  # [rows, features]
    label: Int8Array  # [rows] 0 or 1
    weight: Float32Array  # [rows]
    fold: Int64Array  # [rows] by prompt
    features: tuple[str, ...]
    judged_x: Float32Array | None = None  # [judged, features] scored, but not learned from
    judged_fold: Int64Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # [judged]

    def __post_init__(self) -> None:
        width = len(self.features)
        require(self.x.ndim == 2 and self.x.shape[1] == width, "x", f"[rows, {width}]", self.x.shape)
        require(len(self.x) > 0, "rows", "at least one", len(self.x))
        require(self.num_folds >= 3, "folds", ">= 3", self.num_folds)

    @property
    def num_folds(self) -> int:
        """Folds, by the largest number."""
        return int(self.fold.max()) + 1


@dataclass(frozen=True, slots=True)
class FoldModel:
    """A model that was fitted and calibrated on the prompts of other folds."""

    text: str  # LightGBM's text format, thresholds rounded down to float32
    calibration: Calibration


@dataclass(frozen=True, slots=True)
class FittedModel:
    """A model that was refitted on every prompt, with what held-out folds say about it."""

    text: str  # LightGBM's text format, thresholds rounded down to float32
    features: tuple[str, ...]
    calibration: Calibration
    held_out_score: FloatArray  # [rows] raw log-odds of models that have not seen the row's prompt
    held_out_probability: FloatArray  # [rows] the same, calibrated on the other folds
    judged_probability: FloatArray  # [judged rows] of rows that no fold was fitted on, calibrated on the other folds
    gains: FloatArray  # [features] total gain of the refitted model
    trees: int
    fold_models: tuple[FoldModel, ...] = ()  # [folds] that have not seen the prompts of the fold


class MatchModel(Protocol):
    """A class of match model. What it fits is one tree or more, so that every scorer and export can run it."""

    @property
    def name(self) -> str:
        """One word for people and reports."""

    def fit(self, rows: FitRows, step: Step) -> FittedModel:
        """Cross-fit, calibrate and refit; `step` is told what is done after each fit."""


class Grown(Protocol):
    """A model fitted once."""

    @property
    def size(self) -> int:
        """How large it is, in whatever its class counts."""

    def score(self, x: Float32Array) -> FloatArray:
        """Raw log-odds [n] of `x` [n, features]."""

    def text(self) -> str:
        """LightGBM's text format."""


class Grower(Protocol):
    """Fits models on parts of the same rows."""

    def grow(self, rows: IndexArray | None, judge: IndexArray, size: int | None) -> Grown:
        """A model of the rows of these numbers (None: all), as large as fits `judge` best where `size` is None."""


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


def cross_fit(grower: Grower, rows: FitRows, fold_rows: int, seed: int, step: Step) -> FittedModel:
    """Fit with one fold held out, each in turn, then on all rows; a fit that is only for figures sees `fold_rows`."""
    fold, count = rows.fold, rows.num_folds
    judged_x = rows.x[:0] if rows.judged_x is None else rows.judged_x
    score = np.zeros(len(rows.x), dtype=np.float64)
    judged_score = np.zeros(len(judged_x), dtype=np.float64)
    draw = np.random.default_rng(seed)
    sizes: list[int] = []
    texts: list[str] = []
    for held_out in range(count):
        stop_on = (held_out + 1) % count
        rest = np.flatnonzero((fold != held_out) & (fold != stop_on))
        if len(rest) > fold_rows:
            rest = np.sort(draw.choice(rest, fold_rows, replace=False))
        grown = grower.grow(rest, np.flatnonzero(fold == stop_on), None)
        sizes.append(grown.size)
        texts.append(round_thresholds_down(grown.text()))
        for values, folds, scores in ((rows.x, fold, score), (judged_x, rows.judged_fold, judged_score)):
            own = folds == held_out
            if own.any():
                scores[own] = grown.score(values[own])
        step(f"fold {held_out + 1} of {count}")
    final = grower.grow(None, np.zeros(0, dtype=np.intp), int(np.median(sizes)))
    text = round_thresholds_down(final.text())
    step("final fit")
    calibrated, judged_probability = np.zeros_like(score), np.zeros_like(judged_score)
    fold_models = []
    for held_out in range(count):
        own = fold == held_out
        others = fit_calibration(score[~own], rows.label[~own], rows.weight[~own])
        fold_models.append(FoldModel(texts[held_out], others))
        if own.any():
            calibrated[own] = others.apply(score[own])
            judged = rows.judged_fold == held_out
            judged_probability[judged] = others.apply(judged_score[judged])
    whole = lightgbm.Booster(model_str=text)
    return FittedModel(
        text=text,
        features=rows.features,
        calibration=fit_calibration(score, rows.label, rows.weight),
        held_out_score=score,
        held_out_probability=calibrated,
        judged_probability=judged_probability,
        gains=np.asarray(whole.feature_importance("gain"), dtype=np.float64),
        trees=whole.num_trees(),
        fold_models=tuple(fold_models),
    )
