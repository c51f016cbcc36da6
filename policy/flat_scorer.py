"""Trees in plain numpy: the learned policy without any compiled extra.

Every split of every tree is tested at once. A split that sends a row to the right rules out the leaves on its left;
the leftmost leaf that no split rules out is where the row ends. (QuickScorer: Lucchese and others, SIGIR 2015.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.errors import BundleError
from treewise.policy.hook import Float32Array, Int32Array
from treewise.policy.scorer import Calibration
from treewise.policy.text_trees import TextTree, read_trees

MAX_LEAVES = 64  # bits of a leaf set


@dataclass(frozen=True, slots=True)
class FlatTrees:
    """Splits of all trees behind one another, tree by tree; a tree of one leaf has one split that rules out nothing."""

    column: Int32Array  # [splits] feature, plus the number of features where NaN goes right
    threshold: Float32Array  # [splits, 1] left where the input is <= threshold
    left_leaves: NDArray[np.uint64]  # [splits, 1] leaves that stay when the row goes right
    first: NDArray[np.intp]  # [trees] first split of each tree
    leaf: NDArray[np.float64]  # [trees, leaves] log-odds, padded with 0
    children: Int32Array  # [splits, 2] left and right: a split, or ~ the place of a leaf in `leaf`, flattened
    num_features: int

    @classmethod
    def parse(cls, text: str) -> FlatTrees:
        """The trees of a LightGBM text model. Raises `BundleError` on trees that numpy cannot repeat."""
        num_features, found = read_trees(text)
        trees = [_flatten(tree, num_features) for tree in found]
        column, threshold, stay, leaves, below = (list(part) for part in zip(*trees, strict=True))
        width = max(len(values) for values in leaves)
        padded = np.zeros((len(trees), width))
        for row, values in zip(padded, leaves, strict=True):
            row[: len(values)] = values
        sizes = [len(values) for values in column]
        first = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.intp)
        children = [
            np.where(own < 0, own - place * width, own + start)
            for place, (own, start) in enumerate(zip(below, first.tolist(), strict=True))
        ]
        return cls(
            column=np.concatenate(column).astype(np.int32),
            threshold=np.concatenate(threshold).astype(np.float32)[:, None],
            left_leaves=np.concatenate(stay).astype(np.uint64)[:, None],
            first=first,
            leaf=padded,
            children=np.concatenate(children).astype(np.int32),
            num_features=num_features,
        )


@dataclass(frozen=True, slots=True)
class _Block:
    """Trees of about one size, padded to the same number of splits: one reduction tells where a row ends in each."""

    splits: int  # of each tree
    column: Int32Array  # [trees * splits]
    threshold: Float32Array  # [trees * splits, 1]
    rules_out: NDArray[Any]  # [trees * splits, 1] leaves that a row cannot end in where it goes right
    leaf: NDArray[np.float64]  # [leaves of all trees]
    first_leaf: NDArray[np.intp]  # [trees, 1] place of each tree's leaves in `leaf`, less one

    @classmethod
    def of(cls, trees: FlatTrees, chosen: NDArray[np.intp], sizes: NDArray[np.intp], bits: int) -> _Block:
        """The `chosen` trees, `sizes` splits each, of at most `bits` leaves."""
        splits = int(sizes.max())
        padding = np.arange(splits) >= sizes[:, None]
        split = np.where(padding, 0, trees.first[chosen][:, None] + np.arange(splits)).reshape(-1)
        threshold = np.where(padding.reshape(-1), np.float32(np.inf), trees.threshold[split, 0])
        rules_out = ~trees.left_leaves[split, 0]
        width = min(bits, trees.leaf.shape[1])
        return cls(
            splits=splits,
            column=trees.column[split],
            threshold=threshold[:, None],
            rules_out=rules_out.astype(f"uint{bits}")[:, None],
            leaf=trees.leaf[chosen, :width].reshape(-1),
            first_leaf=np.arange(len(chosen), dtype=np.intp)[:, None] * width - 1,
        )

    def log_odds(self, inputs: Float32Array) -> NDArray[np.float64]:
        """Sum over the trees, [n], of `inputs` [2 * features, n]."""
        right = inputs.take(self.column, axis=0) > self.threshold
        ruled_out = (right * self.rules_out).reshape(-1, self.splits, inputs.shape[1])
        out = np.bitwise_or.reduce(ruled_out, axis=1)
        lowest = ~out & (out + 1)  # the leftmost leaf that stays: a power of two, exact as a float
        place = np.frexp(lowest.astype(np.float64))[1] + self.first_leaf
        return np.asarray(self.leaf.take(place).sum(axis=0))


class FlatScorer:
    """A LightGBM text model evaluated by numpy alone, calibrated here."""

    def __init__(self, text: str, calibration: Calibration) -> None:
        """Raises `BundleError` where the text is not a model of numerical splits with at most 64 leaves a tree."""
        trees = FlatTrees.parse(text)
        self._num_features = trees.num_features
        self._calibration = calibration
        # A set of leaves is a word; the narrowest that fits keeps the working arrays in cache.
        sizes = np.diff(np.append(trees.first, len(trees.column)))
        self._blocks: list[_Block] = []
        for fewer, bits in ((0, 16), (16, 32), (32, 64)):
            chosen = ((sizes >= fewer) & (sizes < bits)).nonzero()[0]
            if chosen.size:
                self._blocks.append(_Block.of(trees, chosen, sizes[chosen], bits))

    def score(self, features: Float32Array) -> Float32Array:
        """Probabilities [n]."""
        if not len(features):
            return np.zeros(0, dtype=np.float32)
        count = self._num_features
        inputs = np.empty((2 * count, len(features)), dtype=np.float32)
        inputs[:count] = inputs[count:] = features.T
        unknown = np.isnan(inputs[:count])
        inputs[:count][unknown] = -np.inf
        inputs[count:][unknown] = np.inf
        raw = sum(block.log_odds(inputs) for block in self._blocks)
        return self._calibration.apply(np.asarray(raw)).astype(np.float32)


def _flatten(tree: TextTree, num_features: int) -> tuple[NDArray[Any], ...]:
    """(column [splits], threshold [splits], leaves that stay [splits], leaf values, children [splits, 2]).

    Leaves are numbered from left to right; a child is a split of this tree, or ~ a leaf.
    """
    values = tree.leaf
    if len(values) > MAX_LEAVES:
        raise BundleError(f"model must have at most {MAX_LEAVES} leaves a tree for the flat scorer, got {len(values)}")
    if len(values) == 1:
        alone = np.asarray([[~0, ~0]])
        return np.zeros(1), np.full(1, np.inf), np.full(1, ~np.uint64(0), dtype=np.uint64), values, alone
    missing = tree.kind >> 2 & 3
    if (missing == 1).any():
        raise BundleError("model must not treat zeros as missing, got such splits")
    nan_left = np.where(missing == 2, (tree.kind & 2) > 0, tree.threshold >= 0)
    left, right = tree.left.tolist(), tree.right.tolist()
    order: list[int] = []
    below: dict[int, tuple[int, int]] = {}  # split -> its left leaves are `order[start:end]`
    stack: list[tuple[int, int]] = [(0, 0)]  # (node, stage): stage 1 comes after the left subtree
    begins: dict[int, int] = {}
    while stack:
        node, stage = stack.pop()
        if node < 0:
            order.append(~node)
        elif stage == 0:
            begins[node] = len(order)
            stack += [(node, 1), (left[node], 0)]
        else:
            below[node] = (begins[node], len(order))
            stack.append((right[node], 0))
    stay = [~((1 << below[n][1]) - (1 << below[n][0])) & 0xFFFFFFFFFFFFFFFF for n in range(len(left))]
    thresholds = np.clip(tree.threshold, -np.finfo(np.float32).max, np.finfo(np.float32).max)
    rounded = thresholds.astype(np.float32)
    rounded = np.where(rounded > thresholds, np.nextafter(rounded, np.float32(-np.inf)), rounded)
    numbered = np.empty(len(order), dtype=np.int64)
    numbered[order] = np.arange(len(order))
    children = np.asarray([left, right]).T
    children = np.where(children < 0, ~numbered[~np.minimum(children, -1)], children)
    column = tree.feature + np.where(nan_left, 0, num_features)
    return column, rounded, np.asarray(stay, dtype=np.uint64), values[order], children
