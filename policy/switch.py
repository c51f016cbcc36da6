"""One source per round, chosen by the length of the lookup's match."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treewise.data.errors import require
from treewise.policy.hook import DRAFT, FREE, BoolArray, Expansion, ForestView, Level
from treewise.policy.ranking import top_nodes
from treewise.policy.rule import RulePolicy
from treewise.policy.topn import beam


@dataclass(frozen=True, slots=True)
class SwitchSettings:
    """Settings of `SwitchPolicy`."""

    min_match: int = 4  # tokens of context the lookup must match to be used
    nodes: int = 24  # node budget
    depth: int = 4  # draft growths
    beam: int = 8  # nodes of one level that the draft grows below

    def __post_init__(self) -> None:
        require(0 <= self.min_match <= 4096, "min_match", "between 0 and 4096", self.min_match)
        require(1 <= self.nodes <= 1024, "nodes", "between 1 and 1024", self.nodes)
        require(1 <= self.depth <= 64, "depth", "between 1 and 64", self.depth)
        require(1 <= self.beam <= 256, "beam", "between 1 and 256", self.beam)


class SwitchPolicy(RulePolicy[SwitchSettings]):
    """The lookup alone where its match is long, else the draft's tree alone, as SAM-decoding does (arXiv 2411.10666).

    Where only one of the sources exists, that one is asked.
    """

    name = "switch"
    settings_type = SwitchSettings
    positional = ("min_match", "nodes", "depth")

    def expand(self, level: Level) -> Expansion:
        """Chooses at the root; below it the draft's rounds grow by beam."""
        candidates = level.candidates
        admit = np.ones(len(candidates.parent), dtype=np.bool_)
        if level.index == 0:
            may_look = (candidates.may_grow & self._bits & FREE) > 0
            long_match = candidates.lookup_match_length >= self.settings.min_match  # NaN: no
            look = may_look & (long_match | ((candidates.may_grow & self._bits & DRAFT) == 0))
            return Expansion(admit, self._grow(level, look, FREE) | self._grow(level, ~look, DRAFT))
        drafting = (level.forest.grown[candidates.request] & DRAFT) > 0  # a request's root row is its index
        if level.index >= self.settings.depth:
            drafting = np.zeros_like(drafting)
        return Expansion(admit, self._grow(level, drafting & beam(level, self.settings.beam), DRAFT))

    def select(self, forest: ForestView) -> BoolArray:
        """The node budget, spent by path prior."""
        return top_nodes(forest.nodes, self.settings.nodes)
