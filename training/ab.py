"""A/B: several policies on the same logged requests, priced by cost profiles."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from treewise.data.cost import CostProfile
from treewise.data.envelope import Envelope
from treewise.data.errors import CoverageError, PolicySpecError, require
from treewise.policy.hook import TreePolicy
from treewise.policy.registry import parse_policy
from treewise.training.ab_report import AbReport, AbRow, ProfileOrigin, row_of
from treewise.training.logged_trace import LoggedTrace
from treewise.training.oracle import OracleRun, oracle_run
from treewise.training.replay import Replayer, check_reach
from treewise.training.replay_result import Float64Array, call_ms_of, modelled_ms, plain_ms
from treewise.training.statistics import RESAMPLES
from treewise.training.tally import TALLY_COLUMNS, Tally, joined

ORACLE = "oracle"


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


def ab(
    traces: Sequence[LoggedTrace],
    costs: Sequence[CostProfile],
    policies: Sequence[str | TreePolicy],
    envelope: Envelope | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    advance: Callable[[], None] | None = None,
) -> AbReport:
    """Replay every policy on every request under every cost profile; the first policy is the one compared against.

    `envelope` (the log's own by default) is what the policies are held to. `advance` is called after each request.
    Raises `CoverageError` where a policy may ask for more than a trace holds, where traces are of different pairs, and
    where a live trace was written by another policy: only what that policy asked for was logged.
    """
    require(len(traces) > 0, "traces", "at least one", len(traces))
    require(len(costs) > 0, "costs", "at least one profile", len(costs))
    require(len(policies) > 0, "policies", "at least one", len(policies))
    contenders = [Contender.of(policy) for policy in policies]
    names = [contender.name for contender in contenders]
    require(len(set(names)) == len(names) and ORACLE not in names, "policies", "each named once", names)
    _check_traces(traces, contenders)
    has_oracle = all(trace.manifest.kind == "dense" for trace in traces)
    tallies: dict[tuple[int, str], list[Tally]] = {}
    for trace in traces:
        for key, tally in _run(trace, costs, contenders, envelope, has_oracle, advance).items():
            tallies.setdefault(key, []).append(tally)
    rows: list[AbRow] = []
    for place, cost in enumerate(costs):
        joint = {name: joined(parts) for (at, name), parts in tallies.items() if at == place}
        first = joint[contenders[0].name]
        for task in ("", *sorted(set(first.task.tolist()))):
            chosen = np.ones(len(first.task), dtype=np.bool_) if task == "" else first.task == task
            against = first.of(chosen)
            for name, tally in joint.items():
                baseline = None if name == contenders[0].name else against
                rows.append(row_of(cost.name, name, task, tally.of(chosen), baseline, name == ORACLE, resamples, seed))
    return AbReport(
        acceptance=tuple(trace.origin for trace in traces),
        profiles=tuple(ProfileOrigin.of(cost) for cost in costs),
        policies=tuple(contender.name for contender in contenders),
        rows=tuple(rows),
        resamples=resamples,
        seed=seed,
    )


def _check_traces(traces: Sequence[LoggedTrace], contenders: Sequence[Contender]) -> None:
    for trace in traces:
        if trace.manifest.pair != traces[0].manifest.pair:
            raise CoverageError(
                f"traces must be of one pair, got {traces[0].pair_name} in {traces[0].name} "
                f"and {trace.pair_name} in {trace.name}"
            )
        if trace.manifest.kind == "dense":
            continue
        writer = trace.manifest.policy
        others = [contender.name for contender in contenders if not _same_policy(contender.name, writer)]
        if others:
            raise CoverageError(
                f"trace {trace.name} is a live trace of policy {writer}: its trees hold what that policy asked for, "
                f"so it cannot say what {', '.join(others)} would have done; use a dense trace"
            )


def _same_policy(spec: str, writer: str | None) -> bool:
    """Whether two spec strings make the same policy, one of them perhaps with its defaults left out."""
    if writer is None or spec == writer:
        return spec == writer
    try:
        return getattr(parse_policy(spec), "spec", spec) == getattr(parse_policy(writer), "spec", writer)
    except PolicySpecError:
        return False


def _run(
    trace: LoggedTrace,
    costs: Sequence[CostProfile],
    contenders: Sequence[Contender],
    envelope: Envelope | None,
    has_oracle: bool,
    advance: Callable[[], None] | None,
) -> dict[tuple[int, str], Tally]:
    """The tallies of one trace by (place of the profile, name); requests go outside, so that their trees are shared."""
    deployments = [trace.deployment(cost, envelope) for cost in costs]
    drivers: dict[tuple[int, str], tuple[Replayer, float]] = {}
    for place, deployment in enumerate(deployments):
        for contender in contenders:
            policy = contender.make()
            replayer = Replayer(policy, deployment)
            check_reach(policy, deployment, contender.name)
            drivers[place, contender.name] = replayer, call_ms_of(policy, deployment.cost)
    oracles: list[list[OracleRun]] = [[] for _ in costs]
    plain: list[list[float]] = [[] for _ in costs]
    for request in trace.requests:
        for replayer, _ in drivers.values():
            replayer.run(request)
        for place, deployment in enumerate(deployments):
            plain[place].append(plain_ms(request, deployment.cost))
            if has_oracle:
                oracles[place].append(oracle_run(request, deployment))
        request.release()
        if advance is not None:
            advance()
    prompts = np.asarray([request.prompt_id for request in trace.requests], dtype=np.str_)
    tasks = np.asarray([request.task for request in trace.requests], dtype=np.str_)
    tallies: dict[tuple[int, str], Tally] = {}
    for (place, name), (replayer, call_ms) in drivers.items():
        columns = _columns(replayer, deployments[place].cost, call_ms)
        tallies[place, name] = Tally(prompts, tasks, np.asarray(plain[place]), columns)
    for place, runs in enumerate(oracles):
        if has_oracle:
            parts = [(run.tokens, run.ms, run.rounds, run.nodes, run.growths, 0, 0) for run in runs]
            table = np.asarray(parts, dtype=np.float64).reshape(len(runs), len(TALLY_COLUMNS))
            columns = dict(zip(TALLY_COLUMNS, table.T, strict=True))
            tallies[place, ORACLE] = Tally(prompts, tasks, np.asarray(plain[place]), columns)
    return tallies


def _columns(replayer: Replayer, cost: CostProfile, call_ms: float) -> dict[str, Float64Array]:
    result = replayer.result()
    values = (
        result.committed_tokens,
        modelled_ms(result, replayer.deployment, call_ms),
        np.ones(len(result)),
        result.verified_nodes,
        result.growths,
        result.policy_calls,
        result.fallback,
    )
    return {name: result.by_request(column) for name, column in zip(TALLY_COLUMNS, values, strict=True)}
