"""What the free sources offer below forest rows, for all requests of a batch at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.envelope import Envelope, PriorTable
from treewise.data.errors import CoverageError
from treewise.policy.forest import ASKED, BELOW, BELOW_RECYCLED, Forest
from treewise.policy.free_growth import LOOKUP_SIGNALS, RECYCLED_SIGNALS, FreeGrowth, IndexArray
from treewise.policy.hook import (
    FREE,
    LOOKUP,
    RECYCLED,
    DraftSource,
    Float32Array,
    Int32Array,
    LookupSource,
    RecycledSource,
    UInt8Array,
)
from treewise.policy.learned import uses_compiled
from treewise.policy.round import RoundBuilder
from treewise.training.logged_batch import BatchPlaces
from treewise.training.logged_columns import LoggedColumns

_Chain = dict[str, NDArray[Any]]  # rows of one depth below the rows that were asked, by column
_NAN = np.float32(np.nan)
_NO_TOPS: IndexArray = np.zeros(0, dtype=np.intp)
_BOUNDED = np.uint8(~RECYCLED & FREE)  # what may be asked below rows under `Envelope.min_grow_prior`


class BatchFreeGrowth(FreeGrowth):
    """Offers what `FreeGrowth` would, in its order, from the columns of the log: one depth of all chains at a time.

    The live engine asks an index, path by path; there is none here, and asking by path costs most of a replay's time.
    A logged candidate has the signals of both sources already: what was not asked for is left out again.
    """

    def __init__(self, envelope: Envelope, prior_table: PriorTable, places: BatchPlaces) -> None:
        super().__init__(envelope, prior_table, whole_chains=True)
        self._places, columns = places, places.columns
        self._said, self._nodes, self._node_place = columns.free, columns.shard.nodes, columns.node_place
        self._token = columns.token
        self._held = columns.free_offers(envelope.lookup_width, envelope.recycled_width)
        self._looked_up = columns.lookup_prior(tuple(prior_table.by_match_length))

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
        """As `FreeGrowth.offer`. Raises `CoverageError` where the log did not ask one of the sources."""
        line: _Chain = {
            "row": np.arange(-len(rows), 0),  # those that were asked count up to -1, what they bring from 0
            "top": np.arange(len(rows)),
            "place": self._places.of(rows),
            "request": forest.column("request")[rows],
            "depth": forest.column("depth")[rows],
            "path_prior": forest.column("path_prior")[rows].astype(np.float64),
            ASKED: bits,
        }
        within = line["depth"] < limits[line["request"]]
        offered: list[_Chain] = []
        answers: list[_Chain] = []
        count = 0
        while within.any():
            line = {name: values[within] for name, values in line.items()}
            answers.append(self._answers(line))
            below = self._below(line, limits)
            below["row"] = np.arange(count, count + len(below["place"]))
            count += len(below["place"])
            offered.append(below)
            line = {name: below[name] for name in line}
            within = line[ASKED] > 0
        return self._append(forest, rows, offered, answers, draft)

    def fill_in(self, forest: Forest, parents: NDArray[Any], new: slice, priors: NDArray[np.float32]) -> None:
        """As `FreeGrowth.fill_in`."""
        if not len(parents):
            return
        looked_up, remembered = (~np.isnan(forest.column(name)[parents]) for name in (BELOW, BELOW_RECYCLED))
        chosen = (looked_up | remembered).nonzero()[0]
        if not chosen.size:
            return
        asked = (looked_up[chosen] * np.uint8(LOOKUP) | remembered[chosen] * np.uint8(RECYCLED)).astype(np.uint8)
        rows = chosen + new.start
        nodes = self._places.columns.children(self._places.of(parents[chosen]), forest.column("token")[rows])
        if (nodes < 0).any():
            raise CoverageError("the log holds no such candidate of the draft")
        self._places.note(rows, self._node_place[nodes])
        forest.write(rows, **self._spoken(nodes, asked))
        priors[chosen] = np.maximum(priors[chosen], self._priors(nodes, asked))

    def _answers(self, line: _Chain) -> _Chain:
        """How long a context each source that is asked below `line` knows there, NaN for the other."""
        said, places, asked = self._said, line["place"], line[ASKED]
        lacks = asked & ~said.asked[places]
        if lacks.any():
            raise not_asked(LOOKUP if (lacks & LOOKUP).any() else RECYCLED)
        return {
            "row": line["row"],
            BELOW: np.where(asked & LOOKUP, said.match_length[places], _NAN),
            BELOW_RECYCLED: np.where(asked & RECYCLED, said.order[places], _NAN),
        }

    def _below(self, line: _Chain, limits: Int32Array) -> _Chain:
        """What is offered directly below the rows of `line`."""
        parent, nodes = self._held.below(line["place"], line[ASKED])
        asked = line[ASKED][parent]
        prior = self._priors(nodes, asked)
        path_prior = (line["path_prior"][parent] * prior.astype(np.float64)).astype(np.float32).astype(np.float64)
        kept = (path_prior >= self.envelope.min_path_prior).nonzero()[0]
        parent, nodes, asked, path_prior = parent[kept], nodes[kept], asked[kept], path_prior[kept]
        request, depth = line["request"][parent], line["depth"][parent] + 1
        goes_on = np.where(path_prior >= self.envelope.min_grow_prior, asked, asked & _BOUNDED)
        return {
            "parent": line["row"][parent],
            "top": line["top"][parent],
            "place": self._node_place[nodes],
            "node": nodes,
            "request": request,
            "depth": depth,
            "prior": prior[kept],
            "path_prior": path_prior,
            "spoke": asked,
            ASKED: np.where(depth < limits[request], goes_on, np.uint8(0)),
        }

    def _spoken(self, nodes: Int32Array, asked: UInt8Array) -> _Chain:
        """The columns of the free sources for log `nodes` [n], of which those of `asked` [n] spoke."""
        found: _Chain = {}
        for bit, names in ((LOOKUP, LOOKUP_SIGNALS), (RECYCLED, RECYCLED_SIGNALS)):
            spoke = (asked & bit) > 0
            is_whole = bool(spoke.all())
            for name in names:
                values = getattr(self._nodes, name)[nodes]
                found[name] = values if is_whole else np.where(spoke, values, _NAN)
        return found

    def _priors(self, nodes: Int32Array, asked: UInt8Array) -> Float32Array:
        """The most confident free source's probability of log `nodes` [n], of those of `asked` [n]; float32."""
        lookup = np.where(asked & LOOKUP, self._looked_up[nodes], np.float32(0.0))
        return np.maximum(lookup, np.where(asked & RECYCLED, self._nodes.recycled_prob[nodes], np.float32(0.0)))

    def _append(
        self,
        forest: Forest,
        rows: IndexArray,
        offered: list[_Chain],
        answers: list[_Chain],
        draft: DraftSource | None,
    ) -> IndexArray:
        """Append the rows in the order of `FreeGrowth`: those below one row together, by depth."""
        if not offered:
            return _NO_TOPS
        columns, answer = (
            {name: np.concatenate([part[name] for part in p]) for name in p[0]} for p in (offered, answers)
        )
        order = columns["top"].argsort(kind="stable")
        count = len(order)
        base = forest.num_rows
        row_of = np.empty(count + len(rows), dtype=np.intp)  # the last entries are of the rows that were asked
        row_of[order] = np.arange(base, base + count)
        row_of[count:] = rows
        new = forest.append(count)
        self.offers += count
        forest.write(row_of[answer.pop("row")], **answer)
        if not count:
            return _NO_TOPS
        columns = {name: values[order] for name, values in columns.items()}
        columns["parent"] = row_of[columns["parent"]]
        tops, places = rows[columns.pop("top")], columns.pop("place")
        del columns["row"]
        nodes, asked = columns.pop("node"), columns.pop("spoke")
        sources = self._held.proposed[nodes] & asked
        forest.write(new, **columns, **self._spoken(nodes, asked), token=self._token[nodes], sources=sources)
        self._places.note(new, places)
        if draft is not None:
            forest.column("in_draft_vocab")[new] = draft.in_vocab(forest.column("token")[new].copy())
        return np.asarray(tops)


def not_asked(bit: int) -> CoverageError:
    """The error of a log that did not ask the free source of `bit`."""
    return CoverageError(f"the log did not ask the {'lookup' if bit == LOOKUP else 'recycled guesses'} there")


class BatchBuilder(RoundBuilder):
    """A `RoundBuilder` whose free sources are the columns of a log; it needs no `LookupSource` or `RecycledSource`."""

    def __init__(
        self, envelope: Envelope, prior_table: PriorTable, ranking: str, columns: LoggedColumns, sources: int
    ) -> None:
        super().__init__(envelope, prior_table, ranking=ranking)
        self.places = BatchPlaces(columns, self.forest)  # of the forest's rows in the log
        if uses_compiled("auto"):
            from treewise.training.compiled_growth import CompiledDraftGrowth, CompiledFreeGrowth

            self._free = free = CompiledFreeGrowth(envelope, prior_table, self.places)
            self._draft = CompiledDraftGrowth(envelope, ranking, self.places, free)
        else:
            self._free = BatchFreeGrowth(envelope, prior_table, self.places)
        self._sources = np.uint8(sources & FREE)

    def _open(
        self,
        limits: Int32Array,
        root_tokens: Int32Array,
        lookups: Sequence[LookupSource | None],
        draft: DraftSource | None,
        recycled: Sequence[RecycledSource | None] = (),
    ) -> None:
        super()._open(limits, root_tokens, lookups, draft, recycled)
        column, columns, roots = self.forest.column, self.places.columns, self.places.roots
        rounds, said = columns.shard.rounds, columns.free
        row = columns.root_place.searchsorted(roots)
        column("may_grow")[:] |= np.where(limits > 0, self._sources, np.uint8(0))
        if self._sources & LOOKUP:
            column("lookup_match_length")[:] = said.match_length[roots]
            column("lookup_count")[:] = np.nan_to_num(rounds.lookup_count[row])
            column("lookup_share")[:] = np.nan_to_num(rounds.lookup_share[row])
            column("lookup_age")[:] = rounds.lookup_age[row]
        if self._sources & RECYCLED:
            column("recycled_prob")[:] = np.nan_to_num(rounds.recycled_prob[row])
            column("recycled_order")[:] = said.order[roots]
            column("recycled_weight")[:] = np.nan_to_num(rounds.recycled_weight[row])
