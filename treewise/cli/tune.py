"""`treewise tune`: the best setting of every family of fixed policies."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from treewise.cli._options import AsJson, Workers, workers_for
from treewise.cli._show import console, figures_table, print_json
from treewise.cli.ab import Costs, Task, Traces, counting, opened, origin_lines

if TYPE_CHECKING:
    from treewise.training.tune import TuneReport


def register(app: typer.Typer) -> None:
    """Add the command of this module to `app`."""
    app.command("tune")(tune)


def tune(
    folders: Traces,
    costs: Costs,
    family: Annotated[
        list[str] | None,
        typer.Option("--family", help="Only this family; may be repeated.", show_default=False),
    ] = None,
    task: Task = "",
    table: Annotated[
        str, typer.Option("--table", metavar="FILE", help="Hand table; frontier-table is tuned only with one.")
    ] = "",
    ranks: Annotated[
        str,
        typer.Option(
            "--ranks", metavar="FILE", help="Rank table of `treewise fit-tree`; sequoia is tuned only with one."
        ),
    ] = "",
    workers: Workers = 0,
    as_json: AsJson = False,
) -> None:
    """Find the fastest setting of every fixed family by replay; use traces of training prompts only."""
    from treewise.data.cost import CostProfile
    from treewise.training.tune import known_families, reachable_specs
    from treewise.training.tune import tune as run

    families = tuple(family or known_families(table, ranks))
    profiles = [CostProfile.load(cost) for cost in costs]
    traces = opened(folders, task)
    settings = len(reachable_specs(traces, profiles[0], families, table, ranks)[0])
    with counting("replay", traces, settings * len(profiles)) as advance:
        share = workers_for(workers, traces, settings * len(profiles))
        report = run(traces, profiles, families, advance, table, ranks, share)
    if as_json:
        print_json(report.to_json())
    else:
        _show(report)


def _show(report: "TuneReport") -> None:
    out = console()
    for origin in report.profiles:
        table = figures_table(f"{origin.name}: best of each family", "family", ("tokens/round", "speed-up", "policy"))
        table.columns[-1].justify = "left"
        table.columns[-1].overflow = "fold"
        for row in report.winners(origin.name):
            table.add_row(row.family, f"{row.tokens_per_round:.2f}", f"{row.speedup:.3f}", Text(row.spec))
        out.print(table)
        specs = ",".join(row.spec for row in report.winners(origin.name))
        out.print(Text(f"--policies '{specs}'"), soft_wrap=True)  # whole, to be copied
        for line in origin_lines(report.acceptance, [origin.words]):
            out.print(line, soft_wrap=True)
    if report.skipped:
        out.print(Text(f"{len(report.skipped)} settings may ask for more than the traces hold and were left out."))
