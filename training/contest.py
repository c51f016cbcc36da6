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
from treewise.training.oracle import oracle_run
from treewise.training.replay import Replayer, check_reach
from treewise.training.replay_result import Float64Array, ReplayResult, call_ms_of, modelled_ms, plain_ms
from treewise.training.tally import TALLY_COLUMNS, Tally


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy under test, by the name that the report shows. Each replay gets a policy of its own."""

    name: str
    make: Callable[[], TreePolicy]

    @classmethod
    def of(cls, policy: str | TreePolicy) -> Contender:
        """From a spec string or a policy, which is copied. Raises `PolicySpecError`."""
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
) -> dict[tuple[int, str], Tally]:
    """What every contender did, by (place of the profile, name).

    `advance` is told how many more of the requests x contenders x profiles are done. Raises `CoverageError` where a
    contender may ask for more than the trace holds.
    """
    deployments = [trace.deployment(cost, envelope) for cost in costs]
    table = _Table.of(trace, deployments)
    results: dict[tuple[int, str], ReplayResult] = {}
    first = {(0, contender.name): _driver(contender, deployments[0]) for contender in contenders}
    _run(trace, first, advance)
    again: dict[tuple[int, str], Replayer] = {}
    for contender in contenders:
        replayer = first[0, contender.name]
        results[0, contender.name] = replayer.result()
        for place in range(1, len(costs)):
            if _read_cost(replayer):
                again[place, contender.name] = _driver(contender, deployments[place])
            else:
                results[place, contender.name] = results[0, contender.name]
                if advance is not None:
                    advance(len(trace.requests))
    if again:
        _run(trace, again, advance)
        results |= {key: replayer.result() for key, replayer in again.items()}
    policies = {contender.name: contender.make() for contender in contenders}
    return {
        (place, name): table.tally(place, _columns(results[place, name], deployments[place], policies[name]))
        for place in range(len(costs))
        for name in policies
    }


def oracle_tally(trace: LoggedTrace, cost: CostProfile, envelope: Envelope | None = None) -> Tally:
    """What the path oracle did on a dense trace."""
    deployment = trace.deployment(cost, envelope)
    runs = [oracle_run(request, deployment) for request in trace.requests]
    parts = [(run.tokens, run.ms, run.rounds, run.nodes, run.growths, 0, 0) for run in runs]
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

    def tally(self, place: int, columns: dict[str, Float64Array]) -> Tally:
        return Tally(self.prompt_id, self.task, self.plain_ms[place], columns)


def _driver(contender: Contender, deployment: Deployment) -> Replayer:
    policy = contender.make()
    replayer = Replayer(policy, WatchedDeployment.of(deployment))
    check_reach(policy, deployment, contender.name)
    return replayer


def _read_cost(replayer: Replayer) -> bool:
    return not isinstance(replayer.deployment, WatchedDeployment) or replayer.deployment.cost_was_read


def _run(trace: LoggedTrace, drivers: dict[tuple[int, str], Replayer], advance: Callable[[int], None] | None) -> None:
    """Requests go outside, so that their trees are built once for all drivers."""
    for request in trace.requests:
        for replayer in drivers.values():
            replayer.run(request)
        request.release()
        if advance is not None:
            advance(len(drivers))


def _columns(result: ReplayResult, deployment: Deployment, policy: TreePolicy) -> dict[str, Float64Array]:
    values: tuple[NDArray[Any], ...] = (
        result.committed_tokens,
        modelled_ms(result, deployment, call_ms_of(policy, deployment.cost)),
        np.ones(len(result)),
        result.verified_nodes,
        result.growths,
        result.policy_calls,
        result.fallback,
    )
    return {name: result.by_request(column) for name, column in zip(TALLY_COLUMNS, values, strict=True)}
