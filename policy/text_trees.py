"""Trees read off LightGBM's text form, every index checked: whatever walks them afterwards may trust them.

A text may come from anywhere, and machine code that follows a child out of its tree reads memory it should not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.errors import BundleError

_LARGEST = 1 << 24  # of any index in the text


@dataclass(frozen=True, slots=True)
class TextTree:
    """One tree as its text has it: split 0 is the top; a child is a split, or ~ a leaf. One leaf: no splits."""

    leaf: NDArray[np.float64]  # [leaves] finite
    feature: NDArray[np.int64]  # [leaves - 1]
    threshold: NDArray[np.float64]  # [leaves - 1] never NaN
    kind: NDArray[np.int64]  # [leaves - 1] LightGBM's decision type
    left: NDArray[np.int64]  # [leaves - 1]
    right: NDArray[np.int64]  # [leaves - 1]


def read_trees(text: str) -> tuple[int, list[TextTree]]:
    """Number of features and the trees of a LightGBM text model.

    Raises `BundleError` where there are none, where one breaks off, has categorical splits, splits on a feature that
    does not exist, or is no tree: every split and every leaf must hang below the top exactly once.
    """
    header, *blocks = text.split("\nTree=")
    if not blocks:
        raise BundleError("model must be a LightGBM text model with at least one tree, got none")
    try:
        num_features = int(_lines(header)["max_feature_idx"]) + 1
        if not 0 < num_features <= _LARGEST:
            raise ValueError(f"max_feature_idx {num_features - 1}")
        return num_features, [_read_tree(_lines(block), num_features) for block in blocks]
    except (KeyError, ValueError, OverflowError) as error:
        raise BundleError(f"model must be a LightGBM text model, got one that breaks off at {error}") from error


def without_offsets(text: str) -> str:
    """`text` without the places of its trees in it, which LightGBM would follow wherever they point."""
    return "\n".join(line for line in text.split("\n") if not line.startswith("tree_sizes="))


def _read_tree(parts: dict[str, str], num_features: int) -> TextTree:
    leaf = _numbers(parts, "leaf_value")
    splits = len(leaf) - 1
    if int(parts.get("num_cat", "0")):
        raise BundleError("model must be without categorical splits, got some")
    if int(parts.get("num_leaves", str(len(leaf)))) != len(leaf):
        raise ValueError(f"num_leaves {parts['num_leaves'][:20]} with {len(leaf)} leaf values")
    if not len(leaf) or not np.isfinite(leaf).all():
        raise ValueError("leaf_value")
    if splits == 0:
        none = np.zeros(0, dtype=np.int64)
        return TextTree(leaf, none, np.zeros(0), none, none, none)
    feature, kind, left, right = (
        _whole(parts, name, splits) for name in ("split_feature", "decision_type", "left_child", "right_child")
    )
    threshold = _numbers(parts, "threshold")
    if len(threshold) != splits or np.isnan(threshold).any():
        raise ValueError("threshold")
    if not ((feature >= 0) & (feature < num_features)).all():
        raise BundleError(f"model must split on features below {num_features}, got {feature.max()}")
    below = np.sort(np.concatenate([left, right]))
    # Each leaf and each split but the top is a child once, and nothing else is; so what is reached is a tree ..
    if not np.array_equal(below, np.concatenate([np.arange(-len(leaf), 0), np.arange(1, splits)])):
        raise BundleError("model must be of trees, got a node with two parents, or with none")
    reached, stack = 0, [0]
    while stack:  # .. and no ring of splits lies beside it
        node = stack.pop()
        if node >= 0:
            reached += 1
            stack += [int(left[node]), int(right[node])]
    if reached != splits:
        raise BundleError("model must be of trees, got splits that hang on each other")
    return TextTree(leaf, feature, threshold, kind, left, right)


def _lines(block: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in block.splitlines() if "=" in line)


def _numbers(parts: dict[str, str], name: str) -> NDArray[np.float64]:
    return np.asarray([float(word) for word in parts[name].split()], dtype=np.float64)


def _whole(parts: dict[str, str], name: str, count: int) -> NDArray[np.int64]:
    numbers: list[Any] = [int(word) for word in parts[name].split()]
    if len(numbers) != count or any(abs(number) > _LARGEST for number in numbers):
        raise ValueError(name)
    return np.asarray(numbers, dtype=np.int64)
