"""Export to vLLM: the number of chain tokens per batch size, from replay and cost profiles.

vLLM takes `num_speculative_tokens_per_batch_size`, a list of `[first batch size, last batch size, tokens]` that starts
at 1, does not overlap, and carries the last entry on (`vllm/v1/spec_decode/dynamic/utils.py`, read at 0.33.0).
Acceptance comes from exact replay of chains of every length on a dense trace, milliseconds from cost profiles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from treewise.data.cost import CostGrid, CostProfile
from treewise.data.errors import CoverageError, require
from treewise.policy.chain import ChainPolicy, ChainSettings
from treewise.policy.hook import DRAFT, LOOKUP
from treewise.training.ab_report import interval_json
from treewise.training.logged_trace import LoggedTrace, check_distinct
from treewise.training.replay import Replayer, check_reach
from treewise.training.replay_result import Float64Array, ReplayResult, grid_ms
from treewise.training.statistics import RESAMPLES, Interval, Totals, speed_ratio, totals_by_prompt

SCHEMA_VERSION = 1
TRIED_VERSIONS = "0.33.0"  # of vLLM, whose validation of the schedule was read
ChainSource: TypeAlias = Literal["draft", "lookup"]
Range: TypeAlias = tuple[int, int, int]  # first batch size, last batch size, chain tokens


@dataclass(frozen=True, slots=True)
class BatchCost:
    """What one round of a whole batch costs."""

    batch_size: int
    cost: CostProfile  # its rows and tokens are those of each request, its milliseconds those of the batch
    words: str  # where the milliseconds come from
    measured_rows: float  # rows of each request up to which `cost` rests on measured points

    def __post_init__(self) -> None:
        require(self.batch_size >= 1, "batch_size", "at least 1", self.batch_size)

    @classmethod
    def measured(cls, batch_size: int, cost: CostProfile) -> BatchCost:
        """From a profile that was measured with `batch_size` requests side by side, each of the rows it names."""
        words = f"batch size {batch_size}: milliseconds from profile {cost.name}, taken as measured at that batch size"
        return cls(batch_size, cost, words, float(cost.verify.counts[-1]))

    @classmethod
    def scaled(cls, batch_size: int, cost: CostProfile, max_tokens: int) -> BatchCost:
        """From a profile of one request: a pass of b requests with r rows each costs what b x r rows of one do.

        That holds for the weights' share of a pass; reading the caches of b requests costs more than reading one.
        """
        require(batch_size >= 1, "batch_size", "at least 1", batch_size)

        def batched(grid: CostGrid) -> CostGrid:
            counts = tuple(range(1, max_tokens + 3))
            rows = [grid.at(np.asarray(counts) * batch_size, capacity) for capacity in grid.capacities]
            return CostGrid(counts, grid.capacities, tuple(tuple(row.tolist()) for row in rows))

        scaled = replace(cost, verify=batched(cost.verify), draft=batched(cost.draft))
        words = f"batch size {batch_size}: milliseconds of {batch_size} x rows in profile {cost.name}, an assumption"
        return cls(batch_size, scaled, words, cost.verify.counts[-1] / batch_size)


@dataclass(frozen=True, slots=True)
class ChainRow:
    """One chain length at one batch size; 0 tokens is plain decoding. Milliseconds are modelled."""

    batch_size: int
    tokens: int  # of the chain
    committed_per_round: float  # by one request
    ms_per_round: float  # of the whole batch
    tokens_per_second: float  # of the whole batch
    speedup: Interval  # over plain decoding at the same batch size
    is_best: bool
    is_measured: bool  # False where the profile was extrapolated beyond its last measured rows


@dataclass(frozen=True, slots=True)
class VllmSchedule:
    """The best chain length per batch size, and the figures that it rests on."""

    ranges: tuple[Range, ...]
    rows: tuple[ChainRow, ...]
    acceptance: tuple[str, ...]  # origins, one a trace
    milliseconds: tuple[str, ...]  # origins, one a batch size
    sources: ChainSource

    @property
    def num_speculative_tokens(self) -> int:
        """The longest chain of the schedule; vLLM wants at least 1."""
        return max(1, max(tokens for _, _, tokens in self.ranges))

    def speculative_config(self, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What `--speculative-config` takes; `extra` holds the method and its model."""
        return {
            **(extra or {}),
            "num_speculative_tokens": self.num_speculative_tokens,
            "num_speculative_tokens_per_batch_size": [list(entry) for entry in self.ranges],
        }

    def to_json(self, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A JSON-ready mapping that fits `treewise/schemas/export_vllm.json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "vllm": TRIED_VERSIONS,
            "speculative_config": self.speculative_config(extra),
            "sources": self.sources,
            "acceptance": list(self.acceptance),
            "milliseconds": list(self.milliseconds),
            "rows": [{**asdict(row), "speedup": interval_json(row.speedup)} for row in self.rows],
        }


def export_vllm(
    traces: Sequence[LoggedTrace],
    costs: Sequence[BatchCost],
    max_tokens: int,
    sources: ChainSource = "draft",
    max_batch_size: int | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    advance: Callable[[int], None] | None = None,
) -> VllmSchedule:
    """The schedule that commits most tokens per second at every batch size of `costs`.

    Chains of 0 to `max_tokens` are replayed; a batch size between two of `costs` takes the larger one's length, the
    last one's goes on to `max_batch_size`. With the draft as source a round is charged its whole chain, as vLLM runs
    it, even where the log's envelope ended the chain early; with the lookup, what it found. Raises `CoverageError`
    where a trace is not dense or too shallow, or does not hold the source.
    """
    require(len(traces) > 0, "traces", "at least one", len(traces))
    require(len(costs) > 0, "costs", "at least one batch size", len(costs))
    require(1 <= max_tokens <= 64, "max_tokens", "between 1 and 64", max_tokens)
    # vLLM has n-gram speculation beside draft models, and nothing that keeps the target's earlier guesses.
    require(sources in get_args(ChainSource), "sources", f"one of {', '.join(get_args(ChainSource))}", sources)
    ordered = sorted(costs, key=lambda part: part.batch_size)
    sizes = [part.batch_size for part in ordered]
    require(len(set(sizes)) == len(sizes), "costs", "one a batch size", sizes)
    last = sizes[-1] if max_batch_size is None else max_batch_size
    require(last >= sizes[-1], "max_batch_size", f"at least {sizes[-1]}, the largest batch size of the costs", last)
    check_distinct(traces)
    replays = [_replays(trace, ordered[0].cost, max_tokens, sources, advance) for trace in traces]
    rows: list[ChainRow] = []
    ranges: list[Range] = []
    for part in ordered:
        found = _rows(part, replays, max_tokens, sources, resamples, seed)
        rows.extend(found)
        best = next(row.tokens for row in found if row.is_best)
        first = ranges[-1][1] + 1 if ranges else 1
        if ranges and ranges[-1][2] == best:
            first = ranges.pop()[0]
        ranges.append((first, part.batch_size, best))
    ranges[-1] = (ranges[-1][0], last, ranges[-1][2])
    return VllmSchedule(
        ranges=tuple(ranges),
        rows=tuple(rows),
        acceptance=tuple(trace.origin for trace in traces),
        milliseconds=tuple(part.words for part in ordered),
        sources=sources,
    )


def _replays(
    trace: LoggedTrace, cost: CostProfile, max_tokens: int, sources: ChainSource, advance: Callable[[int], None] | None
) -> list[ReplayResult]:
    """Replays of chains of 1 to `max_tokens`; chains read no costs, so one profile serves."""
    bit = DRAFT if sources == "draft" else LOOKUP
    if trace.manifest.kind != "dense":
        raise CoverageError(f"trace {trace.name} must be dense to replay chains of any length, got a live one")
    if not trace.sources & bit:
        raise CoverageError(f"trace {trace.name} holds no guesses of the {sources}")
    deployment = trace.deployment(cost)
    policies = [ChainPolicy(ChainSettings(length=length, sources=sources)) for length in range(1, max_tokens + 1)]
    drivers = [Replayer(policy, deployment) for policy in policies]
    check_reach(policies[-1], deployment, policies[-1].spec)
    for request in trace.requests:
        for driver in drivers:
            driver.run(request)
        request.release()
        if advance is not None:
            advance(len(drivers))
    return [driver.result() for driver in drivers]


def _rows(
    part: BatchCost,
    replays: Sequence[Sequence[ReplayResult]],
    max_tokens: int,
    sources: ChainSource,
    resamples: int,
    seed: int,
) -> list[ChainRow]:
    totals = [_totals([_plain_ms(part.cost, results[0]) for results in replays], replays, 0)]
    rounds = [int(totals[0].tokens.sum())]
    for length in range(1, max_tokens + 1):
        ms = [_round_ms(part.cost, results[length - 1], length, sources) for results in replays]
        by_request = [results[length - 1].by_request(values) for results, values in zip(replays, ms, strict=True)]
        totals.append(_totals(by_request, replays, length - 1))
        rounds.append(sum(len(results[length - 1]) for results in replays))
    speeds = [float(total.tokens.sum() / total.ms.sum()) for total in totals]
    best = int(np.argmax(speeds))  # over all lengths: the cost curve is a staircase, and ties go to the shorter chain
    return [
        ChainRow(
            batch_size=part.batch_size,
            tokens=length,
            committed_per_round=float(total.tokens.sum() / rounds[length]),
            ms_per_round=float(total.ms.sum() / rounds[length]),
            tokens_per_second=1000.0 * part.batch_size * speeds[length],
            speedup=speed_ratio(total, totals[0], resamples, seed),
            is_best=length == best,
            is_measured=length + 1 <= part.measured_rows,
        )
        for length, total in enumerate(totals)
    ]


def _totals(ms: Sequence[Float64Array], replays: Sequence[Sequence[ReplayResult]], place: int) -> Totals:
    chosen = [results[place] for results in replays]
    prompts = np.concatenate([result.prompt_id for result in chosen])
    tokens = np.concatenate([result.by_request(result.committed_tokens) for result in chosen])
    return totals_by_prompt(prompts, tokens, np.concatenate(list(ms)))


def _round_ms(cost: CostProfile, result: ReplayResult, length: int, sources: ChainSource) -> Float64Array:
    """Milliseconds of every round, [rounds]. No policy runs in vLLM, so none is charged."""
    capacity = result.position
    if sources == "lookup":
        return np.asarray(cost.round_ms + grid_ms(cost.verify, 1 + result.verified_nodes, capacity))
    ones = np.ones(len(result), dtype=np.int32)
    of_growth = np.repeat(np.arange(len(result)), result.growths)
    drafted = np.bincount(
        of_growth, weights=grid_ms(cost.draft, result.growth_tokens, capacity[of_growth]), minlength=len(result)
    )
    left_out = np.maximum(length - result.growths, 0) * grid_ms(cost.draft, ones, capacity)
    return np.asarray(cost.round_ms + grid_ms(cost.verify, ones * (length + 1), capacity) + drafted + left_out)


def _plain_ms(cost: CostProfile, result: ReplayResult) -> Float64Array:
    """Milliseconds of plain decoding of every request's text, [requests]."""
    positions = np.concatenate(
        [np.arange(start, start + count) for start, count in zip(result.position, result.committed_tokens, strict=True)]
    )
    owner = np.repeat(result.request, result.committed_tokens)
    ms = cost.round_ms + grid_ms(cost.verify, np.ones(len(positions), dtype=np.int32), positions)
    return np.bincount(owner, ms, result.num_requests).astype(np.float64)
