"""The forest of one round: the rows that were offered, as growable columns."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.policy.hook import BoolArray, Float32Array, Int32Array, Nodes, UInt8Array

# The driver's own columns: tokens of context that a free source matched below the row; NaN: it was not asked there.
BELOW = "below_match_length"
BELOW_RECYCLED = "below_order"
ASKED = "asked"  # likewise: source bits that a free chain asked below the row
_NAN = np.float32(np.nan)
_DTYPES: dict[str, tuple[type, Any]] = {
    "request": (np.int32, 0),
    "parent": (np.int32, -1),
    "depth": (np.int32, 0),
    "token": (np.int32, -1),
    "sources": (np.uint8, 0),
    "prior": (np.float32, 1.0),
    "path_prior": (np.float32, 1.0),
    "draft_missing": (np.int32, 0),
    "draft_prob": (np.float32, _NAN),
    "draft_rank": (np.float32, _NAN),
    "draft_entropy": (np.float32, _NAN),
    "draft_margin": (np.float32, _NAN),
    "in_draft_vocab": (np.bool_, True),
    "draft_drawn_prob": (np.float32, _NAN),
    "draft_drawn_rank": (np.float32, _NAN),
    "draft_gap": (np.float32, _NAN),
    "lookup_match_length": (np.float32, _NAN),
    "lookup_count": (np.float32, _NAN),
    "lookup_share": (np.float32, _NAN),
    "lookup_age": (np.float32, _NAN),
    "lookup_rank": (np.float32, _NAN),
    "recycled_prob": (np.float32, _NAN),
    "recycled_order": (np.float32, _NAN),
    "recycled_weight": (np.float32, _NAN),
    "recycled_rank": (np.float32, _NAN),
    "may_grow": (np.uint8, 0),
    "level": (np.int32, 0),
    "admitted": (np.bool_, False),
    "grown": (np.uint8, 0),
    "drafted": (np.bool_, False),
    BELOW: (np.float32, _NAN),
    BELOW_RECYCLED: (np.float32, _NAN),
    ASKED: (np.uint8, 0),
}
COLUMNS: tuple[str, ...] = tuple(field.name for field in fields(Nodes))


class Forest:
    """Rows of one round, in order of their offer; parents come before children. Mutable; only drivers write to it."""

    def __init__(self, capacity: int = 256) -> None:
        self._columns: dict[str, NDArray[Any]] = {
            name: np.full(capacity, fill, dtype=dtype) for name, (dtype, fill) in _DTYPES.items()
        }
        self._shown = _read_only(self._columns)
        self._whole: Nodes | None = None  # every row, until there are more
        self.num_rows = 0

    def append(self, count: int) -> slice:
        """Add `count` rows holding defaults and return their slice."""
        self._whole = None
        end = self.num_rows + count
        capacity = len(self._columns["parent"])
        if end > capacity:
            for name, (dtype, fill) in _DTYPES.items():
                wider: NDArray[Any] = np.full(max(end, 2 * capacity), fill, dtype=dtype)
                wider[: self.num_rows] = self._columns[name][: self.num_rows]
                self._columns[name] = wider
            self._shown = _read_only(self._columns)
        rows = slice(self.num_rows, end)
        self.num_rows = end
        return rows

    def clear(self) -> None:
        """Forget every row; capacity stays."""
        for name, (_, fill) in _DTYPES.items():
            self._columns[name][: self.num_rows] = fill
        self._whole = None
        self.num_rows = 0

    def column(self, name: str) -> NDArray[Any]:
        """The writable column `name`, [num_rows]."""
        return self._columns[name][: self.num_rows]

    def write(self, rows: slice | NDArray[np.integer[Any]], **values: Any) -> None:
        """Set columns of `rows` by name."""
        columns = self._columns
        for name, value in values.items():
            columns[name][rows] = value

    def view(self, start: int = 0, stop: int | None = None) -> Nodes:
        """Read-only columns of the rows `start` to `stop`."""
        whole = start == 0 and stop is None
        if whole and self._whole is not None:
            return self._whole
        rows = slice(start, self.num_rows if stop is None else stop)
        nodes = Nodes(*[column[rows] for column in self._shown])
        if whole:
            self._whole = nodes
        return nodes

    def update_path_priors(self, start: int) -> None:
        """Recompute path priors of the rows from `start` on; parents' rows before `start` are taken as they are."""
        parent, path = self.column("parent"), self.column("path_prior")
        rows = np.arange(self.num_rows)
        ends = (rows < start) | (parent < 0)
        up = np.where(ends, rows, parent)
        factor = np.where(ends, np.float32(1.0), self.column("prior"))
        line = rows[start:]
        factors = [factor[line]]
        for _ in range(int(self.column("depth").max(initial=0))):
            line = up[line]
            factors.append(factor[line])
        # Down from the top, one rounding a step: the same bits as though each row was multiplied when it was offered.
        product = path[line]
        for step in reversed(factors):
            product *= step
        path[start:] = product

    def check_integrity(self) -> None:
        """Assert what always holds: parents first and one level up, priors in [0, 1], grown rows admitted."""
        parent: Int32Array = self.column("parent")
        depth: Int32Array = self.column("depth")
        prior: Float32Array = self.column("prior")
        grown: UInt8Array = self.column("grown")
        admitted: BoolArray = self.column("admitted")
        inner = parent >= 0
        rows = np.arange(self.num_rows)
        assert (parent[inner] < rows[inner]).all()
        assert (depth[inner] == depth[parent[inner]] + 1).all()
        assert (depth[~inner] == 0).all()
        assert ((prior >= 0) & (prior <= 1)).all()
        assert (admitted | (grown == 0)).all()
        assert (admitted[parent[inner]] | ~admitted[inner]).all()
        siblings = set(zip(parent[inner].tolist(), self.column("token")[inner].tolist(), strict=True))
        assert len(siblings) == int(inner.sum())


def close_upward(keep: BoolArray, parent: Int32Array) -> BoolArray:
    """`keep` [rows] with every ancestor of a kept row kept as well; `parent` [rows], -1 for roots."""
    closed = keep.copy()
    frontier: NDArray[np.integer[Any]] = closed.nonzero()[0]
    while frontier.size:
        above = parent[frontier]
        frontier = above[(above >= 0) & ~closed[above]]
        closed[frontier] = True
    return closed


def _read_only(columns: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """The same memory, column by column in the order of `Nodes`, closed to writing."""
    shown = [columns[name].view() for name in COLUMNS]
    for column in shown:
        column.flags.writeable = False
    return shown
