"""A schedule of changing deployments: fixed policies tuned on the whole of it, the learned one bound stage by stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from treewise.data.cost import CostGrid, CostProfile
from treewise.policy_bench_cell import UNTUNED, UNTUNED_SPEC, winners
from treewise.policy_bench_plan import THIS_MACHINE, Condition
from treewise.policy_bench_store import ReplayStore

if TYPE_CHECKING:
    from treewise.training.statistics import Interval, Totals
    from treewise.training.tally import Tally

NAME = "mixed"
BATCHES = (8, 32)  # requests that share every pass and call in some stages of the example costs
CONTEXTS = (1024,)  # tokens of cache in a stage of this machine's costs


@dataclass(frozen=True, slots=True)
class ScheduleStage:
    """One deployment of the schedule."""

    name: str
    cost: CostProfile


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A fixed policy, tuned on the pooled schedule, beside the learned one."""

    name: str
    spec: str
    speedup: Interval  # over plain decoding, every stage's milliseconds in units of its own plain token
    ratio: Interval  # the learned policy over it, this comparison alone
    joint: Interval  # the same, holding together with the others' (Holm)


@dataclass(frozen=True, slots=True)
class ScheduleResult:
    """The schedule under one condition."""

    condition: Condition
    stages: tuple[str, ...]
    prompts: int
    speedup: Interval  # of the learned policy
    rows: tuple[ScheduleRow, ...]  # fastest on the training prompts first

    @property
    def best(self) -> ScheduleRow:
        """The tuned policy that is fastest on the judged prompts."""
        return max((row for row in self.rows if row.name != UNTUNED), key=lambda row: row.speedup.value)


def stages_of(costs: Mapping[str, CostProfile]) -> tuple[ScheduleStage, ...]:
    """The stages that these costs give: each as it is, the examples in larger batches, this machine at more context."""
    found = []
    for name, cost in costs.items():
        found.append(ScheduleStage(name, cost))
        if name == THIS_MACHINE:
            found += [ScheduleStage(f"{name}, {size} tokens of context", at_context(cost, size)) for size in CONTEXTS]
    example = next((cost for name, cost in costs.items() if name != THIS_MACHINE), None)
    if example is not None:
        found += [ScheduleStage(f"{example.name}, batch {size}", example.shared_by(size)) for size in BATCHES]
    return tuple(found)


def at_context(cost: CostProfile, tokens: int) -> CostProfile:
    """The profile as though every cache held `tokens` tokens."""

    def fixed(grid: CostGrid) -> CostGrid:
        return CostGrid(grid.counts, (tokens,), (tuple(grid.curve(tokens).tolist()),))

    name = f"{cost.name}, {tokens} tokens of context"
    return replace(cost, name=name, verify=fixed(cost.verify), draft=fixed(cost.draft))


def run_schedule(
    condition: Condition,
    stages: Sequence[ScheduleStage],
    stores: tuple[ReplayStore, ReplayStore],
    sources: int,
    specs: Mapping[str, str],
    learned: str,
    resamples: int,
    advance: Callable[[int], None],
) -> ScheduleResult:
    """Prompts take the stages in turns; `stores` are of the training and the judged prompts.

    A policy that reads costs is bound to its stage's, tuned or not. `specs` maps what is tried to its family.
    """
    from treewise.training.statistics import SpeedRatio, interval, totals_by_prompt
    from treewise.training.verdict import judge

    train, judged = stores
    costs = [stage.cost for stage in stages]
    tallies = train.tallies(sources, costs, specs, advance)
    pooled = {spec: _pooled([tallies[place, spec] for place in range(len(costs))]) for spec in specs}
    opponents = {**winners(pooled, specs), UNTUNED: UNTUNED_SPEC}
    asked = [*opponents.values(), learned]
    tallies = judged.tallies(sources, costs, asked, advance)
    found = {spec: _pooled([tallies[place, spec] for place in range(len(costs))]) for spec in asked}
    mine = _totals(found[learned])
    plain = totals_by_prompt(found[learned].prompt_id, found[learned].columns["tokens"], found[learned].plain_ms)
    ratios = {name: SpeedRatio(mine, _totals(found[spec])) for name, spec in opponents.items()}
    judgements = judge(list(ratios.values()), resamples)
    rows = [
        ScheduleRow(
            name,
            spec,
            interval(SpeedRatio(_totals(found[spec]), plain), resamples),
            interval(ratios[name], resamples),
            judgement.interval,
        )
        for (name, spec), judgement in zip(opponents.items(), judgements, strict=True)
    ]
    return ScheduleResult(
        condition,
        tuple(stage.name for stage in stages),
        len(mine.tokens),
        interval(SpeedRatio(mine, plain), resamples),
        tuple(rows),
    )


def _pooled(by_stage: Sequence[Tally]) -> Tally:
    """Each request under the stage whose turn it is, its milliseconds in units of a plain token there."""
    first = by_stage[0]
    turn = np.arange(len(first.prompt_id)) % len(by_stage)
    pick = (turn, np.arange(len(turn)))
    plain = np.stack([tally.plain_ms for tally in by_stage])[pick]
    tokens = first.columns["tokens"]
    columns = {name: np.stack([tally.columns[name] for tally in by_stage])[pick] for name in first.columns}
    columns["ms"] = columns["ms"] * tokens / plain
    return replace(first, plain_ms=tokens.copy(), columns=columns)


def _totals(tally: Tally) -> Totals:
    from treewise.training.ab_report import speed_totals

    return speed_totals(tally)
