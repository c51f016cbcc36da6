"""`treewise bench-policy`: the learned policy against every tuned fixed rule, cell by cell."""

import datetime
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from treewise.cli._options import DEFAULT_CORPUS, DEFAULT_TARGET, AsJson, Corpus, Target, Threads, open_pair
from treewise.cli._show import console, facts, figures_table, note, print_json, progress, warn
from treewise.data.errors import ParameterError

if TYPE_CHECKING:
    from treewise.engine.pair import Pair
    from treewise.policy_bench import PolicyBenchReport
    from treewise.policy_bench_plan import PolicyBenchSettings
    from treewise.policy_bench_schedule import ScheduleResult

COMMAND = ("treewise", "bench-policy")
STYLES = {True: "green", False: "bold red", None: "dim"}


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("bench-policy")(bench_policy)


def bench_policy(
    quick: Annotated[
        bool, typer.Option("--quick", help="The traces that ship, small grids, no models: a minute or two.")
    ] = False,
    prompts: Annotated[
        str,
        typer.Option(
            "--prompts",
            help="Folder of prompt files with the splits train and test.",
            show_default="that of TREEWISE_PROMPTS, else the project's own",
        ),
    ] = "",
    drafts: Annotated[
        list[str] | None,
        typer.Option("--draft", help="May be repeated.", show_default="default and prune:12-17"),
    ] = None,
    temperatures: Annotated[
        list[float] | None, typer.Option("--temperature", min=0.0, help="May be repeated.", show_default="0 and 1")
    ] = None,
    sources: Annotated[
        list[str] | None,
        typer.Option("--sources", help="draft, lookup, free or all; may be repeated.", show_default="every one"),
    ] = None,
    costs: Annotated[
        list[str] | None,
        typer.Option(
            "--cost",
            help="this-machine, a built-in name or a file; may be repeated.",
            show_default="this-machine and the two examples",
        ),
    ] = None,
    bundles: Annotated[
        list[str] | None,
        typer.Option(
            "--bundle", metavar="DRAFT=DIR", help="Judge this policy instead of training one; may be repeated."
        ),
    ] = None,
    guarded: Annotated[
        bool, typer.Option("--guarded", help="Judge the policy with its guard: recalibrated, and stepping aside.")
    ] = False,
    left_out: Annotated[
        bool, typer.Option("--left-out-tasks", help="Also train without each task and check calibration there.")
    ] = False,
    train_prompts: Annotated[int, typer.Option("--train-prompts", min=3, help="To train and tune on.")] = 60,
    test_prompts: Annotated[int, typer.Option("--test-prompts", min=2, help="To judge on.")] = 60,
    max_new_tokens: Annotated[int, typer.Option("--max-new-tokens", min=1, help="Tokens per answer.")] = 64,
    target: Target = DEFAULT_TARGET,
    corpus: Corpus = DEFAULT_CORPUS,
    threads: Threads = 0,
    write: Annotated[
        Path | None,
        typer.Option("--write", metavar="FILE", help="Also write the results page.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Judge the learned policy against every fixed family, each tuned on training prompts, by exact replay.

    A cell is a pair of traces (draft, temperature), the sources that exist, and a cost profile. Traces, policies and
    replays are kept, so an interrupted run goes on, and one with further cells adds those.
    """
    from treewise.bench_inputs import PROMPTS_VARIABLE
    from treewise.policy.registry import GUARDED, LEARNED
    from treewise.policy_bench import run_policy_bench
    from treewise.policy_bench_json import report_json
    from treewise.policy_bench_page import results_page
    from treewise.policy_bench_plan import PolicyBenchSettings, prompt_parts

    usual = PolicyBenchSettings()
    settings = PolicyBenchSettings(
        drafts=tuple(drafts or usual.drafts),
        temperatures=tuple(temperatures or usual.temperatures),
        sources=tuple(sources or usual.sources),
        costs=tuple(costs or usual.costs),
        train_prompts=train_prompts,
        test_prompts=test_prompts,
        max_new_tokens=max_new_tokens,
        policy=GUARDED if guarded else LEARNED,
        leaves_tasks_out=left_out,
    )
    if quick:
        settings = settings.quick()
    folder = prompts or os.environ.get(PROMPTS_VARIABLE, "")
    given = _bundles(bundles or [], settings.drafts)
    command = command_of(settings, folder, target, corpus)

    def opened(draft: str) -> "Pair":
        return open_pair(target, draft, threads, corpus=corpus)

    parts = None if quick else prompt_parts(folder, settings)
    report = run_policy_bench(settings, parts, opened, given, progress, None, warn, note, command)
    if write is not None:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        write.parent.mkdir(parents=True, exist_ok=True)
        write.write_text(results_page(report, command, today), encoding="utf-8")
        note(f"wrote {write}")
    if as_json:
        print_json(report_json(report))
    else:
        show(report)


def _bundles(given: list[str], drafts: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in given:
        draft, equals, folder = text.rpartition("=")
        if not equals or not folder or draft not in drafts:
            raise ParameterError(f"bundle must be DRAFT=DIR with a draft among {', '.join(drafts)}, got {text!r}")
        found[draft] = folder
    return found


def command_of(settings: "PolicyBenchSettings", folder: str, target: str, corpus: str) -> str:
    """The command as one would type it again, prompts by the name of their folder."""
    from treewise.policy_bench_plan import PolicyBenchSettings

    usual = PolicyBenchSettings().quick() if settings.is_quick else PolicyBenchSettings()
    words = [*COMMAND]
    if settings.is_quick:
        words.append("--quick")
    elif folder:
        words += ["--prompts", Path(folder).name]
    lists: tuple[tuple[str, tuple[object, ...], tuple[object, ...]], ...] = (
        ("--draft", settings.drafts, usual.drafts),
        ("--temperature", settings.temperatures, usual.temperatures),
        ("--sources", settings.sources, usual.sources),
        ("--cost", tuple(Path(cost).name for cost in settings.costs), usual.costs),
    )
    for option, given, default in lists:
        if given != default:
            words += [
                part for value in given for part in (option, f"{value:g}" if isinstance(value, float) else str(value))
            ]
    if not settings.is_quick:
        words += ["--train-prompts", str(settings.train_prompts), "--test-prompts", str(settings.test_prompts)]
        words += ["--max-new-tokens", str(settings.max_new_tokens)]
    if settings.policy != usual.policy:
        words.append(f"--{settings.policy}")
    if settings.leaves_tasks_out:
        words.append("--left-out-tasks")
    if corpus != DEFAULT_CORPUS:
        words += ["--corpus", Path(corpus).name]
    if target != DEFAULT_TARGET:
        words += ["--target", target]
    return shlex.join(words)


def show(report: "PolicyBenchReport") -> None:
    """Print the tables of a run."""
    out = console()
    rows = {
        "pairs": ", ".join(report.pairs.values()),
        "prompts": report.prompts,
        "policy call": ", ".join(f"{ms:.3f} ms with {draft}" for draft, ms in report.call_ms.items()),
        "tuned over": f"{report.tried:,} settings",
        "kept in": report.home,
    }
    out.print(facts(rows))
    for subset in dict.fromkeys(part.subset for found in report.cells for part in found.judged):
        out.print(cells_table(report, subset))
    out.print(opponents_table(report))
    for found in report.schedules:
        out.print(schedule_table(found))
    out.print(goals_table(report))
    out.print(Text(_NOTE, style="dim"))


_NOTE = (
    "A cell: draft, temperature, sources, costs (a100: the example profile, 3ms: with 3 ms a draft growth; here: this "
    "machine's). speed: the learned policy over plain decoding, modelled: acceptance from replay, milliseconds from "
    "the cost profile. depth, path: the oracles'. best: the tuned fixed policy that is fastest on the judged prompts; "
    "over best: the learned policy's speed over its, with the 95 % interval. ECE: of survival of at least .05."
)


def cells_table(report: "PolicyBenchReport", subset: str) -> Table:
    """One row per cell."""
    headings = ("speed", "nodes", "depth", "path", "best", "over best", "ECE")
    counts = sorted({part.prompts for found in report.cells if (part := found.subset(subset)) is not None})
    prompts = f"{counts[0]} prompts" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} prompts"
    table = figures_table(f"cells, {subset} continuations, {prompts}", "cell", headings)
    table.columns[0].min_width = 26
    for found in report.cells:
        part = found.subset(subset)
        if part is None:
            continue
        error = "" if found.survival is None or not found.survival.nodes else f"{found.survival.ece:.3f}"
        table.add_row(
            Text(str(found.cell)),
            f"{part.speedup.value:.2f}",
            f"{part.nodes_per_round:.1f}",
            f"{part.depth_oracle:.2f}",
            f"{part.oracle:.2f}",
            f"{part.best.speedup.value:.2f}",
            str(part.best.ratio),
            error,
        )
    return table


def opponents_table(report: "PolicyBenchReport") -> Table:
    """The learned policy over each opponent, one row per opponent and the cells in which it is the best of them."""
    headings = ("cells", "lowest", "mean", "highest", "best in", "ahead", "behind")
    table = figures_table("learned over each opponent, all prompts", "opponent", headings)
    names = dict.fromkeys(one.name for found in report.cells for one in found.judged[0].opponents)
    for name in names:
        parts = [part for found in report.cells for part in found.judged[:1] if part.opponent(name) is not None]
        ratios = [one for part in parts for one in part.opponents if one.name == name]
        values = [one.ratio.value for one in ratios]
        table.add_row(
            Text(name),
            str(len(values)),
            f"{min(values):.3f}",
            f"{sum(values) / len(values):.3f}",
            f"{max(values):.3f}",
            str(sum(part.best.name == name for part in parts)),
            str(sum(one.joint.low > 1.0 for one in ratios)),
            str(sum(one.joint.high < 1.0 for one in ratios)),
        )
    table.caption = "ahead, behind: cells where Holm's joint interval lies on one side of 1."
    return table


def schedule_table(found: "ScheduleResult") -> Table:
    """One row per opponent."""
    from treewise.policy_bench_cell import shown

    title = f"mixed schedule, {found.condition}: learned {found.speedup}"
    table = figures_table(title, "opponent", ("speed-up", "learned over it", "policy"))
    table.columns[-1].justify = "left"
    table.columns[-1].overflow = "fold"
    table.columns[-1].no_wrap = False
    for row in found.rows:
        table.add_row(Text(row.name), f"{row.speedup.value:.3f}", str(row.ratio), Text(shown(row.spec)))
    table.caption = f"stages in turns: {'; '.join(found.stages)}"
    return table


def goals_table(report: "PolicyBenchReport") -> Table:
    """The goals, computed."""
    table = Table(title="goals", title_justify="left")
    for heading, share in (("against", 3), ("goal", 2), ("figure", 4)):
        table.add_column(heading, overflow="fold", ratio=share)
    table.add_column("", no_wrap=True)
    for goal in report.goals:
        words = Text(goal.words, style=STYLES[goal.is_reached])
        table.add_row(Text(goal.against), Text(goal.goal), Text(goal.figure), words)
    return table
