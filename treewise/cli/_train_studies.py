"""What `treewise train --curve` and `--ablate` find out, as tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from treewise.cli._show import figures_table

if TYPE_CHECKING:
    from treewise.training.ablation import Trial
    from treewise.training.learning_curve import LearningCurve
    from treewise.training.statistics import Interval
    from treewise.training.study import Study

USES = {
    "left out": "left out: log loss more than with all",
    "alone": "alone with the prior: log loss more than {baseline}",
    "added": "added to all: log loss more than with all",
}
BASELINES = {"match": "the prior's", "growth": "at a constant rate"}


def study_tables(study: Study) -> list[Table]:
    """For people."""
    tables = [_curve(curve) for curve in study.curves]
    if study.ablation is not None:
        for model in ("match", "growth"):
            trials = [trial for trial in study.ablation.trials if trial.model == model]
            tables += [_trials(model, use, trials) for use in USES if any(trial.use == use for trial in trials)]
    return tables


def _curve(curve: LearningCurve) -> Table:
    title = f"{curve.model} by training prompts, judged on {curve.prompts} held-out prompts"
    table = figures_table(title, "prompts", ("rows", "trees", "log loss", "above the last", "AUC", "ECE"))
    prior = curve.prior_log_loss
    table.add_row("none: the prior", "-", "-", f"{prior.value:.4f}", "-", "-", "-")
    for point in curve.points:
        above = "-" if point.share == 1.0 else _signed(point.above_all)
        numbers = (f"{point.rows:,.0f}", f"{point.trees:.0f}", f"{point.log_loss.value:.4f}", above)
        table.add_row(f"{point.prompts:.0f}", *numbers, f"{point.auc:.4f}", f"{point.ece:.4f}")
    return table


def _trials(model: str, use: str, trials: Sequence[Trial]) -> Table:
    from treewise.training.ablation import ALL
    from treewise.training.rows import KINDS

    whole = next(trial for trial in trials if trial.use == ALL)
    headings = ("signals", "all rows, 95 % over prompts", *(KINDS if whole.by_kind else ()))
    words = USES[use].format(baseline=BASELINES[model])
    table = figures_table(f"{model} model, {whole.log_loss:.4f} with all signals\n{words}", "group", headings)
    for trial in trials:
        if trial.use == use:
            kinds = ["-" if math.isnan(change) else f"{change:+.4f}" for change in trial.by_kind]
            table.add_row(Text(trial.group), f"{trial.signals}", _signed(trial.change), *kinds)
    return table


def _signed(found: Interval) -> str:
    return f"{found.value:+.4f} [{found.low:+.4f}, {found.high:+.4f}]"
