"""Admits and grows all that the envelope allows: how dense traces are grown, never how text is decoded."""

from __future__ import annotations

import numpy as np

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


class EverythingPolicy:
    """The superset of every policy inside the envelope."""

    def __init__(self) -> None:
        self._reach = Reach(depth=1, draft_width=1)

    @property
    def state(self) -> State:
        """Remembers nothing."""
        return "none"

    @property
    def reach(self) -> Reach:
        """The whole envelope."""
        return self._reach

    def bind(self, deployment: Deployment) -> None:
        """Take the envelope's bounds as reach."""
        self._reach = Reach(deployment.envelope.max_depth, deployment.envelope.draft_width)

    def begin(self, request: RequestInfo) -> None:
        """Nothing to prepare."""

    def expand(self, level: Level) -> Expansion:
        """Admit every candidate and ask every source below it."""
        return Expansion(np.ones(len(level.candidates.token), dtype=np.bool_), level.candidates.may_grow.copy())

    def select(self, forest: ForestView) -> BoolArray:
        """Verify every row."""
        return np.ones(len(forest.nodes.token), dtype=np.bool_)

    def observe(self, outcome: RoundOutcome) -> None:
        """Nothing to learn."""

    def finish(self, request_id: int, reason: str) -> None:
        """Nothing to forget."""
