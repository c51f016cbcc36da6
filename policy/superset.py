"""The superset tree: every candidate that any policy could be offered inside an envelope, whatever it asks in which order.

What a round's builder offers depends on the order of asking: a lookup asked before the draft stops at the lookup's own
path prior, one asked below a drafted node goes on from the draft's. So a log that covers both is not what one greedy
policy would see. Here both sources speak at a node before anything below it is offered, depth by depth, which gives
every node the largest path prior that any order of asking could give it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from treewise.data.envelope import Envelope, PriorTable
from treewise.policy.forest import Forest
from treewise.policy.hook import (
    DRAFT,
    LOOKUP,
    Continuations,
    DraftGuesses,
    DraftSource,
    Int32Array,
    LookupSource,
    RoundContext,
)
from treewise.policy.round import RoundTree

_WRITTEN = (
    "request", "parent", "depth", "token", "sources", "prior", "path_prior", "draft_missing", "draft_prob",
    "draft_rank", "draft_entropy", "draft_margin", "lookup_match_length", "lookup_count", "lookup_share", "lookup_age",
    "lookup_rank", "level",
)  # fmt: skip


class SupersetBuilder:
    """Grows superset trees for a batch of roots. Owns the forest, which is valid until the next `build`."""

    def __init__(self, envelope: Envelope, prior_table: PriorTable) -> None:
        self.envelope = envelope
        self.prior_table = prior_table
        self.forest = Forest()
        self._paths: list[tuple[int, ...]] = []
        self._new: dict[str, list[Any]] = {}

    def build(
        self,
        context: RoundContext,
        root_tokens: Int32Array,
        lookups: Sequence[LookupSource | None],
        draft: DraftSource | None,
    ) -> RoundTree:
        """The trees below `root_tokens` [requests]; everything is admitted, grown where allowed, and kept."""
        forest = self.forest
        limits = np.minimum(self.envelope.max_depth, context.remaining_tokens - 1)
        self._open(root_tokens)
        growth_tokens: list[int] = []
        start = 0
        while start < forest.num_rows:
            depth, request = forest.column("depth")[start:], forest.column("request")[start:]
            rows = (start + np.flatnonzero(depth < limits[request])).tolist()
            start = forest.num_rows
            known = {row: self._look_up(row, lookups) for row in rows if lookups[self._request(row)] is not None}
            run = [row for row in rows if forest.column("path_prior")[row] >= self.envelope.min_grow_prior]
            guesses, scores = None, {}
            if draft is not None and run:
                guesses, scores = self._draft(run, known, draft)
                growth_tokens.append(len(run))
            places = {row: place for place, row in enumerate(run)}
            self._new = {name: [] for name in _WRITTEN}
            for row in rows:
                self._offer(row, known.get(row), guesses, places.get(row), scores)
            self._write(draft)
        return RoundTree(forest, np.ones(forest.num_rows, dtype=np.bool_), tuple(growth_tokens), 0)

    def _open(self, root_tokens: Int32Array) -> None:
        forest, count = self.forest, len(root_tokens)
        forest.clear()
        forest.append(count)
        forest.column("request")[:] = np.arange(count)
        forest.column("token")[:] = root_tokens
        forest.column("admitted")[:] = True
        self._paths = [()] * count

    def _request(self, row: int) -> int:
        return int(self.forest.column("request")[row])

    def _look_up(self, row: int, lookups: Sequence[LookupSource | None]) -> Continuations:
        lookup = lookups[self._request(row)]
        assert lookup is not None
        known = lookup.continuations(self._paths[row])
        column = self.forest.column
        column("grown")[row] |= LOOKUP
        column("may_grow")[row] |= LOOKUP
        if column("parent")[row] < 0:
            column("lookup_match_length")[row] = known.match_length
            column("lookup_count")[row] = known.counts[0] if known.counts else 0
            column("lookup_share")[row] = known.shares[0] if known.shares else 0
            if known.ages:
                column("lookup_age")[row] = known.ages[0]
        return known

    def _draft(
        self, run: list[int], known: dict[int, Continuations], draft: DraftSource
    ) -> tuple[DraftGuesses, dict[tuple[int, int], tuple[float, float]]]:
        """Guesses below `run`, and (row, token) -> (probability, rank) of what the lookup proposes there."""
        column = self.forest.column
        asked = [
            (place, row, token)
            for place, row in enumerate(run)
            if row in known
            for token in known[row].tokens[: self.envelope.lookup_width]
        ]
        guesses = draft.grow(
            self.forest.view(),
            np.asarray(run, dtype=np.int32),
            np.asarray([place for place, _, _ in asked], dtype=np.int32),
            np.asarray([token for _, _, token in asked], dtype=np.int32),
        )
        for name in ("grown", "may_grow"):
            column(name)[run] |= DRAFT
        column("drafted")[run] = True
        found = zip(asked, guesses.extra_probs.tolist(), guesses.extra_ranks.tolist(), strict=True)
        return guesses, {(row, token): (prob, rank) for (_, row, token), prob, rank in found}

    def _offer(
        self,
        row: int,
        known: Continuations | None,
        guesses: DraftGuesses | None,
        place: int | None,
        scores: dict[tuple[int, int], tuple[float, float]],
    ) -> None:
        """Offer below `row` what either source would offer, with the signals of both."""
        path_prior = self.forest.column("path_prior")[row]
        width, floor = self.envelope.draft_width, self.envelope.min_path_prior
        offered = set()
        if known is not None:
            for rank, token in enumerate(known.tokens[: self.envelope.lookup_width]):
                lookup_prior = np.float32(self.prior_table.prior(known.match_length, known.shares[rank]))
                prob, draft_rank = scores.get((row, token), (math.nan, math.nan))
                by_lookup = path_prior * lookup_prior >= floor
                in_width = draft_rank < width  # NaN is not
                if by_lookup or (in_width and path_prior * np.float32(prob) >= floor):
                    offered.add(token)
                    bits = (LOOKUP if by_lookup else 0) | (DRAFT if in_width else 0)
                    self._append(row, token, bits, np.fmax(lookup_prior, np.float32(prob)), known, rank)
                    self._append_draft(prob, draft_rank, guesses, place)
        if guesses is None or place is None:
            return
        for draft_rank in range(min(width, guesses.tokens.shape[1])):
            token, prob = int(guesses.tokens[place, draft_rank]), np.float32(guesses.probs[place, draft_rank])
            if token < 0 or not path_prior * prob >= floor:
                break
            if token in offered:
                continue
            rank = list(known.tokens).index(token) if known is not None and token in known.tokens else -1
            prior = prob
            if known is not None and rank >= 0:
                prior = max(prob, np.float32(self.prior_table.prior(known.match_length, known.shares[rank])))
            self._append(row, token, DRAFT, prior, known, rank)
            self._append_draft(float(prob), draft_rank, guesses, place)

    def _append(
        self, row: int, token: int, bits: int, prior: np.floating[Any], known: Continuations | None, rank: int
    ) -> None:
        """One candidate below `row`; `rank` -1 is a token that the lookup does not know."""
        column, new = self.forest.column, self._new
        has_rank = known is not None and rank >= 0
        above = bool(column("drafted")[row])
        values = {
            "request": column("request")[row],
            "parent": row,
            "depth": column("depth")[row] + 1,
            "level": column("depth")[row] + 1,
            "token": token,
            "sources": bits,
            "prior": prior,
            "path_prior": column("path_prior")[row] * prior,
            "draft_missing": 0 if above else column("draft_missing")[row] + 1,
            "lookup_match_length": math.nan if known is None else known.match_length,
            "lookup_count": known.counts[rank] if known is not None and has_rank else math.nan if known is None else 0,
            "lookup_share": known.shares[rank] if known is not None and has_rank else math.nan if known is None else 0,
            "lookup_age": known.ages[rank] if known is not None and has_rank else math.nan,
            "lookup_rank": rank if has_rank else math.nan,
        }
        for name, value in values.items():
            new[name].append(value)
        self._paths.append((*self._paths[row], token))

    def _append_draft(self, prob: float, rank: float, guesses: DraftGuesses | None, place: int | None) -> None:
        new = self._new
        new["draft_prob"].append(prob)
        new["draft_rank"].append(rank)
        ran = guesses is not None and place is not None
        new["draft_entropy"].append(guesses.entropy[place] if guesses is not None and ran else math.nan)
        new["draft_margin"].append(guesses.margin[place] if guesses is not None and ran else math.nan)

    def _write(self, draft: DraftSource | None) -> None:
        rows = self.forest.append(len(self._new["token"]))
        column = self.forest.column
        for name in _WRITTEN:
            column(name)[rows] = self._new[name]
        column("admitted")[rows] = True
        if draft is not None and self._new["token"]:
            column("in_draft_vocab")[rows] = draft.in_vocab(np.asarray(self._new["token"], dtype=np.int32))
