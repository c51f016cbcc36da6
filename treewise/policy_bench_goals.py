"""The goals of the policy benchmark, each computed from its results: reached or not, and by what figure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from treewise.policy_bench_carried import Carried
from treewise.policy_bench_cell import DRAFT_ONLY, UNTUNED, CellResult, Judged
from treewise.policy_bench_loss import Losses
from treewise.policy_bench_nodes import NodeCurve, known
from treewise.policy_bench_schedule import ScheduleResult

if TYPE_CHECKING:
    from treewise.training.statistics import Interval
    from treewise.training.survival_check import SurvivalCheck

DRAFT_ONLY_GOALS = {"default": 1.5, "prune:12-17": 1.25}
STRICT_GOAL, SWITCH_GOAL, UNION_GOAL, CARRIED_GOAL, MIXED_GOAL, UNTUNED_GOAL = 1.2, 1.10, 1.05, 1.10, 1.10, 1.5
GAP = 0.08  # to the path oracle, below which a cell leaves nothing to win
MOONSHOT = 1.0 / 3.0  # of the gap
NODES_GOAL = 0.25
ECE_GOAL = 0.02
LEAST_RATIO = 0.99  # of the speed of any fixed policy


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal and what came of it."""

    against: str
    goal: str
    figure: str
    is_reached: bool | None  # None: nothing here speaks of it

    @property
    def words(self) -> str:
        """Whether it is reached, in words."""
        return {True: "reached", False: "not reached", None: "not measured"}[self.is_reached]


def goals(
    cells: Sequence[CellResult],
    node_curves: Sequence[NodeCurve],
    carried: Sequence[Carried],
    schedules: Sequence[ScheduleResult],
    losses: Losses,
    left_out: Mapping[str, SurvivalCheck],
) -> tuple[Goal, ...]:
    """Every goal, in order."""
    union = [found for found in cells if found.cell.has_union]
    a100 = [found for found in union if found.cell.is_a100]
    return (
        *(_draft_only(a100, draft, least) for draft, least in DRAFT_ONLY_GOALS.items()),
        _strict(a100),
        _every(
            a100, "suffix-or-model switching, tuned", "A100 cells", SWITCH_GOAL, lambda part: _ratio(part, "switch")
        ),
        _union(union),
        _moonshot(union),
        _carried(carried),
        _mixed(schedules),
        _untuned(union),
        _losses(losses),
        _nodes(node_curves),
        _nodes_by_price(union),
        _calibration(cells),
        _left_out(left_out),
        Goal("plain decoding and transformers, live", "at least 1.25", "run `treewise compare`", None),
    )


def _all(found: CellResult) -> Judged:
    return found.judged[0]


def _ratio(part: Judged, name: str) -> Interval | None:
    opponent = part.opponent(name)
    return None if opponent is None else opponent.ratio


def _every(
    cells: Sequence[CellResult],
    against: str,
    where: str,
    least: float,
    ratio: Callable[[Judged], Interval | None],
    subset: str = "all",
) -> Goal:
    """A goal that every one of `cells` must reach; the figure names the lowest."""
    goal = f"at least {least:g} in every one of the {where}"
    found = []
    for one in cells:
        part = one.subset(subset)
        value = None if part is None else ratio(part)
        if value is not None:
            found.append((value, one))
    if not found:
        return Goal(against, goal, f"no such cell among those run ({where})", None)
    lowest, cell = min(found, key=lambda pair: pair[0].value)
    mean = geometric_mean([value.value for value, _ in found])
    figure = f"lowest {lowest} in {cell.cell}; mean {mean:.3f} over {len(found)} cells"
    return Goal(against, goal, figure, lowest.value >= least)


def _draft_only(a100: Sequence[CellResult], draft: str, least: float) -> Goal:
    mine = [found for found in a100 if found.cell.condition.draft == draft]
    against = f"best tuned draft-only tree, draft {draft}"
    return _every(mine, against, "A100 cells", least, lambda part: _ratio(part, DRAFT_ONLY))


def _strict(a100: Sequence[CellResult]) -> Goal:
    against = "best tuned draft-only tree, strict text"
    return _every(a100, against, "A100 cells", STRICT_GOAL, lambda part: _ratio(part, DRAFT_ONLY), "strict")


def _open_cells(union: Sequence[CellResult]) -> list[Judged]:
    """Those where the best fixed policy is at least `GAP` from the path oracle."""
    parts = [_all(found) for found in union]
    return [part for part in parts if part.oracle / part.best.speedup.value >= 1.0 + GAP]


def _union(union: Sequence[CellResult]) -> Goal:
    against = "best tuned fixed policy on the union, cells with a gap to the path oracle of at least 8 %"
    goal = f"at least {UNION_GOAL:g} on average, lower bound above 1 in each"
    parts = _open_cells(union)
    if not parts:
        return Goal(against, goal, "no such cell among those run", None)
    mean = geometric_mean([part.best.ratio.value for part in parts])
    trained = [part.opponent(part.tuned_best) for part in parts]
    usual = geometric_mean([one.ratio.value for one in trained if one is not None])
    lows = [part.best.ratio.low for part in parts]
    above = sum(low > 1.0 for low in lows)
    figure = (
        f"mean {mean:.3f} over the fastest with hindsight, {usual:.3f} over the one that training prompts chose; lower "
        f"bound above 1 in {above} of {len(parts)} cells, lowest {min(lows):.3f}"
    )
    return Goal(against, goal, figure, mean >= UNION_GOAL and above == len(parts))


def _moonshot(union: Sequence[CellResult]) -> Goal:
    against = "the same, gap to the path oracle"
    goal = "moonshot: a third of it closed"
    parts = _open_cells(union)
    if not parts:
        return Goal(against, goal, "no such cell among those run", None)
    shares = [
        (part.speedup.value - part.best.speedup.value) / (part.oracle - part.best.speedup.value) for part in parts
    ]
    mean = float(np.mean(shares))
    figure = f"mean {mean:.2f} of it, from {min(shares):.2f} to {max(shares):.2f} over {len(parts)} cells"
    return Goal(against, goal, figure, mean >= MOONSHOT)


def _carried(carried: Sequence[Carried]) -> Goal:
    against = "the best fixed policy of a cell, carried unchanged to the other cells"
    goal = f"at least {CARRIED_GOAL:g} on average"
    values = [one.ratio.value for one in carried]
    if not values:
        return Goal(against, goal, "fewer than two cells with every source", None)
    mean = geometric_mean(values)
    figure = f"mean {mean:.3f}, from {min(values):.3f} to {max(values):.3f} over {len(values)} moves"
    return Goal(against, goal, figure, mean >= CARRIED_GOAL)


def _mixed(schedules: Sequence[ScheduleResult]) -> Goal:
    against, goal = "best tuned fixed policy, mixed schedule", f"at least {MIXED_GOAL:g}"
    if not schedules:
        return Goal(against, goal, "no schedule was run", None)
    lowest = min(schedules, key=lambda found: found.best.ratio.value)
    mean = geometric_mean([found.best.ratio.value for found in schedules])
    figure = f"lowest {lowest.best.ratio} with {lowest.condition} over {lowest.best.name}; mean {mean:.3f}"
    return Goal(against, goal, figure, lowest.best.ratio.value >= MIXED_GOAL)


def _untuned(union: Sequence[CellResult]) -> Goal:
    def drafting_pays(found: CellResult) -> bool:
        alone = _all(found).opponent(DRAFT_ONLY)
        return alone is not None and alone.speedup.value > 1.0

    paying = [found for found in union if drafting_pays(found)]
    where = "cells where the best draft-only tree beats plain decoding"
    return _every(paying, UNTUNED, where, UNTUNED_GOAL, lambda part: _ratio(part, UNTUNED))


def _losses(losses: Losses) -> Goal:
    against, goal = "any fixed policy, any cell or task", f"nowhere significantly below {LEAST_RATIO:g} (Holm)"
    if not losses.comparisons:
        return Goal(against, goal, "nothing was compared", None)
    figure = f"{len(losses.significant)} of {losses.comparisons} comparisons; lowest ratio {losses.lowest}"
    return Goal(against, goal, figure, not losses.significant)


def _nodes(curves: Sequence[NodeCurve]) -> Goal:
    against = "top-N at equal accepted length, both counting nodes"
    goal = f"at least {NODES_GOAL:.0%} fewer verified nodes, mean over sizes"
    if not curves:
        return Goal(against, goal, "no condition with draft and free sources", None)
    lowest = min(curves, key=lambda curve: known(curve.saved.value))
    point, sizes = lowest.lowest, [one.size for one in lowest.points]
    figure = (
        f"{_share(lowest.saved)} over sizes {sizes[0]} to {sizes[-1]} with {lowest.condition}; lowest "
        f"{_share(point.saved)} at size {point.size}; with the same limit in every round {_share(lowest.limited)}"
    )
    return Goal(against, goal, figure, lowest.saved.value >= NODES_GOAL)


def _share(found: Interval) -> str:
    """In per cent."""
    bounds = "" if math.isnan(found.low) else f" [{100 * found.low:.1f}, {100 * found.high:.1f}]"
    return f"{100 * found.value:.1f}%{bounds}"


def _nodes_by_price(union: Sequence[CellResult]) -> Goal:
    against = "the same where only top-N counts nodes, the learned policy milliseconds"
    goal = f"at least {NODES_GOAL:.0%} fewer verified nodes"
    found = [(one.saved.share, one.cell) for one in union if one.saved is not None and not math.isnan(one.saved.share)]
    if not found:
        return Goal(against, goal, "no cell where top-N reaches the accepted length", None)
    lowest, cell = min(found, key=lambda pair: pair[0])
    mean = float(np.mean([share for share, _ in found]))
    figure = f"mean {mean:.1%} over {len(found)} cells, lowest {lowest:.1%} in {cell}"
    return Goal(against, goal, figure, mean >= NODES_GOAL)


def _calibration(cells: Sequence[CellResult]) -> Goal:
    against = "calibration, nodes with predicted survival of at least .05"
    goal = f"ECE at most {ECE_GOAL:g}"
    found = [(one.survival.ece, one.cell) for one in cells if one.survival is not None and one.survival.nodes]
    if not found:
        return Goal(against, goal, "no survival was checked", None)
    highest, cell = max(found, key=lambda pair: pair[0])
    mean = float(np.mean([error for error, _ in found]))
    figure = f"highest {highest:.3f} with {cell.condition}, {cell.sources}; mean {mean:.3f}"
    return Goal(against, goal, figure, highest <= ECE_GOAL)


def _left_out(left_out: Mapping[str, SurvivalCheck]) -> Goal:
    against, goal = "the same on tasks left out of training", f"ECE at most {ECE_GOAL:g}"
    found = {condition: check.ece for condition, check in left_out.items() if check.nodes}
    if not found:
        return Goal(against, goal, "run with --left-out-tasks, and with --guarded for recalibration", None)
    highest = max(found, key=lambda condition: found[condition])
    figure = f"highest {found[highest]:.3f} with {highest}; mean {float(np.mean(list(found.values()))):.3f}"
    return Goal(against, goal, figure, found[highest] <= ECE_GOAL)


def geometric_mean(values: Sequence[float]) -> float:
    """The mean of ratios."""
    return float(np.exp(np.mean(np.log(values))))
