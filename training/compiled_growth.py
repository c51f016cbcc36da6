"""Growth over the columns of a log as machine code: the same offers, in a few calls for all requests of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.envelope import Envelope, PriorTable
from treewise.data.errors import CoverageError
from treewise.policy.draft_growth import DraftGrowth
from treewise.policy.draft_ranking import PLAIN
from treewise.policy.forest import ASKED, BELOW, BELOW_RECYCLED, Forest
from treewise.policy.free_growth import LOOKUP_SIGNALS, RECYCLED_SIGNALS, FreeGrowth, IndexArray
from treewise.policy.hook import (
    DRAFT,
    LOOKUP,
    RECYCLED,
    DraftSource,
    Int32Array,
    LookupSource,
    RecycledSource,
    RoundContext,
    UInt8Array,
)
from treewise.training.batch_free import BatchFreeGrowth, not_asked
from treewise.training.compiled_offers import NO_ROOM, offer_draft, offer_free, raise_priors, run_draft, speak
from treewise.training.logged_batch import BatchDraft, BatchPlaces
from treewise.training.logged_tree import SCORES

# What the free sources offer in one call, in the order of `offer_free`: the row that was asked, then the forest's.
_OFFERED: tuple[tuple[str, type], ...] = (
    ("top", np.int64),
    *(("parent", np.int32), ("node", np.int32), ("request", np.int32), ("depth", np.int32)),
    *(("prior", np.float32), ("path_prior", np.float32), ("spoke", np.uint8), (ASKED, np.uint8)),
    *((BELOW, np.float32), (BELOW_RECYCLED, np.float32)),
)
_FIRST_ROOM = 4096  # rows


class CompiledFreeGrowth(BatchFreeGrowth):
    """`BatchFreeGrowth` as machine code."""

    def __init__(self, envelope: Envelope, prior_table: PriorTable, places: BatchPlaces) -> None:
        super().__init__(envelope, prior_table, places)
        nodes = self._nodes
        self._lookup = tuple(np.ascontiguousarray(getattr(nodes, name)) for name in LOOKUP_SIGNALS)
        self._recycled = tuple(np.ascontiguousarray(getattr(nodes, name)) for name in RECYCLED_SIGNALS)
        # What a node's prior follows from.
        self._graded = (self._lookup[0], self._lookup[2], self._recycled[0], self._table)
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
                *(said.asked, said.match_length, said.order, *self._graded),
                *(self.envelope.min_path_prior, self.envelope.min_grow_prior, *self._room.values()),
            )
            if count != NO_ROOM:
                break
            self._make_room(2 * len(self._room["node"]))
        if count < 0:
            raise not_asked(-count)
        offered = {name: values[:count] for name, values in self._room.items()}
        tops, nodes, spoke = offered.pop("top").copy(), offered.pop("node"), offered.pop("spoke")
        new = forest.append(count)
        self.offers += count
        proposed = held.by_lookup[nodes] * np.uint8(LOOKUP) | held.by_recycled[nodes] * np.uint8(RECYCLED)
        forest.write(new, **offered, token=self._token[nodes], sources=proposed & spoke)
        if draft is not None:
            forest.column("in_draft_vocab")[new] = self._nodes.in_draft_vocab[nodes]
        self._say(forest, new, nodes, spoke)
        return tops

    def tell(
        self, forest: Forest, parents: Int32Array, new: slice, nodes: Int32Array, priors: NDArray[np.float32]
    ) -> None:
        """`fill_in` where the draft's candidates are known to be log `nodes` [new rows]."""
        looked_up, remembered = (~np.isnan(forest.column(name)[parents]) for name in (BELOW, BELOW_RECYCLED))
        asked = looked_up * np.uint8(LOOKUP) | remembered * np.uint8(RECYCLED)
        self._say(forest, new, nodes, asked)
        raise_priors(nodes, asked, *self._graded, priors)

    def _say(self, forest: Forest, new: slice, nodes: Int32Array, asked: UInt8Array) -> None:
        """Note where `new` rows stand, and write the signals of the free sources that were `asked`."""
        self._places.note(new, self._node_place[nodes])
        lookup, recycled = (tuple(forest.column(name) for name in of) for of in (LOOKUP_SIGNALS, RECYCLED_SIGNALS))
        speak(nodes, asked, new.start, self._lookup, self._recycled, lookup, recycled)

    def _make_room(self, rows: int) -> None:
        self._room: dict[str, NDArray[Any]] = {name: np.empty(rows, dtype=kind) for name, kind in _OFFERED}


class CompiledDraftGrowth(DraftGrowth):
    """`DraftGrowth` over the columns of a log as machine code."""

    def __init__(self, envelope: Envelope, ranking: str, places: BatchPlaces, free: CompiledFreeGrowth) -> None:
        super().__init__(envelope, ranking)
        self._places, self._columns, self._free = places, places.columns, free
        self._node_prior = self._columns.node_prior
        self._is_proposed = self._columns.proposed(envelope.draft_width)
        self._width = envelope.draft_width if ranking == PLAIN else -1

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
        extras = extras[: extras[-1]]
        if len(extras):
            self._write(forest, extras, columns.place_node[known[extras]])
        parents, nodes, ranks = (part[:count] for part in found)
        new, depth = forest.append(count), forest.column("depth")[parents] + 1
        prior = self._node_prior[nodes]
        self._free.tell(forest, parents, new, nodes, prior)
        path_prior = forest.column("path_prior")[parents] * prior
        request, token = forest.column("request")[parents], columns.token[nodes]
        forest.write(new, request=request, parent=parents, depth=depth, token=token, sources=DRAFT)
        forest.write(new, prior=prior, path_prior=path_prior)
        self._write(forest, new, nodes)
        if not columns.is_drawn:
            forest.column("draft_rank")[new] = ranks
        return int(tokens.sum())

    def _write(self, forest: Forest, rows: slice | Int32Array, nodes: Int32Array) -> None:
        """Give forest `rows` [n] the draft's signals of log `nodes` [n]."""
        columns = self._columns
        places, table = columns.parent_place[nodes], columns.shard.nodes
        entropy, margin = columns.drafted.entropy[places], columns.drafted.margin[places]
        forest.write(rows, draft_entropy=entropy, draft_margin=margin)
        names = SCORES if columns.is_drawn else SCORES[:2]
        forest.write(rows, **{name: getattr(table, name)[nodes] for name in names})
