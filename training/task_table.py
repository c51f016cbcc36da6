"""Fitting a table of starting settings by task to what a grid of settings did on logged rounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.cost import CostProfile
from treewise.data.errors import require
from treewise.data.task_kinds import in_order
from treewise.policy.task_recogniser import UNKNOWN
from treewise.policy.task_table import TaskTable
from treewise.training.contest import Contender, contests
from treewise.training.logged_trace import LoggedTrace
from treewise.training.statistics import RESAMPLES, Float64Array, Interval, SpeedRatio, interval, totals_by_prompt
from treewise.training.tally import joined
from treewise.training.tune import reachable_specs

FAMILIES = ("chain", "static", "topn")  # rules of a width and a depth that remember nothing
BORROWS = (0.0, 3.0, 10.0, 30.0, math.inf)  # average prompts of all tasks that join a task's own
TextArray = NDArray[np.str_]


@dataclass(frozen=True, slots=True)
class SettingGrid:
    """What every setting of a grid did under one cost profile, by request."""

    specs: tuple[str, ...]
    prompt_id: TextArray  # [requests]
    task: TextArray  # [requests] the prompts' labels
    tokens: Float64Array  # [specs, requests]
    ms: Float64Array  # [specs, requests] modelled

    @classmethod
    def replayed(
        cls,
        traces: Sequence[LoggedTrace],
        cost: CostProfile,
        specs: Sequence[str],
        advance: Callable[[int], None] | None = None,
        workers: int = 1,
    ) -> SettingGrid:
        """Replay `specs` on `traces`; `advance` and `workers` as those of `contests`. Raises as that does."""
        require(len(traces) > 0, "traces", "at least one", 0)
        require(len(specs) > 0, "specs", "at least one", 0)
        parts = contests(traces, [cost], [Contender.of(spec) for spec in specs], advance=advance, workers=workers)
        found = [joined([part[0, spec] for part in parts]) for spec in specs]
        return cls(
            tuple(specs),
            found[0].prompt_id,
            found[0].task,
            np.stack([tally.columns["tokens"] for tally in found]),
            np.stack([tally.columns["ms"] for tally in found]),
        )

    def of(self, specs: Sequence[str]) -> tuple[Float64Array, Float64Array]:
        """(tokens, milliseconds) of every request under a spec of its own, each [requests]."""
        places = np.asarray([self.specs.index(spec) for spec in specs], dtype=np.intp)
        requests = np.arange(len(places))
        return self.tokens[places, requests], self.ms[places, requests]

    def ratio(self, specs: Sequence[str], baseline: str, chosen: NDArray[np.bool_], resamples: int) -> Interval:
        """Speed of the requests `chosen` under `specs` [requests] over that under `baseline`."""
        sides = [self.of(specs), self.of([baseline] * len(specs))]
        totals = [totals_by_prompt(self.prompt_id[chosen], tokens[chosen], ms[chosen]) for tokens, ms in sides]
        return interval(SpeedRatio(*totals), resamples)


@dataclass(frozen=True, slots=True)
class TaskGain:
    """Settings by task over one setting for all, on the prompts of one task."""

    task: str  # the prompts' label; "": all of them
    prompts: int
    spec: str  # that the task's own row names; "" for all tasks
    gain: Interval  # speed over that of the single setting


@dataclass(frozen=True, slots=True)
class FittedTable:
    """A table's settings, and what to expect of them."""

    settings: Mapping[str, str]  # task -> spec, `UNKNOWN`'s last: the fastest for all of them
    borrow: float  # of `BORROWS`; infinite: every task has the single setting
    held_out: Interval  # speed of rows of their own, chosen without the prompt, over the single setting's
    rows: tuple[TaskGain, ...]  # on the prompts that it was fitted on, so flattering

    @property
    def single(self) -> str:
        """The setting that is fastest over all tasks."""
        return self.settings[UNKNOWN]

    def table(self, recogniser_file: str = "", recogniser_sha256: str = "", **origin: Any) -> TaskTable:
        """The table to save; `origin` says, for people, what it was fitted on."""
        fitted = {
            **origin,
            "prompts": sum(row.prompts for row in self.rows if row.task),
            "borrowed_prompts": "all" if math.isinf(self.borrow) else self.borrow,
            "own_rows_held_out": [round(x, 4) for x in (self.held_out.value, self.held_out.low, self.held_out.high)],
        }
        return TaskTable(self.settings, recogniser_file, recogniser_sha256, fitted)


def fit_table(grid: SettingGrid, resamples: int = RESAMPLES) -> FittedTable:
    """The fastest setting of each task, its own prompts joined by average ones of all tasks.

    How many are borrowed is what is fastest on prompts left out one at a time. Where even that is not surely faster
    than the single setting that all prompts choose (the interval's lower end above 1), every task gets that one. The
    single setting has seen the prompts that it is judged on, which is in its favour. In the rows' favour is that the
    number borrowed is picked on the very prompts that are left out, and that prompts of one template resemble each
    other more than tomorrow's will resemble them. Raises `ParameterError` on fewer than three prompts.
    """
    prompts = np.unique(grid.prompt_id)
    require(len(prompts) >= 3, "traces", "of three prompts or more", len(prompts))
    everything = np.ones(len(grid.task), dtype=np.bool_)
    single = _fastest(grid, everything, everything, math.inf)
    finite = [borrow for borrow in BORROWS if math.isfinite(borrow)]
    trials = [_held_out(grid, prompts, borrow) for borrow in finite]
    speeds = [float(tokens.sum() / ms.sum()) for tokens, ms in trials]
    best = max(range(len(finite)), key=lambda place: (round(speeds[place], 9), finite[place]))
    sides = (trials[best], grid.of([single] * len(grid.task)))
    held_out = interval(SpeedRatio(*(totals_by_prompt(grid.prompt_id, *side) for side in sides)), resamples)
    borrow = finite[best] if held_out.low > 1.0 else math.inf
    settings = {task: _fastest(grid, grid.task == task, everything, borrow) for task in in_order(grid.task.tolist())}
    settings[UNKNOWN] = single
    return FittedTable(settings, borrow, held_out, gains(grid, settings, grid.task.tolist(), resamples))


def gains(
    grid: SettingGrid, settings: Mapping[str, str], told: Sequence[str], resamples: int = RESAMPLES
) -> tuple[TaskGain, ...]:
    """Gains of a table's `settings` where the policy is `told` [requests] each task: all prompts, then by label."""
    table = TaskTable(settings)
    specs = [settings[table.row_of(task)] for task in told]
    everything = np.ones(len(specs), dtype=np.bool_)
    parts = [("", everything)] + [(task, np.asarray(grid.task == task)) for task in in_order(grid.task.tolist())]
    return tuple(
        TaskGain(
            task=task,
            prompts=len(np.unique(grid.prompt_id[chosen])),
            spec=settings[table.row_of(task)] if task else "",
            gain=grid.ratio(specs, settings[UNKNOWN], chosen, resamples),
        )
        for task, chosen in parts
    )


def settings_to_try(traces: Sequence[LoggedTrace], cost: CostProfile, families: Sequence[str] = FAMILIES) -> list[str]:
    """Spec strings of the grids of `families` that every trace can answer. Raises as `reachable_specs`."""
    return list(reachable_specs(traces, cost, families)[0])


def _held_out(grid: SettingGrid, prompts: TextArray, borrow: float) -> tuple[Float64Array, Float64Array]:
    """(tokens, milliseconds) of every request under the setting that other prompts choose for its task, [requests]."""
    specs = [""] * len(grid.task)
    for prompt in prompts:
        own = grid.prompt_id == prompt
        for task in np.unique(grid.task[own]):
            chosen = _fastest(grid, ~own & (grid.task == task), ~own, borrow)
            for row in np.flatnonzero(own & (grid.task == task)).tolist():
                specs[row] = chosen
    return grid.of(specs)


def _fastest(grid: SettingGrid, own: NDArray[np.bool_], everyone: NDArray[np.bool_], borrow: float) -> str:
    """The setting with the most tokens a millisecond on the requests `own` and `borrow` average ones of `everyone`."""
    tokens, ms = grid.tokens[:, everyone].mean(axis=1), grid.ms[:, everyone].mean(axis=1)
    if math.isfinite(borrow) and own.any():
        tokens, ms = grid.tokens[:, own].sum(axis=1) + borrow * tokens, grid.ms[:, own].sum(axis=1) + borrow * ms
    return grid.specs[int(np.argmax(tokens / ms))]
