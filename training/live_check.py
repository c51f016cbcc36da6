"""Replaying a policy on its own live trace: every decision again, or a reason why not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.cost import CostProfile
from treewise.data.errors import CoverageError, TraceError
from treewise.data.trace_schema import TraceShard
from treewise.policy.forest import ASKED
from treewise.policy.hook import TreePolicy
from treewise.policy.outcome import Walk
from treewise.policy.round import RoundTree
from treewise.training.contender import Contender
from treewise.training.logged import LoggedRequest
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay import Replayer
from treewise.training.workers import Advance, run_parts


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One round that replay decided otherwise than the live engine."""

    prompt_id: str
    position: int  # absolute position of the root
    reason: str


@dataclass(frozen=True, slots=True)
class LiveCheck:
    """What a replay of a live trace compared."""

    rounds: int  # rounds of the trace
    compared: int  # rounds that replay reached
    mismatches: tuple[Mismatch, ...]

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        return {**asdict(self), "mismatches": [asdict(found) for found in self.mismatches]}


def replay_live(
    trace: LoggedTrace,
    policy: str | TreePolicy,
    cost: CostProfile,
    row_buckets: tuple[int, ...] = (),
    advance: Callable[[], None] | None = None,
    as_recorded: bool = False,
    workers: int = 1,
) -> LiveCheck:
    """Replay `policy` on the live trace that it wrote and compare candidates, decisions and accepted lengths.

    `cost` and `row_buckets` must be those of the live run; `as_recorded`: see `Replayer`. A request
    ends at the first round whose root the log lacks. `workers` processes share the requests of a trace on disk where
    the policy is a spec string and remembers no session; the result does not depend on how many. Raises `TraceError` on
    a dense trace.
    """
    if trace.manifest.kind != "live":
        raise TraceError(f"trace {trace.name} must be live to be compared with its replay, got a dense one")
    contender = Contender.of(policy) if isinstance(policy, str) else Contender(type(policy).__name__, lambda: policy)
    job = LiveJob(trace, contender, cost, row_buckets, as_recorded)
    groups = tuple(range(len(trace.groups())))
    can_share = workers > 1 and trace.is_stored and contender.is_made_anywhere and contender.make().state != "session"
    parts = [(group,) for group in groups] if can_share else [groups]

    def told(steps: int) -> None:
        if advance is not None:
            for _ in range(steps):
                advance()

    answers = run_parts(job, parts, workers if can_share else 1, told)
    rounds = sum(entry.num_rounds for entry in trace.entries)
    compared = sum(found.compared for found in answers)
    return LiveCheck(rounds, compared, tuple(one for found in answers for one in found.mismatches))


@dataclass(frozen=True, slots=True)
class LiveJob:
    """The replay of a live trace, as every process that takes part is told of it."""

    trace: LoggedTrace
    policy: Contender
    cost: CostProfile
    row_buckets: tuple[int, ...]
    as_recorded: bool

    def __call__(self, advance: Advance) -> _LiveReplay:
        return _LiveReplay(self, advance)


class _LiveReplay:
    """Replays groups of requests, beside the log."""

    def __init__(self, job: LiveJob, advance: Advance) -> None:
        self._groups = job.trace.groups()
        self._advance = advance
        self._found: list[Mismatch] = []
        self._compared = 0
        deployment = job.trace.deployment(job.cost, row_buckets=job.row_buckets)
        self._replayer = Replayer(job.policy.make(), deployment, self._compare, job.as_recorded)

    def __call__(self, groups: tuple[int, ...]) -> LiveCheck:
        """What a replay of the groups at those places found."""
        self._found, self._compared, rounds = [], 0, 0
        for group in groups:
            for request in self._groups[group].requests:
                rounds += len(request.rows)
                try:
                    self._replayer.run(request)
                except CoverageError as error:
                    self._found.append(Mismatch(request.prompt_id, -1, str(error)))
                request.release()
                self._advance(1)
            self._replayer.take_result()
        return LiveCheck(rounds, self._compared, tuple(self._found))

    def _compare(self, request: LoggedRequest, position: int, tree: RoundTree, walk: Walk) -> None:
        self._compared += 1
        reason = difference(request, position, tree, walk)
        if reason:
            self._found.append(Mismatch(request.prompt_id, position, reason))


def difference(request: LoggedRequest, position: int, tree: RoundTree, walk: Walk) -> str:
    """How a replayed round differs from the logged one, in words; empty where it does not."""
    shard, row = request.shard, request.row_at(position)
    rows = request.node_rows(row)
    column = tree.forest.column
    if column("parent").shape[0] - 1 != rows.stop - rows.start:
        return f"{column('parent').shape[0] - 1} candidates in replay, {rows.stop - rows.start} live"
    expected = _logged(shard, rows, request.tokens_included)
    replayed = {name: column(name)[1:] for name in ("parent", "token", "admitted", "drafted")}
    replayed["grown"] = column("grown")[1:] | column(ASKED)[1:]
    replayed["kept"] = tree.kept[1:]
    for name, values in expected.items():
        differs = np.flatnonzero(replayed[name] != values)
        if differs.size:
            first = int(differs[0])
            return f"{name} of candidate {first + 1}: {replayed[name][first]} in replay, {values[first]} live"
    opening = int(shard.rounds.opening[row])
    if int(column("grown")[0]) != opening:
        return f"opening {int(column('grown')[0])} in replay, {opening} live"
    accepted = int(shard.rounds.accepted_length[row])
    if int(walk.accepted_length[0]) != accepted:
        return f"accepted length {int(walk.accepted_length[0])} in replay, {accepted} live"
    return ""


def _logged(shard: TraceShard, rows: slice, tokens_included: bool) -> dict[str, NDArray[Any]]:
    names = ("parent", "token", "admitted", "grown", "drafted", "kept")
    columns = {name: getattr(shard.nodes, name)[rows] for name in names}
    if not tokens_included:
        columns["token"] = np.arange(1, rows.stop - rows.start + 1)
    return columns
