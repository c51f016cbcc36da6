"""Policies on a queue of logged requests that is served in batches: what sharing a batch's budget brings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

import numpy as np

from treewise.data.cost import CostProfile
from treewise.data.errors import CoverageError, require
from treewise.training.ab import check_traces, contenders_of, few_prompts, told_labels, tuned_too
from treewise.training.ab_report import ProfileOrigin, interval_json
from treewise.training.contest import Contender
from treewise.training.logged_trace import LoggedTrace, check_distinct
from treewise.training.replay import check_reach
from treewise.training.served_replay import ServedReplay, replay_served
from treewise.training.statistics import LEVEL, RESAMPLES, Interval, Totals, speed_ratio, totals_by_prompt

SCHEMA_VERSION = 1
QUEUED_BATCHES = 16  # requests of a queue over places of the batch, at least


@dataclass(frozen=True, slots=True)
class ServedRow:
    """One policy under one cost profile. Milliseconds are modelled; all but `requests` is of full batches."""

    profile: str
    policy: str
    requests: int  # of the queue
    prompts: int
    tokens: int
    ms: float
    tokens_per_second: float  # of the whole batch
    tokens_per_request_round: float
    nodes_per_request_round: float  # verified
    rows_per_pass: float  # of a verify pass, roots included
    growths_per_round: float  # forward passes of the draft, for the whole batch
    ratio: Interval | None  # speed over that of the first policy; None for itself


@dataclass(frozen=True, slots=True)
class ServedReport:
    """Speeds in the steady state of a batch that a queue keeps full."""

    acceptance: tuple[str, ...]  # origins of acceptance, one a trace
    profiles: tuple[ProfileOrigin, ...]  # origins of milliseconds
    policies: tuple[str, ...]
    batch: int
    passes: int  # times that every request is queued
    resamples: int
    seed: int
    rows: tuple[ServedRow, ...]
    warnings: tuple[str, ...] = ()

    def select(self, profile: str) -> list[ServedRow]:
        """The rows under one profile, in the policies' order."""
        return [row for row in self.rows if row.profile == profile]

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping that fits `treewise/schemas/ab_served.json`."""
        rows = [{**asdict(row), "ratio": None if row.ratio is None else interval_json(row.ratio)} for row in self.rows]
        return {"schema_version": SCHEMA_VERSION, "exact": True, "level": LEVEL, **asdict(self), "rows": rows}


def served_ab(
    traces: Sequence[LoggedTrace],
    costs: Sequence[CostProfile],
    policies: Sequence[str | Contender],
    batch: int,
    resamples: int = RESAMPLES,
    seed: int = 0,
    advance: Callable[[int], None] | None = None,
    tuned_on: Sequence[LoggedTrace] = (),
) -> ServedReport:
    """Serve every policy the same queue, up to `batch` requests side by side, each joining when one before has left.

    The queue holds every request as often as makes it `QUEUED_BATCHES` batches long, in an order drawn anew each time.
    Its traces are read into memory whole. Speed is that of full batches (`ServedReplay.totals`), its interval a
    paired bootstrap over prompts; what a prompt's mates did is part of its figure, and their draw is not repeated.
    `advance` is told how many more of `served_replays` requests are done; `tuned_on`: see `ab`.

    Raises `CoverageError` where a trace is not dense or a policy may ask for more than it holds.
    """
    require(len(traces) > 0, "traces", "at least one", len(traces))
    require(len(costs) > 0, "costs", "at least one profile", len(costs))
    profiles = [cost.name for cost in costs]
    require(len(set(profiles)) == len(profiles), "costs", "profiles of different names", profiles)
    require(batch >= 1, "batch", ">= 1", batch)
    contenders = contenders_of(policies)
    check_traces(traces, contenders)
    for trace in traces:
        if trace.manifest.kind != "dense":
            raise CoverageError(f"trace {trace.name} must be dense to be served in batches, got a live one")
    check_distinct(traces)
    passes = _passes(traces, batch)
    whole = [trace.in_memory() for trace in traces]
    rng = np.random.default_rng(seed)
    orders = [np.concatenate([rng.permutation(len(trace.requests)) for _ in range(passes)]) for trace in whole]
    rows: list[ServedRow] = []
    for cost in costs:
        first: Totals | None = None
        for contender in contenders:
            served = [
                _serve(contender, trace, cost, order.tolist(), batch, advance)
                for trace, order in zip(whole, orders, strict=True)
            ]
            totals = _by_prompt(served, batch)
            ratio = None if first is None else speed_ratio(totals, first, resamples, seed)
            rows.append(_row(cost.name, contender.name, batch, served, totals, ratio))
            first = totals if first is None else first
    return ServedReport(
        acceptance=tuple(trace.origin for trace in traces),
        profiles=tuple(ProfileOrigin.of(cost) for cost in costs),
        policies=tuple(contender.name for contender in contenders),
        batch=batch,
        passes=passes,
        resamples=resamples,
        seed=seed,
        rows=tuple(rows),
        warnings=(
            *few_prompts({"": len({entry.prompt_id for trace in traces for entry in trace.entries})}),
            *tuned_too(traces, tuned_on),
            *told_labels(contenders, traces),
        ),
    )


def served_replays(traces: Sequence[LoggedTrace], batch: int) -> int:
    """Requests that one policy is served under one profile."""
    return _passes(traces, batch) * sum(len(trace.entries) for trace in traces)


def _passes(traces: Sequence[LoggedTrace], batch: int) -> int:
    """At least two, so that every prompt is in full batches once."""
    return max(2, ceil(QUEUED_BATCHES * batch / min(len(trace.entries) for trace in traces)))


def _serve(
    contender: Contender,
    trace: LoggedTrace,
    cost: CostProfile,
    order: list[int],
    batch: int,
    advance: Callable[[int], None] | None,
) -> ServedReplay:
    policy, deployment = contender.make(), trace.deployment(cost)
    policy.bind(deployment)
    check_reach(policy, deployment, contender.name)
    step = None if advance is None else lambda: advance(1)
    return replay_served(policy, [trace.requests[place] for place in order], deployment, batch, step)


def _by_prompt(served: Sequence[ServedReplay], batch: int) -> Totals:
    """Of all traces together: a prompt that several of them hold, say at two temperatures, is one draw."""
    prompts, tokens, ms = zip(*(replayed.places(batch) for replayed in served), strict=True)
    return totals_by_prompt(np.concatenate(prompts), np.concatenate(tokens), np.concatenate(ms))


def _row(
    profile: str, policy: str, batch: int, served: Sequence[ServedReplay], totals: Totals, ratio: Interval | None
) -> ServedRow:
    full = [replayed.rounds.requests == batch for replayed in served]
    pairs = list(zip(served, full, strict=True))
    rounds = sum(int(mask.sum()) for mask in full)
    verified = sum(int(replayed.rounds.rows[mask].sum()) for replayed, mask in pairs)
    growths = sum(int(replayed.rounds.growths[mask].sum()) for replayed, mask in pairs)
    return ServedRow(
        profile=profile,
        policy=policy,
        requests=sum(replayed.result.num_requests for replayed in served),
        prompts=len(totals.tokens),
        tokens=int(totals.tokens.sum()),
        ms=float(totals.ms.sum()),
        tokens_per_second=1000.0 * totals.speed,
        tokens_per_request_round=float(totals.tokens.sum()) / (rounds * batch),
        nodes_per_request_round=verified / (rounds * batch) - 1.0,
        rows_per_pass=verified / rounds,
        growths_per_round=growths / rounds,
        ratio=ratio,
    )
