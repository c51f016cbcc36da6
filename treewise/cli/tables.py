"""`treewise tables`: two example tables, the drafting time they leave unsaid, and our own replays beside them."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from treewise.cli._options import AsJson
from treewise.cli._parts import in_parts
from treewise.cli._show import console, figures_table, note, print_json, progress
from treewise.cli.ab import origin_lines
from treewise.data.cost import CostProfile
from treewise.data.errors import ParameterError
from treewise.data.example_tables import ExampleRow, ExampleTable, contradictions, faults, level_match

if TYPE_CHECKING:
    from treewise.training.example_contest import ExampleReport, Played
    from treewise.training.logged_trace import LoggedTrace

LABEL = "example figures supplied with the project, unverified: nobody here measured them"


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("tables")(tables)


def tables(
    trace: Annotated[
        list[Path] | None,
        typer.Option(
            "--trace", metavar="DIR", help="Dense trace to replay on; may be repeated.", show_default="the shipped one"
        ),
    ] = None,
    cost: Annotated[
        list[str] | None,
        typer.Option("--cost", help="A further cost profile: a file or a built-in name.", show_default=False),
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(
            "--bundle", help="Bundle of the learned policy.", show_default="trained from the shipped traces, in minutes"
        ),
    ] = None,
    derive_only: Annotated[
        bool, typer.Option("--derive-only", help="Only what follows from the tables; nothing is replayed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print two example tables of tree speculation on large models and hold them against our own traces.

    The tables' figures were supplied with the project; nobody here measured them, and the built-in profiles
    example-a100-70b and example-h800-67b are made from them. Their drafting time is not given: it is what a step takes
    beyond its verify pass, where speed-up = tokens per step x plain pass / step. The command derives it row by row and
    says which rows, or pairs of rows, cannot be. Then it replays the same strategies, and the learned policy, on dense
    traces under each profile.
    """
    from treewise.training.example_contest import derive_only as derived

    if derive_only and (trace or cost or bundle):
        given = ", ".join(str(value) for value in (*(trace or []), *(cost or []), bundle) if value)
        raise ParameterError(f"trace, cost and bundle must be left out with --derive-only, got {given}")
    report = derived() if derive_only else _play(trace or [], cost or [], bundle)
    if as_json:
        print_json(report.to_json())
    else:
        show(report)


def _play(folders: list[Path], costs: list[str], bundle: Path | None) -> "ExampleReport":
    from treewise.shipped import JUDGE, shipped_traces
    from treewise.training.example_contest import play_examples, profiles_for, strategy_specs
    from treewise.training.logged_trace import open_trace

    more = [CostProfile.load(name) for name in costs]
    profiles = profiles_for(more)
    traces = [open_trace(folder) for folder in folders or [shipped_traces() / JUDGE]]
    learned = _learned(bundle, bool(folders), traces, profiles[0])
    replays = (len(strategy_specs(has_draft=True)) + bool(learned)) * len(profiles)
    with progress("replaying", sum(len(one.requests) for one in traces) * replays) as advance:
        return play_examples(traces, more, learned, lambda steps: advance(steps=steps))


def _learned(bundle: Path | None, is_own: bool, traces: "list[LoggedTrace]", cost: CostProfile) -> str:
    """Spec of the learned policy; empty where there is none for the user's own traces. Raises `BundleError`."""
    from treewise.bench_inputs import trained_bundle
    from treewise.data.pair import PairDescription
    from treewise.engine.hub import cache_home
    from treewise.policy.learned import LearnedPolicy
    from treewise.policy.registry import parse_policy
    from treewise.shipped import shipped_traces, split_trace

    if bundle is None and is_own:
        note("no learned policy: name one of the traces' pair with --bundle (`treewise train`)")
        return ""
    if bundle is None:
        split = split_trace(shipped_traces())
        bundle = trained_bundle(split, cost, cache_home() / "bench", progress, "treewise tables")
    spec = f"learned:{bundle}"
    policy = parse_policy(spec)
    assert isinstance(policy, LearnedPolicy)
    for trace in traces:
        policy.bundle.check_pair(PairDescription.from_json(trace.manifest.pair))
    return spec


def show(report: "ExampleReport") -> None:
    """Print the tables, then our replays."""
    out = console()
    for table in report.tables:
        for part in in_parts(derived_table(table), out.width):
            out.print(part)
        for line in (LABEL, *words_of(table)):
            out.print(Text(line, style="dim"))
    for origin in report.profiles:
        for part in in_parts(played_table(report, origin.name), out.width):
            out.print(part)
        for source in origin_lines(report.acceptance, [origin.words]):
            out.print(source, soft_wrap=True)
    if report.profiles:
        words = (
            "Replayed: modelled speed-up over plain decoding, 95 % interval by prompt. The example's column is for "
            "another pair; ours says what the same rule brings on these texts at those milliseconds."
        )
        out.print(Text(words, style="dim"))


def derived_table(table: ExampleTable) -> Table:
    """One row per strategy: what is given, and what follows."""
    headings = ("rows", "verify\nms", "tokens\na step", "speed-up", "if drafting\nwere free", "step\nms", "drafting ms")
    shown = figures_table(f"{table.name}: {table.device}", "strategy", headings)
    for row in table.rows:
        step, drafting = table.step_ms(row), table.drafting_ms(row)
        shown.add_row(
            Text(name_of(row)),
            str(row.rows),
            f"{row.verify_ms:.1f}",
            f"{row.tokens_per_step:.2f}",
            "not given" if row.speedup is None else f"{row.speedup:.2f}",
            f"{table.most_speedup(row):.2f}",
            "" if step is None else f"{step.value:.2f}",
            "not known" if drafting is None else str(drafting),
        )
    return shown


def name_of(row: ExampleRow) -> str:
    """The strategy, and the task where the table says one."""
    return row.strategy + (f", {row.task}" if row.task else "")


def words_of(table: ExampleTable) -> list[str]:
    """The convention, what a draft pass comes to, and what cannot be."""
    bounds = table.plain_bounds
    lines = [
        "Drafting: tokens a step x plain pass / speed-up, less the verify pass; it holds everything outside "
        "verification. Rows are taken as the table counts them. Brackets: what rounding leaves open."
    ]
    if table.given_plain_ms is None:
        lines.append(
            f"The plain pass is not given: {table.plain_ms:.2f} ms is the line through the two verify passes carried "
            f"on to one row. It can be {bounds.low:.2f}, where some row's drafting is nothing, to "
            f"{bounds.high:.2f} ms, what the narrower pass takes; drafting moves with it, and the brackets leave that "
            "out."
        )
    for row in table.rows:
        lines += _words_of_row(table, row)
    wrong = [f"Rows that cannot be together: {line}." for line in contradictions(table)]
    return [*lines, *(wrong or ["No row contradicts itself, and no two one another."])]


def _words_of_row(table: ExampleTable, row: ExampleRow) -> list[str]:
    name, drafting, match = name_of(row), table.drafting_ms(row), level_match(row)
    lines = [f"{name} cannot be: {fault}." for fault in faults(table, row)]
    if row.passes and drafting is not None and match is not None:
        price = float(CostProfile.load(table.name).draft_ms([1])[0])
        lines.append(
            f"{name}: {drafting.per(row.passes)} ms for each of {row.passes} draft passes; at the profile's "
            f"{price:.2f} ms it would be {table.speedup_at(row, row.passes * price):.2f} times plain decoding. Its "
            f"tokens need {match:.0%} of levels to match."
        )
    expected = table.expected_speedup(row) if row.speedup is None else None
    if expected is not None:
        lines.append(f"{name}: no speed-up is given; drafting as long as its other rows, it would be {expected:.2f}.")
    return lines


def played_table(report: "ExampleReport", profile: str) -> Table:
    """The example's figures beside ours, with the draft alone and with every source."""
    from treewise.training.example_contest import ALL_SOURCES, DRAFT_ALONE

    headings = (
        "example:\ntokens", "speed-up", "draft alone:\ntokens", "speed-up", "all sources:\ntokens", "speed-up"
    )  # fmt: skip
    shown = figures_table(f"replayed under {profile}", "strategy", headings)
    given = [row for table in report.tables for row in table.rows if table.name == profile]
    for strategy in report.strategies(profile):
        rows = [row for row in given if row.strategy == strategy]
        cells = [_range(row.tokens_per_step for row in rows), _range(row.speedup for row in rows)]
        for sources in (DRAFT_ALONE, ALL_SOURCES):
            one = report.of(profile, strategy, sources)
            cells += ["", ""] if one is None else [f"{one.result.tokens_per_round:.2f}", _interval(one)]
        shown.add_row(Text(strategy), *cells)
    return shown


def _interval(one: "Played") -> str:
    bounds = one.result.speedup
    known = bounds.low == bounds.low
    return f"{bounds.value:.2f}" + (f"\n{bounds.low:.2f} to {bounds.high:.2f}" if known else "")


def _range(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return ""
    return f"{known[0]:.2f}" if min(known) == max(known) else f"{min(known):.2f}\nto {max(known):.2f}"
