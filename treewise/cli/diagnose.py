"""`treewise diagnose`: is tree speculation worth it here, how to set it, and what is the ceiling."""

import math
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
    MaxNewTokens,
    Target,
    Temperature,
    Threads,
    left_out_with_trace,
    open_pair,
    prompts_from,
)
from treewise.cli._show import console, facts, figures_table, note, percent, print_json, progress, warn
from treewise.cli.ab import origin_lines
from treewise.data.errors import ParameterError

if TYPE_CHECKING:
    from treewise.data.cost import CostProfile
    from treewise.training.attribution import Attribution, Cell
    from treewise.training.diagnosis import Diagnosis
    from treewise.training.logged_trace import LoggedTrace
    from treewise.training.statistics import Interval

EXIT_PLAIN = 3  # plain decoding is as fast; 1 is what an unforeseen fault leaves, 2 an error
SETTLED = ("limit", "max_new_tokens", "temperature", "target", "draft", "corpus", "threads")  # by a trace
SHOWN = 5  # settings in the output
MARKS = {"fires": "bold red", "fine": "green"}


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("diagnose")(diagnose)


def diagnose(
    context: typer.Context,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="DIR",
            help="Diagnose from this dense trace and --cost; no model runs.",
            show_default="a short run of the pair",
        ),
    ] = None,
    policy: Annotated[
        str,
        typer.Option("--policy", help="Setting in use, to look at.", show_default="the fastest of a small grid"),
    ] = "",
    prompts: Annotated[
        str,
        typer.Option(
            "--prompts", help="A prompt file or folder, or own:SPLIT.", show_default="the project's own, unseen ones"
        ),
    ] = "",
    limit: Annotated[int, typer.Option("--limit", min=2, help="At most so many prompts, tasks taking turns.")] = 9,
    max_new_tokens: MaxNewTokens = 64,
    temperature: Temperature = 0.0,
    target: Target = DEFAULT_TARGET,
    draft: Draft = DEFAULT_DRAFT,
    corpus: Corpus = DEFAULT_CORPUS,
    threads: Threads = 0,
    cost: Cost = "",
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Folder to keep the dense trace in.", show_default="none is kept"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say whether tree speculation is worth it here, how to set it, what the ceiling is, and what stands in the way.

    Runs a few prompts: a small dense trace of them, a small grid of settings by replay, and the fastest setting live
    beside plain decoding (and --policy, the setting in use). With --trace and --cost no model is needed. Each finding
    comes with its figure, its threshold and its cure; acceptance is attributed to the target's entropy and to the
    agreement of draft and target, by task.

    Exit status: 0 where trees are faster than plain decoding beyond what the choice of prompts explains; 3 where plain
    decoding is as fast; 2 on an error.
    """
    from treewise.short_run import ShortRunSettings, diagnose_pair, diagnose_trace

    if trace is not None:
        left_out_with_trace(context, SETTLED)
        if out is not None:
            raise ParameterError(f"out must be left out with --trace, which is kept already, got '{out}'")
        found = diagnose_trace(*_given(trace, cost, prompts), policy, progress)
    else:
        from treewise.bench_inputs import UNSEEN_SPLITS, bench_prompts
        from treewise.policy.registry import parse_policy
        from treewise.profiles import find_cost

        if policy:
            parse_policy(policy)  # a bad spec should cost no loading
        asked = prompts_from(prompts, limit=limit) if prompts else bench_prompts(limit, UNSEEN_SPLITS)
        pair = open_pair(target, draft, threads, corpus)
        profile = find_cost(pair, cost, warn, note)
        settings = ShortRunSettings(max_new_tokens, temperature)
        found = diagnose_pair(pair, profile, asked, policy, settings, out, progress)
    if as_json:
        print_json(found.to_json())
    else:
        show(found)
    if not found.is_worth_it:
        raise typer.Exit(EXIT_PLAIN)


def _given(trace: Path, cost: str, prompts: str) -> "tuple[LoggedTrace, CostProfile]":
    """The trace and the profile. Raises `ParameterError` where one is missing or prompts are named as well."""
    from treewise.data.cost import CostProfile
    from treewise.training.logged_trace import open_trace

    if not cost:
        raise ParameterError("cost must be named with --trace, got none: a file of `treewise profile`, or a built-in")
    if prompts:
        raise ParameterError(f"prompts must be left out with --trace, got both, {prompts!r} and '{trace}'")
    return open_trace(trace), CostProfile.load(cost)


def show(found: "Diagnosis") -> None:
    """Print a diagnosis."""
    out = console()
    style = "bold green" if found.is_worth_it else "bold yellow"
    out.print(Text(found.verdict, style=style), soft_wrap=True)
    out.print(facts(_answers(found)))
    out.print(settings_table(found))
    tried = f"{len(found.tried)} in all; `treewise tune` tries many more, `treewise train` learns one"
    out.print(Text(tried, style="dim"))
    out.print(findings_table(found))
    for line in unknown_lines(found):
        out.print(line)
    for finding in found.findings:
        if finding.status == "fires":
            out.print(Text(f"{finding.name}: {finding.cure}.", style="yellow"))
    if found.attribution is not None:
        for table in attribution_tables(found.attribution):
            out.print(table)
    for line in origin_lines((found.acceptance,), [found.profile.words]):
        out.print(line, soft_wrap=True)
    words = (
        f"{found.prompts} prompts, {found.tokens:,} tokens. Speed-ups are modelled unless they say live; 95 % "
        "intervals by prompt. The speed-up that decides takes each prompt under the setting that the others choose."
    )
    out.print(Text(words, style="dim"))


def _answers(found: "Diagnosis") -> dict[str, str]:
    reached = f"; {percent(found.reached)} of its gain is reached" if found.reached > 0.0 else ""
    rows = {
        "setting": f"--policy '{found.advised.spec}'",
        "ceiling": f"{found.ceiling}, by an oracle that knows the text{reached}",
    }
    if found.live is not None:
        live = found.live
        same = "texts identical" if live.differing == 0 else f"{live.differing} texts differ"
        rows["live"] = (
            f"{live.policy} {live.speedup:.2f} times plain decoding, {live.tokens_per_round:.2f} tokens a round, "
            f"{live.prompts} prompts, {same}"
        )
        if live.policy != found.advised.spec:
            rows["live"] += f"; {found.advised.spec} {live.advised_speedup:.2f} times"
    return rows


def settings_table(found: "Diagnosis") -> Table:
    """The fastest settings, and the one in use."""
    table = figures_table(
        "settings tried", "policy", ("speed-up", "tokens\na round", "nodes\na round", "drafts\na round")
    )
    for row in found.tried[:SHOWN]:
        figures = (row.tokens_per_round, row.nodes_per_round, row.growths_per_round)
        table.add_row(Text(row.spec), f"{row.speedup:.3f}", *(f"{figure:.2f}" for figure in figures))
    return table


def findings_table(found: "Diagnosis") -> Table:
    """One row per finding that is known, those that fire first."""
    table = Table(title="findings", title_justify="left")
    table.add_column("finding", no_wrap=True)
    table.add_column("figure", justify="right", no_wrap=True)
    table.add_column("threshold", no_wrap=True)
    table.add_column("what it is", overflow="fold")
    for status, style in MARKS.items():
        for finding in found.findings:
            if finding.status == status:
                name, figure = Text(finding.name, style=style), Text(f"{finding.figure:.3f}", style=style)
                table.add_row(name, figure, finding.rule, Text(finding.words))
    return table


def unknown_lines(found: "Diagnosis") -> list[Text]:
    """The findings that are not known here, by what is missing."""
    names: dict[str, list[str]] = {}
    for finding in found.findings:
        if finding.status == "unknown":
            names.setdefault(finding.words, []).append(finding.name)
    return [Text(f"not known: {', '.join(those)}: {words}", style="dim") for words, those in names.items()]


def attribution_tables(found: "Attribution") -> list[Table]:
    """Acceptance by quadrant, with what to try, then by task."""
    from treewise.training.attribution import QUADRANTS

    bits, agreement = found.settings.entropy_bits, found.settings.agreement
    table = Table(
        title=f"attribution: the target is unsure from {bits:g} bits on; draft and target agree where {agreement:.0%} "
        f"of the draft's last {found.settings.window_tokens} guesses were right",
        title_justify="left",
    )
    table.add_column("target, draft", no_wrap=True)
    for heading in ("share of\npositions", "first guess\nright", "some guess\nright", "draft tree\naccepts"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("what to try", overflow="fold")
    for cell, quadrant in zip(found.of_task(), QUADRANTS, strict=True):
        figures = (_interval(getattr(cell, name)) for name in ("share", "first", "width", "run"))
        table.add_row(cell.name, *figures, Text(quadrant.advice))
    tables = [table]
    if found.tasks:
        by_task = figures_table(
            "share of positions and first guesses right, by task",
            "task",
            tuple(quadrant.name for quadrant in QUADRANTS),
        )
        for task in found.tasks:
            by_task.add_row(Text(task), *(_by_task(cell) for cell in found.of_task(task)))
        tables.append(by_task)
    return tables


def _interval(bounds: "Interval") -> str:
    if math.isnan(bounds.value):
        return "none"
    return f"{bounds.value:.2f}" + ("" if math.isnan(bounds.low) else f"\n{bounds.low:.2f} to {bounds.high:.2f}")


def _by_task(cell: "Cell") -> str:
    return f"{cell.share.value:.0%}: {_interval(cell.first)}" if cell.positions else "0%"
