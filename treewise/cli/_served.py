"""What `treewise ab --served` says: policies on a queue of requests that share every pass."""

from dataclasses import replace
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from treewise.cli._show import console, print_json, progress, warn
from treewise.data.errors import ParameterError

if TYPE_CHECKING:
    from treewise.data.cost import CostProfile
    from treewise.training.contender import Contender
    from treewise.training.logged_trace import LoggedTrace
    from treewise.training.served_ab import ServedReport


def check_alone(**asked: object) -> None:
    """Raise `ParameterError` where an option was given that goes with requests replayed alone."""
    given = [name for name, value in asked.items() if value]
    if given:
        raise ParameterError(f"{given[0]} must be left out with --served, got --{given[0].replace('_', '-')}")


def serve(
    traces: "list[LoggedTrace]",
    costs: "list[CostProfile]",
    contenders: "list[Contender]",
    batch: int,
    resamples: int,
    seed: int,
    tuned_on: "list[LoggedTrace]",
    warnings: list[str],
    as_json: bool,
) -> None:
    """Run `served_ab` under a progress bar and print its report, `warnings` among its own, which go to stderr."""
    from treewise.training.served_ab import served_ab, served_replays

    total = served_replays(traces, batch) * len(contenders) * len(costs)
    with progress("serve", total) as step:
        report = served_ab(
            traces, costs, contenders, batch, resamples, seed, lambda count: step(steps=count), tuned_on
        )  # fmt: skip
    report = replace(report, warnings=(*report.warnings, *warnings))
    if as_json:
        print_json(report.to_json())
    else:
        _show(report)
    for line in report.warnings:
        warn(line)


def _show(report: "ServedReport") -> None:
    out = console()
    for origin in report.profiles:
        out.print(_table(report, origin.name))
        for line in (*report.acceptance, origin.words):
            out.print(Text(line, style="dim"), soft_wrap=True)
    out.print(
        Text(
            f"A queue of every request {report.passes} times, in orders drawn anew, through {report.batch} places: one "
            "joins when another has left, and a pass is priced by the rows of all. Figures are those of full batches; "
            f"ratio: speed against {report.policies[0]}, 95 % interval by a paired bootstrap over prompts, each paying "
            "for its place in every round; comparisons are not corrected for one another.",
            style="dim",
        )
    )


def _table(report: "ServedReport", profile: str) -> Table:
    rows = report.select(profile)
    table = Table(
        title=f"modelled, {profile}: {report.batch} requests side by side, {rows[0].prompts:,} prompts",
        title_justify="left",
    )
    table.add_column("policy", overflow="fold")
    for heading in ("tokens/s", "tokens", "nodes", "rows", "drafts", "to first [95 %]"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            Text(row.policy),
            f"{row.tokens_per_second:,.1f}",
            f"{row.tokens_per_request_round:.2f}",
            f"{row.nodes_per_request_round:.1f}",
            f"{row.rows_per_pass:.1f}",
            f"{row.growths_per_round:.2f}",
            "1" if row.ratio is None else str(row.ratio),
        )
    return table
