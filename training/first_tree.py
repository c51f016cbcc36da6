"""The first tree of a forest that starts from one feature: a rising step function, fitted and written by LightGBM."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import lightgbm
import numpy as np

from treewise.training.cross_fit import Float32Array, FloatArray
from treewise.training.tree_text import read_trees

_TREE = re.compile(r"^Tree=(\d+)$", re.MULTILINE)
_SIZES = re.compile(r"^tree_sizes=.*\n", re.MULTILINE)  # byte sizes, which LightGBM does not need
_SPLITS = re.compile(r"^split_feature=(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FirstTree:
    """Raw log-odds by one feature."""

    block: str  # the tree in LightGBM's text format, behind its `Tree=` line; it splits on feature 0
    edges: FloatArray  # [steps] inputs up to edge i, and above the one before, have height i
    heights: FloatArray  # [steps + 1]
    unknown: float  # of NaN

    def score(self, values: Float32Array) -> FloatArray:
        """Raw log-odds [rows] of the feature's `values` [rows]."""
        found = self.heights[self.edges.searchsorted(values)]
        found[np.isnan(values)] = self.unknown
        return np.asarray(found)

    def lead(self, text: str, column: int) -> str:
        """The model `text` with this tree, over feature number `column`, before its own."""
        own = _SPLITS.sub(lambda found: "split_feature=" + " ".join([str(column)] * len(found[1].split())), self.block)
        later = _SIZES.sub("", _TREE.sub(lambda found: f"Tree={int(found[1]) + 1}", text))
        head, mark, rest = later.partition("Tree=1\n")
        return f"{head}Tree=0\n{own}{mark}{rest}"


def fit_first_tree(data: lightgbm.Dataset, parameters: dict[str, Any], leaves: int) -> FirstTree:
    """Fit on `data`, a set of one feature, binned with `parameters`."""
    chosen = {**parameters, "num_leaves": leaves, "learning_rate": 1.0, "monotone_constraints": [1]}
    booster = lightgbm.train(chosen, data, num_boost_round=1)
    text = booster.model_to_string()
    (tree,) = read_trees(text)
    edges = np.unique(tree.threshold)
    tried = np.concatenate([edges, [np.inf, np.nan]])[:, None]
    heights = np.asarray(booster.predict(tried, raw_score=True, num_threads=1), dtype=np.float64)
    block = text.partition("Tree=0\n")[2].partition("end of trees")[0]
    return FirstTree(block, edges, heights[:-1], float(heights[-1]))
