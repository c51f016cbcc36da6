"""A/B: several policies on the same logged requests, priced by cost profiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from treewise.data.cost import CostProfile
from treewise.data.envelope import Envelope
from treewise.data.errors import CoverageError, ParameterError, PolicySpecError, require
from treewise.data.pair import PairDescription
from treewise.data.trace_reader import TraceReader
from treewise.policy.hook import TreePolicy
from treewise.policy.registry import parse_policy
from treewise.training.ab_report import AbReport, AbRow, ProfileOrigin, judged, row_of, speed_totals
from treewise.training.break_even import BreakEven, break_even
from treewise.training.contest import Contender, contests
from treewise.training.contest_work import ORACLE as ORACLE
from treewise.training.logged_trace import LoggedTrace, check_distinct
from treewise.training.oracle import depth_oracle
from treewise.training.statistics import RESAMPLES, SpeedRatio
from treewise.training.tally import Tally, joined
from treewise.training.verdict import FEW_PROMPTS, MARGIN

DEPTH_ORACLE_TOKENS = 20_000  # of text x policies x profiles, up to which depth oracles take but seconds


def ab(
    traces: Sequence[LoggedTrace],
    costs: Sequence[CostProfile],
    policies: Sequence[str | TreePolicy | Contender],
    envelope: Envelope | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    advance: Callable[[int], None] | None = None,
    margin: float = MARGIN,
    tuned_on: Sequence[LoggedTrace] = (),
    with_depth_oracles: bool = False,
    as_recorded: bool = False,
    workers: int = 1,
) -> AbReport:
    """Replay every policy on every request under every cost profile; the first policy is the one compared against.

    `envelope` (the log's own by default) is what the policies are held to. `advance` is told how many more of the
    requests x policies x profiles are done. `margin` is the share of speed whose loss counts as no loss. `tuned_on` are
    the traces that settings were chosen on: prompts of theirs among the judged ones bring a warning. Depth oracles
    watch every round, so that requests cannot be replayed side by side, which is many times slower.
    `as_recorded`: rounds of live traces that the log says a fallback finished are taken from it as they are.
    `workers` processes share the replays: see `contests`; the report does not depend on how many.

    Under each profile the policies over all tasks are one family of comparisons, and policies x tasks another; each
    family is corrected for its size. Profiles are deployments, each a question of its own, and not corrected for.

    Raises `CoverageError` where a policy may ask for more than a trace holds, where traces are of different pairs, and
    where a live trace was written by another policy, for only what that policy asked for was logged: see `estimate`.
    Requests that an exploring policy decided are left out.
    """
    require(len(traces) > 0, "traces", "at least one", len(traces))
    require(len(costs) > 0, "costs", "at least one profile", len(costs))
    profiles = [cost.name for cost in costs]
    require(len(set(profiles)) == len(profiles), "costs", "profiles of different names", profiles)
    contenders = contenders_of(policies)
    check_traces(traces, contenders)
    kinds = [trace.manifest.kind for trace in traces]
    require(not as_recorded or set(kinds) == {"live"}, "as_recorded", "off unless all traces are live", as_recorded)
    check_distinct(traces)
    traces = [trace.unexplored() for trace in traces]
    has_oracle = all(trace.manifest.kind == "dense" for trace in traces)
    tallies: dict[tuple[int, str], list[Tally]] = {}
    for found in contests(
        traces, costs, contenders, envelope, advance, with_depth_oracles, as_recorded, workers, has_oracle
    ):
        for key, tally in found.items():
            tallies.setdefault(key, []).append(tally)
    names = tuple(contender.name for contender in contenders)
    rows: list[AbRow] = []
    bounds: list[AbRow] = []
    flips: list[BreakEven] = []
    for place, cost in enumerate(costs):
        joint = {name: joined(parts) for (at, name), parts in tallies.items() if at == place}
        first = joint[names[0]]
        for tasks in ([""], sorted(set(first.task.tolist()))):
            family = _Family(cost.name, names, joint, tasks, resamples, seed)
            rows.extend(family.rows([*names, ORACLE] if has_oracle else names, margin))
            bounds.extend(family.bounds() if with_depth_oracles else ())
        flips.extend(break_even(cost.name, names[0], first, name, joint[name]) for name in names[1:])
    return AbReport(
        acceptance=tuple(trace.origin for trace in traces),
        profiles=tuple(ProfileOrigin.of(cost) for cost in costs),
        policies=names,
        rows=tuple(rows),
        resamples=resamples,
        seed=seed,
        depth_oracles=tuple(bounds),
        break_even=tuple(flips),
        margin=margin,
        warnings=(
            *few_prompts({row.task: row.prompts for row in rows if row.profile == profiles[0]}),
            *tuned_too(traces, tuned_on),
            *told_labels(contenders, traces),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Family:
    """Comparisons under one profile that are corrected for one another: over all tasks, or within each of them."""

    profile: str
    names: tuple[str, ...]  # of the policies, the first compared against
    joint: dict[str, Tally]  # by name, oracles too
    tasks: list[str]  # "": all of them
    resamples: int
    seed: int

    def rows(self, shown: Sequence[str], margin: float) -> list[AbRow]:
        """The rows of `shown`, policies judged."""
        rows: list[AbRow] = []
        estimators: list[SpeedRatio | None] = []
        for task in self.tasks:
            against = self._tally(self.names[0], task)
            for name in shown:
                tally, is_first, is_oracle = self._tally(name, task), name == self.names[0], name == ORACLE
                rows.append(self._row(name, task, None if is_first else against, is_oracle))
                pair = None if is_first or is_oracle else SpeedRatio(speed_totals(tally), speed_totals(against))
                estimators.append(pair)
        return judged(rows, estimators, self.resamples, self.seed, margin)

    def bounds(self) -> list[AbRow]:
        """The rows of every policy's depth oracle."""
        return [
            self._row(depth_oracle(name), task, self._tally(self.names[0], task), True)
            for task in self.tasks
            for name in self.names
        ]

    def _tally(self, name: str, task: str) -> Tally:
        tally = self.joint[name]
        return tally if task == "" else tally.of(np.asarray(tally.task == task))

    def _row(self, name: str, task: str, against: Tally | None, is_oracle: bool) -> AbRow:
        tally = self._tally(name, task)
        return row_of(self.profile, name, task, tally, against, is_oracle, self.resamples, self.seed)


def has_cheap_depth_oracles(traces: Sequence[LoggedTrace], replays: int) -> bool:
    """Whether depth oracles take but seconds where `traces` are replayed so many times: policies x profiles."""
    tokens = sum(entry.num_tokens for trace in traces for entry in trace.entries)
    return tokens * replays <= DEPTH_ORACLE_TOKENS


def contenders_of(policies: Sequence[str | TreePolicy | Contender]) -> list[Contender]:
    """The policies of an A/B, checked before any trace is read.

    Raises `PolicySpecError` on a bad spec, `BundleError` on a bad bundle, and `ParameterError` where there is none or
    one is named twice.
    """
    require(len(policies) > 0, "policies", "at least one", len(policies))
    contenders = [Contender.of(policy) for policy in policies]
    names = [contender.name for contender in contenders]
    taken = {ORACLE, *map(depth_oracle, names)}
    require(len(set(names)) == len(names) and not taken & set(names), "policies", "each named once", names)
    return contenders


def trained_on_judged(contenders: Sequence[Contender], folders: Sequence[Path]) -> list[str]:
    """A warning for each policy whose bundle or table says that it was fitted on one of the traces in `folders`."""
    found = []
    hashes: dict[str, str] = {}
    for contender in contenders:
        trained = _fitted_on(contender.make())
        if not trained:
            continue
        hashes = hashes or {TraceReader(folder).content_hash(): str(folder) for folder in folders}
        both = [hashes[content] for content in trained if content in hashes]
        if both:
            found.append(f"{contender.name} was trained on {', '.join(both)}: its speed there flatters it")
    return found


def _fitted_on(policy: TreePolicy) -> list[str]:
    """Content hashes of the traces that the policy's bundle, or its table of probabilities, was fitted on."""
    bundle, table = getattr(policy, "bundle", None), getattr(policy, "table", None)
    if bundle is not None:
        return list(bundle.provenance.get("traces", {}).values())
    return [line.rpartition(" ")[2] for line in getattr(table, "origin", ())]  # each a name and a hash


def told_labels(contenders: Sequence[Contender], traces: Sequence[LoggedTrace]) -> list[str]:
    """A warning where policies that go by a recogniser live are told the prompts' own labels by a dense trace."""
    names = [contender.name for contender in contenders if getattr(contender.make(), "recogniser", None) is not None]
    labelled = [trace for trace in traces if trace.manifest.kind == "dense"]
    labelled = [trace for trace in labelled if "recogniser" not in trace.manifest.input_hashes]
    where = ", ".join(trace.name for trace in labelled)
    return [
        f"{name} is told the prompts' labels in {where}, live what its recogniser makes of them: `treewise tasks tell`"
        for name in (names if labelled else [])
    ]


def few_prompts(by_task: Mapping[str, int]) -> list[str]:
    """A warning where intervals rest on few prompts, overall or by task; `by_task` counts them, "" being all."""
    counts = dict(by_task)
    whole = counts.pop("")
    if whole < FEW_PROMPTS:
        held = "1 prompt" if whole == 1 else f"{whole} prompts"
        return [f"traces hold {held}: below {FEW_PROMPTS} the intervals are too narrow"]
    few = [f"{task} ({prompts})" for task, prompts in counts.items() if prompts < FEW_PROMPTS]
    return [f"tasks with fewer than {FEW_PROMPTS} prompts have intervals too narrow: {', '.join(few)}"] if few else []


def tuned_too(traces: Sequence[LoggedTrace], tuned_on: Sequence[LoggedTrace]) -> list[str]:
    """A warning where a prompt, told by its id and its length in tokens, is judged and was tuned on."""
    judged_prompts, tuned = (
        {(request.prompt_id, request.prompt_tokens) for trace in group for request in trace.entries}
        for group in (traces, tuned_on)
    )
    both = sorted(prompt for prompt, _ in judged_prompts & tuned)
    if not both:
        return []
    names = ", ".join(both[:3]) + (", .." if len(both) > 3 else "")
    return [
        f"{len(both)} of {len(judged_prompts)} judged prompts were tuned on as well ({names}): their figures flatter"
    ]


def check_traces(traces: Sequence[LoggedTrace], contenders: Sequence[Contender]) -> None:
    """Raise `CoverageError` where traces are of different pairs, or live ones of another policy than the contenders."""
    for trace in traces:
        if pair_differs(trace, traces[0]):
            raise CoverageError(
                f"traces must be of one pair, got {traces[0].pair_name} in {traces[0].name} "
                f"and {trace.pair_name} in {trace.name}"
            )
        if trace.manifest.kind == "dense":
            continue
        writer = trace.manifest.policy
        others = [contender.name for contender in contenders if not same_policy(contender.name, writer)]
        if others:
            raise CoverageError(
                f"trace {trace.name} is a live trace of policy {writer}: its trees hold what that policy asked for, "
                f"so it cannot say what {', '.join(others)} would have done; use a dense trace, or estimate"
            )


def pair_differs(trace: LoggedTrace, other: LoggedTrace) -> bool:
    """Whether two traces are of different pairs: other hashes, whatever the parts are called."""
    mine, theirs = trace.manifest.pair, other.manifest.pair
    if mine == theirs:
        return False
    try:
        return bool(PairDescription.from_json(mine).differences(PairDescription.from_json(theirs)))
    except ParameterError:
        return True


def same_policy(spec: str, writer: str | None) -> bool:
    """Whether two spec strings make the same policy, one of them perhaps with its defaults left out."""
    if writer is None or spec == writer:
        return spec == writer
    try:
        return getattr(parse_policy(spec), "spec", spec) == getattr(parse_policy(writer), "spec", writer)
    except PolicySpecError:
        return False
