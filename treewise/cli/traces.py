"""`treewise traces`: what a trace on disk holds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from treewise.cli._options import AsJson
from treewise.cli._show import console, facts, percent, print_json

if TYPE_CHECKING:
    from treewise.data.trace_summary import TraceSummary


def register(app: typer.Typer) -> None:
    """Add the commands of this module to `app`."""
    traces = typer.Typer(no_args_is_help=True, help="Look into traces.", rich_markup_mode=None)
    traces.callback()(_group)
    traces.command("summary")(summary)
    app.add_typer(traces, name="traces")


def _group() -> None:
    """Look into traces."""


def summary(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the trace.", show_default=False)],
    as_json: AsJson = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out shards that cannot be read.")] = False,
) -> None:
    """Sizes of a trace, its envelope, acceptance by task and match rate by source."""
    from treewise.data.trace_reader import TraceReader
    from treewise.data.trace_summary import summarize

    result = summarize(TraceReader(folder, skip_bad=skip_bad))
    if as_json:
        print_json(result.to_json())
        return
    out = console()
    for part in _facts(result), _tasks(result), _sources(result):
        out.print(part)


def _facts(result: "TraceSummary") -> Table:
    manifest = result.manifest
    envelope = ", ".join(f"{name} {value:g}" for name, value in manifest["envelope"].items())
    sampling = "greedy" if manifest["temperature"] == 0 else f"temperature {manifest['temperature']:g}"
    bad = f", {result.skipped_shards} skipped" if result.skipped_shards else ""
    left = f", {result.leftovers} unfinished" if result.leftovers else ""
    fallbacks = f", {result.fallback_rounds:,} with a fallback" if result.fallback_rounds else ""
    rows = {
        "kind": manifest["kind"] + (f", policy {manifest['policy']}" if manifest["policy"] else ""),
        "rounds": f"{result.rounds:,}{fallbacks}",
        "nodes": f"{result.nodes:,}",
        "requests": f"{result.requests:,} of {result.prompts:,} prompts in {len(result.tasks)} tasks",
        "committed": f"{result.committed_tokens:,} tokens",
        "shards": f"{result.shards:,}{bad}{left}",
        "sampling": f"{sampling}, seed {manifest['seed']}",
        "envelope": envelope,
        "tokens": "included" if manifest["tokens_included"] else "left out",
    }
    return facts(rows)


def _tasks(result: "TraceSummary") -> Table:
    table = Table(title="by task", title_justify="left")
    table.add_column("task", overflow="fold")
    accepted = "reachable depth" if result.manifest["kind"] == "dense" else "accepted length"
    for heading in ("prompts", "rounds", "tokens / round", accepted, "draft agrees", "lookup agrees"):
        table.add_column(heading, justify="right")
    for row in result.tasks:
        table.add_row(
            Text(row.task),
            f"{row.prompts:,}",
            f"{row.rounds:,}",
            f"{row.tokens_per_round:.2f}",
            _number(row.accepted_length),
            _percent(row.draft_agreement),
            _percent(row.lookup_agreement),
        )
    return table


def _sources(result: "TraceSummary") -> Table:
    table = Table(title="by source of the candidate", title_justify="left")
    table.add_column("source")
    for heading in ("candidates", "match known", "match rate", "survivors"):
        table.add_column(heading, justify="right")
    for row in result.sources:
        table.add_row(
            row.source, f"{row.candidates:,}", f"{row.known:,}", _percent(row.match_rate), f"{row.survivors:,}"
        )
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else percent(value)
