"""`treewise ab`: several policies on the same logged rounds."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from treewise.cli._options import AsJson
from treewise.cli._show import console, print_json, progress
from treewise.data.errors import ParameterError

if TYPE_CHECKING:
    from treewise.training.ab_report import AbReport, AbRow
    from treewise.training.logged_trace import LoggedTrace

Traces = Annotated[list[Path], typer.Argument(metavar="TRACES...", help="Folders of traces.", show_default=False)]
Costs = Annotated[
    list[str],
    typer.Option("--cost", help="Cost profile: a file or a built-in name; may be repeated.", show_default=False),
]
Task = Annotated[str, typer.Option("--task", help="Only the prompts of one task.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the command of this module to `app`."""
    app.command("ab")(ab)


def ab(
    folders: Traces,
    costs: Costs,
    policies: Annotated[
        str,
        typer.Option("--policies", help="Spec strings joined by commas, spaces or semicolons.", show_default=False),
    ] = "",
    policy: Annotated[
        list[str] | None, typer.Option("--policy", help="One spec string; may be repeated.", show_default=False)
    ] = None,
    task: Task = "",
    resamples: Annotated[int, typer.Option("--resamples", min=2000, help="Resamples of the bootstrap.")] = 2000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the bootstrap.")] = 0,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated values instead of tables.")] = False,
) -> None:
    """Replay policies on logged rounds and compare their modelled speed; the first one named is compared against."""
    from treewise.data.cost import CostProfile
    from treewise.training.ab import ab as run

    specs = [*split_policies(policies), *(policy or [])]
    if not specs:
        raise ParameterError("policies must be named with --policies or --policy, got none")
    if as_json and as_csv:
        raise ParameterError("output must be --json or --csv, got both")
    profiles = [CostProfile.load(cost) for cost in costs]
    traces = opened(folders, task)
    with counting("replay", traces, len(specs) * len(profiles)) as advance:
        report = run(traces, profiles, specs, resamples=resamples, seed=seed, advance=advance)
    if as_json:
        print_json(report.to_json())
    elif as_csv:
        typer.echo(report.to_csv(), nl=False)
    else:
        _show(report)


def split_policies(text: str) -> list[str]:
    """Spec strings joined by commas, spaces or semicolons; a comma's `key=value` belongs to the spec before it.

    Raises `PolicySpecError` on an empty part.
    """
    from treewise.policy.registry import split_specs

    return [spec for part in text.replace(";", " ").split() for spec in split_specs(part.strip(","))]


def opened(folders: list[Path], task: str) -> "list[LoggedTrace]":
    """The traces, of one task where `task` names one."""
    from treewise.training.logged_trace import open_trace

    traces = [open_trace(folder) for folder in folders]
    return [trace.of_task(task) for trace in traces] if task else traces


@contextmanager
def counting(title: str, traces: "list[LoggedTrace]", replays: int) -> Iterator[Callable[..., None]]:
    """A progress bar over the requests of `traces`, each replayed `replays` times; its function takes a count."""
    with progress(title, sum(len(trace.requests) for trace in traces) * replays) as step:

        def advance(count: int = 1) -> None:
            step(steps=count)

        yield advance


def origin_lines(acceptance: tuple[str, ...], milliseconds: list[str]) -> list[Text]:
    """Where modelled figures come from."""
    return [Text(line, style="dim") for line in (*acceptance, *milliseconds)]


def _show(report: "AbReport") -> None:
    out = console()
    for origin in report.profiles:
        out.print(_overall(report, origin.name))
        for line in origin_lines(report.acceptance, [origin.words]):
            out.print(line, soft_wrap=True)
        if len(report.tasks) > 1:
            out.print(_by_task(report, origin.name))
    out.print(
        Text(
            "Speed-up and ratio: all tokens over all modelled milliseconds, against plain decoding and against "
            f"{report.policies[0]}; 95 % intervals by a paired bootstrap over prompts. The oracle knows the text: "
            "an upper bound, not a policy.",
            style="dim",
        )
    )


def _overall(report: "AbReport", profile: str) -> Table:
    rows = report.select(profile)
    title = f"{profile}: {rows[0].prompts:,} prompts, {rows[0].tokens:,} tokens; counts are per round"
    table = Table(title=title, title_justify="left")
    table.add_column("policy", overflow="fold")
    for heading in ("tokens", "nodes", "drafts", "speed-up [95 %]", "to first [95 %]"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            _name(row),
            f"{row.tokens_per_round:.2f}",
            f"{row.nodes_per_round:.1f}",
            f"{row.growths_per_round:.2f}",
            str(row.speedup),
            "1" if row.ratio is None else str(row.ratio),
            style="dim" if row.is_upper_bound else None,
        )
    return table


def _by_task(report: "AbReport", profile: str) -> Table:
    table = Table(title=f"{profile}: speed-up by task", title_justify="left")
    table.add_column("task", overflow="fold")
    names = [row.policy for row in report.select(profile)]
    for name in names:
        table.add_column(name, justify="right", overflow="fold")
    for task in report.tasks:
        found = {row.policy: row for row in report.select(profile, task)}
        table.add_row(Text(task), *(f"{found[name].speedup.value:.2f}" for name in names))
    return table


def _name(row: "AbRow") -> Text:
    marks = []
    if row.is_upper_bound:
        marks.append("upper bound")
    if row.fallback_rounds:
        marks.append(f"{row.fallback_rounds:,} rounds by its fallback")
    return Text(f"{row.policy} ({', '.join(marks)})" if marks else row.policy)
