"""A trace made ready for replay: its requests, and the deployment that it stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from treewise.data.cost import CostProfile
from treewise.data.envelope import SLACK, Envelope
from treewise.data.errors import CoverageError, TraceError
from treewise.data.trace_listing import ListedRequest, list_trace
from treewise.data.trace_manifest import EXACT, TraceManifest
from treewise.data.trace_reader import TraceReader
from treewise.data.trace_schema import TraceShard
from treewise.policy.hook import DRAFT, LOOKUP, RECYCLED, Deployment
from treewise.training.logged import LoggedRequest, requests_of
from treewise.training.stored_requests import GroupSize, StoredRequests, StoredShards, grouped


@dataclass(frozen=True, slots=True)
class LoggedTrace:
    """The requests of one trace and the conditions they were made under."""

    name: str
    manifest: TraceManifest
    requests: Sequence[LoggedRequest]  # in memory, or read when they are asked for
    sources: int  # source bits that the log holds

    @property
    def pair_name(self) -> str:
        """Target and draft, for people."""
        pair = self.manifest.pair
        return f"{pair.get('target', 'unknown target')}+{pair.get('draft') or 'none'}"

    @property
    def origin(self) -> str:
        """Where acceptance comes from, in words."""
        return f"acceptance from trace {self.name} of pair {self.pair_name}"

    @property
    def envelope(self) -> Envelope:
        """What replay holds policies to: the log's own envelope, slightly tightened where the log is dense."""
        logged = self.manifest.envelope
        if self.manifest.kind != "dense":
            return logged
        return logged.widened(1.0 / SLACK)

    def deployment(
        self, cost: CostProfile, envelope: Envelope | None = None, row_buckets: tuple[int, ...] = ()
    ) -> Deployment:
        """What a policy is told before its replay.

        Raises `CoverageError` where `envelope` is wider than the log, `TraceError` as `check_exact` does.
        """
        check_exact(self.name, self.manifest)
        if envelope is not None and (gaps := self.manifest.envelope.covers(envelope)):
            raise CoverageError(f"trace {self.name} is narrower than the envelope asked for: {', '.join(gaps)}")
        return Deployment(
            cost=cost,
            envelope=self.envelope if envelope is None else envelope,
            prior_table=self.manifest.prior_table,
            sources=self.sources,
            vocab_size=self.manifest.vocab_size,
            row_buckets=row_buckets,
            ranking=self.manifest.ranking,
        )

    def unexplored(self) -> LoggedTrace:
        """The requests that the manifest's policy decided, or that nobody did. Raises `TraceError` on none."""
        if self.manifest.kind == "dense":
            return self
        places = [place for place, request in enumerate(self.requests) if not request.explorer]
        if not places:
            raise TraceError(f"trace {self.name} must hold a request that {self.manifest.policy} decided, got none")
        return self if len(places) == len(self.requests) else self.only(places)

    @property
    def is_stored(self) -> bool:
        """Whether the requests are on disk, so that another process can read them for itself."""
        return isinstance(self.requests, StoredRequests)

    @property
    def entries(self) -> Sequence[ListedRequest]:
        """What is known of each request without reading the trace again, [requests]."""
        if isinstance(self.requests, StoredRequests):
            return self.requests.entries
        return [_entry(request) for request in self.requests]

    def groups(self) -> list[LoggedTrace]:
        """The trace in parts that are replayed together, whole requests in the log's order.

        Of a trace on disk one part after the other is read; what is in memory is one part for every set of columns.
        """
        return [replace(self, requests=part) for part in grouped(self.requests)] or [self]

    def only(self, places: Sequence[int]) -> LoggedTrace:
        """The requests at `places`, in the log's order; of a trace on disk they are read when they are asked for."""
        if isinstance(self.requests, StoredRequests):
            return replace(self, requests=self.requests.at(places))
        return replace(self, requests=tuple(self.requests[place] for place in sorted(places)))

    def in_memory(self) -> LoggedTrace:
        """The same requests, to stay in memory, and nothing else of what their shards hold."""
        if isinstance(self.requests, StoredRequests):
            return replace(self, requests=tuple(self.requests.cut_out()))
        return self

    def check_priced_alone(self) -> None:
        """Raise `TraceError` where rounds were taken in a batch: a round's price is that of a request alone."""
        for request in self.requests if self.manifest.kind == "live" else ():
            if request.was_batched:
                raise TraceError(
                    f"trace {self.name} must be of requests decoded alone to be priced, got prompt {request.prompt_id} "
                    "decoded in a batch; `treewise replay` repeats its decisions"
                )

    def of_task(self, task: str) -> LoggedTrace:
        """The requests of one task. Raises `TraceError` where there are none."""
        entries = self.entries
        chosen = [place for place, entry in enumerate(entries) if entry.task == task]
        if not chosen:
            tasks = sorted({entry.task for entry in entries})
            raise TraceError(f"task must be one of {', '.join(tasks)}, got {task!r}")
        return self.only(chosen)

    def of_prompts(self, prompt_ids: Sequence[str]) -> LoggedTrace:
        """The requests of the prompts named, in the log's order."""
        wanted = set(prompt_ids)
        return self.only([place for place, entry in enumerate(self.entries) if entry.prompt_id in wanted])


def _entry(request: LoggedRequest) -> ListedRequest:
    nodes = sum(rows.stop - rows.start for rows in map(request.node_rows, request.rows.values()))
    return ListedRequest(
        prompt_id=request.prompt_id,
        task=request.task,
        seed=request.seed,
        prompt_tokens=request.prompt_tokens,
        num_tokens=request.num_tokens,
        num_rounds=len(request.rows),
        num_nodes=nodes,
        shard=0,
    )


def logged_trace(name: str, manifest: TraceManifest, shard: TraceShard) -> LoggedTrace:
    """The trace `shard`, all of it in memory. Raises `TraceError` where its texts have gaps, or as `check_exact`."""
    check_exact(name, manifest)
    rounds = shard.rounds
    sources = _sources(
        manifest,
        int(np.bitwise_or.reduce(rounds.opening, initial=0)),
        not np.isnan(rounds.lookup_match_length).all(),
        not np.isnan(rounds.recycled_order).all(),
    )
    requests = list(requests_of(shard, manifest))
    return LoggedTrace(name, manifest, tuple(requests[place] for place in _first_of_each(requests)), sources)


def _sources(manifest: TraceManifest, opening: int, has_lookup: bool, has_recycled: bool) -> int:
    """Source bits that a log holds, from what its rounds say."""
    if manifest.kind == "dense":
        return opening
    has_draft = manifest.draft_reads != "none"
    return LOOKUP * has_lookup | RECYCLED * has_recycled | DRAFT * has_draft


def _first_of_each(requests: Sequence[LoggedRequest | ListedRequest]) -> list[int]:
    """Places of the first request of each prompt and seed: of two collections in one folder both may hold it."""
    first: dict[tuple[str, int], int] = {}
    for place, request in enumerate(requests):
        first.setdefault((request.prompt_id, request.seed), place)
    return list(first.values())


def check_exact(name: str, manifest: TraceManifest) -> None:
    """Raise `TraceError` where a lossy rule verified the trace: the text depends on the policy that was running."""
    if manifest.verification != EXACT:
        raise TraceError(
            f"verification of trace {name} must be {EXACT!r} for replay, A/B tests and training, "
            f"got {manifest.verification!r}: under a lossy rule another policy would have committed another text; "
            f"collect the trace again with `--verification {EXACT}`"
        )


def check_distinct(traces: Sequence[LoggedTrace]) -> None:
    """Raise `TraceError` where two traces hold the same prompt under the same conditions: it would count twice."""
    owner: dict[tuple[str, int, float], str] = {}
    for trace in traces:
        for request in trace.entries:
            key = (request.prompt_id, request.seed, trace.manifest.temperature)
            if key in owner:
                raise TraceError(
                    f"traces must hold a prompt once, got {request.prompt_id} in {owner[key]} and in {trace.name}"
                )
            owner[key] = trace.name


def open_trace(folder: str | Path, name: str = "", size: GroupSize | None = None) -> LoggedTrace:
    """The trace in `folder`, called `name` or by its folder; it is read group by group when its requests are asked for.

    `size` bounds a group. Raises `TraceError`, `ShardError` or `SchemaVersionError`; reading a shard whose rows break
    the rules of `TraceShard.check` raises `ShardError` later.
    """
    reader = TraceReader(folder)
    called = name or Path(folder).resolve().name
    check_exact(called, reader.manifest)
    listing = list_trace(reader)
    requests = StoredRequests(StoredShards(reader, listing, size or GroupSize()), _first_of_each(listing.requests))
    sources = _sources(reader.manifest, listing.opening, listing.has_lookup, listing.has_recycled)
    return LoggedTrace(called, reader.manifest, requests, sources)
