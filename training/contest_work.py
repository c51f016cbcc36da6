"""What one process does of a contest: some contenders on some groups of requests, under every cost profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.cost import CostProfile
from treewise.data.envelope import Envelope
from treewise.policy.hook import Deployment, TreePolicy
from treewise.policy.outcome import Walk
from treewise.policy.round import RoundTree
from treewise.training.contender import Contender, WatchedDeployment
from treewise.training.logged import LoggedRequest
from treewise.training.logged_trace import LoggedTrace
from treewise.training.oracle import DepthOracle, depth_oracle, oracle_run
from treewise.training.replay import Replayer, check_reach
from treewise.training.replay_result import Float64Array, ReplayResult, call_ms_of, grid_ms, modelled_ms, plain_ms
from treewise.training.tally import TALLY_COLUMNS, Tally
from treewise.training.workers import Advance

ORACLE = "oracle"


@dataclass(frozen=True, slots=True)
class ContestPart:
    """What one process does without a break, on one trace."""

    trace: int  # place among the traces
    groups: tuple[int, ...]  # places among the trace's groups, in the log's order
    contenders: tuple[int, ...]  # places
    with_path_oracle: bool = False


Found = dict[tuple[int, int, str], Tally]  # by (place of the group, place of the profile, name)


@dataclass(frozen=True, slots=True)
class ContestJob:
    """A contest, as every process that takes part is told of it."""

    traces: tuple[LoggedTrace, ...]
    costs: tuple[CostProfile, ...]
    contenders: tuple[Contender, ...]
    envelope: Envelope | None = None
    with_depth_oracles: bool = False
    as_recorded: bool = False

    def __call__(self, advance: Advance) -> _Arena:
        return _Arena(self, advance)


class _Arena:
    """Does parts of a contest, with policies that are made once for each trace and profile."""

    def __init__(self, job: ContestJob, advance: Advance) -> None:
        self._job = job
        self._advance = advance
        self._groups = [trace.groups() for trace in job.traces]
        self._runs: dict[tuple[int, int, int], _Run] = {}  # by places of trace, profile and contender

    def __call__(self, part: ContestPart) -> Found:
        found: Found = {}
        for group in part.groups:
            trace = self._groups[part.trace][group]
            trace.check_priced_alone()
            deployments = [trace.deployment(cost, self._job.envelope) for cost in self._job.costs]
            table = _Table.of(trace.requests, deployments)
            for (place, name), tally in self._contest(part, trace, table, deployments).items():
                found[group, place, name] = tally
            if part.with_path_oracle:
                for place, deployment in enumerate(deployments):
                    found[group, place, ORACLE] = table.tally(place, oracle_columns(trace.requests, deployment))
        return found

    def _contest(
        self, part: ContestPart, trace: LoggedTrace, table: _Table, deployments: Sequence[Deployment]
    ) -> dict[tuple[int, str], Tally]:
        """What the contenders of `part` did on the group `trace`."""
        profiles = range(len(deployments))
        first = {number: self._run(part, 0, number, deployments[0]) for number in part.contenders}
        results = {(0, number): result for number, result in self._drive(trace, first).items()}
        # What a session remembers depends on all of it, so that its every group is replayed under every profile.
        readers = [number for number, run in first.items() if run.read_cost or run.policy.state == "session"]
        for place in profiles[1:]:
            again = {number: self._run(part, place, number, deployments[place]) for number in readers}
            same = {number: results[0, number] for number in first if number not in again}
            self._advance(len(trace.requests) * len(same))
            found = {**same, **(self._drive(trace, again) if again else {})}
            results |= {(place, number): result for number, result in found.items()}
        tallies: dict[tuple[int, str], Tally] = {}
        for (place, number), by_name in results.items():
            run = first[number]
            for name, result in by_name.items():
                columns = tally_columns(result, deployments[place], run.policy)
                tallies[place, name] = table.tally(place, columns, run.read_cost)
        return tallies

    def _run(self, part: ContestPart, place: int, number: int, deployment: Deployment) -> _Run:
        key = (part.trace, place, number)
        if key not in self._runs:
            contender = self._job.contenders[number]
            self._runs[key] = _Run.of(contender, deployment, self._job.with_depth_oracles, self._job.as_recorded)
        return self._runs[key]

    def _drive(self, trace: LoggedTrace, runs: dict[int, _Run]) -> dict[int, dict[str, ReplayResult]]:
        """Side by side where nobody watches; else requests go outside, so that trees are built once for all runs."""
        if not self._job.with_depth_oracles:
            for run in runs.values():
                run.replayer.run_all(trace.requests, lambda: self._advance(1))
        else:
            for request in trace.requests:
                for run in runs.values():
                    run.replayer.run(request)
                request.release()
                self._advance(len(runs))
        return {number: run.take_results() for number, run in runs.items()}


@dataclass(slots=True)
class _Run:
    """One contender on its way through a trace."""

    name: str
    policy: TreePolicy
    deployment: WatchedDeployment
    oracle: DepthOracle | None
    replayer: Replayer = field(init=False)

    @classmethod
    def of(cls, contender: Contender, deployment: Deployment, with_depth_oracle: bool, as_recorded: bool) -> _Run:
        policy, watched = contender.make(), WatchedDeployment.of(deployment)
        run = cls(contender.name, policy, watched, DepthOracle() if with_depth_oracle else None)
        run.replayer = Replayer(policy, watched, run._watch if with_depth_oracle else None, as_recorded)
        check_reach(policy, deployment, contender.name)
        return run

    @property
    def read_cost(self) -> bool:
        return self.deployment.cost_was_read

    def take_results(self) -> dict[str, ReplayResult]:
        """What was replayed since the last time, by name: the policy's own, and its depth oracle's."""
        result = self.replayer.take_result()
        found = {self.name: result}
        if self.oracle is not None:
            found[depth_oracle(self.name)] = self.oracle.cut(result)
            self.oracle = DepthOracle()
        return found

    def _watch(self, request: LoggedRequest, position: int, tree: RoundTree, walk: Walk) -> None:
        assert self.oracle is not None
        self.oracle.watch(request, position, tree, walk)


@dataclass(frozen=True, slots=True)
class _Table:
    """What does not depend on the contender."""

    prompt_id: NDArray[np.str_]  # [requests]
    task: NDArray[np.str_]  # [requests]
    plain_ms: Float64Array  # [profiles, requests]

    @classmethod
    def of(cls, requests: Sequence[LoggedRequest], deployments: Sequence[Deployment]) -> _Table:
        plain = [[plain_ms(request, deployment.cost) for request in requests] for deployment in deployments]
        return cls(
            np.asarray([request.prompt_id for request in requests], dtype=np.str_),
            np.asarray([request.task for request in requests], dtype=np.str_),
            np.asarray(plain, dtype=np.float64),
        )

    def tally(self, place: int, columns: dict[str, Float64Array], reads_costs: bool = True) -> Tally:
        return Tally(self.prompt_id, self.task, self.plain_ms[place], columns, reads_costs)


def oracle_columns(requests: Sequence[LoggedRequest], deployment: Deployment) -> dict[str, Float64Array]:
    """What the path oracle did on `requests` of a dense trace, by `TALLY_COLUMNS`."""
    runs = [oracle_run(request, deployment) for request in requests]
    unknown = float("nan")  # its time is not broken down
    parts = [(run.tokens, run.ms, run.rounds, run.nodes, run.growths, 0, 0, unknown, unknown) for run in runs]
    values = np.asarray(parts, dtype=np.float64).reshape(len(runs), len(TALLY_COLUMNS))
    return dict(zip(TALLY_COLUMNS, values.T, strict=True))


def tally_columns(result: ReplayResult, deployment: Deployment, policy: TreePolicy) -> dict[str, Float64Array]:
    """The columns of a tally from a replay, by `TALLY_COLUMNS`, each [requests]."""
    cost, position = deployment.cost, result.position
    rows = np.asarray([deployment.padded_rows(1 + nodes) for nodes in result.verified_nodes.tolist()], dtype=np.int32)
    narrow = np.full(len(result), deployment.padded_rows(1), dtype=np.int32)
    growth_round = np.repeat(np.arange(len(result)), result.growths)
    growth_ms = grid_ms(cost.draft, result.growth_tokens, position[growth_round])
    values: tuple[NDArray[Any], ...] = (
        result.committed_tokens,
        modelled_ms(result, deployment, call_ms_of(policy, deployment.cost)),
        np.ones(len(result)),
        result.verified_nodes,
        result.growths,
        result.policy_calls,
        result.fallback,
        np.bincount(growth_round, weights=growth_ms, minlength=len(result)),
        grid_ms(cost.verify, rows, position) - grid_ms(cost.verify, narrow, position),
    )
    return {name: result.by_request(column) for name, column in zip(TALLY_COLUMNS, values, strict=True)}
