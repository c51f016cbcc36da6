"""LightGBM's text format: read as arrays, and its thresholds rounded down to float32.

Features are float32. LightGBM compares them with double thresholds, other scorers with float32 ones; a threshold that
was rounded up would send inputs between the two the other way. Rounded down, `x <= threshold` has one answer for every
float32 x, so every copy of the trees is made from the rounded text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import lightgbm
import numpy as np
from numpy.typing import NDArray

from treewise.data.errors import ParameterError

Float64Array = NDArray[np.float64]
Int32Array = NDArray[np.int32]
BoolArray = NDArray[np.bool_]

ZERO = np.float32(1e-35)  # LightGBM reads inputs up to this magnitude as 0
_THRESHOLDS = re.compile(r"^threshold=(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Tree:
    """One tree. Children >= 0 are inner nodes, a child c < 0 is leaf ~c; a tree of one leaf has no inner node."""

    feature: Int32Array  # [inner]
    threshold: Float64Array  # [inner] go left where the input is <= threshold
    nan_goes_left: BoolArray  # [inner]
    left: Int32Array  # [inner]
    right: Int32Array  # [inner]
    leaf: Float64Array  # [leaves] log-odds


def floor32(value: Float64Array) -> Float64Array:
    """The largest float32 <= each of `value` [n], as float64; thresholds near 0 move to the edge of LightGBM's zero."""
    held = np.minimum(np.asarray(value, dtype=np.float64), np.finfo(np.float32).max)
    with np.errstate(over="ignore"):  # below the least float32 lies minus infinity, which is right
        rounded = held.astype(np.float32)
        rounded = np.where(rounded > held, np.nextafter(rounded, np.float32(-np.inf)), rounded)
    # Inputs in [-ZERO, ZERO] count as 0 for LightGBM: a threshold between them must not part them for anyone else.
    rounded = np.where((rounded >= 0) & (rounded <= ZERO), ZERO, rounded)
    below = np.nextafter(-ZERO, np.float32(-np.inf))
    rounded = np.where((rounded >= -ZERO) & (rounded < 0), below, rounded)
    return rounded.astype(np.float64)


def round_thresholds_down(text: str) -> str:
    """The model text with every threshold a float32, re-read and re-written by LightGBM."""

    def rewrite(found: re.Match[str]) -> str:
        values = np.asarray([float(word) for word in found.group(1).split()], dtype=np.float64)
        return "threshold=" + " ".join(repr(float(value)) for value in floor32(values))

    edited = _THRESHOLDS.sub(rewrite, text)
    edited = re.sub(r"^tree_sizes=.*\n", "", edited, flags=re.MULTILINE)  # byte sizes that no longer hold
    rounded = str(lightgbm.Booster(model_str=edited).model_to_string())
    for before, after in zip(read_trees(text), read_trees(rounded), strict=True):
        assert np.array_equal(floor32(before.threshold), after.threshold)
        assert np.array_equal(before.leaf, after.leaf)
    return rounded


def read_trees(text: str) -> list[Tree]:
    """The trees of a LightGBM model text. Raises `ParameterError` on splits that other scorers cannot repeat."""
    return [_read_tree(block) for block in text.split("\nTree=")[1:]]


def _read_tree(block: str) -> Tree:
    parts = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
    if int(parts.get("num_cat", "0")):
        raise ParameterError("trees must be without categorical splits, got some")

    def numbers(name: str, kind: type) -> NDArray[Any]:
        return np.asarray([kind(word) for word in parts.get(name, "").split()])

    kinds = numbers("decision_type", int).astype(np.int64)
    missing = (kinds >> 2) & 3  # 0: NaN reads as 0; 1: zeros are missing; 2: NaN is missing
    if (missing == 1).any():
        raise ParameterError("trees must not treat zeros as missing, got such splits")
    threshold = numbers("threshold", float).astype(np.float64)
    return Tree(
        feature=numbers("split_feature", int).astype(np.int32),
        threshold=threshold,
        nan_goes_left=np.where(missing == 2, (kinds & 2) > 0, threshold >= 0).astype(np.bool_),
        left=numbers("left_child", int).astype(np.int32),
        right=numbers("right_child", int).astype(np.int32),
        leaf=numbers("leaf_value", float).astype(np.float64),
    )
