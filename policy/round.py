"""One round's tree, grown through the hook: the code that the live engine and replay share.

The builder asks the policy level by level, asks the sources that the policy chose, merges their candidates by token,
holds the envelope, and closes what the policy keeps under parents. It never looks at the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treewise.data.envelope import Envelope, PriorTable
from treewise.policy.draft_growth import DraftGrowth
from treewise.policy.draft_ranking import PLAIN
from treewise.policy.forest import BELOW, BELOW_RECYCLED, Forest, close_upward
from treewise.policy.free_growth import FreeGrowth
from treewise.policy.hook import (
    DRAFT,
    FREE,
    LOOKUP,
    RECYCLED,
    BoolArray,
    DraftSource,
    Expansion,
    ForestView,
    Int32Array,
    Level,
    LookupSource,
    RecycledSource,
    RoundContext,
    TreePolicy,
    UInt8Array,
)

IndexArray = NDArray[np.intp]
_NO_ROWS: IndexArray = np.zeros(0, dtype=np.intp)


@dataclass(frozen=True, slots=True)
class RoundTree:
    """The tree of one round, ready to be verified."""

    forest: Forest
    kept: BoolArray  # [rows] closed under parents; roots are True
    growth_tokens: tuple[int, ...]  # draft tokens run by each growth, catch-up included
    policy_calls: int  # expand and select

    @property
    def num_nodes(self) -> int:
        """Verified nodes, over the whole batch."""
        return int(self.kept.sum() - (self.forest.column("parent") < 0).sum())


class RoundBuilder:
    """Grows the trees of one round for a batch of requests.

    Every source is optional. The builder owns the forest, which is valid until the next `build`. Without
    `whole_chains` the free sources' guesses are offered one depth at a time: then every row's path prior is final
    before anything is offered below it, and growing everything brings whatever any order of asking could bring.
    """

    def __init__(
        self, envelope: Envelope, prior_table: PriorTable, whole_chains: bool = True, ranking: str = PLAIN
    ) -> None:
        self.envelope = envelope
        self.forest = Forest()
        self._free = FreeGrowth(envelope, prior_table, whole_chains)
        self._draft = DraftGrowth(envelope, ranking)

    def build(
        self,
        policy: TreePolicy,
        context: RoundContext,
        root_tokens: Int32Array,
        lookups: Sequence[LookupSource | None],
        draft: DraftSource | None,
        recycled: Sequence[RecycledSource | None] = (),
    ) -> RoundTree:
        """Grow, then keep. `root_tokens` [requests], `lookups` and `recycled` follow the order of `context`.

        An empty `recycled`: that source does not exist.

        Exceptions of the policy pass through; wrap it in `ContainedPolicy` to survive them.
        """
        forest = self.forest
        limits = self.depth_limits(context)
        self._open(limits, root_tokens, lookups, draft, recycled)
        growth_tokens: list[int] = []
        start, index = 0, 0
        while True:
            level = Level(index, start, forest.view(start), forest.view(), context)
            grow = self._admit(policy.expand(level), start)
            index += 1
            if not grow.any():
                break
            free = grow & np.uint8(FREE)
            own = free.nonzero()[0]
            rows = own + start
            drafts = (grow & DRAFT).nonzero()[0] + start
            start = forest.num_rows
            tops = _NO_ROWS
            if rows.size:
                tops = self._free.offer(forest, rows, free[own], lookups, recycled, limits, draft)
            forest.column("level")[start:] = index
            if drafts.size and draft is not None:
                growth_tokens.append(self._draft.offer(forest, drafts, draft, context, limits, self._free))
            if forest.num_rows == start:
                break
            forest.column("level")[start:] = index
            self._finish_level(start, tops, limits, draft is not None)
        keep = policy.select(ForestView(forest.view(), context))
        kept = keep & forest.column("admitted")
        kept[: len(root_tokens)] = True
        return RoundTree(forest, close_upward(kept, forest.column("parent")), tuple(growth_tokens), index + 1)

    def depth_limits(self, context: RoundContext) -> Int32Array:
        """Deepest node of each request, [requests]: the bonus token always has a place among the remaining tokens."""
        return np.minimum(self.envelope.max_depth, context.remaining_tokens - 1)

    def _open(
        self,
        limits: Int32Array,
        root_tokens: Int32Array,
        lookups: Sequence[LookupSource | None],
        draft: DraftSource | None,
        recycled: Sequence[RecycledSource | None] = (),
    ) -> None:
        forest, column = self.forest, self.forest.column
        forest.clear()
        self._free.clear()
        count = len(root_tokens)
        forest.append(count)
        column("request")[:] = np.arange(count)
        column("token")[:] = root_tokens
        column("admitted")[:] = True
        bits = np.full(count, 0 if draft is None else DRAFT, dtype=np.uint8)
        for row, lookup in enumerate(lookups):
            if lookup is not None:
                bits[row] |= LOOKUP
                first = lookup.continuations(())
                column("lookup_match_length")[row] = first.match_length
                column("lookup_count")[row] = first.counts[0] if first.counts else 0
                column("lookup_share")[row] = first.shares[0] if first.shares else 0
                if first.ages:
                    column("lookup_age")[row] = first.ages[0]
        for row, memory in enumerate(recycled):
            if memory is not None:
                bits[row] |= RECYCLED
                known = memory.recycled(())
                column("recycled_prob")[row] = known.probs[0] if known.probs else 0
                column("recycled_order")[row] = known.order
                column("recycled_weight")[row] = known.weight
        column("may_grow")[:] = np.where(limits > 0, bits, 0)

    def _admit(self, expansion: Expansion, start: int) -> UInt8Array:
        """Write the answer for the rows from `start` on; return their growth bits, [candidates]."""
        column, admitted = self.forest.column, self.forest.column("admitted")
        grow: UInt8Array = expansion.grow & column("may_grow")[start:]
        column("grown")[start:] = grow
        admitted[start:] |= expansion.admit | (expansion.grow > 0)
        if start:
            admitted[:] = close_upward(admitted, column("parent"))
        return grow

    def _finish_level(self, start: int, tops: IndexArray, limits: Int32Array, drafts: bool) -> None:
        """Price and permission of the new rows, once every ancestor's state is final.

        `tops` are the rows below which a free source was asked, one for each of the first new rows; the draft ran on
        the parents of the others.
        """
        column = self.forest.column
        request, depth, may_grow = column("request"), column("depth"), column("may_grow")
        new = slice(start, None)
        if tops.size:
            missing = column("draft_missing")
            chain = slice(start, start + len(tops))
            above = np.where(column("drafted")[tops], -1, missing[tops])
            missing[chain] = above + depth[chain] - depth[tops]
        requests = request[new]
        open_bits = may_grow[requests]
        likely = column("path_prior")[new] >= self.envelope.min_grow_prior
        # A row is asked once: what went on below it in a chain may not be asked again.
        fresh = np.isnan(column(BELOW)[new]) & np.isnan(column(BELOW_RECYCLED)[new])
        bits = fresh * (open_bits & LOOKUP) | (fresh & likely) * (open_bits & RECYCLED)
        if drafts:
            bits |= likely * np.uint8(DRAFT)
        may_grow[new] = bits * (depth[new] < limits[requests])
