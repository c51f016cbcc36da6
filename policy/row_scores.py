"""What a learned policy knows of the rows of the round in progress."""

from __future__ import annotations

import numpy as np

from treewise.policy.hook import BoolArray, Nodes
from treewise.policy.planner import Float64Array, IndexArray, Prices


class RowScores:
    """Scores by forest row, the roots first, and which of them have grown old."""

    def __init__(self, requests: int, capacity: int = 256) -> None:
        self.requests = requests
        self.rows = requests
        self.prices: list[Prices] = []  # [requests]
        self.least: Float64Array = np.zeros(requests)  # [requests] survival below which a row does not pay
        self.survival: Float64Array | None = None  # [rows] of the last scoring, while nothing is new
        self._match: Float64Array = np.ones(max(capacity, requests))
        self._holds: Float64Array = np.zeros(max(capacity, requests))
        self._drafted: BoolArray = np.zeros(max(capacity, requests), dtype=np.bool_)

    @property
    def match(self) -> Float64Array:
        """Calibrated match probability, [rows]."""
        return self._match[: self.rows]

    @property
    def holds(self) -> Float64Array:
        """The draft holds what the lookup does not, [rows]."""
        return self._holds[: self.rows]

    @property
    def drafted(self) -> BoolArray:
        """The draft had run on the parent, [rows]."""
        return self._drafted[: self.rows]

    def cover(self, rows: int) -> None:
        """Go on to `rows` rows; of those that are new nothing holds yet."""
        known = self.rows
        if rows > len(self._match):
            more = np.zeros(rows)
            self._match = np.concatenate([self._match, more])
            self._holds = np.concatenate([self._holds, more])
            self._drafted = np.concatenate([self._drafted, more > 0.0])
        self._holds[known:rows] = 0.0
        self.rows = rows

    def stale(self, forest: Nodes) -> IndexArray:
        """Rows that are new, or whose own or parent's signals the draft has filled in since they were scored."""
        known, rows, roots = self.rows, len(forest.parent), self.requests
        self.cover(rows)
        above = forest.parent[roots:]
        drafted = forest.drafted[above]
        mine = self._drafted[roots:rows]
        filled = drafted[: known - roots] != mine[: known - roots]
        mine[:] = drafted
        if not filled.any():
            return np.arange(known, rows)
        changed = np.ones(rows, dtype=np.bool_)
        changed[:roots] = False
        changed[roots:known] = filled
        changed[roots:known] |= changed[above[: known - roots]]  # a parent's own signals are features too
        return changed.nonzero()[0]
