"""The requests of a trace on disk, read when they are asked for and forgotten again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, overload

import numpy as np

from treewise.data.trace_listing import ListedRequest, TraceListing
from treewise.data.trace_reader import TraceReader
from treewise.data.trace_schema import concatenate
from treewise.training.logged import LoggedRequest, requests_of


@dataclass(frozen=True, slots=True)
class GroupSize:
    """How much of a trace is in memory at once: whole shards, as many as fit, at least one.

    A candidate takes about 200 bytes while it is replayed, and as much again while it is read.
    """

    nodes: int = 1_500_000  # candidates
    requests: int = 256  # as many as replay takes side by side


class StoredShards:
    """The shards of the trace that `reader` has open, in groups, of which those used last stay in memory.

    Selections of requests share one of these. Another process that it is sent to reads for itself.
    """

    def __init__(self, reader: TraceReader, listing: TraceListing, size: GroupSize) -> None:
        self.reader = reader
        self.listing = listing
        self.size = size
        self._nodes, self._requests = np.zeros((2, len(listing.shards)), dtype=np.int64)  # [shards] each
        for listed in listing.requests:
            self._nodes[listed.shard] += listed.num_nodes
            self._requests[listed.shard] += 1
        self._kept: OrderedDict[tuple[int, ...], list[LoggedRequest]] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": OrderedDict()}

    def groups(self, shards: Sequence[int]) -> list[tuple[int, ...]]:
        """Places of `shards`, ascending, in runs that fit into memory."""
        found: list[tuple[int, ...]] = []
        for shard in shards:
            wider = [*(found[-1] if found else ()), shard]
            fits = self._nodes[wider].sum() <= self.size.nodes and self._requests[wider].sum() <= self.size.requests
            if found and fits:
                found[-1] = tuple(wider)
            else:
                found.append((shard,))
        return found

    def read(self, shards: tuple[int, ...]) -> list[LoggedRequest]:
        """Every request of `shards`, in order. Raises `ShardError`."""
        if shards not in self._kept:
            while self._kept and not self._has_room(shards):
                self._kept.popitem(last=False)  # those used longest ago
            shard = self.reader.read([self.listing.shards[place] for place in shards])
            first = int(self._requests[: shards[0]].sum())
            self._kept[shards] = list(requests_of(shard.renumbered(first), self.reader.manifest))
        self._kept.move_to_end(shards)
        return self._kept[shards]

    def _has_room(self, shards: tuple[int, ...]) -> bool:
        """Whether `shards` fit into memory beside what is there."""
        places = [place for key in (*self._kept, shards) for place in key]
        return bool(self._nodes[places].sum() <= self.size.nodes)


class StoredRequests(Sequence[LoggedRequest]):
    """Some requests of a trace on disk, in the log's order; those of one group share one set of columns.

    Whoever goes through them holds one group in memory, or two while the next is read, unless requests are kept: see
    `cut_out`.
    """

    def __init__(self, shards: StoredShards, chosen: Sequence[int]) -> None:
        """`chosen` are places in the listing, ascending."""
        self._shards = shards
        self._chosen = tuple(chosen)

    @property
    def entries(self) -> tuple[ListedRequest, ...]:
        """What is known of each without reading it."""
        return tuple(self._shards.listing.requests[place] for place in self._chosen)

    def __len__(self) -> int:
        return len(self._chosen)

    def __iter__(self) -> Iterator[LoggedRequest]:
        for group in self.groups():
            yield from group._read()

    @overload
    def __getitem__(self, place: int) -> LoggedRequest: ...
    @overload
    def __getitem__(self, place: slice) -> StoredRequests: ...
    def __getitem__(self, place: int | slice) -> LoggedRequest | StoredRequests:
        if isinstance(place, slice):
            return self.at(range(len(self))[place])
        number = range(len(self))[place]
        for group in self.groups():
            if number < len(group):
                return group._read()[number]
            number -= len(group)
        raise AssertionError("groups hold every request")

    def at(self, places: Sequence[int]) -> StoredRequests:
        """Those at `places`, in the log's order."""
        return StoredRequests(self._shards, sorted(self._chosen[place] for place in places))

    def groups(self) -> list[StoredRequests]:
        """Those that are read together, group by group."""
        requests = self._shards.listing.requests
        by_shard = {
            shard: list(places) for shard, places in groupby(self._chosen, key=lambda place: requests[place].shard)
        }
        return [
            StoredRequests(self._shards, [place for shard in shards for place in by_shard[shard]])
            for shards in self._shards.groups(list(by_shard))
        ]

    def cut_out(self) -> list[LoggedRequest]:
        """Each of them without what else its shard holds, so that they may be kept; they share one set of columns."""
        parts = []
        for group in self.groups():
            for request in group._read():
                parts.append(request.shard.take(np.fromiter(request.rows.values(), dtype=np.int64)))
        return list(requests_of(concatenate(parts), self._shards.reader.manifest)) if parts else []

    def _read(self) -> list[LoggedRequest]:
        """The requests, which are of one group."""
        requests = self._shards.listing.requests
        shards = tuple(dict.fromkeys(requests[place].shard for place in self._chosen))
        every = self._shards.read(shards)
        wanted = set(self._chosen)
        within = (place for place, listed in enumerate(requests) if listed.shard in shards)
        return [request for place, request in zip(within, every, strict=True) if place in wanted]


def grouped(requests: Sequence[LoggedRequest]) -> Sequence[Sequence[LoggedRequest]]:
    """`requests` in runs of those that share columns; of a trace on disk none is read yet."""
    if isinstance(requests, StoredRequests):
        return requests.groups()
    return [tuple(part) for _, part in groupby(requests, key=lambda request: request.columns)]
