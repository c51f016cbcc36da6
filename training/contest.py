"""Several policies on traces under several cost profiles, by one process or by many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil

import numpy as np

from treewise.data.cost import CostProfile
from treewise.data.envelope import Envelope
from treewise.training.contender import Contender as Contender
from treewise.training.contender import WatchedDeployment as WatchedDeployment
from treewise.training.contest_work import ContestJob, ContestPart, oracle_columns
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay_result import plain_ms
from treewise.training.tally import Tally, joined
from treewise.training.workers import run_parts, worth_starting

PARTS_A_WORKER = 4  # that the work is cut into at least, so that no worker waits long for the last


def contest(
    trace: LoggedTrace,
    costs: Sequence[CostProfile],
    contenders: Sequence[Contender],
    envelope: Envelope | None = None,
    advance: Callable[[int], None] | None = None,
    with_depth_oracles: bool = False,
    as_recorded: bool = False,
    workers: int = 1,
) -> dict[tuple[int, str], Tally]:
    """`contests` on one trace."""
    (found,) = contests([trace], costs, contenders, envelope, advance, with_depth_oracles, as_recorded, workers)
    return found


def contests(
    traces: Sequence[LoggedTrace],
    costs: Sequence[CostProfile],
    contenders: Sequence[Contender],
    envelope: Envelope | None = None,
    advance: Callable[[int], None] | None = None,
    with_depth_oracles: bool = False,
    as_recorded: bool = False,
    workers: int = 1,
    with_path_oracle: bool = False,
) -> list[dict[tuple[int, str], Tally]]:
    """What every contender did on each trace, by (place of the profile, name).

    A depth oracle is called `depth_oracle(name)`, the path oracle `ORACLE`. Traces on disk are read group by group, and
    the result does not depend on `workers`: see `count_workers`. A policy of state "session" goes through a trace in
    the log's order. `advance` is told how many more of the requests x contenders x profiles are done. `as_recorded`:
    see `Replayer`. Raises `CoverageError` where a contender may ask for more than a trace holds.
    """
    job = ContestJob(tuple(traces), tuple(costs), tuple(contenders), envelope, with_depth_oracles, as_recorded)
    count = count_workers(job, workers)
    parts = _parts(job, count, with_path_oracle)
    answers = run_parts(job, parts, count, advance)
    by_trace: list[dict[tuple[int, str], dict[int, Tally]]] = [{} for _ in traces]
    for part, found in zip(parts, answers, strict=True):
        for (group, place, name), tally in found.items():
            by_trace[part.trace].setdefault((place, name), {})[group] = tally
    return [
        {key: joined([groups[group] for group in sorted(groups)]) for key, groups in found.items()}
        for found in by_trace
    ]


def count_workers(job: ContestJob, workers: int) -> int:
    """`workers`, or as many as the job is worth (`worth_starting`) where that is fewer.

    1 where the others could not read a trace or make a policy for themselves: a trace in memory, and a policy that was
    given as an object, stay in this process.
    """
    can_share = all(trace.is_stored for trace in job.traces)
    if not (can_share and all(contender.is_made_anywhere for contender in job.contenders)):
        return 1
    rounds = sum(entry.num_rounds for trace in job.traces for entry in trace.entries)
    alone = job.with_depth_oracles or any(contender.make().state == "session" for contender in job.contenders)
    replays = len(job.contenders) * len(job.costs)
    return min(workers, worth_starting(replays * rounds, in_batches=not (alone or job.as_recorded), cores=workers))


def _parts(job: ContestJob, workers: int, with_path_oracle: bool) -> list[ContestPart]:
    """The contest in parts, those that take longest first."""
    groups = [tuple(range(len(trace.groups()))) for trace in job.traces]
    every = tuple(range(len(job.contenders)))
    if workers == 1:
        return [ContestPart(trace, own, every, with_path_oracle) for trace, own in enumerate(groups)]
    in_order = [number for number in every if job.contenders[number].make().state == "session"]
    free = [number for number in every if number not in in_order]
    parts = [ContestPart(trace, own, (number,)) for number in in_order for trace, own in enumerate(groups)]
    pieces = ceil(PARTS_A_WORKER * workers / max(1, sum(map(len, groups))))
    size = max(1, ceil(len(free) / pieces))
    for trace, own in enumerate(groups):
        for group in own:
            chunks = [tuple(free[start : start + size]) for start in range(0, len(free), size)]
            parts += [ContestPart(trace, (group,), chunk) for chunk in chunks]
            if with_path_oracle:
                parts.append(ContestPart(trace, (group,), (), with_path_oracle=True))
    return parts


def oracle_tally(trace: LoggedTrace, cost: CostProfile, envelope: Envelope | None = None) -> Tally:
    """What the path oracle did on a dense trace."""
    deployment = trace.deployment(cost, envelope)
    parts = []
    for group in trace.groups():
        requests = group.requests
        parts.append(
            Tally(
                np.asarray([request.prompt_id for request in requests], dtype=np.str_),
                np.asarray([request.task for request in requests], dtype=np.str_),
                np.asarray([plain_ms(request, cost) for request in requests], dtype=np.float64),
                oracle_columns(requests, deployment),
                reads_costs=True,
            )
        )
    return joined(parts)
