"""A fixed budget spent on the surest paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from treewise.data.errors import require
from treewise.policy.budget import shared_survival
from treewise.policy.hook import DRAFT, BoolArray, Expansion, ForestView, Int32Array, Level
from treewise.policy.ranking import best_in_group, top_nodes
from treewise.policy.rule import RulePolicy, SourceChoice

Budget: TypeAlias = Literal["request", "batch"]


@dataclass(frozen=True, slots=True)
class TopNSettings(SourceChoice):
    """Settings of `TopNPolicy`."""

    nodes: int = 24  # node budget
    depth: int = 4  # draft growths
    beam: int = 8  # nodes of one level that the draft grows below
    budget: Budget = "request"  # or "batch": so many nodes for each request of the batch, spent where they are surest

    def __post_init__(self) -> None:
        SourceChoice.__post_init__(self)
        require(self.budget in get_args(Budget), "budget", f"one of {', '.join(get_args(Budget))}", self.budget)
        require(1 <= self.nodes <= 1024, "nodes", "between 1 and 1024", self.nodes)
        require(1 <= self.depth <= 64, "depth", "between 1 and 64", self.depth)
        require(1 <= self.beam <= 256, "beam", "between 1 and 256", self.beam)


class TopNPolicy(RulePolicy[TopNSettings]):
    """Draft beam of `depth` growths, lookups everywhere, then the `nodes` rows with the highest path prior.

    With the budget of the batch, requests that are sure of what comes next get rows of those that are not: worth most
    where the budget is small, and where that changes from round to round.

    Beam and reranking are those of EAGLE-2 (arXiv 2406.16858), over the union of the sources.
    """

    name = "topn"
    settings_type = TopNSettings
    positional = ("nodes", "depth")

    @property
    def shares_budget(self) -> bool:
        """Whether the node budget is the batch's."""
        return self.settings.budget == "batch"

    def expand(self, level: Level) -> Expansion:
        """Admits everything and drafts below the level's beam."""
        admit = np.ones(len(level.candidates.parent), dtype=np.bool_)
        grow = self._grow(level, admit, ~DRAFT)
        if level.index < self.settings.depth:
            grow |= self._grow(level, beam(level, self.settings.beam), DRAFT)
        return Expansion(admit, grow)

    def select(self, forest: ForestView) -> BoolArray:
        """The node budget, spent by path prior; that of a batch by survival, which is alike from request to request."""
        nodes, budget = forest.nodes, self.settings.nodes
        if not self.shares_budget:
            return top_nodes(nodes, budget)
        inner, together = nodes.admitted & (nodes.parent >= 0), np.zeros_like(nodes.request)
        budget *= len(forest.context.request_id)
        return best_in_group(shared_survival(nodes), together, inner, budget) | (nodes.parent < 0)


def beam(level: Level, width: int | Int32Array) -> BoolArray:
    """The `width` candidates of each request with the highest path prior that the draft may grow below.

    An array [candidates] gives each candidate its request's width.
    """
    candidates = level.candidates
    return best_in_group(candidates.path_prior, candidates.request, (candidates.may_grow & DRAFT) > 0, width)
