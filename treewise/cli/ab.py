"""`treewise ab`: several policies on the same logged rounds."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from treewise.cli._options import AsJson, Workers, workers_for
from treewise.cli._show import console, note, percent, print_json, progress, warn
from treewise.data.errors import ParameterError

if TYPE_CHECKING:
    from treewise.training.ab_report import AbReport, AbRow
    from treewise.training.logged_trace import LoggedTrace

MARGIN = "2%"  # that of `treewise.training.verdict`, written for people; a test compares them
MARKS = {"better": "+", "worse": "-", "not worse": "~", "undecided": "?"}

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
    margin: Annotated[
        str, typer.Option("--margin", help="A loss of speed below this share may be called no loss.")
    ] = MARGIN,
    plan: Annotated[
        str,
        typer.Option(
            "--plan",
            help="Also say how many prompts would show this difference of speed, such as 3%, with 80 % power.",
            show_default=False,
        ),
    ] = "",
    tuned_on: Annotated[
        list[Path] | None,
        typer.Option(
            "--tuned-on",
            help="Traces that settings were chosen on: warns where prompts are judged too; may be repeated.",
            show_default=False,
        ),
    ] = None,
    depth_oracles: Annotated[
        bool | None,
        typer.Option(
            "--depth-oracles/--no-depth-oracles",
            help="Also say what the right depth alone would bring. Much slower, so by default only on few tokens.",
            show_default=False,
        ),
    ] = None,
    as_recorded: Annotated[
        bool, typer.Option("--as-recorded", help="Take rounds that a fallback finished live from the log as they are.")
    ] = False,
    served: Annotated[
        int,
        typer.Option(
            "--served",
            metavar="BATCH",
            min=0,
            help="Instead: serve a long queue of the requests in one process, so many side by side in shared rounds.",
            show_default=False,
        ),
    ] = 0,
    workers: Workers = 0,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated values instead of tables.")] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Also write a page with charts and trees.", show_default=False),
    ] = None,
) -> None:
    """Replay policies on logged rounds and compare their modelled speed; the first one named is compared against.

    Live traces hold what the policy that wrote them asked for. Where others are named, what comes is an estimate
    (exact: false): which estimator it is and what its prompts are worth is said, and nothing is judged.
    """
    from treewise.cli._estimate import check_asked, print_estimate
    from treewise.cli._served import check_alone, serve
    from treewise.data.cost import CostProfile
    from treewise.data.whole_file import check_place
    from treewise.html_report import Compared, write_page
    from treewise.html_svg import check_matplotlib
    from treewise.token_text import token_text
    from treewise.training.ab import ab as run
    from treewise.training.ab import contenders_of, has_cheap_depth_oracles, trained_on_judged
    from treewise.training.estimate import estimate, is_estimate

    specs = [*split_policies(policies), *(policy or [])]
    if not specs:
        raise ParameterError("policies must be named with --policies or --policy, got none")
    if as_json and as_csv:
        raise ParameterError("output must be --json or --csv, got both")
    if plan and as_csv:
        raise ParameterError("output must be --json or a table where --plan is asked, got --csv")
    least_loss, difference = share("margin", margin), share("plan", plan) if plan else 0.0
    contenders = contenders_of(specs)
    if plan and len(contenders) < 2:
        raise ParameterError(f"policies must be at least two where --plan is asked, got {len(contenders)}")
    if html is not None:
        check_place(html, "html")
        check_matplotlib()
    profiles = [CostProfile.load(cost) for cost in costs]
    traces = opened(folders, task)
    if served:
        check_alone(plan=plan, html=html, depth_oracles=depth_oracles, as_recorded=as_recorded, csv=as_csv)
        check_alone(margin=margin != MARGIN)
        tuned = opened(tuned_on or [], "")
        flatters = trained_on_judged(contenders, folders)
        serve(traces, profiles, contenders, served, resamples, seed, tuned, flatters, as_json)
        return
    if is_estimate(traces, contenders):
        check_asked(plan=plan, html=html, depth_oracles=depth_oracles, as_recorded=as_recorded, tuned_on=tuned_on)
        with counting("estimate", traces, len(specs) * len(profiles)) as advance:
            found = estimate(
                traces, profiles, contenders, resamples=resamples, seed=seed, advance=advance,
                workers=workers_for(workers, traces, len(specs) * len(profiles), in_batches=False),
            )  # fmt: skip
        flatters = trained_on_judged(contenders, folders)
        print_estimate(replace(found, warnings=(*found.warnings, *flatters)), as_json, as_csv)
        return
    if depth_oracles is None:
        depth_oracles = has_cheap_depth_oracles(traces, len(specs) * len(profiles))
    tuned = opened(tuned_on or [], "")
    with counting("replay", traces, len(specs) * len(profiles)) as advance:
        report = run(
            traces, profiles, contenders, resamples=resamples, seed=seed, advance=advance, margin=least_loss,
            tuned_on=tuned, with_depth_oracles=depth_oracles, as_recorded=as_recorded,
            workers=workers_for(workers, traces, len(specs) * len(profiles), not (depth_oracles or as_recorded)),
        )  # fmt: skip
    report = replace(report, warnings=(*report.warnings, *trained_on_judged(contenders, folders)))
    if as_json:
        print_json(report.to_json(difference or None))
    elif as_csv:
        typer.echo(report.to_csv(), nl=False)
    else:
        _show(report, difference)
    for line in report.warnings:
        warn(line)
    if html is not None:
        written = Compared.of(report, traces, profiles, contenders)
        note(f"wrote {write_page(html, [written], text_of=token_text(traces[0].manifest))}")


def share(name: str, text: str) -> float:
    """A share above 0 and below 1 from `3%`, `3 %` or `0.03`. Raises `ParameterError`."""
    digits = text.strip().removesuffix("%").strip()
    try:
        value = float(digits) / (100.0 if "%" in text else 1.0)
    except ValueError:
        value = 0.0
    if not 0.0 < value < 1.0:
        raise ParameterError(f"{name} must be a share above 0 and below 1, such as 3% or 0.03, got {text!r}")
    return value


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


def _show(report: "AbReport", difference: float) -> None:
    out = console()
    for origin in report.profiles:
        tables = [_overall(report, origin.name)]
        if len(report.policies) > 1:
            tables.append(_verdicts(report, origin.name))
        if len(report.tasks) > 1:
            tables.append(_by_task(report, origin.name))
        if len(report.policies) > 1:
            tables.append(_break_even(report, origin.name))
        if difference:
            tables.append(_plan(report, origin.name, difference))
        for table in tables:
            out.print(table)
        for line in origin_lines(report.acceptance, [origin.words]):
            out.print(line, soft_wrap=True)
    for words in _notes(report, difference):
        out.print(Text(words, style="dim"))


def _notes(report: "AbReport", difference: float) -> list[str]:
    first = report.policies[0]
    notes = [
        f"Speed-up and ratio: all tokens over all modelled milliseconds, against plain decoding and against {first}; "
        "95 % intervals by a paired bootstrap over prompts. The oracle knows the text: an upper bound, not a policy. "
        + (
            "A depth oracle grows the policy's own trees just as deep as was accepted."
            if report.depth_oracles
            else "--depth-oracles adds what the right depth alone would bring."
        )
    ]
    if len(report.policies) > 1:
        notes.append(
            f"Verdicts follow from intervals that hold together (Holm), a loss below {percent(report.margin)} being no "
            f"loss. By task: {', '.join(f'{mark} {kind}' for kind, mark in MARKS.items())}, against {first}."
        )
        notes.append(
            "Break-even: each factor moves alone, on the rounds as replayed. * reads the costs and would decide "
            "otherwise at others; here its decisions are held."
        )
    if difference:
        notes.append(
            "Plan: 80 % power at level .05 over the comparisons made, further prompts being like those at hand."
        )
    return notes


def _titled(profile: str, title: str) -> Table:
    return Table(title=f"modelled, {profile}: {title}", title_justify="left")


def _overall(report: "AbReport", profile: str) -> Table:
    rows = report.select(profile)
    table = _titled(profile, f"{rows[0].prompts:,} prompts, {rows[0].tokens:,} tokens; counts are per round")
    table.add_column("policy", overflow="fold")
    for heading in ("tokens", "nodes", "drafts", "speed-up [95 %]", "to first [95 %]"):
        table.add_column(heading, justify="right")
    bounds = [row for row in report.depth_oracles if row.profile == profile and row.task == ""]
    for row in (*rows, *bounds):
        table.add_row(
            _name(report, row),
            f"{row.tokens_per_round:.2f}",
            f"{row.nodes_per_round:.1f}",
            f"{row.growths_per_round:.2f}",
            str(row.speedup),
            "1" if row.ratio is None else str(row.ratio),
            style="dim" if row.is_upper_bound else None,
        )
    return table


def _verdicts(report: "AbReport", profile: str) -> Table:
    rows = [row for row in report.select(profile) if row.judgement is not None]
    table = _titled(profile, f"verdicts against {report.policies[0]}")
    table.add_column("policy", overflow="fold")
    table.add_column(f"to first, {len(rows)} at once", justify="right", no_wrap=True)
    table.add_column("p", justify="right", no_wrap=True)
    table.add_column("verdict")
    for row in rows:
        assert row.judgement is not None
        table.add_row(Text(row.policy), str(row.judgement.interval), f"{row.judgement.p_value:.3f}", Text(row.verdict))
    return table


def _by_task(report: "AbReport", profile: str) -> Table:
    table = _titled(profile, "speed-up by task")
    table.add_column("task", overflow="fold")
    names = [row.policy for row in report.select(profile)]
    for name in names:
        table.add_column(name, justify="right", overflow="fold")
    for task in report.tasks:
        found = {row.policy: row for row in report.select(profile, task)}
        table.add_row(Text(task), *(Text(_speedup(found[name])) for name in names))
    return table


def _speedup(row: "AbRow") -> str:
    mark = "" if row.judgement is None else f" {MARKS[row.judgement.verdict.kind]}"
    return f"{row.speedup.value:.2f}{mark}"


def _break_even(report: "AbReport", profile: str) -> Table:
    table = _titled(profile, f"cost factors at which a policy and {report.policies[0]} change places")
    table.add_column("policy", overflow="fold")
    for heading in ("to first", "drafts x", "verify rows x"):
        table.add_column(heading, justify="right", no_wrap=True)
    for found in report.break_even:
        if found.profile == profile:
            factors = ("never" if one is None else f"{one:.2f}" for one in (found.draft_factor, found.verify_factor))
            table.add_row(Text(f"{found.policy} *" if found.held else found.policy), f"{found.ratio:.3f}", *factors)
    return table


def _plan(report: "AbReport", profile: str, difference: float) -> Table:
    table = _titled(profile, f"prompts that would show {percent(difference)} against {report.policies[0]}")
    table.add_column("policy", overflow="fold")
    table.add_column("task", overflow="fold")
    for heading in ("prompts here", "spread of one", "prompts needed"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in report.plan(difference):
        if row.profile == profile:
            spread, needed = "unknown", "unknown"
            if row.prompts_needed is not None:
                spread, needed = percent(row.log_spread), f"{row.prompts_needed:,}"
            table.add_row(Text(row.policy), Text(row.task or "all"), f"{row.prompts:,}", spread, needed)
    return table


def _name(report: "AbReport", row: "AbRow") -> Text:
    marks = []
    if row.is_upper_bound and row not in report.depth_oracles:
        marks.append("upper bound")
    if row.fallback_rounds:
        marks.append(f"{row.fallback_rounds:,} rounds by its fallback")
    return Text(f"{row.policy} ({', '.join(marks)})" if marks else row.policy)
