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
        request, parent, tips = candidates.request, candidates.parent, self._tips(level)
        last = np.full(len(tips), -1)  # the chain's last candidate
        while True:
            below = np.flatnonzero(parent == tips[request])
            best = below[rank_in_group(candidates.prior[below], request[below]) == 0]
            best = best[candidates.depth[best] <= self.settings.length]
            if not best.size:
                break
            admit[best] = True
            tips[:] = -2  # where the chain has ended
            tips[request[best]] = level.start + best
            last[request[best]] = best
        tip_rows[last[last >= 0]] = True
        return Expansion(admit, self._grow(level, tip_rows & (candidates.depth < self.settings.length)))

    @staticmethod
    def _tips(level: Level) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Deepest row of each request's chain before this level, [requests]."""
        tips = np.arange(len(level.context.request_id))
        rows = np.flatnonzero(level.forest.admitted[: level.start])
        tips[level.forest.request[rows]] = rows  # one path: later admitted rows are deeper, and the last stays
        return tips
