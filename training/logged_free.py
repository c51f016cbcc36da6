"""The free sources of a shard's log, by place, as columns: where they were asked, and what they offer there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.trace_schema import NodeTable, TraceShard
from treewise.policy.hook import FREE, LOOKUP, RECYCLED, BoolArray, Float32Array, Int32Array, UInt8Array


@dataclass(frozen=True, slots=True)
class FreeBelow:
    """Where the free sources were asked, and how long a context they knew there; 0 where no candidate shows it."""

    asked: UInt8Array  # [places] bits of the free sources
    match_length: Float32Array  # [places] tokens, the lookup's
    order: Float32Array  # [places] tokens, the recycled guesses'

    @classmethod
    def of(
        cls, shard: TraceShard, root_place: Int32Array, node_place: Int32Array, parent_place: Int32Array
    ) -> FreeBelow:
        """Read off `shard`; `root_place` [rounds], `node_place` and `parent_place` [nodes]."""
        rounds, nodes = shard.rounds, shard.nodes
        places = len(root_place) + len(node_place)
        asked = np.zeros(places, dtype=np.uint8)
        asked[node_place] = nodes.grown & FREE
        asked[root_place] = rounds.opening & FREE
        lengths = []
        for of_nodes, of_roots in (
            (nodes.lookup_match_length, rounds.lookup_match_length),
            (nodes.recycled_order, rounds.recycled_order),
        ):
            length = np.zeros(places, dtype=np.float32)
            known = ~np.isnan(of_nodes)
            length[parent_place[known]] = of_nodes[known]
            known = ~np.isnan(of_roots)
            length[root_place[known]] = of_roots[known]
            lengths.append(length)
        return cls(asked, *lengths)


class FreeOffers:
    """The nodes that the free sources propose below each place, within their widths, in the order of `FreeGrowth`."""

    def __init__(
        self,
        nodes: NodeTable,
        by_parent: Int32Array,
        parent_place: Int32Array,
        num_places: int,
        widths: tuple[int, int],
    ) -> None:
        """`by_parent` [nodes] are all nodes, those of one `parent_place` [nodes] together.

        `widths` are candidates that the lookup and that the recycled guesses propose below one place, at most.
        """
        # NaN: not proposed.
        of_lookup: BoolArray = nodes.lookup_rank < widths[0]  # [nodes]
        of_recycled: BoolArray = nodes.recycled_rank < widths[1]  # [nodes]
        self.proposed: UInt8Array = of_lookup * np.uint8(LOOKUP) | of_recycled * np.uint8(RECYCLED)  # [nodes]
        one_first = np.where(of_lookup, nodes.lookup_rank, nodes.recycled_rank)
        lists, starts, base = [], [], 0
        for chosen, rank in (
            (of_lookup, nodes.lookup_rank),
            (of_recycled, nodes.recycled_rank),
            (of_lookup | of_recycled, one_first),
        ):
            found = by_parent[chosen[by_parent]]
            place = parent_place[found]
            is_later = ~of_lookup[found] if chosen is not of_recycled else np.zeros(len(found), dtype=np.bool_)
            lists.append(found[order_within(place, num_places, is_later, rank[found])])
            starts.append(base + starts_of(np.bincount(place, minlength=num_places)))
            base += len(found)
        self.starts: Int32Array = np.stack(starts)  # [sources asked, places + 1] lookup, recycled, both
        self.nodes: Int32Array = np.concatenate(lists)  # [entries]

    def below(self, places: Int32Array, bits: UInt8Array) -> tuple[NDArray[np.intp], Int32Array]:
        """(index into `places`, node) of what the free sources of `bits` [n] propose below `places` [n], in order."""
        asked = ((bits & LOOKUP) + (bits & RECYCLED) // 2).astype(np.intp) - 1
        first = self.starts[asked, places]
        size = self.starts[asked, places + 1] - first
        parent = np.repeat(np.arange(len(places)), size)
        within = np.arange(len(parent)) - np.repeat(size.cumsum() - size, size)
        return parent, self.nodes[first[parent] + within]


def order_within(place: Int32Array, num_places: int, first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.intp]:
    """The order [n] of entries by `first`, then `second`, within each `place` [n]; those of a place stand together.

    They were mostly logged in that order: only places where they were not are sorted.
    """
    order = np.arange(len(place))
    in_order = (first[:-1] < first[1:]) | ((first[:-1] == first[1:]) & (second[:-1] <= second[1:]))
    stray = np.zeros(num_places, dtype=np.bool_)
    stray[place[1:][(place[1:] == place[:-1]) & ~in_order]] = True
    rows = stray[place].nonzero()[0]
    order[rows] = rows[np.lexsort((second[rows], first[rows], place[rows]))]
    return order


def starts_of(counts: NDArray[np.integer[Any]]) -> Int32Array:
    """[n + 1] where each of `counts` [n] begins, and the end."""
    return np.concatenate([[0], counts.cumsum()]).astype(np.int32)
