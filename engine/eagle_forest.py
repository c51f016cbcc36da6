"""EAGLE's candidates as a forest that a policy can look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.envelope import Envelope
from treewise.engine.eagle_tree import EagleCandidates, Float32Array, Int64Array
from treewise.policy.forest import Forest
from treewise.policy.hook import DRAFT, BoolArray


class EagleForest:
    """The forest of one round and the candidate behind each row. Rows stand in the order of candidates."""

    def __init__(self, envelope: Envelope) -> None:
        self.envelope = envelope
        self.rows = Forest()
        self._numbers: list[int] = []  # [rows] candidate of the row, -1 for the root

    @property
    def numbers(self) -> Int64Array:
        """Candidate of every row, [rows]; -1 for the root."""
        return np.asarray(self._numbers, dtype=np.int64)

    def open(self, root_token: int) -> None:
        """Forget the last round; the root alone is left."""
        self.rows.clear()
        self.rows.append(1)
        self._numbers = [-1]
        self.rows.column("token")[0] = root_token
        self.rows.column("may_grow")[0] = DRAFT

    def offer(self, candidates: EagleCandidates, entry: int) -> int:
        """Append what the envelope allows of `entry`, below rows that were grown; returns the first new row.

        The best candidate of all is offered in any case.
        """
        column, envelope = self.rows.column, self.envelope
        first, above = self._parents(candidates, entry)
        ranks = np.arange(len(above)) % candidates.width
        path_priors = np.exp(candidates.scores[first : first + len(above)])
        wanted = (above >= 0) & ((column("grown")[above] & DRAFT) > 0)
        wanted &= (entry < envelope.max_depth) & (ranks < envelope.draft_width)
        wanted &= path_priors >= envelope.min_path_prior
        if entry == 0:
            wanted[candidates.own_choice(1)] = True  # EAGLE verifies one node at least
        start = self._append(candidates, entry, wanted)
        if entry + 1 < envelope.max_depth:
            beam = np.isin(self.numbers[start:], candidates.beam(entry))
            may = beam & (column("path_prior")[start:] >= envelope.min_grow_prior)
            column("may_grow")[start:] = np.where(may, DRAFT, 0)
        return start

    def offer_everything(self, candidates: EagleCandidates) -> None:
        """Lay the forest out anew with every candidate in it and admitted, for a round that EAGLE's own rule ends."""
        self.open(int(self.rows.column("token")[0]))
        for entry in range(len(candidates.ends)):
            self._append(candidates, entry, np.ones(len(self._parents(candidates, entry)[1]), dtype=np.bool_))
        self.rows.column("admitted")[:] = True

    def first_guesses(self, path: Sequence[int]) -> dict[int, int]:
        """The draft's first token below each row of `path` whose children were offered."""
        parent, rank, token = (self.rows.column(name) for name in ("parent", "draft_rank", "token"))
        firsts: dict[int, int] = {}
        for row in path:
            child = np.flatnonzero((parent == row) & (rank == 0))
            if child.size:
                firsts[row] = int(token[child[0]])
        return firsts

    def _parents(self, candidates: EagleCandidates, entry: int) -> tuple[int, NDArray[np.int64]]:
        """The first candidate of `entry`, and the row above each of its candidates (-1 where it was not offered)."""
        first, end = candidates.ends[entry - 1] if entry else 0, candidates.ends[entry]
        row_of = np.full(end + 1, -1, dtype=np.int64)
        row_of[self._numbers] = np.arange(len(self._numbers))  # the root is candidate -1: the last place
        return first, row_of[candidates.parents[first:end]]

    def _append(self, candidates: EagleCandidates, entry: int, wanted: BoolArray) -> int:
        first, above = self._parents(candidates, entry)
        column = self.rows.column
        column("drafted")[above[above >= 0]] = True
        numbers = first + np.flatnonzero(wanted)
        start = self.rows.num_rows
        rows = self.rows.append(len(numbers))
        self._numbers.extend(numbers.tolist())
        column("parent")[rows] = above[wanted]
        column("depth")[rows] = column("level")[rows] = entry + 1
        column("token")[rows] = candidates.tokens[numbers]
        column("sources")[rows] = DRAFT
        upper = _scores_above(candidates, numbers)
        column("path_prior")[rows] = np.exp(candidates.scores[numbers])
        column("prior")[rows] = column("draft_prob")[rows] = _ratio(candidates.scores[numbers], upper)
        column("draft_rank")[rows] = numbers % candidates.width
        if candidates.width > 1:
            tops = -np.sort(-candidates.scores.reshape(-1, candidates.width), axis=1)[numbers // candidates.width, :2]
            column("draft_margin")[rows] = _ratio(tops[:, 0], upper) - _ratio(tops[:, 1], upper)
        return start


def _scores_above(candidates: EagleCandidates, numbers: Int64Array) -> Float32Array:
    above = candidates.parents[numbers]
    return np.where(above < 0, np.float32(0.0), candidates.scores[above]).astype(np.float32)


def _ratio(scores: Float32Array, above: Float32Array) -> NDArray[Any]:
    """Probability below the parent, from log probabilities of both paths; 0 where the candidate's is minus infinity."""
    known = np.isfinite(scores)
    return np.exp(np.where(known, scores - np.where(known, above, 0.0), -np.inf)).astype(np.float32)
