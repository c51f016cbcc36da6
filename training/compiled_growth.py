"""Growth over the columns of a log as machine code: the same offers, in a few calls for all requests of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.envelope import Envelope, PriorTable
from treewise.data.errors import CoverageError
from treewise.data.trace_schema import NodeTable
from treewise.policy.draft_growth import DraftGrowth
from treewise.policy.draft_ranking import PLAIN
from treewise.policy.forest import ASKED, BELOW, BELOW_RECYCLED, Forest
from treewise.policy.free_growth import LOOKUP_SIGNALS, RECYCLED_SIGNALS, FreeGrowth, IndexArray
from treewise.policy.hook import (
    DraftSource,
    Int32Array,
    LookupSource,
    RecycledSource,
    RoundContext,
    UInt8Array,
)
from treewise.training.batch_free import BatchFreeGrowth, not_asked
from treewise.training.compiled_offers import NO_ROOM, offer_draft, offer_free, run_draft
from treewise.training.compiled_writes import write_draft, write_free
from treewise.training.logged_batch import BatchDraft, BatchPlaces
from treewise.training.logged_tree import SCORES

# What the free sources offer in one call, in the order of `offer_free`: the row that was asked, then the new ones.
_OFFERED: tuple[tuple[str, type], ...] = (
    ("top", np.int64),
    *(("parent", np.int32), ("node", np.int32), ("depth", np.int32)),
    *(("prior", np.float32), ("path_prior", np.float32), ("spoke", np.uint8), ("goes_on", np.uint8)),
)
# Columns of the forest that either growth writes, in the order of `write_free` and `write_draft`.
_WRITTEN = ("request", "parent", "depth", "token", "prior", "path_prior", "sources")
_STATE = ("draft_entropy", "draft_margin")
_FIRST_ROOM = 4096  # rows


class CompiledFreeGrowth(BatchFreeGrowth):
    """`BatchFreeGrowth` as machine code."""

    def __init__(self, envelope: Envelope, prior_table: PriorTable, places: BatchPlaces) -> None:
        super().__init__(envelope, prior_table, places)
        nodes = self._nodes
        self.signals = (_contiguous(nodes, LOOKUP_SIGNALS), _contiguous(nodes, RECYCLED_SIGNALS))
        self.priors = (self._looked_up, self.signals[1][0])  # of each source, by node
        self._make_room(_FIRST_ROOM)

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
        """As `BatchFreeGrowth.offer`."""
        column, said, held = forest.column, self._said, self._held
        while True:
            count = offer_free(
                *(rows, bits, self._places.known, column("request"), column("depth"), column("path_prior"), limits),
                *(column(BELOW), column(BELOW_RECYCLED), held.starts, held.nodes, self._node_place),
                *(said.asked, said.match_length, said.order, *self.priors),
                *(self.envelope.min_path_prior, self.envelope.min_grow_prior, *self._room.values()),
            )
            if count != NO_ROOM:
                break
            self._make_room(2 * len(self._room["node"]))
        if count < 0:
            raise not_asked(-count)
        tops, *offered = (values[:count] for values in self._room.values())
        new = forest.append(count)
        self.offers += count
        given: list[Any] = [
            *(new.start, draft is not None, *offered, self._node_place, self._token, held.proposed),
            *(self._nodes.in_draft_vocab, said.match_length, said.order, *self.signals, self._places.known),
            *(column(name) for name in (*_WRITTEN, ASKED, BELOW, BELOW_RECYCLED, "in_draft_vocab")),
            *(_columns(forest, names) for names in (LOOKUP_SIGNALS, RECYCLED_SIGNALS)),
        ]
        write_free(*given)
        return tops.copy()

    def _make_room(self, rows: int) -> None:
        self._room: dict[str, NDArray[Any]] = {name: np.empty(rows, dtype=kind) for name, kind in _OFFERED}


class CompiledDraftGrowth(DraftGrowth):
    """`DraftGrowth` over the columns of a log as machine code."""

    def __init__(self, envelope: Envelope, ranking: str, places: BatchPlaces, free: CompiledFreeGrowth) -> None:
        super().__init__(envelope, ranking)
        self._places, self._columns, self._free = places, places.columns, free
        columns = self._columns
        self._node_prior = columns.node_prior
        self._is_proposed = columns.proposed(envelope.draft_width)
        self._width = envelope.draft_width if ranking == PLAIN else -1
        self._scores = _contiguous(columns.shard.nodes, SCORES)
        self._num_scores = len(SCORES) if columns.is_drawn else 2  # that the log holds

    def offer(
        self,
        forest: Forest,
        rows: IndexArray,
        draft: DraftSource,
        context: RoundContext,
        limits: Int32Array,
        free: FreeGrowth,
    ) -> int:
        """As `DraftGrowth.offer`; `draft` only counts. Raises `CoverageError` where the log did not draft."""
        assert isinstance(draft, BatchDraft)
        column, columns, known = forest.column, self._columns, self._places.known
        total, roots = forest.num_rows, len(limits)
        tokens, run = np.zeros(roots, dtype=np.int64), np.empty(total, dtype=np.int32)
        parent, request = column("parent"), column("request")
        run = run[: run_draft(rows, parent, request, column("drafted"), context.catch_up, tokens, run)]
        draft.growths.append(tokens)
        drafted, most = columns.drafted, columns.proposals
        found = [np.empty(most * len(run), dtype=np.int32) for _ in ("parent", "node", "column")]
        extras = np.empty(total + 1, dtype=np.int32)
        count = offer_draft(
            *(run, parent, request, column("depth"), known, limits, roots),
            *(column("prior"), column("path_prior"), column("sources")),
            *(drafted.starts, drafted.nodes, drafted.ran, columns.place_node, columns.node_place),
            *(self._node_prior, self._is_proposed, self._width, most, self.envelope.min_path_prior, extras, *found),
        )
        if count < 0:
            raise CoverageError("the log did not draft there")
        new = forest.append(count)
        given: list[Any] = [
            *(new.start, self._num_scores, extras[: extras[-1]], *(part[:count] for part in found), self._node_prior),
            *(*self._free.priors, columns.node_place, columns.place_node, columns.token, *self._free.signals),
            *(self._scores, (drafted.entropy, drafted.margin), column(BELOW), column(BELOW_RECYCLED)),
            *(self._places.known, *(column(name) for name in _WRITTEN)),
            *(_columns(forest, names) for names in (LOOKUP_SIGNALS, RECYCLED_SIGNALS, SCORES, _STATE)),
        ]
        write_draft(*given)
        return int(tokens.sum())


def _contiguous(nodes: NodeTable, names: Sequence[str]) -> tuple[NDArray[Any], ...]:
    return tuple(np.ascontiguousarray(getattr(nodes, name)) for name in names)


def _columns(forest: Forest, names: Sequence[str]) -> tuple[NDArray[Any], ...]:
    return tuple(forest.column(name) for name in names)
