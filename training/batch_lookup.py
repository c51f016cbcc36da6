"""What the lookup offers below forest rows, for all requests of a batch at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.envelope import Envelope, PriorTable
from treewise.data.errors import CoverageError
from treewise.policy.forest import BELOW, Forest
from treewise.policy.hook import LOOKUP, DraftSource, Float32Array, Int32Array, LookupSource
from treewise.policy.lookup_growth import IndexArray, LookupGrowth
from treewise.policy.round import RoundBuilder
from treewise.training.logged_batch import BatchPlaces
from treewise.training.logged_columns import LoggedColumns

_Chain = dict[str, NDArray[Any]]  # new rows of one depth below the rows that were asked, by column


class BatchLookupGrowth(LookupGrowth):
    """Offers what `LookupGrowth` would, in its order, from the columns of the log: one depth of all chains at a time.

    The live engine asks an index, path by path; there is none here, and asking by path costs most of a replay's time.
    """

    def __init__(self, envelope: Envelope, prior_table: PriorTable, places: BatchPlaces) -> None:
        super().__init__(envelope, prior_table, whole_chains=True)
        self._places, self._looked_up = places, places.columns.looked_up
        self._table = np.asarray(prior_table.by_match_length, dtype=np.float64)
        self._left_out: list[tuple[IndexArray, Int32Array]] = []  # rows, not all of whose continuations were offered

    def clear(self) -> None:
        """Forget the round."""
        super().clear()
        self._left_out.clear()

    def offer(
        self,
        forest: Forest,
        rows: IndexArray,
        lookups: Sequence[LookupSource | None],
        limits: Int32Array,
        draft: DraftSource | None,
    ) -> IndexArray:
        """As `LookupGrowth.offer`. Raises `CoverageError` where the log did not ask the lookup."""
        request, depth = forest.column("request")[rows], forest.column("depth")[rows]
        line: _Chain = {
            "row": np.arange(-len(rows), 0),  # those that were asked count up to -1, what they bring from 0
            "top": np.arange(len(rows)),
            "place": self._places.of(rows),
            "request": request,
            "depth": depth,
            "path_prior": forest.column("path_prior")[rows].astype(np.float64),
        }
        offered: list[_Chain] = []
        asked: list[IndexArray] = []
        matched: list[Int32Array] = []
        partly: list[tuple[IndexArray, Int32Array]] = []
        count = 0
        while True:
            within = line["depth"] < limits[line["request"]]  # below the others a log need not hold what would follow
            line = {name: values[within] for name, values in line.items()}
            if not len(line["row"]):
                break
            asked.append(line["row"])
            matched.append(self._looked_up.match_length[line["place"]])
            below, is_partial = self._below(line)
            partly.append((line["row"][is_partial], line["place"][is_partial]))
            below["row"] = np.arange(count, count + len(below["place"]))
            count += len(below["place"])
            offered.append(below)
            line = {name: below[name] for name in line}
        return self._append(forest, rows, offered, (asked, matched), partly, draft)

    def fill_in(self, forest: Forest, parents: NDArray[Any], new: slice, priors: NDArray[np.float32]) -> None:
        """As `LookupGrowth.fill_in`."""
        super().fill_in(forest, parents, new, priors)
        if not self._left_out or not len(parents):
            return
        place_of = np.full(forest.num_rows, -1, dtype=np.int32)
        for rows, places in self._left_out:
            place_of[rows] = places
        places = place_of[parents]
        chosen = (places >= 0).nonzero()[0]
        if not chosen.size:
            return
        looked_up, column = self._looked_up, forest.column
        first = looked_up.starts[places[chosen]]
        size = looked_up.starts[places[chosen] + 1] - first
        among = np.arange(int(size.max()))
        entries = np.minimum(first[:, None] + among, len(looked_up.tokens) - 1)
        tokens = column("token")[new][chosen]
        where, rank = ((looked_up.tokens[entries] == tokens[:, None]) & (among < size[:, None])).nonzero()
        entry, at = entries[where, rank], chosen[where]
        known = at + new.start
        column("lookup_count")[known] = looked_up.counts[entry]
        column("lookup_share")[known] = looked_up.shares[entry]
        column("lookup_age")[known] = looked_up.ages[entry]
        column("lookup_rank")[known] = rank
        priors[at] = np.maximum(priors[at], self._priors(looked_up.match_length[places[at]], looked_up.shares[entry]))

    def _priors(self, match_length: Int32Array, share: Float32Array) -> Float32Array:
        """`PriorTable.prior` of continuations [n], rounded to float32."""
        entry = self._table[np.minimum(match_length, len(self._table) - 1)]
        return np.asarray(entry * share.astype(np.float64)).astype(np.float32)

    def _below(self, line: _Chain) -> tuple[_Chain, NDArray[np.bool_]]:
        """(what is offered directly below the rows of `line`, which of those rows have more that is not)."""
        looked_up, places = self._looked_up, line["place"]
        if not looked_up.asked[places].all():
            raise CoverageError("the log did not ask the lookup there")
        first = looked_up.starts[places]
        known = looked_up.starts[places + 1] - first
        size = np.minimum(known, self.envelope.lookup_width)
        ends = size.cumsum()
        parent = np.repeat(np.arange(len(places)), size)
        rank = np.arange(len(parent)) - np.repeat(ends - size, size)
        entry = first[parent] + rank
        length, share = looked_up.match_length[places][parent], looked_up.shares[entry]
        prior = self._priors(length, share)
        path_prior = (line["path_prior"][parent] * prior.astype(np.float64)).astype(np.float32).astype(np.float64)
        is_held = looked_up.tokens[entry] >= 0
        # The first that is too unlikely ends the row's offer.
        ended = (is_held & (path_prior < self.envelope.min_path_prior)).cumsum()
        before = np.concatenate([[0], ended])[ends - size]
        kept = (is_held & (ended == before[parent])).nonzero()[0]
        own, entry = parent[kept], entry[kept]
        below: _Chain = {
            "parent": line["row"][own],
            "top": line["top"][own],
            "place": looked_up.places[entry],
            "request": line["request"][own],
            "depth": line["depth"][own] + 1,
            "token": looked_up.tokens[entry],
            "prior": prior[kept],
            "path_prior": path_prior[kept],
            "lookup_match_length": length[kept],
            "lookup_count": looked_up.counts[entry],
            "lookup_share": share[kept],
            "lookup_age": looked_up.ages[entry],
            "lookup_rank": rank[kept],
        }
        return below, np.bincount(own, minlength=len(places)) < known

    def _append(
        self,
        forest: Forest,
        rows: IndexArray,
        offered: list[_Chain],
        answers: tuple[list[IndexArray], list[Int32Array]],
        partly: list[tuple[IndexArray, Int32Array]],
        draft: DraftSource | None,
    ) -> IndexArray:
        """Append the rows in the order of `LookupGrowth`: those below one row together, by depth."""
        if not offered:
            return np.zeros(0, dtype=np.intp)
        columns = {name: np.concatenate([part[name] for part in offered]) for name in offered[0]}
        order = columns["top"].argsort(kind="stable")
        count = len(order)
        base = forest.num_rows
        row_of = np.empty(count + len(rows), dtype=np.intp)  # the last entries are of the rows that were asked
        row_of[order] = np.arange(base, base + count)
        row_of[count:] = rows
        new = forest.append(count)
        self.offers += count
        forest.column(BELOW)[row_of[np.concatenate(answers[0])]] = np.concatenate(answers[1])
        self._left_out.extend((row_of[own], places) for own, places in partly if len(own))
        if count:
            columns = {name: values[order] for name, values in columns.items()}
            columns["parent"] = row_of[columns["parent"]]
            tops, places = rows[columns.pop("top")], columns.pop("place")
            del columns["row"]
            forest.write(new, **columns, sources=LOOKUP)
            self._places.note(new, places)
            if draft is not None:
                forest.column("in_draft_vocab")[new] = draft.in_vocab(forest.column("token")[new].copy())
            return np.asarray(tops)
        return np.zeros(0, dtype=np.intp)


class BatchBuilder(RoundBuilder):
    """A `RoundBuilder` whose lookup reads the columns of a log; it needs no `LookupSource`."""

    def __init__(
        self, envelope: Envelope, prior_table: PriorTable, ranking: str, columns: LoggedColumns, has_lookup: bool
    ) -> None:
        super().__init__(envelope, prior_table, ranking=ranking)
        self.places = BatchPlaces(columns, self.forest)  # of the forest's rows in the log
        self._lookup = BatchLookupGrowth(envelope, prior_table, self.places)
        self._has_lookup = has_lookup

    def _open(
        self,
        limits: Int32Array,
        root_tokens: Int32Array,
        lookups: Sequence[LookupSource | None],
        draft: DraftSource | None,
    ) -> None:
        super()._open(limits, root_tokens, lookups, draft)
        if not self._has_lookup:
            return
        column, roots, looked_up = self.forest.column, self.places.roots, self.places.columns.looked_up
        column("may_grow")[:] |= np.where(limits > 0, np.uint8(LOOKUP), np.uint8(0))
        column("lookup_match_length")[:] = looked_up.match_length[roots]
        column("lookup_count")[:] = 0
        column("lookup_share")[:] = 0
        first = looked_up.starts[roots]
        known = (looked_up.starts[roots + 1] > first).nonzero()[0]
        column("lookup_count")[known] = looked_up.counts[first[known]]
        column("lookup_share")[known] = looked_up.shares[first[known]]
        column("lookup_age")[known] = looked_up.ages[first[known]]
