"""A tree of one shape, whatever the text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treewise.data.errors import require
from treewise.policy.hook import BoolArray, Expansion, ForestView, Level, Reach
from treewise.policy.ranking import best_in_group, rooted
from treewise.policy.rule import RulePolicy, SourceChoice


@dataclass(frozen=True, slots=True)
class StaticSettings(SourceChoice):
    """Settings of `StaticPolicy`."""

    width: int = 3  # children kept below one node
    depth: int = 4  # deepest node

    def __post_init__(self) -> None:
        SourceChoice.__post_init__(self)
        require(1 <= self.width <= 64, "width", "between 1 and 64", self.width)
        require(1 <= self.depth <= 64, "depth", "between 1 and 64", self.depth)


class StaticPolicy(RulePolicy[StaticSettings]):
    """At every node the `width` best children by prior, `depth` levels, everything kept."""

    name = "static"
    settings_type = StaticSettings
    positional = ("width", "depth")

    @property
    def reach(self) -> Reach:
        """`width` by `depth`; beside the lookup a lower draft rank can be among the best."""
        return self._reach(self.settings.depth, self.settings.width if self.settings.sources == "draft" else None)

    def expand(self, level: Level) -> Expansion:
        """Ranks new rows among all siblings offered so far."""
        forest, settings = level.forest, self.settings
        fresh = np.arange(len(forest.parent)) >= level.start
        best = best_in_group(forest.prior, forest.parent, np.ones_like(fresh), settings.width)
        inside = np.where(fresh, best & (forest.depth <= settings.depth), forest.admitted)
        admit = rooted(inside, forest.parent)[level.start :]
        return Expansion(admit, self._grow(level, admit & (level.candidates.depth < settings.depth)))

    def select(self, forest: ForestView) -> BoolArray:
        """The `width` best admitted children of each node, now that every sibling is known."""
        nodes = forest.nodes
        return rooted(best_in_group(nodes.prior, nodes.parent, nodes.admitted, self.settings.width), nodes.parent)
