"""An offline tree: one shape for every round, the best for how often children of each rank were right before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from treewise.data.errors import require
from treewise.policy.hook import DRAFT, BoolArray, Deployment, Expansion, ForestView, Level, Reach
from treewise.policy.rank_table import RankTable
from treewise.policy.rank_tree import BestRankTrees, RankTree
from treewise.policy.rule import RulePolicy, SourceChoice

MAX_CHOSEN_NODES = 64  # of a tree whose size the cost profile chooses
MAX_NODES = 256


@dataclass(frozen=True, slots=True)
class SequoiaSettings(SourceChoice):
    """Settings of `SequoiaPolicy`."""

    table: str = ""  # file of the rank table; there is none by default
    nodes: int | None = None  # node budget; none: what the cost profile makes fastest
    depth: int | None = None  # deepest node; none: likewise

    def __post_init__(self) -> None:
        SourceChoice.__post_init__(self)
        require(
            self.nodes is None or 1 <= self.nodes <= MAX_NODES, "nodes", f"between 1 and {MAX_NODES}, or none",
            self.nodes,
        )  # fmt: skip
        require(self.depth is None or 1 <= self.depth <= 64, "depth", "between 1 and 64, or none", self.depth)


@dataclass(frozen=True, slots=True)
class OfflineTree:
    """A shape, and what a round with it is expected to bring and to cost."""

    tree: RankTree
    tokens: float  # expected tokens of a round, bonus included
    ms: float  # modelled
    capacity: int  # tokens of cache that it is modelled at: the middle of those that the profile was measured at

    @property
    def tokens_per_ms(self) -> float:
        """What the shapes are compared by."""
        return self.tokens / max(self.ms, 1e-9)


class SequoiaPolicy(RulePolicy[SequoiaSettings]):
    """One tree shape by child rank, the best for the acceptance by rank that a table holds (Sequoia's offline tree).

    Acceptance is taken to depend on the rank among siblings alone, so the best tree of every size and depth follows by
    dynamic programming (arXiv 2402.12374); size and depth, where not set, are those with the most expected tokens per
    modelled millisecond. Siblings are ranked by prior, over the union of the sources.
    """

    name = "sequoia"
    settings_type = SequoiaSettings
    positional = ("table",)

    def __init__(self, settings: SequoiaSettings | None = None, table: RankTable | None = None) -> None:
        """Reads the table unless one is given. Raises `ParameterError` where there is none."""
        super().__init__(settings)
        self.table = RankTable.load(self.settings.table) if table is None else table
        self._tree: RankTree | None = None

    @property
    def reach(self) -> Reach:
        """As deep as the tree, or as `depth` before it is known; a lower draft rank can be among the best."""
        return self._reach(self.settings.depth if self._tree is None else int(self._tree.depth.max()))

    @property
    def tree(self) -> RankTree:
        """The shape, known once the policy is bound."""
        assert self._tree is not None, "bind comes before the first request"
        return self._tree

    def bind(self, deployment: Deployment) -> None:
        """Choose the shape. Raises `PolicyError` where the table was fitted for other sources."""
        super().bind(deployment)
        settings = self.settings
        self._tree = offline_tree(self.table, self._bits, deployment, settings.nodes, settings.depth).tree

    def expand(self, level: Level) -> Expansion:
        """Admits what stands in the shape, ranked among all siblings offered so far; asks where the shape goes on."""
        place = self.tree.places(level.forest, np.ones(len(level.forest.parent), dtype=np.bool_))[level.start :]
        return Expansion(place >= 0, self._grow(level, (place >= 0) & self.tree.has_children[place]))

    def select(self, forest: ForestView) -> BoolArray:
        """The shape, filled with the best admitted children of each node, now that every sibling is known."""
        return np.asarray(self.tree.places(forest.nodes, forest.nodes.admitted) >= 0)


def offline_tree(
    table: RankTable, sources: int, deployment: Deployment, nodes: int | None = None, depth: int | None = None
) -> OfflineTree:
    """The best shape for the `sources` bits that are asked, of `nodes` nodes and `depth` levels at most.

    What is not given is chosen for the most expected tokens per modelled millisecond; no node at all is among the
    choices. Raises `PolicyError` where the table was fitted for other sources.
    """
    acceptance = table.of(sources)
    max_nodes = MAX_CHOSEN_NODES if nodes is None else nodes
    max_depth = deployment.envelope.max_depth if depth is None else depth
    best = BestRankTrees(acceptance, max_nodes, max_depth)
    sizes = range(max_nodes + 1) if nodes is None else (nodes,)
    depths = range(1, max_depth + 1) if depth is None else (max_depth,)
    choices = _priced(best, sizes, depths, deployment, bool(sources & DRAFT))
    return max(choices, key=lambda choice: choice.tokens_per_ms)


def _priced(
    best: BestRankTrees, sizes: Sequence[int], depths: Sequence[int], deployment: Deployment, drafts: bool
) -> Iterator[OfflineTree]:
    capacities = deployment.cost.verify.capacities
    capacity = capacities[len(capacities) // 2]
    for levels in depths:
        for size in sizes:
            tree = best.tree(size, levels)
            tokens = 1.0 + float(best.tokens[levels, size])
            yield OfflineTree(tree, tokens, round_ms(tree, deployment, drafts, capacity), capacity)


def round_ms(tree: RankTree, deployment: Deployment, drafts: bool, capacity: int) -> float:
    """Modelled milliseconds of a round that draws and verifies all of `tree`, at `capacity` tokens of cache.

    Where it `drafts`, one growth a level; else what the free sources hold is offered at once.
    """
    cost = deployment.cost
    below = np.bincount(tree.depth[tree.has_children])  # nodes that each level's growth runs
    levels = len(below) if drafts else min(len(below), 1)
    ms = cost.round_ms + float(cost.verify_ms(deployment.padded_rows(len(tree.parent)), capacity))
    ms += cost.policy_ms * (2 + levels) + cost.level_ms * levels
    return ms + (float(cost.draft_ms(below, capacity).sum()) if drafts else 0.0)
