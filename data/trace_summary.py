"""What a trace holds, in figures: sizes, acceptance by task, match rate by source."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from treewise.data.trace_reader import TraceReader
from treewise.data.trace_schema import TraceShard

SUMMARY_VERSION = 1
_SOURCE_NAMES = {1: "lookup", 2: "draft", 3: "both"}


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """One kind of task."""

    task: str
    prompts: int
    rounds: int
    tokens_per_round: float  # committed by a round; 1 in a dense trace
    accepted_length: float | None  # mean depth of the deepest surviving node: verified ones live, offered ones dense
    draft_agreement: float | None  # share of committed tokens that were the draft's first guess, where it was asked
    lookup_agreement: float | None  # the same of the lookup's first continuation, where it had one


@dataclass(frozen=True, slots=True)
class SourceSummary:
    """The candidates that one source, or both, proposed."""

    source: str  # "lookup", "draft" or "both"
    candidates: int
    known: int  # whose parent was on the path, so that match is known
    match_rate: float | None  # share of the known that matched
    survivors: int  # whose whole path matched


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """Figures of one trace."""

    manifest: dict[str, Any]
    shards: int
    skipped_shards: int
    leftovers: int  # temporary files and folders of unfinished writers
    requests: int
    prompts: int
    rounds: int
    nodes: int
    committed_tokens: int
    fallback_rounds: int
    tasks: tuple[TaskSummary, ...]  # by name
    sources: tuple[SourceSummary, ...]

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping; `treewise/schemas/traces_summary.json` describes it."""
        return {"schema_version": SUMMARY_VERSION, **asdict(self)}


class _TaskCount:
    """Running sums of one task."""

    def __init__(self) -> None:
        self.prompts: set[str] = set()
        self.rounds = 0
        self.committed = 0
        self.accepted = 0
        self.agreed = {"draft": 0, "lookup": 0}
        self.asked = {"draft": 0, "lookup": 0}

    def add(self, shard: TraceShard, accepted: Any) -> None:
        rounds = shard.rounds
        self.prompts.update(rounds.prompt_id.tolist())
        self.rounds += len(rounds)
        self.committed += len(rounds.committed)
        self.accepted += int(accepted.sum())
        for source, agrees in (("draft", rounds.draft_agrees), ("lookup", rounds.lookup_agrees)):
            self.agreed[source] += int((agrees == 1).sum())
            self.asked[source] += int((agrees >= 0).sum())

    def summary(self, task: str) -> TaskSummary:
        return TaskSummary(
            task=task,
            prompts=len(self.prompts),
            rounds=self.rounds,
            tokens_per_round=self.committed / self.rounds,
            accepted_length=_ratio(self.accepted, self.rounds),
            draft_agreement=_ratio(self.agreed["draft"], self.asked["draft"]),
            lookup_agreement=_ratio(self.agreed["lookup"], self.asked["lookup"]),
        )


def summarize(reader: TraceReader) -> TraceSummary:
    """Figures over all shards, one in memory at a time. Raises `ShardError` unless the reader skips bad shards."""
    tasks: dict[str, _TaskCount] = {}
    by_source = {bits: np.zeros(4, dtype=np.int64) for bits in _SOURCE_NAMES}  # candidates, known, matched, survivors
    shards = requests = rounds = nodes = committed = fallbacks = 0
    prompts: set[str] = set()
    for shard in reader:
        shards += 1
        requests += shard.num_requests
        rounds += len(shard.rounds)
        nodes += len(shard.nodes)
        committed += len(shard.rounds.committed)
        fallbacks += int(shard.rounds.fallback.sum())
        prompts.update(shard.rounds.prompt_id.tolist())
        accepted = deepest_survivors(shard)
        for task in np.unique(shard.rounds.task).tolist():
            rows = shard.rounds.task == task
            tasks.setdefault(task, _TaskCount()).add(shard.take(rows), accepted[rows])
        for bits, sums in by_source.items():
            chosen = (shard.nodes.sources & 3) == bits
            match = shard.nodes.match[chosen]
            sums += (chosen.sum(), (match >= 0).sum(), (match == 1).sum(), shard.nodes.survives[chosen].sum())
    return TraceSummary(
        manifest=reader.manifest.to_json(),
        shards=shards,
        skipped_shards=reader.skipped,
        leftovers=reader.leftovers,
        requests=requests,
        prompts=len(prompts),
        rounds=rounds,
        nodes=nodes,
        committed_tokens=committed,
        fallback_rounds=fallbacks,
        tasks=tuple(tasks[task].summary(task) for task in sorted(tasks)),
        sources=tuple(
            SourceSummary(_SOURCE_NAMES[bits], int(offered), int(known), _ratio(matched, known), int(survivors))
            for bits, (offered, known, matched, survivors) in by_source.items()
            if offered
        ),
    )


def deepest_survivors(shard: TraceShard) -> Any:
    """[rounds] accepted length as recorded; in a dense trace the depth of the deepest surviving candidate."""
    depth = np.zeros(len(shard.rounds), dtype=np.int64)
    np.maximum.at(depth, shard.round_rows(), np.where(shard.nodes.survives, shard.nodes.depth, 0))
    return np.where(shard.rounds.accepted_length >= 0, shard.rounds.accepted_length, depth)


def _ratio(part: int | np.int64, whole: int | np.int64) -> float | None:
    return float(part / whole) if whole else None
