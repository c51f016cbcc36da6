"""What not having to tune is worth: the best fixed policy of one cell, run unchanged in the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from treewise.policy_bench_cell import CellResult
from treewise.policy_bench_plan import Cell

if TYPE_CHECKING:
    from treewise.training.statistics import Interval
    from treewise.training.tally import Tally

Replayed = Callable[[Cell, str], "Tally"]  # (cell, spec) -> what it did on the cell's judged prompts


@dataclass(frozen=True, slots=True)
class Carried:
    """One move of a fixed policy."""

    source: Cell  # where it was tuned and was the best
    target: Cell  # where it was run
    spec: str
    ratio: Interval  # the learned policy's speed in `target` over its own


def carry(cells: Sequence[CellResult], replayed: Replayed, resamples: int) -> tuple[Carried, ...]:
    """Every move between two of the cells where draft and free sources are both there.

    The policy of a cell is the one that is fastest on its judged prompts.
    """
    from treewise.training.ab_report import speed_totals
    from treewise.training.statistics import SpeedRatio, interval

    union = [found for found in cells if found.cell.has_union]
    moves = []
    for target in union:
        mine = speed_totals(target.tallies[target.learned])
        for source in union:
            if source is target:
                continue
            spec = source.judged[0].best.spec
            other = speed_totals(replayed(target.cell, spec))
            moves.append(Carried(source.cell, target.cell, spec, interval(SpeedRatio(mine, other), resamples)))
    return tuple(moves)
