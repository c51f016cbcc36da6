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
from treewise.training.logged import LoggedRequest
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay import Replayer


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
    policy: TreePolicy,
    cost: CostProfile,
    row_buckets: tuple[int, ...] = (),
    advance: Callable[[], None] | None = None,
    as_recorded: bool = False,
) -> LiveCheck:
    """Replay `policy` on the live trace that it wrote and compare candidates, decisions and accepted lengths.

    `cost` and `row_buckets` must be those of the live run; `as_recorded`: see `Replayer`. A request
    ends at the first round whose root the log lacks. Raises `TraceError` on a dense trace.
    """
    if trace.manifest.kind != "live":
        raise TraceError(f"trace {trace.name} must be live to be compared with its replay, got a dense one")
    found: list[Mismatch] = []
    reached = 0

    def compare(request: LoggedRequest, position: int, tree: RoundTree, walk: Walk) -> None:
        nonlocal reached
        reached += 1
        reason = difference(request, position, tree, walk)
        if reason:
            found.append(Mismatch(request.prompt_id, position, reason))

    replayer = Replayer(policy, trace.deployment(cost, row_buckets=row_buckets), compare, as_recorded)
    for request in trace.requests:
        try:
            replayer.run(request)
        except CoverageError as error:
            found.append(Mismatch(request.prompt_id, -1, str(error)))
        request.release()
        if advance is not None:
            advance()
    return LiveCheck(sum(len(request.rows) for request in trace.requests), reached, tuple(found))


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
