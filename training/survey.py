"""The map of a pair: how much is accepted, by task and by the shape of the tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from treewise.data.cost import CostProfile
from treewise.data.envelope import Envelope
from treewise.data.errors import ParameterError, TraceError, require
from treewise.data.task_kinds import in_order, kind_of
from treewise.policy.hook import TreePolicy
from treewise.training.ab import check_traces, contenders_of, few_prompts, told_labels
from treewise.training.ab_report import ProfileOrigin, interval_json
from treewise.training.contender import Contender
from treewise.training.logged_trace import LoggedTrace, check_distinct
from treewise.training.ratios import Ratios, ratio_intervals
from treewise.training.replay_result import Float64Array, Int64Array
from treewise.training.statistics import LEVEL, RESAMPLES, Interval
from treewise.training.survey_counts import FIGURES, Counting, SurveyCounts, survey_counts
from treewise.training.survey_grid import SurveyGrid, gap

SCHEMA_VERSION = 1
ALL = ""  # in place of a task: every request
_NAMES = tuple(figure.name for figure in FIGURES)


@dataclass(frozen=True, slots=True)
class Uncovered:
    """A policy that was not replayed, because the traces cannot say what it would do."""

    policy: str
    why: str


@dataclass(frozen=True, slots=True)
class Survey:
    """Figures by task and policy: acceptance by exact replay of dense traces, milliseconds from a cost profile."""

    acceptance: tuple[str, ...]  # origins of acceptance, one a trace
    milliseconds: ProfileOrigin  # origin of every modelled figure's milliseconds
    envelopes: tuple[Envelope, ...]  # that the policies were held to, one a trace
    grid: SurveyGrid
    policies: tuple[str, ...]  # as they were asked for, those not covered left out
    tasks: tuple[str, ...]  # the first is `ALL`
    prompts: Int64Array  # [tasks]
    tokens: Int64Array  # [tasks]
    values: Float64Array  # [tasks, policies, figures, 3] value, low, high; NaN where there is none
    lengths: Float64Array  # [tasks, policies, longest + 1, 3] share of verifications by accepted length
    uncovered: tuple[Uncovered, ...]
    resamples: int
    seed: int
    warnings: tuple[str, ...] = ()

    def figure(self, name: str, policy: str, task: str = ALL) -> Interval:
        """One of `FIGURES`. Raises `ParameterError` on a name, policy or task that is not there."""
        found = self.values[self._task(task), self._policy(policy), self._figure(name)]
        return Interval(*map(float, found))

    def length_shares(self, policy: str, task: str = ALL) -> Float64Array:
        """Share of verifications by accepted length with its interval, [longest + 1, 3]."""
        shares: Float64Array = self.lengths[self._task(task), self._policy(policy)]
        return shares

    def most_accepted(self, policy: str) -> int:
        """The longest accepted length that came."""
        return int(np.flatnonzero(self.length_shares(policy)[:, 0]).max(initial=0))

    def heat(self, name: str, task: str = ALL) -> Float64Array:
        """A figure's values over the grid, [`grid.rows`, `grid.depths`]; NaN where it is not covered."""
        specs = [[self.grid.spec(width, depth) for depth in self.grid.depths] for width in self.grid.rows]
        values = [
            [self.figure(name, spec, task).value if spec in self.policies else np.nan for spec in row] for row in specs
        ]
        return np.asarray(values, dtype=np.float64)

    def fastest(self, policies: Sequence[str], task: str = ALL) -> str:
        """The policy with the highest modelled speed of those that are covered; "" where none is.

        Picked on the very prompts that its figures come from, which flatters them.
        """
        known = [policy for policy in policies if policy in self.policies]
        return max(known, key=lambda policy: self.figure("speedup", policy, task).value, default="")

    def highlights(self, task: str = ALL) -> tuple[str, ...]:
        """What a short table shows: the fastest chain, the fastest static tree, and all that is not of the grid."""
        best = (self.fastest(self.grid.chains, task), self.fastest(self.grid.trees, task))
        fixed = {*self.grid.chains, *self.grid.trees}
        return (*(spec for spec in best if spec), *(spec for spec in self.policies if spec not in fixed))

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping that fits `treewise/schemas/survey.json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "exact": True,
            "acceptance": list(self.acceptance),
            "milliseconds": self.milliseconds.to_json(),
            "envelopes": [envelope.to_json() for envelope in self.envelopes],
            "grid": {"widths": list(self.grid.rows), "depths": list(self.grid.depths), "sources": self.grid.sources},
            "figures": [
                {"name": figure.name, "meaning": figure.meaning, "modelled": figure.is_modelled} for figure in FIGURES
            ],
            "level": LEVEL,
            "resamples": self.resamples,
            "seed": self.seed,
            "warnings": list(self.warnings),
            "uncovered": [asdict(one) for one in self.uncovered],
            "tasks": [
                {
                    "task": task,
                    "kind": kind_of(task),
                    "prompts": int(self.prompts[place]),
                    "tokens": int(self.tokens[place]),
                    "fastest_chain": self.fastest(self.grid.chains, task) or None,
                    "fastest_tree": self.fastest(self.grid.trees, task) or None,
                }
                for place, task in enumerate(self.tasks)
            ],
            "rows": [self._row(task, policy) for task in self.tasks for policy in self.policies],
        }

    def _row(self, task: str, policy: str) -> dict[str, Any]:
        place = {self.grid.spec(width, depth): (width, depth) for width in self.grid.rows for depth in self.grid.depths}
        width, depth = place.get(policy, (None, None))
        shares = [interval_json(Interval(*map(float, share))) for share in self.length_shares(policy, task)]
        figures = {name: interval_json(self.figure(name, policy, task)) for name in _NAMES}
        return {"task": task, "policy": policy, "width": width, "depth": depth, **figures, "lengths": shares}

    def _task(self, task: str) -> int:
        return _place("task", task, self.tasks)

    def _policy(self, policy: str) -> int:
        return _place("policy", policy, self.policies)

    def _figure(self, name: str) -> int:
        return _place("figure", name, _NAMES)


def survey(
    traces: Sequence[LoggedTrace],
    cost: CostProfile,
    policies: Sequence[str | TreePolicy | Contender] = (),
    grid: SurveyGrid | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    advance: Callable[[int], None] | None = None,
    count: Counting = survey_counts,
) -> Survey:
    """Replay the grid and `policies` on dense `traces` of one pair and count.

    What a trace's envelope does not cover is named and left out. `advance` is told how many more of the requests x
    policies are done. Intervals are percentile intervals by prompt, all figures of a task from the same draws. `count`
    replays one policy, or knows what its replay brought.

    Raises `TraceError` on a live trace or one without requests, `CoverageError` where traces are of different pairs,
    `ParameterError` where one of `policies` is named twice, `BundleError` where a learned one does not fit the traces.
    """
    require(len(traces) > 0, "traces", "at least one", len(traces))
    grid = grid or SurveyGrid()
    for trace in traces:
        if trace.manifest.kind != "dense":
            raise TraceError(f"trace {trace.name} must be dense, got a {trace.manifest.kind} one")
        if not trace.requests:
            raise TraceError(f"trace {trace.name} must hold at least one request, got none")
    contenders = surveyed(grid, policies)
    check_traces(traces, contenders)
    check_distinct(traces)
    requests = sum(len(trace.requests) for trace in traces)
    longest = max(trace.envelope.max_depth for trace in traces)
    counted: dict[str, SurveyCounts] = {}
    uncovered: list[Uncovered] = []
    for contender in contenders:
        if why := gap(contender, traces, cost):
            uncovered.append(Uncovered(contender.name, why))
            if advance is not None:
                advance(requests)
        else:
            counted[contender.name] = count(traces, cost, contender, longest, advance)
    if not counted:
        raise ParameterError(f"policies must hold one that the traces cover, got none: {uncovered[0].why}")
    first = next(iter(counted.values()))
    tasks = (ALL, *in_order(first.task.tolist()))
    chosen = [first.task == task if task else np.ones(len(first.task), dtype=np.bool_) for task in tasks]
    prompts = [len(np.unique(first.prompt_id[own])) for own in chosen]
    tables = [_table(list(counted.values()), own, resamples, seed) for own in chosen]
    return Survey(
        acceptance=tuple(trace.origin for trace in traces),
        milliseconds=ProfileOrigin.of(cost),
        envelopes=tuple(trace.envelope for trace in traces),
        grid=grid,
        policies=tuple(counted),
        tasks=tasks,
        prompts=np.asarray(prompts, dtype=np.int64),
        tokens=np.asarray([first.columns["tokens"][own].sum() for own in chosen]).astype(np.int64),
        values=np.stack([table[:, : len(FIGURES)] for table in tables]),
        lengths=np.stack([table[:, len(FIGURES) :] for table in tables]),
        uncovered=tuple(uncovered),
        resamples=resamples,
        seed=seed,
        warnings=(*few_prompts(dict(zip(tasks, prompts, strict=True))), *told_labels(contenders, traces)),
    )


def surveyed(grid: SurveyGrid, policies: Sequence[str | TreePolicy | Contender]) -> list[Contender]:
    """The grid's policies and those of `policies` that it does not hold. Raises as `contenders_of`."""
    return contenders_of([*grid.specs, *(policy for policy in policies if policy not in grid.specs)])


def _table(counted: Sequence[SurveyCounts], own: np.ndarray[Any, Any], resamples: int, seed: int) -> Float64Array:
    """Figures, then shares by accepted length, of the requests `own` [requests], [policies, columns, 3]."""
    _, prompt = np.unique(counted[0].prompt_id[own], return_inverse=True)
    sums = np.zeros((int(prompt.max()) + 1, len(prompt)))
    sums[prompt, np.arange(len(prompt))] = 1.0  # adds the requests of each prompt
    tops, bottoms = [], []
    for counts in counted:
        columns = {name: values[own] for name, values in counts.columns.items()}
        lengths = counts.lengths[own]
        tops += [columns[figure.top] for figure in FIGURES] + list(lengths.T)
        bottoms += [columns[figure.bottom] for figure in FIGURES] + [columns["rounds"]] * lengths.shape[1]
    ratios = Ratios(sums @ np.stack(tops, axis=1), sums @ np.stack(bottoms, axis=1))
    return ratio_intervals(ratios, resamples, seed).reshape(len(counted), -1, 3)


def _place(kind: str, name: str, names: Sequence[str]) -> int:
    require(name in names, kind, f"one of {', '.join(map(repr, names))}", name)
    return names.index(name)
