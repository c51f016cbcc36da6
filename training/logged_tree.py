"""The tree that a trace holds at one root position, read as what each source said there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from treewise.data.errors import CoverageError
from treewise.data.trace_schema import NodeTable, Rounds
from treewise.policy.draft_ranking import draft_prior, is_proposed
from treewise.policy.free_growth import LOOKUP_SIGNALS, RECYCLED_SIGNALS
from treewise.policy.hook import DRAFT, LOOKUP, RECYCLED, Continuations, Recycled

_PATH = ("parent", "token", "grown", "drafted", "match")
_NO_CONTINUATIONS = Continuations(0, (), (), (), ())
_NOT_REMEMBERED = Recycled(0, 0.0, (), ())
_DRAFT = ("draft_entropy", "draft_margin", "in_draft_vocab")
SCORES = ("draft_prob", "draft_rank", "draft_drawn_prob", "draft_drawn_rank", "draft_gap")


class LoggedTree:
    """The tree that the log holds at one root position. Node 0 is the root; read-only.

    Where token ids are withheld, a node's own number stands in for its token.
    """

    def __init__(self, rounds: Rounds, row: int, nodes: NodeTable, rows: slice, tokens_included: bool) -> None:
        self.place = f"prompt {rounds.prompt_id[row]!s}, round {int(rounds.round[row])}"
        self.root_token = int(rounds.root_token[row]) if tokens_included else 0
        self.num_nodes = rows.stop - rows.start
        self._rounds, self._row = rounds, row
        self._columns: dict[str, list[Any]] = {
            name: getattr(nodes, name)[rows].tolist()
            for name in (*_PATH, *LOOKUP_SIGNALS, *RECYCLED_SIGNALS, *_DRAFT, *SCORES)
        }
        if not tokens_included:
            self._columns["token"] = list(range(1, self.num_nodes + 1))
        self._opening = int(rounds.opening[row])
        self.children: list[dict[int, int]] = [{} for _ in range(self.num_nodes + 1)]
        for child, (parent, token) in enumerate(zip(self._columns["parent"], self._columns["token"], strict=True), 1):
            self.children[parent][token] = child
        self._known: dict[int, Continuations] = {}
        self._remembered: dict[int, Recycled] = {}

    def matching(self, node: int) -> int:
        """The child of `node` that is the target's token, -1 where the log has none."""
        match = self._columns["match"]
        return next((child for child in self.children[node].values() if match[child - 1] == 1), -1)

    def follow(self, path: Sequence[int]) -> int:
        """The node at the end of the tokens `path`. Raises `CoverageError` where the log does not hold it."""
        node = 0
        for depth, token in enumerate(path, 1):
            below = self.children[node].get(token)
            if below is None:
                raise CoverageError(f"{self.place}: the log holds no such candidate at path depth {depth}")
            node = below
        return node

    def is_drafted(self, node: int) -> bool:
        """Whether the draft ran on `node`."""
        columns = self._columns
        if node:
            return bool(columns["drafted"][node - 1])
        return bool(self._opening & DRAFT) or any(
            not math.isnan(columns["draft_prob"][child - 1])
            or not math.isnan(columns["draft_entropy"][child - 1])
            or columns["drafted"][child - 1]
            for child in self.children[0].values()
        )

    def is_looked_up(self, node: int) -> bool:
        """Whether the lookup was asked below `node`."""
        return bool(self._asked(node) & LOOKUP)

    def is_recycled(self, node: int) -> bool:
        """Whether the target's recycled guesses were asked for below `node`."""
        return bool(self._asked(node) & RECYCLED)

    def _asked(self, node: int) -> int:
        return int(self._columns["grown"][node - 1]) if node else self._opening

    def continuations(self, node: int) -> Continuations:
        """What the lookup said below `node`. A rank that was not logged has token -1, count and share 0.

        At the root, the first continuation's signals are known even where its candidate was not offered.
        """
        known = self._known.get(node)
        if known is None:
            known = self._known[node] = self._continuations(node)
        return known

    def _continuations(self, node: int) -> Continuations:
        if node and not self.children[node]:
            return _NO_CONTINUATIONS  # nothing of what followed was offered, so nobody can see how long the match was
        matches, counts, shares, ages, ranks = (self._columns[name] for name in LOOKUP_SIGNALS)
        match_length = 0
        found: dict[int, tuple[int, int, float, int]] = {}
        for token, child in self.children[node].items():
            at = child - 1
            if not math.isnan(matches[at]):
                match_length = int(matches[at])
            if not math.isnan(ranks[at]):
                found[int(ranks[at])] = (token, int(counts[at]), shares[at], int(ages[at]))
        if not node:
            rounds, row = self._rounds, self._row
            first = float(rounds.lookup_match_length[row])
            match_length = match_length if math.isnan(first) else int(first)
            count = float(rounds.lookup_count[row])
            if count > 0 and 0 not in found:
                age = float(rounds.lookup_age[row])
                found[0] = (-1, int(count), float(rounds.lookup_share[row]), 0 if math.isnan(age) else int(age))
        if not found:
            return Continuations(match_length, (), (), (), ())
        entries = [found.get(rank, (-1, 0, 0.0, 0)) for rank in range(max(found) + 1)]
        return Continuations(match_length, *(tuple(part) for part in zip(*entries, strict=True)))

    def recycled(self, node: int) -> Recycled:
        """What the recycled guesses were below `node`. A rank that was not logged has token -1 and probability 0.

        At the root, the first guess's probability is known even where its candidate was not offered.
        """
        known = self._remembered.get(node)
        if known is None:
            known = self._remembered[node] = self._recycled(node)
        return known

    def _recycled(self, node: int) -> Recycled:
        if node and not self.children[node]:
            return _NOT_REMEMBERED  # as for the lookup: nobody can see what was behind nothing
        probs, orders, weights, ranks = (self._columns[name] for name in RECYCLED_SIGNALS)
        order, weight = 0, 0.0
        found: dict[int, tuple[int, float]] = {}
        for token, child in self.children[node].items():
            at = child - 1
            if not math.isnan(orders[at]):
                order, weight = int(orders[at]), weights[at]
            if not math.isnan(ranks[at]):
                found[int(ranks[at])] = (token, probs[at])
        if not node:
            rounds, row = self._rounds, self._row
            if not math.isnan(rounds.recycled_order[row]):
                order, weight = int(rounds.recycled_order[row]), float(rounds.recycled_weight[row])
            prob = float(rounds.recycled_prob[row])
            if prob > 0:
                found.setdefault(0, (-1, prob))
        if not found:
            return Recycled(order, weight, (), ())
        entries = [found.get(rank, (-1, 0.0)) for rank in range(max(found) + 1)]
        return Recycled(order, weight, *(tuple(part) for part in zip(*entries, strict=True)))

    def proposals(self, node: int, ranking: str, width: int) -> list[int]:
        """Rows of the log's columns that the draft proposed below `node`, best first; the ranking has `width`."""
        return [self.children[node][token] - 1 for token in self._proposed(node, ranking, width)]

    def _proposed(self, node: int, ranking: str, width: int) -> list[int]:
        scores = np.asarray(
            [[self._columns[name][child - 1] for name in SCORES[:4]] for child in self.children[node].values()],
            dtype=np.float32,
        ).reshape(-1, 4)
        probs, ranks, drawn_probs, drawn_ranks = scores.T
        proposed = is_proposed(ranking, width, ranks, drawn_ranks)
        # As the draft's head orders them: by prior, those of the plain ranking first among equals.
        first = np.where(ranks < width, ranks, width + drawn_ranks)
        order = np.lexsort((first, -draft_prior(ranking, probs, drawn_probs)))
        tokens = list(self.children[node])
        return [tokens[place] for place in order.tolist() if proposed[place]]

    def state(self, node: int) -> tuple[float, float]:
        """Entropy and margin of the draft's distribution below `node`; NaN where the log has no candidate there."""
        columns = self._columns
        for child in self.children[node].values():
            if not math.isnan(columns["draft_entropy"][child - 1]):
                return columns["draft_entropy"][child - 1], columns["draft_margin"][child - 1]
        return math.nan, math.nan

    def token(self, at: int) -> int:
        """The token of row `at` of the log's columns."""
        return int(self._columns["token"][at])

    def scores(self, at: int) -> list[float]:
        """`SCORES` of row `at`; NaN outside the draft's head, the drawn ones without noise."""
        return [self._columns[name][at] for name in SCORES]

    def is_proposed(self, node: int, token: int, ranking: str, width: int) -> bool:
        """Whether the draft proposed `token` below `node`, among the first `width` of the ranking."""
        return token in self._proposed(node, ranking, width)

    def draft_vocabulary(self) -> dict[int, bool]:
        """Whether the draft's head can say each token of the tree."""
        return dict(zip(self._columns["token"], self._columns["in_draft_vocab"], strict=True))
