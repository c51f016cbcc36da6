"""What a trace holds, in figures: sizes, acceptance by task, by source and by the draft's entropy."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.trace_reader import TraceReader
from treewise.data.trace_schema import TraceShard

SUMMARY_VERSION = 2
SOURCE_BITS = {"lookup": 1, "draft": 2, "recycled": 4}
ENTROPY_EDGES_BITS = (0.0, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # the last bin is open
_EVERY = sum(SOURCE_BITS.values())


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
    lookup_match_rate: float | None  # share of the source's candidates, of those that can be known, that matched
    draft_match_rate: float | None
    recycled_match_rate: float | None


@dataclass(frozen=True, slots=True)
class SourceSummary:
    """The candidates that the same sources proposed; each is in one of these."""

    source: str  # names joined by " + "
    candidates: int
    known: int  # whose parent was on the path, so that match is known
    match_rate: float | None  # share of the known that matched
    survivors: int  # whose whole path matched
    verified: int  # sent to the target; 0 in a dense trace
    accepted: int  # of those, on the committed path


@dataclass(frozen=True, slots=True)
class EntropyBin:
    """Places on the committed path where the draft ran, by the entropy of what it said."""

    low_bits: float
    high_bits: float | None  # None: open
    places: int
    first_match_rate: float | None  # share of them whose first guess was the target's token
    match_rate: float | None  # share of them where one of the draft's candidates was


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """Figures of one trace."""

    manifest: dict[str, Any]
    shards: int
    skipped_shards: int
    leftovers: int  # temporary files and folders of unfinished writers
    requests: int
    explored_requests: int  # that an exploring policy decided
    prompts: int
    rounds: int
    nodes: int
    committed_tokens: int
    fallback_rounds: int
    tasks: tuple[TaskSummary, ...]  # by name
    sources: tuple[SourceSummary, ...]
    entropy: tuple[EntropyBin, ...]  # ascending; empty where the draft never ran

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping; `treewise/schemas/traces_summary.json` describes it."""
        return {"schema_version": SUMMARY_VERSION, **asdict(self)}

    def to_csv(self) -> str:
        """Every figure on a line of its own: table, row, measure, value; an unknown value is empty."""
        lines: list[tuple[str, str, str, Any]] = []
        whole = self.to_json()
        for name, value in whole.items():
            if isinstance(value, int):
                lines.append(("trace", "", name, value))
        lines.extend(("envelope", "", name, value) for name, value in self.manifest["envelope"].items())
        for table, rows, key in (("task", whole["tasks"], "task"), ("source", whole["sources"], "source")):
            for row in rows:
                lines.extend((table, row[key], name, value) for name, value in row.items() if name != key)
        for row in self.entropy:
            measures = {name: value for name, value in asdict(row).items() if not name.endswith("_bits")}
            lines.extend(("entropy", bits(row), name, value) for name, value in measures.items())
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("table", "row", "measure", "value"))
        writer.writerows(lines)
        return text.getvalue()


def bits(found: EntropyBin) -> str:
    """The bounds of a bin, in bits."""
    return f"{found.low_bits:g}-{found.high_bits:g}" if found.high_bits is not None else f"{found.low_bits:g}-"


class _TaskCount:
    """Running sums of one task."""

    def __init__(self) -> None:
        self.prompts: set[str] = set()
        self.rounds = 0
        self.committed = 0
        self.accepted = 0
        self.agreed = {"draft": 0, "lookup": 0}
        self.asked = {"draft": 0, "lookup": 0}
        self.matched = dict.fromkeys(SOURCE_BITS, 0)
        self.known = dict.fromkeys(SOURCE_BITS, 0)

    def add(self, shard: TraceShard, accepted: Any) -> None:
        rounds, nodes = shard.rounds, shard.nodes
        self.prompts.update(rounds.prompt_id.tolist())
        self.rounds += len(rounds)
        self.committed += len(rounds.committed)
        self.accepted += int(accepted.sum())
        for source, agrees in (("draft", rounds.draft_agrees), ("lookup", rounds.lookup_agrees)):
            self.agreed[source] += int((agrees == 1).sum())
            self.asked[source] += int((agrees >= 0).sum())
        for source, bit in SOURCE_BITS.items():
            match = nodes.match[(nodes.sources & bit) > 0]
            self.matched[source] += int((match == 1).sum())
            self.known[source] += int((match >= 0).sum())

    def summary(self, task: str) -> TaskSummary:
        return TaskSummary(
            task=task,
            prompts=len(self.prompts),
            rounds=self.rounds,
            tokens_per_round=self.committed / self.rounds,
            accepted_length=_ratio(self.accepted, self.rounds),
            draft_agreement=_ratio(self.agreed["draft"], self.asked["draft"]),
            lookup_agreement=_ratio(self.agreed["lookup"], self.asked["lookup"]),
            **{f"{source}_match_rate": _ratio(self.matched[source], self.known[source]) for source in SOURCE_BITS},
        )


class _SourceCount:
    """Running sums by set of sources and by the draft's entropy."""

    def __init__(self) -> None:
        # By source bits: candidates, known, matched, survivors, verified, accepted.
        self.by_bits = np.zeros((_EVERY + 1, 6), dtype=np.int64)
        self.by_entropy = np.zeros((len(ENTROPY_EDGES_BITS), 3), dtype=np.int64)  # places, first matched, any matched

    def add(self, shard: TraceShard) -> None:
        nodes = shard.nodes
        own = nodes.sources & _EVERY
        known, matched = nodes.match >= 0, nodes.match == 1
        marks = (known | True, known, matched, nodes.survives, nodes.kept, nodes.on_path)
        self.by_bits += np.stack([_counts(own[mark], _EVERY + 1) for mark in marks], axis=1)
        drafted = known & ~np.isnan(nodes.draft_entropy)
        place = np.searchsorted(ENTROPY_EDGES_BITS, np.nan_to_num(nodes.draft_entropy), "right") - 1
        rows = np.flatnonzero(drafted)
        _, firsts = np.unique((shard.round_rows()[rows] << 32) + nodes.parent[rows], return_index=True)
        one_each = np.zeros(len(nodes), dtype=np.bool_)  # one candidate of each place stands for it
        one_each[rows[firsts]] = True
        hits = drafted & matched
        hit_marks = (one_each, hits & (nodes.draft_rank == 0), hits & ((own & SOURCE_BITS["draft"]) > 0))
        self.by_entropy += np.stack([_counts(place[mark], len(ENTROPY_EDGES_BITS)) for mark in hit_marks], axis=1)

    def sources(self) -> tuple[SourceSummary, ...]:
        rows = enumerate(self.by_bits.tolist())
        return tuple(
            SourceSummary(
                " + ".join(name for name, bit in SOURCE_BITS.items() if own & bit) or "none",
                offered,
                known,
                _ratio(matched, known),
                *rest,
            )
            for own, (offered, known, matched, *rest) in sorted(rows, key=lambda row: (row[0].bit_count(), row[0]))
            if offered
        )

    def entropy(self) -> tuple[EntropyBin, ...]:
        if not self.by_entropy.any():
            return ()
        ends = (*ENTROPY_EDGES_BITS[1:], None)
        return tuple(
            EntropyBin(low, high, places, _ratio(first, places), _ratio(proposed, places))
            for low, high, (places, first, proposed) in zip(
                ENTROPY_EDGES_BITS, ends, self.by_entropy.tolist(), strict=True
            )
        )


def summarize(reader: TraceReader) -> TraceSummary:
    """Figures over all shards, one in memory at a time. Raises `ShardError` unless the reader skips bad shards."""
    tasks: dict[str, _TaskCount] = {}
    count = _SourceCount()
    shards = requests = explored = rounds = nodes = committed = fallbacks = 0
    prompts: set[str] = set()
    for shard in reader:
        shards += 1
        requests += shard.num_requests
        explored += len(np.unique(shard.rounds.request[shard.rounds.explorer != ""]))
        rounds += len(shard.rounds)
        nodes += len(shard.nodes)
        committed += len(shard.rounds.committed)
        fallbacks += int(shard.rounds.fallback.sum())
        prompts.update(shard.rounds.prompt_id.tolist())
        accepted = deepest_survivors(shard)
        for task in np.unique(shard.rounds.task).tolist():
            rows = shard.rounds.task == task
            tasks.setdefault(task, _TaskCount()).add(shard.take(rows), accepted[rows])
        count.add(shard)
    return TraceSummary(
        manifest=reader.manifest.to_json(),
        shards=shards,
        skipped_shards=reader.skipped,
        leftovers=reader.leftovers,
        requests=requests,
        explored_requests=explored,
        prompts=len(prompts),
        rounds=rounds,
        nodes=nodes,
        committed_tokens=committed,
        fallback_rounds=fallbacks,
        tasks=tuple(tasks[task].summary(task) for task in sorted(tasks)),
        sources=count.sources(),
        entropy=count.entropy(),
    )


def deepest_survivors(shard: TraceShard) -> Any:
    """[rounds] accepted length as recorded; in a dense trace the depth of the deepest surviving candidate."""
    depth = np.zeros(len(shard.rounds), dtype=np.int64)
    np.maximum.at(depth, shard.round_rows(), np.where(shard.nodes.survives, shard.nodes.depth, 0))
    return np.where(shard.rounds.accepted_length >= 0, shard.rounds.accepted_length, depth)


def _counts(values: NDArray[Any], classes: int) -> NDArray[np.int64]:
    return np.bincount(values, minlength=classes).astype(np.int64)


def _ratio(part: int | np.int64, whole: int | np.int64) -> float | None:
    return float(part / whole) if whole else None
