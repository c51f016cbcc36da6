"""A shard's logged trees as flat columns, so that many of them are read with one call of numpy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.trace_schema import TraceShard
from treewise.policy.draft_ranking import BOTH, PLAIN, draft_prior, is_proposed
from treewise.policy.hook import DRAFT, BoolArray, Float32Array, Int32Array
from treewise.training.logged_free import FreeBelow, FreeOffers, order_within, starts_of


@dataclass(frozen=True, slots=True)
class DraftedBelow:
    """What the draft proposed, and its state; a place's nodes are entries `starts[place]` to `starts[place + 1]`."""

    starts: Int32Array  # [places + 1]
    nodes: Int32Array  # [proposals + 1] best first; one more than there are, so that any place can be read
    entropy: Float32Array  # [places] bits; NaN where the log has no candidate there
    margin: Float32Array  # [places]
    ran: BoolArray  # [places]


class LoggedColumns:
    """Every logged tree of a shard, by *place*: each root, followed by its nodes, round by round.

    A node is a row of the table of nodes. Says what `LoggedTree` says, and is made part by part, when first read. Where
    token ids are withheld, a node's number within its round stands in for its token.
    """

    def __init__(self, shard: TraceShard, draft_width: int, tokens_included: bool, ranking: str) -> None:
        self.shard = shard
        self.draft_width = draft_width  # candidates that the log was offered below one node, in each ranking
        self.tokens_included = tokens_included
        self.ranking = ranking
        self._offers: dict[tuple[int, int], FreeOffers] = {}
        self._within: dict[int, BoolArray] = {}
        self._looked_up: dict[tuple[float, ...], Float32Array] = {}

    @property
    def proposals(self) -> int:
        """The most that the draft proposes below one place."""
        return self.draft_width * (2 if self.ranking == BOTH else 1)

    @cached_property
    def token(self) -> Int32Array:
        """[nodes]"""
        return self.shard.nodes.token if self.tokens_included else self.shard.nodes.node

    @cached_property
    def root_token(self) -> Int32Array:
        """[rounds] 0 without ids"""
        tokens = self.shard.rounds.root_token
        return tokens if self.tokens_included else np.zeros_like(tokens)

    @cached_property
    def root_place(self) -> Int32Array:
        """[rounds] place of each round's root."""
        return _index(self.shard.node_offsets[:-1] + np.arange(len(self.shard.rounds)))

    @cached_property
    def token_round(self) -> Int32Array:
        """[committed tokens + 1] the round whose first token each is; -1: it is behind another of its round."""
        rounds = self.shard.rounds
        found = np.full(len(rounds.committed) + 1, -1, dtype=np.int32)
        found[rounds.committed_offsets[:-1]] = np.arange(len(rounds))
        return found

    @cached_property
    def node_place(self) -> Int32Array:
        """[nodes] place of each node."""
        return _index(np.arange(len(self.shard.nodes)) + self.shard.round_rows() + 1)

    @cached_property
    def place_node(self) -> Int32Array:
        """[places] the node of each place; of a root, the one before it."""
        sizes = self.shard.rounds.num_nodes + 1
        return _index(np.arange(self.num_places) - np.repeat(np.arange(len(sizes)), sizes) - 1)

    @cached_property
    def parent_place(self) -> Int32Array:
        """[nodes] place of each node's parent."""
        return _index(self.root_place[self.shard.round_rows()] + self.shard.nodes.parent)

    @cached_property
    def by_parent(self) -> Int32Array:
        """[nodes] all nodes, those below one place together, in the order of the log."""
        return _index(self.parent_place.argsort(kind="stable"))

    @cached_property
    def child_starts(self) -> Int32Array:
        """[places + 1] the children of a place are `by_parent[child_starts[place]: child_starts[place + 1]]`."""
        return starts_of(np.bincount(self.parent_place, minlength=self.num_places))

    @cached_property
    def child_token(self) -> Int32Array:
        """[nodes] tokens in the order of `by_parent`, and one that is none."""
        return np.append(self.token[self.by_parent], np.int32(-1))

    @property
    def num_places(self) -> int:
        """Roots and nodes."""
        return len(self.shard.rounds) + len(self.shard.nodes)

    def children(self, places: Int32Array, tokens: Int32Array) -> Int32Array:
        """The child of each of `places` [n] with the token of `tokens` [n], as nodes; -1 where the log has none."""
        first = self.child_starts[places]
        count = self.child_starts[places + 1] - first
        among = np.arange(int(count.max(initial=0)))
        at = np.minimum(first[:, None] + among, len(self.by_parent))
        same = (self.child_token[at] == tokens[:, None]) & (among < count[:, None])
        where, which = same.nonzero()
        found = np.full(len(places), -1, dtype=np.int32)
        found[where] = self.by_parent[at[where, which]]
        return found

    @cached_property
    def matching(self) -> Int32Array:
        """[places] number of the child that is the target's token; of no node where the log has none."""
        nodes = self.shard.nodes
        rounds = self.shard.rounds.num_nodes
        found = np.repeat(rounds + 1, rounds + 1).astype(np.int32)
        matches = (nodes.match == 1).nonzero()[0][::-1]  # of several writes to one place the last stays
        found[self.parent_place[matches]] = nodes.node[matches]
        return found

    @cached_property
    def drafted(self) -> DraftedBelow:
        """The draft's part."""
        nodes, parents = self.shard.nodes, self.parent_place
        entropy, margin = np.full((2, self.num_places), np.nan, dtype=np.float32)
        known = (~np.isnan(nodes.draft_entropy)).nonzero()[0][::-1]  # the first child's stays
        entropy[parents[known]] = nodes.draft_entropy[known]
        margin[parents[known]] = nodes.draft_margin[known]
        ran = np.zeros(self.num_places, dtype=np.bool_)
        ran[self.node_place] = nodes.drafted
        ran[self.root_place] = (self.shard.rounds.opening & DRAFT) > 0
        shows = ~np.isnan(nodes.draft_prob) | ~np.isnan(nodes.draft_entropy) | nodes.drafted
        ran[parents[shows & (nodes.parent == 0)]] = True
        starts, proposed = self._proposed()
        return DraftedBelow(starts, np.append(proposed, np.int32(0)), entropy, margin, ran)

    def _proposed(self) -> tuple[Int32Array, Int32Array]:
        """(starts [places + 1], nodes): what the draft proposed below each place, best first."""
        nodes, width = self.shard.nodes, self.draft_width
        offered = self.proposed(width)
        found = self.by_parent[offered[self.by_parent]]
        place, ranks = self.parent_place[found], nodes.draft_rank[found]
        prior = -self.node_prior[found]
        # As the draft's head orders them: by prior, those of the plain ranking first among equals.
        first = np.where(ranks < width, ranks, width + nodes.draft_drawn_rank[found])
        found = found[order_within(place, self.num_places, prior, first)]
        return starts_of(np.bincount(place, minlength=self.num_places)), found

    @cached_property
    def node_prior(self) -> Float32Array:
        """[nodes] the draft's prior of each; NaN where it did not run on the parent."""
        nodes = self.shard.nodes
        return draft_prior(self.ranking, nodes.draft_prob, nodes.draft_drawn_prob)

    def proposed(self, width: int) -> BoolArray:
        """[nodes] which the draft proposes within `width`; kept for the next who asks."""
        if width not in self._within:
            nodes = self.shard.nodes
            self._within[width] = is_proposed(self.ranking, width, nodes.draft_rank, nodes.draft_drawn_rank)
        return self._within[width]

    @cached_property
    def free(self) -> FreeBelow:
        """The free sources' part."""
        return FreeBelow.of(self.shard, self.root_place, self.node_place, self.parent_place)

    def free_offers(self, lookup_width: int, recycled_width: int) -> FreeOffers:
        """What the free sources propose within those widths; kept for the next who asks."""
        widths = (lookup_width, recycled_width)
        if widths not in self._offers:
            nodes, by_parent = self.shard.nodes, self.by_parent
            self._offers[widths] = FreeOffers(nodes, by_parent, self.parent_place, self.num_places, widths)
        return self._offers[widths]

    def lookup_prior(self, by_match_length: tuple[float, ...]) -> Float32Array:
        """[nodes] the lookup's probability of each under a prior table; kept for the next who asks."""
        if by_match_length not in self._looked_up:
            nodes, table = self.shard.nodes, np.asarray(by_match_length, dtype=np.float64)
            length = np.nan_to_num(nodes.lookup_match_length).astype(np.int64)
            prior = table[np.minimum(length, len(table) - 1)] * nodes.lookup_share
            self._looked_up[by_match_length] = prior.astype(np.float32)
        return self._looked_up[by_match_length]

    @property
    def is_drawn(self) -> bool:
        """Whether the draft ranks with the noise of the position."""
        return self.ranking != PLAIN


def _index(values: NDArray[np.integer[Any]]) -> Int32Array:
    """`values`, rows of one shard, in half the memory."""
    return values.astype(np.int32)
