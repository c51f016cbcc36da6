"""Where the learned policy loses: every opponent, cell and task, one family of comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from treewise.policy_bench_cell import UNTUNED, UNTUNED_SPEC, CellResult
from treewise.policy_bench_plan import Cell

if TYPE_CHECKING:
    from treewise.training.statistics import SpeedRatio

LEVEL = 0.05  # of a loss anywhere, one-sided
DRAWS = 20_000


@dataclass(frozen=True, slots=True)
class Loss:
    """One comparison in which the learned policy is the slower one."""

    cell: Cell
    task: str  # "": all of them
    name: str  # of the opponent
    ratio: float  # the learned policy's speed over its
    p_value: float  # that it is no lower than allowed, adjusted (Holm)

    def __str__(self) -> str:
        where = f"{self.cell}, {self.task or 'all tasks'}"
        return f"{self.ratio:.3f} against {self.name} in {where} (p {self.p_value:.2g})"


@dataclass(frozen=True, slots=True)
class Losses:
    """All of them."""

    least: float  # ratio that is allowed
    comparisons: int
    found: tuple[Loss, ...]  # ratios below `least`, lowest first

    @property
    def significant(self) -> tuple[Loss, ...]:
        """Those that hold together at `LEVEL`."""
        return tuple(loss for loss in self.found if loss.p_value <= LEVEL)

    @property
    def lowest(self) -> str:
        """The lowest ratio in words."""
        return str(self.found[0]) if self.found else f"at least {self.least:g} everywhere"


def losses(cells: Sequence[CellResult], least: float, seed: int = 0) -> Losses:
    """Test, for every opponent in every cell, over all tasks and within each, that the ratio is at least `least`.

    One-sided p = (1 + draws at or above `least`) / (1 + draws) of a bootstrap over prompts, no lower than
    2^(-prompts), adjusted by Holm over all comparisons. A ratio at or above `least` cannot be a loss and has p 1.
    """
    from treewise.training.statistics import bootstrap, point
    from treewise.training.verdict import holm

    kept: list[tuple[Cell, str, str, float]] = []
    p_values: list[float] = []
    for cell, task, name, ratio in _comparisons(cells):
        value = point(ratio)
        kept.append((cell, task, name, value))
        p_value = 1.0
        if value < least:
            draws = bootstrap(ratio, DRAWS, seed)
            p_value = max((1 + int((draws >= least).sum())) / (1 + len(draws)), 0.5 ** len(ratio.by_prompt))
        p_values.append(p_value)
    found = [
        Loss(*parts, p_value=adjusted) for parts, adjusted in zip(kept, holm(p_values), strict=True) if parts[3] < least
    ]
    return Losses(least, len(kept), tuple(sorted(found, key=lambda loss: loss.ratio)))


def _comparisons(cells: Sequence[CellResult]) -> Iterator[tuple[Cell, str, str, SpeedRatio]]:
    from treewise.training.ab_report import speed_totals
    from treewise.training.statistics import SpeedRatio

    for one in cells:
        mine = one.tallies[one.learned]
        for task in ("", *np.unique(mine.task).tolist()):
            picked = np.ones(len(mine.task), dtype=np.bool_) if not task else np.asarray(mine.task == task)
            totals = speed_totals(mine.of(picked))
            for name, spec in {**one.tuned, UNTUNED: UNTUNED_SPEC}.items():
                yield one.cell, task, name, SpeedRatio(totals, speed_totals(one.tallies[spec].of(picked)))
