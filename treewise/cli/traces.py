"""`treewise traces`: what a trace on disk holds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from treewise.cli._options import AsJson
from treewise.cli._show import console, facts, figures_table, note, percent, print_json
from treewise.data.errors import ParameterError

if TYPE_CHECKING:
    from treewise.data.trace_summary import TraceSummary

BAR = 24  # columns of the longest bar of the histogram


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
    as_csv: Annotated[
        str,
        typer.Option(
            "--csv",
            metavar="FILE",
            help="Write every figure as comma-separated values, one a line; - prints them instead of tables.",
            show_default=False,
        ),
    ] = "",
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out shards that cannot be read.")] = False,
) -> None:
    """Sizes of a trace, its envelope, acceptance by task and by source, and how sure the draft was.

    Match rate: of candidates whose parent was on the text, those that were the target's next token. The histogram
    counts places on the text where the draft ran, by the entropy of what it said there.
    """
    from treewise.data.trace_reader import TraceReader
    from treewise.data.trace_summary import summarize
    from treewise.data.whole_file import check_place, write_whole

    if as_json and as_csv == "-":
        raise ParameterError("output must be --json or --csv -, got both")
    if as_csv and as_csv != "-":
        check_place(as_csv, "csv")
    result = summarize(TraceReader(folder, skip_bad=skip_bad))
    if as_csv == "-":
        typer.echo(result.to_csv(), nl=False)
        return
    if as_csv:
        note(f"wrote {write_whole(as_csv, result.to_csv())}")
    if as_json:
        print_json(result.to_json())
        return
    out = console()
    for part in _facts(result), _tasks(result), _rates(result), _sources(result):
        out.print(part)
    if result.entropy:
        out.print(_entropy(result))


def _facts(result: "TraceSummary") -> Table:
    manifest = result.manifest
    envelope = ", ".join(f"{name} {value:g}" for name, value in manifest["envelope"].items())
    sampling = "greedy" if manifest["temperature"] == 0 else f"temperature {manifest['temperature']:g}"
    bad = f", {result.skipped_shards} skipped" if result.skipped_shards else ""
    left = f", {result.leftovers} unfinished" if result.leftovers else ""
    fallbacks = f", {result.fallback_rounds:,} with a fallback" if result.fallback_rounds else ""
    explored = f", {result.explored_requests:,} of them explored" if result.explored_requests else ""
    rows = {
        "kind": manifest["kind"] + (f", policy {manifest['policy']}" if manifest["policy"] else ""),
        "rounds": f"{result.rounds:,}{fallbacks}",
        "nodes": f"{result.nodes:,}",
        "requests": f"{result.requests:,} of {result.prompts:,} prompts in {len(result.tasks)} tasks{explored}",
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


def _rates(result: "TraceSummary") -> Table:
    table = figures_table("match rate of a source's candidates, by task", "task", ("lookup", "draft", "recycled"))
    for row in result.tasks:
        rates = (row.lookup_match_rate, row.draft_match_rate, row.recycled_match_rate)
        table.add_row(Text(row.task), *(_percent(rate) for rate in rates))
    return table


def _sources(result: "TraceSummary") -> Table:
    is_live = result.manifest["kind"] == "live"
    headings = ("candidates", "match known", "match rate", "survivors")
    table = figures_table("by the sources that proposed a candidate", "sources", headings)
    for heading in ("verified", "accepted") if is_live else ():
        table.add_column(heading, justify="right")
    for row in result.sources:
        live = (f"{row.verified:,}", _percent(row.accepted / row.verified if row.verified else None))
        table.add_row(
            row.source,
            f"{row.candidates:,}",
            f"{row.known:,}",
            _percent(row.match_rate),
            f"{row.survivors:,}",
            *(live if is_live else ()),
        )
    return table


def _entropy(result: "TraceSummary") -> Table:
    from treewise.data.trace_summary import bits

    table = figures_table("by the draft's entropy", "bits", ("places",))
    table.add_column("")
    for heading in ("first guess matches", "some guess matches"):
        table.add_column(heading, justify="right")
    most = max(row.places for row in result.entropy)
    for row in result.entropy:
        bar = "█" * -(-BAR * row.places // most) if most else ""
        table.add_row(bits(row), f"{row.places:,}", bar, _percent(row.first_match_rate), _percent(row.match_rate))
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else percent(value)
