"""Trees whose nodes are child ranks, and the best of them for an acceptance by rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treewise.policy.budget import Float64Array
from treewise.policy.hook import BoolArray, Int32Array, Nodes
from treewise.policy.ranking import rank_in_group

CountArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RankTree:
    """A shape: which of a node's children, by rank, belong to it. Node 0 is the root; parents come first."""

    parent: Int32Array  # [nodes] -1 for the root
    rank: Int32Array  # [nodes] among the parent's children, 0 for the likeliest; -1 for the root
    depth: Int32Array  # [nodes]
    child: Int32Array  # [nodes, ranks] node of each rank's child, -1 where the shape has none

    @property
    def num_nodes(self) -> int:
        """Nodes, the root aside."""
        return len(self.parent) - 1

    @property
    def has_children(self) -> BoolArray:
        """Whether anything of the shape lies below the node, [nodes]."""
        return np.asarray((self.child >= 0).any(axis=1))

    def places(self, nodes: Nodes, eligible: BoolArray) -> Int32Array:
        """The shape's node that each of the `eligible` forest rows stands for, -1 for none, [rows].

        Siblings are ranked by prior among those that are eligible.
        """
        inner = nodes.parent >= 0
        place = np.where(inner, -1, 0).astype(np.int32)
        rank = rank_in_group(nodes.prior, nodes.parent, eligible)
        ranks = self.child.shape[1]
        for depth in range(1, min(int(nodes.depth.max(initial=0)), int(self.depth.max())) + 1):
            rows = np.flatnonzero(inner & eligible & (nodes.depth == depth) & (rank < ranks))
            above = place[nodes.parent[rows]]
            rows, above = rows[above >= 0], above[above >= 0]
            place[rows] = self.child[above, rank[rows]]
        return place


class BestRankTrees:
    """The best shape of any size and depth for an acceptance by rank, by dynamic programming.

    Sequoia (arXiv 2402.12374): where the child of rank k matches with probability p_k whatever is above it, the best
    tree of n nodes gives a of them to the first child and the rest to its younger siblings, both best in their turn.
    """

    def __init__(self, acceptance: Sequence[float], max_nodes: int, max_depth: int) -> None:
        """Trees of up to `max_nodes` nodes and `max_depth` levels; time is max_depth x ranks x max_nodes squared."""
        self.acceptance = tuple(acceptance)
        ranks = len(self.acceptance)
        nodes = np.arange(max_nodes + 1)
        left = nodes[:, None] - nodes  # [nodes, given] what is left of a number of nodes
        # Expected tokens below one node, of at most n nodes and d levels: [depth, nodes]; and how many nodes its child
        # of each rank and that child's descendants take of n that are left for this rank and those behind it.
        self.tokens: Float64Array = np.zeros((max_depth + 1, max_nodes + 1))
        self._taken: CountArray = np.zeros((max_depth + 1, ranks, max_nodes + 1), dtype=np.int64)
        for depth in range(1, max_depth + 1):
            behind = np.zeros(max_nodes + 1)
            for rank in range(ranks - 1, -1, -1):
                own = np.zeros(max_nodes + 1)
                own[1:] = self.acceptance[rank] * (1.0 + self.tokens[depth - 1, :-1])
                totals = np.where(left >= 0, own + behind[np.maximum(left, 0)], -np.inf)
                taken = totals.argmax(axis=1)  # the fewest where several are best
                self._taken[depth, rank] = taken
                behind = totals[nodes, taken]
            self.tokens[depth] = behind

    def tree(self, nodes: int, depth: int) -> RankTree:
        """The best shape of at most `nodes` nodes and `depth` levels; fewer where more would add nothing."""
        parents, ranks, depths = [-1], [-1], [0]
        waiting = [(0, nodes)]  # (node, nodes that may lie below it)
        for node, left in waiting:
            levels = depth - depths[node]
            for rank in range(len(self.acceptance) if levels > 0 else 0):
                taken = int(self._taken[levels, rank, left])
                if not taken:
                    continue
                waiting.append((len(parents), taken - 1))
                parents.append(node)
                ranks.append(rank)
                depths.append(depths[node] + 1)
                left -= taken
        child = np.full((len(parents), max(1, len(self.acceptance))), -1, dtype=np.int32)
        child[parents[1:], ranks[1:]] = np.arange(1, len(parents))
        return RankTree(_column(parents), _column(ranks), _column(depths), child)


def _column(values: list[int]) -> Int32Array:
    return np.asarray(values, dtype=np.int32)
