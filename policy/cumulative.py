"""A threshold on the path prior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treewise.data.errors import require
from treewise.policy.hook import Expansion, Level, Reach
from treewise.policy.ranking import rooted
from treewise.policy.rule import RulePolicy, SourceChoice


@dataclass(frozen=True, slots=True)
class CumulativeSettings(SourceChoice):
    """Settings of `CumulativePolicy`."""

    threshold: float = 0.1  # least path prior of a node
    depth: int = 6  # deepest node

    def __post_init__(self) -> None:
        SourceChoice.__post_init__(self)
        require(0.0 < self.threshold <= 1.0, "threshold", "above 0 and at most 1", self.threshold)
        require(1 <= self.depth <= 64, "depth", "between 1 and 64", self.depth)


class CumulativePolicy(RulePolicy[CumulativeSettings]):
    """Admits and grows while the path prior is at least `threshold`."""

    name = "cumulative"
    settings_type = CumulativeSettings
    positional = ("threshold", "depth")

    @property
    def reach(self) -> Reach:
        """`depth` deep, as wide as the envelope."""
        return self._reach(self.settings.depth)

    def expand(self, level: Level) -> Expansion:
        """One threshold for admission and growth."""
        forest, settings = level.forest, self.settings
        sure = (forest.path_prior >= np.float32(settings.threshold)) & (forest.depth <= settings.depth)
        fresh = np.arange(len(forest.parent)) >= level.start
        admit = rooted(np.where(fresh, sure, forest.admitted), forest.parent)[level.start :]
        return Expansion(admit, self._grow(level, admit & (level.candidates.depth < settings.depth)))
