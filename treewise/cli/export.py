"""`treewise export`: what was tuned here, in the words of a serving engine."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from treewise.cli._options import AsJson
from treewise.cli._show import console, figures_table, note, print_json, warn
from treewise.cli.ab import counting, opened, origin_lines
from treewise.data.errors import ParameterError

if TYPE_CHECKING:
    from treewise.training.export_vllm import BatchCost, ChainSource, VllmSchedule

LONGEST = 8  # chain tokens tried where nobody says more
BATCH_SIZES = "1,2,4,8,16,32,64,128,256"


def register(app: typer.Typer) -> None:
    """Add the commands of this module to `app`."""
    export = typer.Typer(no_args_is_help=True, help="Export to serving engines: vllm.", rich_markup_mode=None)
    export.callback()(_group)
    export.command("vllm")(vllm)
    app.add_typer(export, name="export")


def _group() -> None:
    """Export to serving engines: vllm."""


def vllm(
    folders: Annotated[
        list[Path], typer.Argument(metavar="TRACES...", help="Folders of dense traces.", show_default=False)
    ],
    costs: Annotated[
        list[str],
        typer.Option(
            "--cost",
            help="BATCH=PROFILE, a profile measured at that batch size, once for each; or one PROFILE of a single "
            "request, scaled by rows to --batch-sizes.",
            show_default=False,
        ),
    ],
    batch_sizes: Annotated[
        str, typer.Option("--batch-sizes", help="Batch sizes that one PROFILE is scaled to, joined by commas.")
    ] = BATCH_SIZES,
    longest: Annotated[
        int,
        typer.Option(
            "--longest", min=0, max=64, help=f"Longest chain; 0: as deep as the traces, at most {LONGEST} tokens."
        ),
    ] = 0,
    sources: Annotated[str, typer.Option("--sources", help="Who guesses in vLLM: draft or lookup.")] = "draft",
    max_batch_size: Annotated[
        int, typer.Option("--max-batch-size", min=0, help="Last batch size of the schedule; 0: the largest costed.")
    ] = 0,
    method: Annotated[
        str, typer.Option("--method", help="vLLM's speculative method, written along.", show_default=False)
    ] = "",
    model: Annotated[str, typer.Option("--model", help="vLLM's draft model, written along.", show_default=False)] = "",
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="File for the JSON of --speculative-config.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Chain tokens per batch size for vLLM: the most tokens per second by replay of TRACES and cost profiles."""
    from treewise.data.whole_file import write_whole
    from treewise.training.export_vllm import export_vllm

    chosen: ChainSource
    if sources == "draft":
        chosen = "draft"
    elif sources == "lookup":
        chosen = "lookup"
    else:
        raise ParameterError(f"sources must be draft or lookup, got {sources!r}")
    traces = opened(folders, "")
    most = longest or min(LONGEST, *(trace.envelope.max_depth for trace in traces))
    parts = batch_costs(costs, batch_sizes, most)
    with counting("replay", traces, most) as advance:
        schedule = export_vllm(traces, parts, most, chosen, max_batch_size or None, advance=advance)
    extra = {name: value for name, value in (("method", method), ("model", model)) if value}
    config = schedule.speculative_config(extra)
    if out is not None:
        write_whole(out, json.dumps(config, indent=1) + "\n")
    if as_json:
        print_json(schedule.to_json(extra))
    else:
        _show(schedule)
        typer.echo(json.dumps(config))
    if any(row.is_best and not row.is_measured for row in schedule.rows):
        warn("some of the chosen lengths rest on passes of more rows than the profile measured")
    if not method:
        note("add the method and model that vLLM is to run, or name them with --method and --model")


def batch_costs(costs: list[str], batch_sizes: str, longest: int) -> "list[BatchCost]":
    """The costs that the options name. Raises `ParameterError` where both forms are mixed or a size is no number."""
    from treewise.data.cost import CostProfile
    from treewise.training.export_vllm import BatchCost

    pairs = [cost.partition("=") for cost in costs]
    sized = [(head, rest) for head, equals, rest in pairs if equals and head.isdecimal()]
    named = [head for head, _ in sized] or [part.strip() for part in batch_sizes.split(",") if part.strip()]
    if twice := sorted({size for size in named if named.count(size) > 1}):
        raise ParameterError(f"batch sizes must be different ones, got {twice[0]} twice")
    if sized and len(sized) == len(costs):
        return [BatchCost.measured(int(head), CostProfile.load(rest)) for head, rest in sized]
    if len(costs) != 1 or sized:
        raise ParameterError(f"cost must be BATCH=PROFILE for every batch size, or one PROFILE, got {costs!r}")
    sizes = [part.strip() for part in batch_sizes.split(",") if part.strip()]
    if not sizes or not all(part.isdecimal() for part in sizes):
        raise ParameterError(f"batch_sizes must be whole numbers joined by commas, got {batch_sizes!r}")
    profile = CostProfile.load(costs[0])
    return [BatchCost.scaled(int(size), profile, longest) for size in sizes]


def _show(schedule: "VllmSchedule") -> None:
    out = console()
    table = figures_table(
        "best chain by batch size",
        "batch size",
        ("chain tokens", "tokens/round", "ms/round", "tokens/s", "speed-up [95 %]"),
    )
    for row in schedule.rows:
        if row.is_best:
            table.add_row(
                str(row.batch_size),
                str(row.tokens),
                f"{row.committed_per_round:.2f}",
                f"{row.ms_per_round:.2f}",
                f"{row.tokens_per_second:,.0f}",
                str(row.speedup),
            )
    out.print(table)
    for line in origin_lines(schedule.acceptance, list(schedule.milliseconds)):
        out.print(line, soft_wrap=True)
    out.print(
        Text(
            "Modelled, not measured in vLLM: a batch size between two of these takes the larger one's length.",
            style="dim",
        )
    )
