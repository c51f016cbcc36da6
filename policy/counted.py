"""The learned policy where verified nodes are scarce, not milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from treewise.data.errors import require
from treewise.policy.bundle import Bundle
from treewise.policy.hook import BoolArray, Expansion, ForestView, Level, Nodes
from treewise.policy.learned import Compiled, LearnedPolicy, ScorerName
from treewise.policy.planner import Float64Array
from treewise.policy.ranking import best_in_group
from treewise.policy.rule import format_value

MOST_NODES = 1024
LEAST = 0.05  # survival


@dataclass(frozen=True, slots=True)
class NodePrice:
    """What a verified node has to be worth; one of the two at least."""

    nodes: int = 0  # at most so many in a round of one request, 0: any number
    least: float = 0.0  # survival below which a node is not worth it, in tokens: what one more node may cost

    def __post_init__(self) -> None:
        require(0 <= self.nodes <= MOST_NODES, "nodes", f"between 0 and {MOST_NODES}", self.nodes)
        require(0.0 <= self.least < 1.0, "least", "at least 0 and below 1", self.least)
        require(self.nodes > 0 or self.least > 0.0, "nodes or least", "above 0", (self.nodes, self.least))


class CountedPolicy(LearnedPolicy):
    """Keeps the nodes that are likely enough to survive, whatever growths, calls and rows cost in milliseconds.

    With `least` it maximises expected tokens minus `least` times verified nodes: a node stays where its survival is
    above that price, so that sure places get few nodes and open ones many. With `nodes` the surest ones stay, the same
    number in every round. Sources are free here, so each is asked wherever a node that would be kept may have children
    that would be kept too; no node survives longer than its parent, so nothing else can be.
    """

    name = "learned"
    settings_type: type[Any] = NodePrice
    positional: tuple[str, ...] = ()

    def __init__(
        self,
        bundle: Bundle,
        scorer: ScorerName = "auto",
        folder: str | Path = "",
        compiled: Compiled = "auto",
        price: NodePrice | None = None,
    ) -> None:
        """As the learned policy; `price`: what a node has to be worth, `LEAST` where nothing is said."""
        super().__init__(bundle, scorer, folder, compiled)
        self.price = NodePrice(least=LEAST) if price is None else price

    @property
    def spec(self) -> str:
        """The spec string that makes this policy again."""
        given = {"nodes": self.price.nodes, "least": self.price.least}
        return ",".join([super().spec, *(f"{name}={format_value(value)}" for name, value in given.items() if value)])

    def expand(self, level: Level) -> Expansion:
        """Everything is admitted and may yet rise; sources are asked below what would be kept."""
        candidates = level.candidates
        admit = np.ones(len(candidates.parent), dtype=np.bool_)
        if level.index == 0:
            self._start(level.context)
            return Expansion(admit, candidates.may_grow.copy())
        survival = self._survival(level.forest, level.context)
        kept = self._worth(survival, level.forest, level.forest.parent >= 0)[level.start :]
        return Expansion(admit, np.where(kept, candidates.may_grow, 0).astype(np.uint8))

    def select(self, forest: ForestView) -> BoolArray:
        """The nodes that are worth it, and the roots."""
        nodes = forest.nodes
        survival = self._survival(nodes, forest.context)
        roots = nodes.parent < 0
        return self._worth(survival, nodes, nodes.admitted & ~roots) | roots

    def _worth(self, survival: Float64Array, nodes: Nodes, among: BoolArray) -> BoolArray:
        """Rows `among` [rows] that are kept as things stand; closed under parents, which have lower rows."""
        worth = among & (survival > self.price.least)
        return best_in_group(survival, nodes.request, worth, self.price.nodes) if self.price.nodes else worth
