"""A trace made ready for replay: its requests, and the deployment that it stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from treewise.data.cost import CostProfile
from treewise.data.envelope import SLACK, Envelope
from treewise.data.errors import CoverageError, TraceError
from treewise.data.trace_manifest import EXACT, TraceManifest
from treewise.data.trace_reader import TraceReader
from treewise.data.trace_schema import TraceShard
from treewise.policy.hook import DRAFT, LOOKUP, RECYCLED, Deployment
from treewise.training.logged import LoggedRequest, logged_requests


@dataclass(frozen=True, slots=True)
class LoggedTrace:
    """The requests of one trace and the conditions they were made under."""

    name: str
    manifest: TraceManifest
    requests: tuple[LoggedRequest, ...]
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

    def of_task(self, task: str) -> LoggedTrace:
        """The requests of one task. Raises `TraceError` where there are none."""
        chosen = tuple(request for request in self.requests if request.task == task)
        if not chosen:
            tasks = sorted({request.task for request in self.requests})
            raise TraceError(f"task must be one of {', '.join(tasks)}, got {task!r}")
        return replace(self, requests=chosen)

    def of_prompts(self, prompt_ids: Sequence[str]) -> LoggedTrace:
        """The requests of the prompts named, in the log's order."""
        wanted = set(prompt_ids)
        return replace(self, requests=tuple(request for request in self.requests if request.prompt_id in wanted))


def logged_trace(name: str, manifest: TraceManifest, shard: TraceShard) -> LoggedTrace:
    """The trace `shard`, all of it in memory. Raises `TraceError` where its texts have gaps, or as `check_exact`."""
    check_exact(name, manifest)
    rounds = shard.rounds
    if manifest.kind == "dense":
        sources = int(np.bitwise_or.reduce(rounds.opening, initial=0))
    else:
        sources = 0 if np.isnan(rounds.lookup_match_length).all() else LOOKUP
        sources |= 0 if np.isnan(rounds.recycled_order).all() else RECYCLED
        sources |= 0 if manifest.draft_reads == "none" else DRAFT
    requests = logged_requests(shard, manifest.envelope.draft_width, manifest.tokens_included, manifest.ranking)
    # Two collections that ran into one folder at once hold a prompt twice; it counts once.
    kept: dict[tuple[str, int], LoggedRequest] = {}
    for request in requests:
        kept.setdefault((request.prompt_id, request.seed), request)
    return LoggedTrace(name, manifest, tuple(kept.values()), sources)


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
        for request in trace.requests:
            key = (request.prompt_id, request.seed, trace.manifest.temperature)
            if key in owner:
                raise TraceError(
                    f"traces must hold a prompt once, got {request.prompt_id} in {owner[key]} and in {trace.name}"
                )
            owner[key] = trace.name


def open_trace(folder: str | Path) -> LoggedTrace:
    """The trace in `folder`. Raises `TraceError`, `ShardError` or `SchemaVersionError`."""
    reader = TraceReader(folder)
    return logged_trace(Path(folder).resolve().name, reader.manifest, reader.read_all())
