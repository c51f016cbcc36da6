"""Random trees and their masks, for measuring passes and for comparing two ways to run them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def random_tree(count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Parents [count] of a random tree of `count` rows: row 0 is the root (-1), parents come first."""
    return np.asarray([-1, *(int(rng.integers(max(0, row - 4), row)) for row in range(1, count))], dtype=np.int64)


def tree_mask(parents: NDArray[np.int64], base: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Depths [rows] and mask [rows, base + rows] of a tree behind `base` cached slots."""
    rows = len(parents)
    depths = np.zeros(rows, dtype=np.int64)
    mask = np.zeros((rows, base + rows), dtype=np.bool_)
    mask[:, :base] = True
    for row, parent in enumerate(parents.tolist()):
        if parent >= 0:
            mask[row] = mask[parent]
            depths[row] = depths[parent] + 1
        mask[row, base + row] = True
    return depths, mask
