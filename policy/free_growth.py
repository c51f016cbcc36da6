"""What the free sources offer below forest rows: whole chains of the suffix lookup and of the recycled guesses.

Both are asked of a row at once, and what they say is merged by token: one row carries the signals of both, and the
more confident of the two sets its prior.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.envelope import Envelope, PriorTable
from treewise.policy.forest import ASKED, BELOW, BELOW_RECYCLED, Forest
from treewise.policy.hook import (
    LOOKUP,
    RECYCLED,
    Continuations,
    DraftSource,
    Int32Array,
    LookupSource,
    Recycled,
    RecycledSource,
    UInt8Array,
)

IndexArray = NDArray[np.intp]
LOOKUP_SIGNALS = ("lookup_match_length", "lookup_count", "lookup_share", "lookup_age", "lookup_rank")
RECYCLED_SIGNALS = ("recycled_prob", "recycled_order", "recycled_weight", "recycled_rank")
_WRITTEN = (
    *("request", "parent", "depth", "token", "prior", "path_prior", "sources", ASKED),
    *LOOKUP_SIGNALS,
    *RECYCLED_SIGNALS,
)
_NAN = math.nan
_NOT_LOOKED_UP = (_NAN,) * len(LOOKUP_SIGNALS)
_NOT_RECYCLED = (_NAN,) * len(RECYCLED_SIGNALS)
_BOUNDED = ~RECYCLED & 0xFF  # what may be asked below rows under `Envelope.min_grow_prior`

Answer = tuple[Continuations | None, Recycled | None]  # of the sources that were asked below one row


class FreeGrowth:
    """Offers what the free sources know, and remembers what they said in this round."""

    def __init__(self, envelope: Envelope, prior_table: PriorTable, whole_chains: bool) -> None:
        self.envelope = envelope
        self.prior_table = prior_table
        self.whole_chains = whole_chains
        self.offers = 0  # rows that were offered in this round
        self.answers: dict[int, Answer] = {}  # forest row -> all that is known below it
        self._paths: dict[int, tuple[int, ...]] = {}

    def clear(self) -> None:
        """Forget the round."""
        self.offers = 0
        self.answers.clear()
        self._paths.clear()

    def offer(
        self,
        forest: Forest,
        rows: IndexArray,
        bits: UInt8Array,
        lookups: Sequence[LookupSource | None],
        recycled: Sequence[RecycledSource | None],
        limits: Int32Array,
        draft: DraftSource | None,
    ) -> IndexArray:
        """Append everything that the free sources of `bits` [rows] hold below each of `rows`, within the envelope.

        `limits` [requests] is the deepest node of each request. Returns the row of `rows` that each new row is below.
        """
        offered: list[tuple[float, ...]] = []  # in the order of _WRITTEN
        asked: list[tuple[int, float, float]] = []  # row, tokens matched below it by the lookup, by the memory
        tops: list[int] = []
        floor, bound = self.envelope.min_path_prior, self.envelope.min_grow_prior
        whole_chains, base = self.whole_chains, forest.num_rows
        column = forest.column
        requests, depths = column("request")[rows].tolist(), column("depth")[rows].tolist()
        path_priors = column("path_prior")[rows].tolist()
        for top, request, top_depth, top_prior, wanted in zip(
            rows.tolist(), requests, depths, path_priors, bits.tolist(), strict=True
        ):
            lookup, memory = lookups[request], recycled[request] if recycled else None
            limit = int(limits[request])
            queue = deque([(top, self._path(forest, top), top_depth, top_prior, wanted)])
            while queue:
                row, path, depth, path_prior, ask = queue.popleft()
                if depth >= limit:  # nothing may be offered below it, and a log need not hold what would follow
                    continue
                known = lookup.continuations(path) if ask & LOOKUP and lookup is not None else None
                memories = memory.recycled(path) if ask & RECYCLED and memory is not None else None
                self.answers[row] = (known, memories)
                length = _NAN if known is None else known.match_length
                asked.append((row, length, _NAN if memories is None else memories.order))
                depth += 1
                for token, prior, sources, signals in self._merge(known, memories):
                    below = float(np.float32(path_prior * prior))
                    if below < floor:
                        continue
                    child = base + len(offered)
                    below_bits = ask if below >= bound else ask & _BOUNDED
                    goes_on = below_bits if whole_chains and depth < limit else 0
                    offered.append((request, row, depth, token, prior, below, sources, goes_on, *signals))
                    tops.append(top)
                    child_path = self._paths[child] = (*path, token)
                    if goes_on:
                        queue.append((child, child_path, depth, below, goes_on))
        new = forest.append(len(offered))
        self.offers += len(offered)
        if asked:
            answered, matched, remembered = zip(*asked, strict=True)
            column(BELOW)[list(answered)] = matched
            column(BELOW_RECYCLED)[list(answered)] = remembered
        if offered:
            forest.write(new, **dict(zip(_WRITTEN, zip(*offered, strict=True), strict=True)))
            if draft is not None:
                column("in_draft_vocab")[new] = draft.in_vocab(column("token")[new].copy())
        return np.asarray(tops, dtype=np.intp)

    def fill_in(self, forest: Forest, parents: NDArray[Any], new: slice, priors: NDArray[np.float32]) -> None:
        """Give draft candidates [new rows] below `parents` [new rows] what the free sources know of them.

        `priors` [new rows] rise to a free source's where it is the more confident one.
        """
        answers = self.answers
        if not answers:
            return
        columns = [forest.column(name) for name in (*LOOKUP_SIGNALS, *RECYCLED_SIGNALS)]
        tokens = forest.column("token")[new].tolist()
        for place, parent in enumerate(parents.tolist()):
            answer = answers.get(parent)
            if answer is None:
                continue
            known, memories = answer
            prior, signals = self._signals(tokens[place], known, memories)
            row = new.start + place
            for values, value in zip(columns, signals, strict=True):
                values[row] = value
            if prior > priors[place]:
                priors[place] = prior

    def _merge(
        self, known: Continuations | None, memories: Recycled | None
    ) -> Iterator[tuple[int, float, int, tuple[float, ...]]]:
        """(token, prior, source bits, signals) of what is proposed below one row: the lookup's first, then the rest."""
        found = () if known is None else known.tokens[: self.envelope.lookup_width]
        again = () if memories is None else memories.tokens[: self.envelope.recycled_width]
        for token in found:
            if token >= 0:
                sources = LOOKUP | RECYCLED if token in again else LOOKUP
                yield token, *self._proposed(token, sources, known, memories)
        for token in again:
            if token >= 0 and token not in found:
                yield token, *self._proposed(token, RECYCLED, known, memories)

    def _proposed(
        self, token: int, sources: int, known: Continuations | None, memories: Recycled | None
    ) -> tuple[float, int, tuple[float, ...]]:
        prior, signals = self._signals(token, known, memories)
        return prior, sources, signals

    def _signals(
        self, token: int, known: Continuations | None, memories: Recycled | None
    ) -> tuple[float, tuple[float, ...]]:
        """(prior, LOOKUP_SIGNALS and RECYCLED_SIGNALS) of `token` below a row of which the sources said this.

        A token that a source does not know has probability, count and share 0 beside the length of the context.
        """
        prior = 0.0
        if known is None:
            looked_up: tuple[float, ...] = _NOT_LOOKED_UP
        elif token in known.tokens:
            rank = known.tokens.index(token)
            share = known.shares[rank]
            prior = float(np.float32(self.prior_table.prior(known.match_length, share)))
            looked_up = (known.match_length, known.counts[rank], share, known.ages[rank], rank)
        else:
            looked_up = (known.match_length, 0.0, 0.0, _NAN, _NAN)
        if memories is None:
            return prior, looked_up + _NOT_RECYCLED
        if token not in memories.tokens:
            return prior, (*looked_up, 0.0, memories.order, memories.weight, _NAN)
        rank = memories.tokens.index(token)
        prob = memories.probs[rank]
        return max(prior, prob), (*looked_up, prob, memories.order, memories.weight, rank)

    def _path(self, forest: Forest, row: int) -> tuple[int, ...]:
        """Tokens from below the root to `row`."""
        known = self._paths.get(row)
        if known is None:
            parent = int(forest.column("parent")[row])
            token = int(forest.column("token")[row])
            known = self._paths[row] = () if parent < 0 else (*self._path(forest, parent), token)
        return known
