"""`treewise compare`: transformers' own decoding and our policies, side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from treewise.cli._options import (
    DEFAULT_CORPUS,
    DEFAULT_DRAFT,
    DEFAULT_TARGET,
    AsJson,
    Corpus,
    Cost,
    Draft,
    Target,
    Threads,
    open_pair,
)
from treewise.cli._show import console, facts, figures_table, note, print_json, progress, warn
from treewise.data.errors import ParameterError

if TYPE_CHECKING:
    from treewise.sidebyside_report import CompareReport
    from treewise.training.statistics import Interval

EXIT_DIFFERS = 1
TIMED = "times run from prompt ids to the last token, prefill included, for every arm; medians over prompts"


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("compare")(compare)


def compare(
    quick: Annotated[bool, typer.Option("--quick", help="A look: 4 prompts, 24 tokens.")] = False,
    long: Annotated[bool, typer.Option("--long", help="45 prompts, 96 tokens, more tuning.")] = False,
    prompts: Annotated[int, typer.Option("--prompts", min=0, help="Prompts to decode; 0: as the form says.")] = 0,
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", min=0, help="Tokens per answer; 0: as the form says.")
    ] = 0,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Times that every prompt is decoded.")] = 1,
    temperature: Annotated[
        float, typer.Option("--temperature", min=0.0, help="Above 0: our policies alone, against our plain decoding.")
    ] = 0.0,
    bundle: Annotated[
        Path | None, typer.Option("--bundle", help="Bundle of the learned policy.", show_default="trained from traces")
    ] = None,
    traces: Annotated[
        Path | None, typer.Option("--traces", help="Dense trace of the pair.", show_default="the one that ships")
    ] = None,
    target: Target = DEFAULT_TARGET,
    draft: Draft = DEFAULT_DRAFT,
    corpus: Corpus = DEFAULT_CORPUS,
    threads: Threads = 0,
    cost: Cost = "",
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again what an earlier run has measured.")] = False,
    as_json: AsJson = False,
) -> None:
    """Decode the same prompts with transformers and with our policies, in turns, and compare speeds and texts.

    transformers: generate, assisted generation and prompt lookup, the last two as they come and tuned. Ours: plain, the
    best of each fixed family, and learned. Everything is tuned on training prompts, and judged on others: the project's
    own, or those of the folder that TREEWISE_PROMPTS names. Exits with 1 where a policy's text is not our plain
    decoding's; a text that is not transformers' is told with its margin.
    """
    from dataclasses import replace

    from treewise.profiles import find_cost
    from treewise.sidebyside import CompareSettings
    from treewise.sidebyside import compare as run

    if quick and long:
        raise ParameterError("form must be one of --quick and --long, got both")
    settings = CompareSettings(repeats=repeats, temperature=temperature, bundle=bundle, traces=traces)
    settings = settings.quick() if quick else settings.long() if long else settings
    settings = replace(
        settings, prompts=prompts or settings.prompts, max_new_tokens=max_new_tokens or settings.max_new_tokens
    )
    pair = open_pair(target, draft, threads, corpus)
    report = run(pair, find_cost(pair, cost, warn, note), settings, progress, is_fresh=fresh)
    if as_json:
        print_json(report.to_json())
    else:
        show(report)
    if not report.ours_agree:
        raise typer.Exit(EXIT_DIFFERS)


def show(report: "CompareReport") -> None:
    """Print what a run found."""
    machine = report.machine
    out = console()
    rows = {
        "pair": f"{report.pair}, {machine.dtype}, {machine.attention} attention",
        "device": f"{machine.device}; {machine.cores} cores",
        "versions": f"torch {machine.torch}, transformers {machine.transformers}, treewise {machine.treewise}",
        "prices": report.cost,
        "learned": report.bundle,
        "results": f"{report.results_file}, {report.resumed} from an earlier run",
    }
    out.print(facts(rows))
    out.print(arms_table(report))
    out.print(Text(TIMED, style="dim"))
    for arm in report.arms:
        if arm.name.endswith("tuned") or arm.name.startswith("tuned"):
            out.print(Text(f"{arm.name}: {arm.spec}", style="dim"), soft_wrap=True)
    for line in verdict(report):
        out.print(line, soft_wrap=True)
    for arm in report.arms:
        for key, place in report.differing(arm.name):
            warn(f"{arm.name} on {key.prompt_id} differs from {report.baseline}: {place}")


def arms_table(report: "CompareReport") -> Table:
    """One row per arm."""
    from treewise.arms import LEARNED_ARM

    over = report.baseline.replace(" ", "\n", 1) if " " in report.baseline else report.baseline
    headings = ("tokens/s", f"over {over}", "learned is\nfaster by", "tokens\nper pass", "same\ntext")
    heat = "greedy" if report.temperature == 0.0 else f"temperature {report.temperature:g}"
    title = f"{len(report.prompts)} prompts x {report.max_new_tokens} tokens, {heat}; ratios with 95 % intervals"
    table = figures_table(title, "arm", headings)
    for arm in report.arms:
        texts = len(report.of(arm.name))
        same = texts - len(report.differing(arm.name))
        itself = arm.name == LEARNED_ARM
        table.add_row(
            Text(arm.name, style="bold" if itself else ""),
            f"{report.tokens_per_second(arm.name):.1f}",
            "-" if arm.name == report.baseline else short(report.ratio(arm.name, report.baseline)),
            "-" if itself else short(report.ratio(LEARNED_ARM, arm.name)),
            f"{report.tokens_per_pass(arm.name):.2f}",
            Text(f"{same}/{texts}", style="green" if same == texts else "bold red"),
        )
    return table


def verdict(report: "CompareReport") -> list[str]:
    """What the table says, in words."""
    from treewise.arms import LEARNED_ARM, PLAIN_ARM

    rival = report.fastest_rival()
    lead = report.ratio(LEARNED_ARM, rival)
    lines = [f"learned is {lead} x the fastest other arm ({rival}): {standing(lead)}"]
    if report.baseline != PLAIN_ARM:
        lines.insert(0, f"plain decoding is {report.ratio(PLAIN_ARM, report.baseline)} x {report.baseline}")
    same = f"every text equals that of {report.baseline}"
    lines.append(same if report.is_identical else f"TEXTS DIFFER from those of {report.baseline}: see the warnings")
    return lines


def standing(lead: "Interval") -> str:
    """Ahead, behind or level, by a ratio's interval."""
    if lead.low > 1.0:
        return "ahead"
    return "behind" if lead.high < 1.0 else "level within the interval"


def short(found: "Interval") -> str:
    """An interval in 17 characters."""
    return f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]"
