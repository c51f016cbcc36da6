"""The entropy state machine: a confident draft goes deep, an unsure one wide, a lost one nowhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treewise.data.errors import require
from treewise.policy.hook import FREE, Expansion, Level, Reach
from treewise.policy.ranking import best_in_group, rank_in_group, rooted
from treewise.policy.rule import RulePolicy, SourceChoice


@dataclass(frozen=True, slots=True)
class EntropySettings(SourceChoice):
    """Settings of `EntropyPolicy`; entropies are the draft's, in bits."""

    low_bits: float = 1.0  # below: one child
    high_bits: float = 2.2  # up to here: `mid_width` children; above: none
    mid_width: int = 2
    max_depth: int = 8  # deepest node
    min_path_prior: float = 0.08
    max_nodes: int = 48

    def __post_init__(self) -> None:
        SourceChoice.__post_init__(self)
        require(self.low_bits >= 0.0, "low_bits", "at least 0", self.low_bits)
        require(self.high_bits >= self.low_bits, "high_bits", f"at least low_bits ({self.low_bits})", self.high_bits)
        require(1 <= self.mid_width <= 64, "mid_width", "between 1 and 64", self.mid_width)
        require(1 <= self.max_depth <= 64, "max_depth", "between 1 and 64", self.max_depth)
        require(0.0 <= self.min_path_prior <= 1.0, "min_path_prior", "between 0 and 1", self.min_path_prior)
        require(1 <= self.max_nodes <= 1024, "max_nodes", "between 1 and 1024", self.max_nodes)


class EntropyPolicy(RulePolicy[EntropySettings]):
    """Width and stopping by the draft's entropy below each node; lookup guesses by their path prior alone."""

    name = "entropy"
    settings_type = EntropySettings

    @property
    def reach(self) -> Reach:
        """`max_depth` deep; beside the lookup a lower draft rank can be among the best."""
        width = self.settings.mid_width if self.settings.sources == "draft" else None
        return self._reach(self.settings.max_depth, width)

    def expand(self, level: Level) -> Expansion:
        """Admits by the state below each parent, within the budget, and asks below everything admitted."""
        forest, settings = level.forest, self.settings
        if level.index == 0:
            roots = np.ones(len(level.candidates.parent), dtype=np.bool_)
            return Expansion(roots, self._grow(level, roots))
        entropy = forest.draft_entropy
        width = np.where(entropy < settings.low_bits, 1, np.where(entropy <= settings.high_bits, settings.mid_width, 0))
        has_fresh = np.zeros(len(forest.parent), dtype=np.bool_)
        has_fresh[level.candidates.parent] = True
        rows = np.flatnonzero(has_fresh[forest.parent])  # siblings of candidates: what else is there was decided
        by_state = np.zeros_like(has_fresh)
        by_state[rows] = rank_in_group(forest.prior[rows], forest.parent[rows]) < width[rows]  # NaN entropy: width 0
        is_free = (forest.sources & FREE) > 0
        inside = (
            (by_state | is_free)
            & (forest.depth <= settings.max_depth)
            & (forest.path_prior >= np.float32(settings.min_path_prior))
        )
        fresh = np.arange(len(forest.parent)) >= level.start
        inside = rooted(np.where(fresh, inside, forest.admitted), forest.parent) & fresh
        inner = forest.admitted & (forest.depth > 0)
        spent = np.bincount(forest.request[inner], minlength=len(level.context.request_id))
        left = np.maximum(settings.max_nodes - spent, 0).astype(np.int32)
        admit = best_in_group(forest.path_prior, forest.request, inside, left[forest.request])[level.start :]
        below = admit & (level.candidates.depth < settings.max_depth)
        return Expansion(admit, self._grow(level, below))
