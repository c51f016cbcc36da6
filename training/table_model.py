"""The match model as a calibrated table: one tree over few signals, its cells shrunk to coarser ones.

The signals are what the three sources say of a candidate and whether they agree: the draft's log probability, match
length and share of the lookup, recycled log probability, whether they agree, and the prior. LightGBM cuts them into at
most 64 cells, one cut after the other; every cut so far is a coarser table. The rate of a cell is shrunk towards that
of the cell it was cut from, by as many pseudo-rows as held-out prompts like best: an empirical Bayes estimate, and
hierarchical shrinkage of trees (Agarwal and others, ICML 2022). Being a tree, it runs wherever a forest does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import lightgbm
import numpy as np

from treewise.data.errors import require
from treewise.training.calibrate import log_odds, sigmoid
from treewise.training.cross_fit import FitRows, FittedModel, Float32Array, FloatArray, IndexArray, Step, cross_fit
from treewise.training.match_model import ForestSettings, binned
from treewise.training.tree_text import Tree, read_trees

SIGNALS = (
    *("draft_log_prob", "lookup_match_length", "lookup_share", "recycled_log_prob"),
    *("in_both", "first_agree", "log_prior"),
)
PSEUDO_ROWS = (4, 16, 64, 256)  # tried
_LEAVES = re.compile(r"^leaf_value=.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TableSettings:
    """How a table is cut."""

    cells: int = 64  # at most; a flat scorer holds no more
    signals: tuple[str, ...] = SIGNALS
    forest: ForestSettings = field(default_factory=ForestSettings)  # of it, what rows a cell needs, folds, seed

    def __post_init__(self) -> None:
        require(2 <= self.cells <= 64, "cells", "between 2 and 64", self.cells)
        require(len(self.signals) > 0, "signals", "at least one", self.signals)


@dataclass(frozen=True, slots=True)
class TableModel:
    """`MatchModel` of one tree."""

    settings: TableSettings = field(default_factory=TableSettings)

    @property
    def name(self) -> str:
        """The class's."""
        return "table"

    def fit(self, rows: FitRows, step: Step = lambda words: None) -> FittedModel:
        """As `MatchModel.fit`."""
        forest = self.settings.forest
        return cross_fit(_TableGrower(rows, self.settings), rows, forest.fold_rows, forest.seed, step)


@dataclass(frozen=True, slots=True)
class _Table:
    """One table; its size is the number of pseudo-rows that each cell is shrunk by."""

    booster: lightgbm.Booster
    size: int
    log_odds: FloatArray  # [cells]

    def score(self, x: Float32Array) -> FloatArray:
        """Raw log-odds [n]."""
        return np.asarray(self.log_odds[_cells(self.booster, x)])

    def text(self) -> str:
        """LightGBM's text format."""
        values = " ".join(repr(float(value)) for value in self.log_odds)
        return _LEAVES.sub(f"leaf_value={values}", str(self.booster.model_to_string()), count=1)


class _TableGrower:
    """Cuts tables of parts of the same rows, which are binned once."""

    def __init__(self, rows: FitRows, settings: TableSettings) -> None:
        self._rows, self._settings = rows, settings
        contributes = [int(name in settings.signals) for name in rows.features]
        self._parameters = {
            **settings.forest.parameters,
            "num_leaves": settings.cells,
            "learning_rate": 1.0,
            "feature_contri": contributes,
        }
        self._data = binned(rows.x, rows, self._parameters, settings.forest.seed)

    def grow(self, rows: IndexArray | None, judge: IndexArray, size: int | None) -> _Table:
        """As `Grower.grow`."""
        x, label, weight = self._rows.x, self._rows.label, self._rows.weight
        chosen: IndexArray | slice = slice(None) if rows is None else rows
        least = self._settings.forest.leaf_rows(len(x) if rows is None else len(rows))
        data = self._data if rows is None else self._data.subset(rows.tolist()).construct()
        booster = lightgbm.train({**self._parameters, "min_data_in_leaf": least}, data, num_boost_round=1)
        (tree,) = read_trees(booster.model_to_string())
        cells = _cells(booster, x[chosen])
        mass = np.asarray(np.bincount(cells, weight[chosen], len(tree.leaf)), dtype=np.float64)
        hits = np.asarray(np.bincount(cells, weight[chosen] * label[chosen], len(tree.leaf)), dtype=np.float64)
        if size is not None:
            return _Table(booster, size, log_odds(shrunken(tree, mass, hits, size)))
        if not len(judge):
            return _Table(booster, PSEUDO_ROWS[1], log_odds(shrunken(tree, mass, hits, PSEUDO_ROWS[1])))
        judged = _cells(booster, x[judge])
        judged_mass = np.bincount(judged, weight[judge], len(tree.leaf))
        judged_hits = np.bincount(judged, weight[judge] * label[judge], len(tree.leaf))
        tables = [_Table(booster, pseudo, log_odds(shrunken(tree, mass, hits, pseudo))) for pseudo in PSEUDO_ROWS]
        losses = []
        for table in tables:
            rate = sigmoid(table.log_odds)
            losses.append(-(judged_hits @ np.log(rate) + (judged_mass - judged_hits) @ np.log1p(-rate)))
        return tables[int(np.argmin(losses))]


def shrunken(tree: Tree, mass: FloatArray, hits: FloatArray, pseudo_rows: float) -> FloatArray:
    """Rates [cells] of cells of `mass` and `hits` [cells], each drawn towards the cell it was cut from."""
    inner = len(tree.feature)
    masses, positives = np.zeros(inner), np.zeros(inner)
    children = list(zip(tree.left.tolist(), tree.right.tolist(), strict=True))
    for node in range(inner - 1, -1, -1):  # a node is numbered before those cut from it
        for child in children[node]:
            masses[node] += masses[child] if child >= 0 else mass[~child]
            positives[node] += positives[child] if child >= 0 else hits[~child]
    rates, found = np.zeros(inner), np.zeros(len(tree.leaf))
    if not inner:
        return np.asarray((hits + 0.5) / (mass + 1.0))
    rates[0] = (positives[0] + 0.5) / (masses[0] + 1.0)
    for node in range(inner):
        for child in children[node]:
            if child >= 0:
                rates[child] = (positives[child] + pseudo_rows * rates[node]) / (masses[child] + pseudo_rows)
            else:
                found[~child] = (hits[~child] + pseudo_rows * rates[node]) / (mass[~child] + pseudo_rows)
    return found


def _cells(booster: lightgbm.Booster, x: Float32Array) -> IndexArray:
    """Cell [n] of each row of `x`."""
    return np.asarray(booster.predict(x, pred_leaf=True, num_threads=1)).reshape(-1).astype(np.intp)
