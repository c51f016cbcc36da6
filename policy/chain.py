"""A single path of guesses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treewise.data.errors import require
from treewise.policy.hook import Expansion, Level, Reach
from treewise.policy.ranking import rank_in_group
from treewise.policy.rule import RulePolicy, SourceChoice


@dataclass(frozen=True, slots=True)
class ChainSettings(SourceChoice):
    """Settings of `ChainPolicy`."""

    length: int = 5  # most nodes

    def __post_init__(self) -> None:
        SourceChoice.__post_init__(self)
        require(1 <= self.length <= 64, "length", "between 1 and 64", self.length)


class ChainPolicy(RulePolicy[ChainSettings]):
    """One path of at most `length` nodes: the best child of the tip, again and again."""

    name = "chain"
    settings_type = ChainSettings
    positional = ("length",)

    @property
    def reach(self) -> Reach:
        """`length` deep; the tip's best child may come from any draft rank where the lookup spoke for it."""
        return self._reach(self.settings.length, 1 if self.settings.sources == "draft" else None)

    def expand(self, level: Level) -> Expansion:
        """Follows the best children of the tip through what was offered, and asks below the new tip."""
        candidates = level.candidates
        count = len(candidates.parent)
        admit = candidates.parent < 0
        if level.index == 0:
            return Expansion(admit, self._grow(level, admit))
        admit = admit.copy()
        tip_rows = np.zeros(count, dtype=np.bool_)
        tips = self._tips(level)
        first = rank_in_group(candidates.prior, candidates.parent) == 0
        for place in np.flatnonzero(first).tolist():  # parents come first, so the tip moves down as the rows go by
            request = int(candidates.request[place])
            if candidates.parent[place] == tips[request] and candidates.depth[place] <= self.settings.length:
                admit[place] = True
                tips[request] = level.start + place
        fresh = tips - level.start
        tip_rows[fresh[fresh >= 0]] = True
        return Expansion(admit, self._grow(level, tip_rows & (candidates.depth < self.settings.length)))

    @staticmethod
    def _tips(level: Level) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Deepest row of each request's chain before this level, [requests]."""
        tips = np.arange(len(level.context.request_id))
        forest = level.forest
        for row in np.flatnonzero(forest.admitted[: level.start]).tolist():
            tips[forest.request[row]] = row  # one path: later admitted rows are deeper
        return tips
