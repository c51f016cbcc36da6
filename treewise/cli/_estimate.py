"""What `treewise ab` says of policies that did not write the live traces at hand: estimates, and never a verdict."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer
from rich.table import Table
from rich.text import Text

from treewise.cli._show import console, percent, print_json, warn
from treewise.data.errors import ParameterError

if TYPE_CHECKING:
    from treewise.training.estimate_report import EstimateReport

TITLE = "estimate, exact: false, no verdict"
DIRECT = "direct method"
BY = {DIRECT: "direct", "inverse propensity": "drawn"}  # as the tables have it; the notes say what it means


def check_asked(**asked: object) -> None:
    """Raise `ParameterError` where an option was given that goes with exact replay only."""
    given = [name for name, value in asked.items() if value]
    if given:
        option = f"--{given[0].replace('_', '-')}"
        raise ParameterError(
            f"{given[0]} must be left out where policies did not write the live trace: an estimate is no verdict, "
            f"got {option}"
        )


def print_estimate(report: "EstimateReport", as_json: bool, as_csv: bool) -> None:
    """The report as it was asked for, its warnings on stderr."""
    if as_json:
        print_json(report.to_json())
    elif as_csv:
        typer.echo(report.to_csv(), nl=False)
    else:
        _show(report)
    for line in report.warnings:
        warn(line)


def _show(report: "EstimateReport") -> None:
    out = console()
    for origin in report.profiles:
        out.print(_overall(report, origin.name))
        if len(report.tasks) > 1:
            out.print(_by_task(report, origin.name))
        for line in (*report.acceptance, origin.words):
            out.print(Text(line, style="dim"), soft_wrap=True)
    for words in _notes(report):
        out.print(Text(words, style="dim"))


def _overall(report: "EstimateReport", profile: str) -> Table:
    table = Table(title=f"{TITLE}; {profile}", title_justify="left")
    table.add_column("policy", overflow="fold")
    table.add_column("by", no_wrap=True)
    for heading in ("n", "lent", "tokens", "nodes", "speed-up [95 %]", "to first [95 %]"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in report.select(profile):
        worth = f"{row.prompts:,}" if row.effective_prompts is None else f"{row.effective_prompts:,.1f}"
        table.add_row(
            Text(row.policy),
            BY[row.estimator],
            worth,
            "-" if row.imputed_share is None else percent(row.imputed_share),
            f"{row.tokens_per_round:.2f}",
            f"{row.nodes_per_round:.1f}",
            str(row.speedup),
            "-" if row.ratio is None else str(row.ratio),
        )
    return table


def _by_task(report: "EstimateReport", profile: str) -> Table:
    table = Table(title=f"{TITLE}; {profile}: speed-up by task, direct", title_justify="left")
    table.add_column("task", overflow="fold")
    for policy in report.policies:
        table.add_column(policy, justify="right", overflow="fold")
    for task in report.tasks:
        found = {row.policy: row for row in report.select(profile, task) if row.estimator == DIRECT}
        table.add_row(Text(task), *(f"{found[policy].speedup.value:.2f}" for policy in report.policies))
    return table


def _notes(report: "EstimateReport") -> Sequence[str]:
    writers = ", ".join(report.writers)
    return (
        f"The log holds what {writers} asked for. Direct: the direct method; the policy walks the logged texts "
        "on its own roots; answers of the draft that no round asked for are lent by rows that were asked, drawn "
        f"{report.imputations} times; lent: share of rounds with such an answer on the text. Where one greedy policy "
        "wrote the log, it flatters what grows further.",
        "Drawn: self-normalised inverse propensity, from the requests that the policy was drawn to decide; n is the "
        "effective number of prompts. Intervals: bootstrap over prompts. Judge on a dense trace.",
    )
