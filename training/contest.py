"""Several policies on one trace under several cost profiles."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.cost import CostProfile
from treewise.data.envelope import Envelope
from treewise.policy.hook import Deployment, TreePolicy
from treewise.policy.registry import parse_policy
from treewise.training.logged_trace import LoggedTrace
from treewise.training.oracle import DepthOracle, depth_oracle, oracle_run
from treewise.training.replay import Replayer, check_reach
from treewise.training.replay_result import Float64Array, ReplayResult, call_ms_of, grid_ms, modelled_ms, plain_ms
from treewise.training.tally import TALLY_COLUMNS, Tally


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy under test, by the name that the report shows. Each replay gets a policy of its own."""

    name: str
    make: Callable[[], TreePolicy]

    @classmethod
    def of(cls, policy: str | TreePolicy | Contender) -> Contender:
        """From a spec string or a policy, which is copied; one of these stays itself. Raises `PolicySpecError`."""
        if isinstance(policy, Contender):
            return policy
        if isinstance(policy, str):
            parse_policy(policy)
            return cls(policy, lambda: parse_policy(policy))
        return cls(str(getattr(policy, "spec", type(policy).__name__)), lambda: copy.deepcopy(policy))


class WatchedDeployment(Deployment):
    """A deployment that knows whether anyone looked at its cost profile.

    A policy that never did decides the same under every profile, so one replay serves them all.
    """

    cost_was_read: bool

    @classmethod
    def of(cls, deployment: Deployment) -> WatchedDeployment:
        """A copy of `deployment` whose cost nobody has read yet."""
        watched = cls(*(getattr(deployment, name) for name in Deployment.__dataclass_fields__))
        object.__setattr__(watched, "cost_was_read", False)
        return watched

    def __getattribute__(self, name: str) -> Any:
        if name == "cost":
            object.__setattr__(self, "cost_was_read", True)
        return super().__getattribute__(name)


def contest(
    trace: LoggedTrace,
    costs: Sequence[CostProfile],
    contenders: Sequence[Contender],
    envelope: Envelope | None = None,
    advance: Callable[[int], None] | None = None,
    with_depth_oracles: bool = False,
    as_recorded: bool = False,
) -> dict[tuple[int, str], Tally]:
    """What every contender did, by (place of the profile, name); its depth oracle too, by `depth_oracle(name)`.

    `advance` is told how many more of the requests x contenders x profiles are done. `as_recorded`: see
    `Replayer`. Raises `CoverageError` where a contender may ask for more than the trace holds.
    """
    deployments = [trace.deployment(cost, envelope) for cost in costs]
    table = _Table.of(trace, deployments)
    runs = {
        (0, contender.name): _Run.of(contender, deployments[0], with_depth_oracles, as_recorded)
        for contender in contenders
    }
    _drive(trace, runs, advance)
    readers = {contender.name for contender in contenders if runs[0, contender.name].read_cost}
    again: dict[tuple[int, str], _Run] = {}
    for contender in contenders:
        for place in range(1, len(costs)):
            if contender.name in readers:
                again[place, contender.name] = _Run.of(contender, deployments[place], with_depth_oracles, as_recorded)
            else:
                runs[place, contender.name] = runs[0, contender.name]
                if advance is not None:
                    advance(len(trace.requests))
    if again:
        _drive(trace, again, advance)
        runs |= again
    found: dict[tuple[int, str], Tally] = {}
    for contender in contenders:
        policy = contender.make()
        for place, deployment in enumerate(deployments):
            for name, result in runs[place, contender.name].results(contender.name).items():
                columns = tally_columns(result, deployment, policy)
                found[place, name] = table.tally(place, columns, contender.name in readers)
    return found


def oracle_tally(trace: LoggedTrace, cost: CostProfile, envelope: Envelope | None = None) -> Tally:
    """What the path oracle did on a dense trace."""
    deployment = trace.deployment(cost, envelope)
    runs = [oracle_run(request, deployment) for request in trace.requests]
    unknown = float("nan")  # its time is not broken down
    parts = [(run.tokens, run.ms, run.rounds, run.nodes, run.growths, 0, 0, unknown, unknown) for run in runs]
    values = np.asarray(parts, dtype=np.float64).reshape(len(runs), len(TALLY_COLUMNS))
    return _Table.of(trace, [deployment]).tally(0, dict(zip(TALLY_COLUMNS, values.T, strict=True)))


@dataclass(frozen=True, slots=True)
class _Table:
    """What does not depend on the contender."""

    prompt_id: NDArray[np.str_]  # [requests]
    task: NDArray[np.str_]  # [requests]
    plain_ms: Float64Array  # [profiles, requests]

    @classmethod
    def of(cls, trace: LoggedTrace, deployments: Sequence[Deployment]) -> _Table:
        requests = trace.requests
        plain = [[plain_ms(request, deployment.cost) for request in requests] for deployment in deployments]
        return cls(
            np.asarray([request.prompt_id for request in requests], dtype=np.str_),
            np.asarray([request.task for request in requests], dtype=np.str_),
            np.asarray(plain, dtype=np.float64),
        )

    def tally(self, place: int, columns: dict[str, Float64Array], reads_costs: bool = True) -> Tally:
        return Tally(self.prompt_id, self.task, self.plain_ms[place], columns, reads_costs)


@dataclass(frozen=True, slots=True)
class _Run:
    """One contender on its way through a trace."""

    deployment: WatchedDeployment
    replayer: Replayer
    oracle: DepthOracle | None

    @classmethod
    def of(cls, contender: Contender, deployment: Deployment, with_depth_oracle: bool, as_recorded: bool) -> _Run:
        policy, watched = contender.make(), WatchedDeployment.of(deployment)
        oracle = DepthOracle() if with_depth_oracle else None
        replayer = Replayer(policy, watched, None if oracle is None else oracle.watch, as_recorded)
        check_reach(policy, deployment, contender.name)
        return cls(watched, replayer, oracle)

    @property
    def read_cost(self) -> bool:
        return self.deployment.cost_was_read

    def results(self, name: str) -> dict[str, ReplayResult]:
        result = self.replayer.result()
        return {name: result} if self.oracle is None else {name: result, depth_oracle(name): self.oracle.cut(result)}


def _drive(trace: LoggedTrace, runs: dict[tuple[int, str], _Run], advance: Callable[[int], None] | None) -> None:
    """Batches of requests where nobody watches; else requests go outside, so that trees are built once for all runs."""
    if all(run.oracle is None for run in runs.values()):
        for run in runs.values():
            run.replayer.run_all(trace.requests, None if advance is None else lambda: advance(1))
        return
    for request in trace.requests:
        for run in runs.values():
            run.replayer.run(request)
        request.release()
        if advance is not None:
            advance(len(runs))


def tally_columns(result: ReplayResult, deployment: Deployment, policy: TreePolicy) -> dict[str, Float64Array]:
    """The columns of a tally, each [requests]; `policy` says what its calls cost."""
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
