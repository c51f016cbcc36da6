"""The expected-gain rule: draft while another growth makes the best tree of a fixed size enough longer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treewise.data.errors import require
from treewise.policy.budget import Float64Array, shared_survival
from treewise.policy.hook import DRAFT, FREE, BoolArray, Expansion, ForestView, Level, Nodes
from treewise.policy.ranking import best_in_group
from treewise.policy.rule import RulePolicy, SourceChoice
from treewise.policy.topn import beam


@dataclass(frozen=True, slots=True)
class OptTreeSettings(SourceChoice):
    """Settings of `OptTreePolicy`."""

    nodes: int = 24  # node budget
    threshold: float = 0.3  # tokens that the last growth must have added for another to be made
    depth: int = 10  # draft growths
    beam: int | None = None  # nodes of one level that the draft grows below; none: the node budget

    def __post_init__(self) -> None:
        SourceChoice.__post_init__(self)
        require(1 <= self.nodes <= 1024, "nodes", "between 1 and 1024", self.nodes)
        require(self.threshold >= 0.0, "threshold", "at least 0", self.threshold)
        require(1 <= self.depth <= 64, "depth", "between 1 and 64", self.depth)
        require(self.beam is None or 1 <= self.beam <= 1024, "beam", "between 1 and 1024, or none", self.beam)


class OptTreePolicy(RulePolicy[OptTreeSettings]):
    """Drafts while the last growth added `threshold` tokens to the best tree of `nodes` nodes, then keeps that tree.

    OPT-Tree (arXiv 2406.17276): the sum of a tree's path probabilities is its expected accepted length, so the best
    tree of n nodes is the n likeliest paths, and growth ends where that sum stops rising. Here other sources stand in
    the tree as well: siblings share one text, so their priors are scaled down to sum to at most 1.
    """

    name = "opt-tree"
    settings_type = OptTreeSettings
    positional = ("nodes", "threshold")

    def expand(self, level: Level) -> Expansion:
        """Admits everything, looks up everywhere, drafts below the level's beam where the last growth was worth it."""
        settings, forest = self.settings, level.forest
        admit = np.ones(len(level.candidates.parent), dtype=np.bool_)
        grow = self._grow(level, admit, ~DRAFT)
        if level.index >= settings.depth:
            return Expansion(admit, grow)
        drafts = beam(level, settings.nodes if settings.beam is None else settings.beam)
        if level.index:
            requests = len(level.context.request_id)
            before = np.arange(len(forest.parent)) < level.start
            if level.index == 1:  # what the free sources had to offer anyway is no gain of the first growth
                before |= (forest.sources & FREE) > 0
            gain = self._expected(forest, requests) - self._expected(forest, requests, before)
            drafts &= (gain >= settings.threshold)[level.candidates.request]
        return Expansion(admit, grow | self._grow(level, drafts, DRAFT))

    def select(self, forest: ForestView) -> BoolArray:
        """The tree whose expected accepted length was weighed."""
        return self._best(forest.nodes, shared_survival(forest.nodes)) | (forest.nodes.parent < 0)

    def _expected(self, forest: Nodes, requests: int, among: BoolArray | None = None) -> Float64Array:
        """Expected accepted length of the best tree, of the rows `among` [rows] or of all of them, [requests]."""
        survival = shared_survival(forest, among)
        best = self._best(forest, survival)
        return np.bincount(forest.request[best], weights=survival[best], minlength=requests).astype(np.float64)

    def _best(self, nodes: Nodes, survival: Float64Array) -> BoolArray:
        """The node budget spent by `survival`, roots aside, [rows]."""
        return best_in_group(survival, nodes.request, nodes.parent >= 0, self.settings.nodes)
