"""A/B: several policies on the same logged requests, priced by cost profiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from treewise.data.cost import CostProfile
from treewise.data.envelope import Envelope
from treewise.data.errors import CoverageError, ParameterError, PolicySpecError, require
from treewise.data.pair import PairDescription
from treewise.policy.hook import TreePolicy
from treewise.policy.registry import parse_policy
from treewise.training.ab_report import AbReport, AbRow, ProfileOrigin, row_of
from treewise.training.contest import Contender, contest, oracle_tally
from treewise.training.logged_trace import LoggedTrace, check_distinct
from treewise.training.statistics import RESAMPLES
from treewise.training.tally import Tally, joined

ORACLE = "oracle"


def ab(
    traces: Sequence[LoggedTrace],
    costs: Sequence[CostProfile],
    policies: Sequence[str | TreePolicy],
    envelope: Envelope | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    advance: Callable[[int], None] | None = None,
) -> AbReport:
    """Replay every policy on every request under every cost profile; the first policy is the one compared against.

    `envelope` (the log's own by default) is what the policies are held to. `advance` is told how many more of the
    requests x policies x profiles are done. Raises `CoverageError` where a policy may ask for more than a trace holds,
    where traces are of different pairs, and where a live trace was written by another policy, for only what that policy
    asked for was logged.
    """
    require(len(traces) > 0, "traces", "at least one", len(traces))
    require(len(costs) > 0, "costs", "at least one profile", len(costs))
    require(len(policies) > 0, "policies", "at least one", len(policies))
    contenders = [Contender.of(policy) for policy in policies]
    names = [contender.name for contender in contenders]
    require(len(set(names)) == len(names) and ORACLE not in names, "policies", "each named once", names)
    _check_traces(traces, contenders)
    check_distinct(traces)
    has_oracle = all(trace.manifest.kind == "dense" for trace in traces)
    tallies: dict[tuple[int, str], list[Tally]] = {}
    for trace in traces:
        found = contest(trace, costs, contenders, envelope, advance)
        if has_oracle:
            found |= {(place, ORACLE): oracle_tally(trace, cost, envelope) for place, cost in enumerate(costs)}
        for key, tally in found.items():
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
        if _pair_differs(trace, traces[0]):
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


def _pair_differs(trace: LoggedTrace, other: LoggedTrace) -> bool:
    """Whether two traces are of different pairs: other hashes, whatever the parts are called."""
    mine, theirs = trace.manifest.pair, other.manifest.pair
    if mine == theirs:
        return False
    try:
        return bool(PairDescription.from_json(mine).differences(PairDescription.from_json(theirs)))
    except ParameterError:
        return True


def _same_policy(spec: str, writer: str | None) -> bool:
    """Whether two spec strings make the same policy, one of them perhaps with its defaults left out."""
    if writer is None or spec == writer:
        return spec == writer
    try:
        return getattr(parse_policy(spec), "spec", spec) == getattr(parse_policy(writer), "spec", writer)
    except PolicySpecError:
        return False
