"""View policies: what a policy could have seen of a logged position, drawn through the same rounds as live trees.

They admit everything and differ in which sources they ask, so that training meets the patterns of missing signals that
a policy meets when it decides. They are not for decoding and are not registered.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from treewise.data.envelope import Envelope
from treewise.policy.everything import EverythingPolicy
from treewise.policy.features import growth_features
from treewise.policy.hook import DRAFT, FREE, LOOKUP, Expansion, Float32Array, Int32Array, Level, Reach, UInt8Array

View = Literal["everything", "free_only", "random"]
VIEWS: tuple[View, ...] = ("everything", "free_only", "random")

# Sources of the random view's rounds, and how often each. Policies ask the free sources together where both exist; the
# lookup stands alone where a deployment has no recycled guesses.
OPENINGS = (FREE, FREE | DRAFT, DRAFT, LOOKUP, LOOKUP | DRAFT)
OPENING_SHARES = (0.25, 0.3, 0.2, 0.1, 0.15)
DRAFT_SHARES = (0.15, 0.4, 0.8)  # of the nodes that may be drafted below, one share per round


class ViewPolicy(EverythingPolicy):
    """Asks for everything, for the free sources alone, or at random; remembers what a growth decision could have seen.

    `seen` holds, per level of the latest round, the forest rows that the draft could have been asked at and their
    growth features as they were then.
    """

    def __init__(self, view: View, envelope: Envelope, draw: np.random.Generator) -> None:
        super().__init__()
        self.view = view
        self.seen: list[tuple[Int32Array, Float32Array]] = []
        self._reach = Reach(envelope.max_depth, envelope.draft_width)
        self._draw = draw
        self._share = 1.0
        self._free = FREE

    def expand(self, level: Level) -> Expansion:
        """Admit every candidate; ask the sources of the view."""
        may = level.candidates.may_grow
        if level.index == 0:
            self.seen = []
            self._share = float(self._draw.choice(DRAFT_SHARES))
        rows = (level.start + np.flatnonzero(may & DRAFT)).astype(np.int32)
        if rows.size:
            self.seen.append((rows, growth_features(level.forest, rows, level.context)))
        return Expansion(np.ones(len(may), dtype=np.bool_), self._grow(level.index, may))

    def _grow(self, index: int, may: UInt8Array) -> UInt8Array:
        if self.view == "everything":
            return may.copy()
        if self.view == "free_only":
            return np.asarray(may & FREE, dtype=np.uint8)
        if index == 0:
            opening = int(self._draw.choice(OPENINGS, p=OPENING_SHARES))
            # A round without a free source at its root does without it below: asked later, it may offer longer chains
            # than the log holds, for priors that the draft has raised meanwhile.
            self._free = opening & FREE
            return np.asarray(may & opening, dtype=np.uint8)
        draft = np.where(self._draw.random(len(may)) < self._share, DRAFT, 0)
        return np.asarray(may & (draft | self._free), dtype=np.uint8)
