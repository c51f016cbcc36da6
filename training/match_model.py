"""The match model as a forest: P(candidate matches | its parent is on the path, signals), LightGBM.

Where a feature is named to start from (the prior), the first tree is a rising step function of that feature alone, so
that boosting learns corrections to it: with few prompts the model then begins where rule policies end. Rows are binned
once, for all fits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import lightgbm
import numpy as np

from treewise.data.errors import require
from treewise.training.cross_fit import FitRows, FittedModel, Float32Array, FloatArray, IndexArray, Step, cross_fit
from treewise.training.first_tree import FirstTree, fit_first_tree

BIN_ROWS = 200_000  # rows that say where bins end


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
    fold_rows: int = 1_500_000  # the most that a model for held-out figures is fitted on; the one that ships sees all
    threads: int = 1  # two that fight for a busy core are far slower than one
    seed: int = 0

    def __post_init__(self) -> None:
        require(1 <= self.trees <= 1000, "trees", "between 1 and 1000", self.trees)
        require(2 <= self.leaves <= 255, "leaves", "between 2 and 255", self.leaves)
        require(0.0 < self.learning_rate <= 1.0, "learning_rate", "above 0 and at most 1", self.learning_rate)
        require(self.min_leaf_rows >= 1, "min_leaf_rows", ">= 1", self.min_leaf_rows)
        require(self.folds >= 3, "folds", ">= 3", self.folds)
        require(2 <= self.start_leaves <= 64, "start_leaves", "between 2 and 64", self.start_leaves)
        require(self.fold_rows >= 1000, "fold_rows", ">= 1000", self.fold_rows)
        require(self.threads >= 1, "threads", ">= 1", self.threads)

    @property
    def parameters(self) -> dict[str, Any]:
        """LightGBM's names for them, and what must hold for every fit."""
        return {
            "objective": "binary",
            "num_leaves": self.leaves,
            "learning_rate": self.learning_rate,
            "lambda_l2": self.l2,
            "max_bin": 127,
            "use_missing": True,
            "zero_as_missing": False,
            "feature_pre_filter": False,
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": self.threads,
            "seed": self.seed,
            "verbosity": -1,
        }

    def leaf_rows(self, rows: int) -> int:
        """The least rows of a leaf, where a fit has `rows`."""
        return max(1, min(self.min_leaf_rows, rows // 10))


@dataclass(frozen=True, slots=True)
class ForestModel:
    """`MatchModel` of many small trees."""

    settings: ForestSettings = field(default_factory=ForestSettings)
    start: str | None = None  # the feature that the first tree is to follow, rising

    @property
    def name(self) -> str:
        """The class's."""
        return "forest"

    def fit(self, rows: FitRows, step: Step = lambda words: None) -> FittedModel:
        """As `MatchModel.fit`."""
        settings = self.settings
        return cross_fit(_ForestGrower(rows, settings, self.start), rows, settings.fold_rows, settings.seed, step)


@dataclass(frozen=True, slots=True)
class _Forest:
    """One ensemble; its size is the number of trees behind the first one, where it starts from one."""

    booster: lightgbm.Booster
    size: int
    first: FirstTree | None
    column: int  # that the first tree follows
    threads: int

    def score(self, x: Float32Array) -> FloatArray:
        """Raw log-odds [n]."""
        raw = self.booster.predict(x, raw_score=True, num_iteration=self.size, num_threads=self.threads)
        found = np.asarray(raw, dtype=np.float64)
        return found if self.first is None else found + self.first.score(x[:, self.column])

    def text(self) -> str:
        """LightGBM's text format."""
        text = str(self.booster.model_to_string())
        return text if self.first is None else self.first.lead(text, self.column)


class _ForestGrower:
    """Grows ensembles on parts of the same rows, which are binned once."""

    def __init__(self, rows: FitRows, settings: ForestSettings, start: str | None) -> None:
        self._rows, self._settings = rows, settings
        self._data = binned(rows.x, rows, settings.parameters, settings.seed)
        self._column = -1 if start is None else rows.features.index(start)
        # A set of one column bins and fits in no time.
        alone = rows.x[:, self._column : self._column + 1]
        self._alone = None if start is None else binned(alone, rows, settings.parameters, settings.seed)

    def grow(self, rows: IndexArray | None, judge: IndexArray, size: int | None) -> _Forest:
        """As `Grower.grow`."""
        data, alone, settings = self._data, self._alone, self._settings
        least = settings.leaf_rows(len(self._rows.x) if rows is None else len(rows))
        parameters = {**settings.parameters, "min_data_in_leaf": least}
        if rows is not None:
            data = data.subset(rows.tolist()).construct()
            alone = None if alone is None else alone.subset(rows.tolist())
        first = None if alone is None else fit_first_tree(alone, parameters, settings.start_leaves)
        stop_on: list[lightgbm.Dataset] = []
        callbacks: list[Callable[..., Any]] = []
        if size is None and len(judge):
            stop_on = [self._data.subset(judge.tolist()).construct()]
            callbacks = [lightgbm.early_stopping(settings.patience, verbose=False)]
        if first is not None:
            self._begin(data, first, rows)
            for part in stop_on:
                self._begin(part, first, judge)
        most = max(settings.trees - (first is not None), 1)
        booster = lightgbm.train(
            parameters, data, num_boost_round=size or most, valid_sets=stop_on, callbacks=callbacks
        )
        best = size or max(1, int(booster.best_iteration))
        return _Forest(booster, best, first, self._column, settings.threads)

    def _begin(self, data: lightgbm.Dataset, first: FirstTree, rows: IndexArray | None) -> None:
        """Let boosting start from `first`."""
        values = self._rows.x[:, self._column]
        data.set_init_score(first.score(values if rows is None else values[rows]))


def binned(x: Float32Array, rows: FitRows, parameters: dict[str, Any], seed: int) -> lightgbm.Dataset:
    """All of `x` [rows, columns], labelled and weighted as `rows`, binned by a sample of it and a row of NaN.

    With that row every feature has a missing value, so that trees say where NaN goes instead of reading it as 0.
    """
    draw = np.random.default_rng(seed)
    chosen = np.sort(draw.permutation(len(x))[:BIN_ROWS])
    sample = np.concatenate([x[chosen], np.full((1, x.shape[1]), np.nan, dtype=np.float32)])
    # LightGBM, left to sample by itself, could miss the row of NaN.
    own = {**parameters, "bin_construct_sample_cnt": len(sample)}
    names: Any = list(rows.features) if x.shape[1] == len(rows.features) else "auto"
    bins = lightgbm.Dataset(sample, np.zeros(len(sample)), feature_name=names, params=own).construct()
    whole = lightgbm.Dataset(x, rows.label, weight=rows.weight, reference=bins, feature_name=names, params=own)
    return whole.construct()
