"""The match model: P(candidate matches | its parent is on the path, signals), LightGBM over grouped folds.

Held-out figures and calibration come from cross-fitting: prompts are dealt into folds, and each fold is scored by a
model that was fitted on other prompts and stopped early on yet other ones. The model that ships is refitted on all
prompts with the median number of trees. Where a feature is named to start from (the prior), the first tree is a rising
step function of that feature alone, so that boosting learns corrections to it: with few prompts the model then begins
where rule policies end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import lightgbm
import numpy as np
from numpy.typing import NDArray

from treewise.data.errors import require
from treewise.policy.scorer import Calibration
from treewise.training.calibrate import fit_calibration
from treewise.training.tree_text import round_thresholds_down

FloatArray = NDArray[np.float64]
Float32Array = NDArray[np.float32]
Int64Array = NDArray[np.int64]
Step = Callable[[str], None]
Rows = tuple[Float32Array, NDArray[np.int8], Float32Array]  # features [rows, features], labels [rows], weights [rows]


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
    start_leaves: int = 31  # steps of the first tree, where the fit starts from one feature
    threads: int = 1  # two that fight for a busy core are far slower than one
    seed: int = 0

    def __post_init__(self) -> None:
        require(1 <= self.trees <= 1000, "trees", "between 1 and 1000", self.trees)
        require(2 <= self.leaves <= 255, "leaves", "between 2 and 255", self.leaves)
        require(0.0 < self.learning_rate <= 1.0, "learning_rate", "above 0 and at most 1", self.learning_rate)
        require(self.min_leaf_rows >= 1, "min_leaf_rows", ">= 1", self.min_leaf_rows)
        require(self.folds >= 3, "folds", ">= 3", self.folds)
        require(2 <= self.start_leaves <= 64, "start_leaves", "between 2 and 64", self.start_leaves)
        require(self.threads >= 1, "threads", ">= 1", self.threads)


@dataclass(frozen=True, slots=True)
class FittedForest:
    """An ensemble that was refitted on every prompt, with what held-out folds say about it."""

    text: str  # LightGBM's text format, thresholds rounded down to float32
    features: tuple[str, ...]
    calibration: Calibration
    held_out_score: FloatArray  # [rows] raw log-odds of models that have not seen the row's prompt
    held_out_probability: FloatArray  # [rows] the same, calibrated on the other folds
    judged_probability: FloatArray  # [judged rows] of rows that no fold was fitted on, calibrated on the other folds
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
    judged: tuple[Float32Array, Int64Array] | None = None,
    step: Step = lambda words: None,
    start: str | None = None,
) -> FittedForest:
    """Cross-fit, calibrate and refit on `x` [rows, features] with labels in {0, 1}; `fold` [rows] by prompt.

    `start` names the feature that the first tree is to follow, rising. `judged` are further feature rows and their
    folds that are scored but not learned from. `step` is told what is done after each fit. Raises `ParameterError`
    where there is nothing to learn from.
    """
    require(x.ndim == 2 and x.shape[1] == len(features), "x", f"[rows, {len(features)}]", x.shape)
    require(len(x) > 0, "rows", "at least one", len(x))
    count = int(fold.max()) + 1
    require(count >= 3, "folds", ">= 3", count)
    judged_x, judged_fold = judged or (np.zeros((0, x.shape[1]), dtype=np.float32), np.zeros(0, dtype=np.int64))
    score = np.zeros(len(x), dtype=np.float64)
    judged_score = np.zeros(len(judged_x), dtype=np.float64)
    best: list[int] = []
    for held_out in range(count):
        stop_on = (held_out + 1) % count
        rest = (fold != held_out) & (fold != stop_on)
        judge = fold == stop_on
        booster = _fit(
            (x[rest], label[rest], weight[rest]),
            features,
            settings,
            settings.trees,
            (x[judge], label[judge], weight[judge]),
            start,
        )
        best.append(max(1, int(booster.best_iteration)))
        for values, folds, scores in ((x, fold, score), (judged_x, judged_fold, judged_score)):
            rows = folds == held_out
            if rows.any():
                scores[rows] = booster.predict(values[rows], raw_score=True, num_iteration=best[-1], num_threads=1)
        step(f"fold {held_out + 1} of {count}")
    trees = int(np.median(best))
    final = _fit((x, label, weight), features, settings, trees, None, start)
    text = round_thresholds_down(final.model_to_string())
    step("final fit")
    calibrated, judged_probability = np.zeros_like(score), np.zeros_like(judged_score)
    for held_out in range(count):
        rows = fold == held_out
        if rows.any():
            others = fit_calibration(score[~rows], label[~rows], weight[~rows])
            calibrated[rows] = others.apply(score[rows])
            judged_probability[judged_fold == held_out] = others.apply(judged_score[judged_fold == held_out])
    return FittedForest(
        text=text,
        features=tuple(features),
        calibration=fit_calibration(score, label, weight),
        held_out_score=score,
        held_out_probability=calibrated,
        judged_probability=judged_probability,
        gains=np.asarray(final.feature_importance("gain"), dtype=np.float64),
        trees=final.num_trees(),
    )


def _fit(
    rows: Rows,
    features: Sequence[str],
    settings: ForestSettings,
    trees: int,
    judge: Rows | None,
    start: str | None,
) -> lightgbm.Booster:
    """One ensemble of at most `trees` trees, the first from `start`; stops early on `judge` where it has rows."""
    x, label, weight = rows
    # A row of NaN that weighs nothing: every feature then has a missing value, so the trees say where NaN goes instead
    # of reading it as 0.
    x = np.concatenate([x, np.full((1, x.shape[1]), np.nan, dtype=np.float32)])
    label = np.concatenate([label, np.zeros(1, dtype=np.int8)])
    weight = np.concatenate([weight, np.full(1, 1e-6, dtype=np.float32)])
    parameters = {
        "objective": "binary",
        "num_leaves": settings.leaves,
        "learning_rate": settings.learning_rate,
        "min_data_in_leaf": max(1, min(settings.min_leaf_rows, len(x) // 10)),
        "lambda_l2": settings.l2,
        "max_bin": 127,
        "bin_construct_sample_cnt": len(x),  # sampling could miss the row of NaN
        "use_missing": True,
        "zero_as_missing": False,
        "feature_pre_filter": False,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": settings.threads,
        "seed": settings.seed,
        "verbosity": -1,
    }
    first = None if start is None else _first_tree(x, label, weight, features, start, settings, parameters)
    train = lightgbm.Dataset(x, label, weight=weight, feature_name=list(features), params=parameters)
    rounds = trees if first is None else max(trees - 1, 1)
    if judge is None or not len(judge[0]):
        return lightgbm.train(parameters, train, num_boost_round=rounds, init_model=first)
    valid = lightgbm.Dataset(judge[0], judge[1], weight=judge[2], reference=train)
    stop = lightgbm.early_stopping(settings.patience, verbose=False)
    return lightgbm.train(
        parameters, train, num_boost_round=rounds, init_model=first, valid_sets=[valid], callbacks=[stop]
    )


def _first_tree(
    x: Float32Array,
    label: NDArray[np.int8],
    weight: Float32Array,
    features: Sequence[str],
    start: str,
    settings: ForestSettings,
    parameters: dict[str, Any],
) -> lightgbm.Booster:
    """A rising step function of the feature `start` alone, over the rates of the rows."""
    place = list(features).index(start)
    alone = np.full_like(x, np.nan)
    alone[:, place] = x[:, place]
    rising = [int(name == start) for name in features]
    chosen = {
        **parameters, "num_leaves": settings.start_leaves, "learning_rate": 1.0, "monotone_constraints": rising
    }  # fmt: skip
    train = lightgbm.Dataset(alone, label, weight=weight, feature_name=list(features), params=chosen)
    return lightgbm.train(chosen, train, num_boost_round=1)
