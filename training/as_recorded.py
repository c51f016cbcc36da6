"""Rounds that replay takes from the log as they are: those that the live policy's fallback had to finish."""

from __future__ import annotations

import numpy as np

from treewise.data.errors import CoverageError
from treewise.policy.hook import (
    BoolArray,
    Deployment,
    Expansion,
    ForestView,
    Level,
    Reach,
    RequestInfo,
    RoundOutcome,
    State,
)
from treewise.training.logged import LoggedRequest


class RecordedRound:
    """Answers for one round of a live trace with what the trace says was decided, whoever decided it.

    A policy may have failed at any call of the round, for a reason that replay does not meet: an array that was late, a
    file that was gone. The log does not say which call that was, but it holds every decision of the round.
    """

    state: State = "none"

    def __init__(self, request: LoggedRequest, position: int) -> None:
        """The round of `request` whose root is at `position`. Raises `CoverageError` where it was not logged."""
        self._where = f"prompt {request.prompt_id}, position {position}"
        row = request.row_at(position)
        rows = request.node_rows(row)
        nodes = request.shard.nodes
        self._admitted = np.concatenate([[True], nodes.admitted[rows]])
        self._grown = np.concatenate([request.shard.rounds.opening[row : row + 1], nodes.grown[rows]]).astype(np.uint8)
        self._kept = np.concatenate([[True], nodes.kept[rows]])

    @property
    def reach(self) -> Reach:
        """Nothing beyond the log."""
        return Reach(0, 0)

    def bind(self, deployment: Deployment) -> None:
        """Nothing is read of it."""

    def begin(self, request: RequestInfo) -> None:
        """Nothing to remember."""

    def expand(self, level: Level) -> Expansion:
        """The logged rows in the order in which they were offered. Raises `CoverageError` where there are others."""
        here = slice(level.start, level.start + len(level.candidates.parent))
        self._check(here.stop)
        return Expansion(self._admitted[here], np.where(self._admitted[here], self._grown[here], 0).astype(np.uint8))

    def select(self, forest: ForestView) -> BoolArray:
        """The logged rows that were kept."""
        self._check(len(forest.nodes.parent))
        return self._kept

    def observe(self, outcome: RoundOutcome) -> None:
        """Nothing to learn."""

    def finish(self, request_id: int, reason: str) -> None:
        """Nothing to forget."""

    def _check(self, rows: int) -> None:
        if rows > len(self._kept):
            raise CoverageError(f"{self._where}: the log holds {len(self._kept)} rows of a recorded round, got {rows}")
