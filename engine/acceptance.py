"""A watch over the draft: one that never agrees costs time and is worth a warning."""

from __future__ import annotations

import warnings

import numpy as np

from treewise.data.errors import AcceptanceWarning
from treewise.policy.hook import DRAFT
from treewise.policy.outcome import Walk
from treewise.policy.round import RoundTree

FLOOR_ROUNDS = 64  # rounds with verified draft tokens


class FloorWatch:
    """Warns once where none of the draft's tokens was accepted in the first `FLOOR_ROUNDS` rounds that held any.

    A round of several requests counts for each of them that had some.
    """

    def __init__(self) -> None:
        self.num_rounds = 0
        self._is_done = False

    def see(self, tree: RoundTree, result: Walk) -> None:
        """Take one round."""
        if self._is_done:
            return
        drafted = ((tree.forest.column("sources") & DRAFT) > 0) & tree.kept
        if not drafted.any():
            return
        if (drafted & result.on_path).any():
            self._is_done = True
            return
        self.num_rounds += len(np.unique(tree.forest.column("request")[drafted]))
        if self.num_rounds >= FLOOR_ROUNDS:
            self._is_done = True
            warnings.warn(
                f"acceptance of the draft's tokens is at its floor: none was accepted in {FLOOR_ROUNDS} rounds; the "
                "text is right, but the draft only costs time: choose another draft, or `none`",
                AcceptanceWarning,
                stacklevel=2,
            )
