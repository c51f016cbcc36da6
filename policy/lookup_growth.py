"""What the suffix lookup offers below forest rows: chains of several depths, alternatives as branches."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.envelope import Envelope, PriorTable
from treewise.policy.forest import BELOW, Forest
from treewise.policy.hook import LOOKUP, Continuations, DraftSource, Int32Array, LookupSource

IndexArray = NDArray[np.intp]
_WRITTEN = (
    *("request", "parent", "depth", "token", "prior", "path_prior"),
    *("lookup_match_length", "lookup_count", "lookup_share", "lookup_age", "lookup_rank"),
)


class LookupGrowth:
    """Offers what the lookup knows, and remembers what it did not offer."""

    def __init__(self, envelope: Envelope, prior_table: PriorTable, whole_chains: bool) -> None:
        self.envelope = envelope
        self.prior_table = prior_table
        self.whole_chains = whole_chains
        self.offers = 0  # rows that it has offered in this round
        self.left_out: dict[int, Continuations] = {}  # forest row -> all that is known, where not all was offered
        self._paths: dict[int, tuple[int, ...]] = {}

    def clear(self) -> None:
        """Forget the round."""
        self.offers = 0
        self.left_out.clear()
        self._paths.clear()

    def offer(
        self,
        forest: Forest,
        rows: IndexArray,
        lookups: Sequence[LookupSource | None],
        limits: Int32Array,
        draft: DraftSource | None,
    ) -> IndexArray:
        """Append everything that the lookup alone holds below each of `rows`, within the envelope.

        `limits` [requests] is the deepest node of each request. Returns the row of `rows` that each new row is below.
        """
        offered: list[tuple[float, ...]] = []  # in the order of _WRITTEN
        asked: list[int] = []
        matched: list[int] = []
        tops: list[int] = []
        width, floor, prior_of = self.envelope.lookup_width, self.envelope.min_path_prior, self.prior_table.prior
        whole_chains, base = self.whole_chains, forest.num_rows
        requests = forest.column("request")[rows].tolist()
        depths, path_priors = forest.column("depth")[rows].tolist(), forest.column("path_prior")[rows].tolist()
        for top, request, top_depth, top_prior in zip(rows.tolist(), requests, depths, path_priors, strict=True):
            lookup, limit = lookups[request], int(limits[request])
            assert lookup is not None  # may_grow has no lookup bit without one
            queue = deque([(top, self._path(forest, top), top_depth, top_prior)])
            while queue:
                row, path, depth, path_prior = queue.popleft()
                if depth >= limit:  # nothing may be offered below it, and a log need not hold what would follow
                    continue
                known = lookup.continuations(path)
                length, tokens = known.match_length, known.tokens
                asked.append(row)
                matched.append(length)
                depth += 1
                count = 0
                for rank, token in enumerate(tokens[:width]):
                    if token < 0:
                        continue
                    share = known.shares[rank]
                    prior = float(np.float32(prior_of(length, share)))
                    below = float(np.float32(path_prior * prior))
                    if below < floor:
                        break
                    child = base + len(offered)
                    signals = (length, known.counts[rank], share, known.ages[rank], rank)
                    offered.append((request, row, depth, token, prior, below, *signals))
                    tops.append(top)
                    count += 1
                    child_path = self._paths[child] = (*path, token)
                    if whole_chains:
                        queue.append((child, child_path, depth, below))
                if count < len(tokens):
                    self.left_out[row] = known
        new = forest.append(len(offered))
        self.offers += len(offered)
        forest.column(BELOW)[asked] = matched
        if offered:
            forest.write(new, **dict(zip(_WRITTEN, zip(*offered, strict=True), strict=True)), sources=LOOKUP)
            if draft is not None:
                forest.column("in_draft_vocab")[new] = draft.in_vocab(forest.column("token")[new].copy())
        return np.asarray(tops, dtype=np.intp)

    def fill_in(self, forest: Forest, parents: NDArray[Any], new: slice, priors: NDArray[np.float32]) -> None:
        """Give draft candidates [new rows] below `parents` [new rows] what the lookup knows of them.

        A token that it does not know has count 0 and share 0 beside the match length. `priors` [new rows] rise to the
        lookup's where it is the more confident source.
        """
        length = forest.column(BELOW)[parents]
        nothing = length * np.float32(0.0)  # NaN where the lookup was not asked
        forest.write(new, lookup_match_length=length, lookup_count=nothing, lookup_share=nothing)
        if not self.left_out:
            return
        column = forest.column
        tokens = column("token")[new].tolist()
        for place, parent in enumerate(parents.tolist()):
            known = self.left_out.get(parent)
            if known is None or tokens[place] not in known.tokens:
                continue
            rank, row = list(known.tokens).index(tokens[place]), new.start + place
            share = known.shares[rank]
            column("lookup_count")[row] = known.counts[rank]
            column("lookup_share")[row] = share
            column("lookup_age")[row] = known.ages[rank]
            column("lookup_rank")[row] = rank
            priors[place] = max(priors[place], np.float32(self.prior_table.prior(known.match_length, share)))

    def _path(self, forest: Forest, row: int) -> tuple[int, ...]:
        """Tokens from below the root to `row`."""
        known = self._paths.get(row)
        if known is None:
            parent = int(forest.column("parent")[row])
            token = int(forest.column("token")[row])
            known = self._paths[row] = () if parent < 0 else (*self._path(forest, parent), token)
        return known
