"""`treewise check-replay`: live decoding and its replay, decision by decision and second by second."""

import tempfile
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
    Temperature,
    Threads,
    open_pair,
)
from treewise.cli._show import console, facts, figures_table, note, percent, print_json, progress, warn, yes

if TYPE_CHECKING:
    from treewise.training.replay_check_report import ReplayCheckReport

EXIT_DIFFERS = 1
SHOWN = 10  # differing rounds of one policy in the output
CHECKED = ("plain", "chain", "topn", "frontier", "entropy", "learned")


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("check-replay")(check_replay)


def check_replay(
    quick: Annotated[bool, typer.Option("--quick", help="3 prompts, short answers: speeds say little.")] = False,
    policies: Annotated[
        list[str] | None,
        typer.Option("--policy", help="Spec string; may be repeated.", show_default=", ".join(CHECKED)),
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option("--bundle", help="Bundle of the learned policy.", show_default="trained from shipped traces"),
    ] = None,
    prompts: Annotated[int, typer.Option("--prompts", min=1, help="Prompts, tasks taking turns.")] = 9,
    max_new_tokens: Annotated[int, typer.Option("--max-new-tokens", min=1, help="Tokens per answer.")] = 48,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Timed decodes of a prompt; their mean counts.")] = 3,
    temperature: Temperature = 0.0,
    tolerance: Annotated[
        float, typer.Option("--tolerance", help="Share by which modelled speed may miss the live one.")
    ] = 0.05,
    prices: Annotated[
        str,
        typer.Option(
            "--prices",
            help="Cost profile that replay's milliseconds come from.",
            show_default="measured in turns with the decoding",
        ),
    ] = "",
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder to keep the traces in.", show_default="none is kept")
    ] = None,
    target: Target = DEFAULT_TARGET,
    draft: Draft = DEFAULT_DRAFT,
    corpus: Corpus = DEFAULT_CORPUS,
    threads: Threads = 0,
    cost: Cost = "",
    as_json: AsJson = False,
) -> None:
    """Run policies live, replay what they did, and hold replay to it.

    On its own live trace a policy must decide every round again; on a dense trace of the same texts at most 0.1 % of
    rounds may differ, each listed; modelled speed must come within the tolerance of the live one and order policies as
    they are live wherever live speeds are told apart. Exits with 1 where one of these fails. Policies decide by --cost.
    """
    from treewise.data.cost import CostProfile
    from treewise.profiles import find_cost
    from treewise.replay_check import ReplayCheckSettings
    from treewise.replay_check import check_replay as run

    settings = ReplayCheckSettings(
        prompts, max_new_tokens, repeats, temperature, tuple(policies or CHECKED), bundle, tolerance
    )
    measured = CostProfile.load(prices) if prices else None
    pair = open_pair(target, draft, threads, corpus)
    profile = find_cost(pair, cost, warn, note)
    with tempfile.TemporaryDirectory(prefix="treewise-check-") as scratch:
        folder = out or Path(scratch)
        report = run(pair, profile, folder, settings.quick() if quick else settings, progress, measured)
    if as_json:
        print_json(report.to_json())
    else:
        show(report, is_kept=out is not None)
    if not report.passes:
        raise typer.Exit(EXIT_DIFFERS)


def show(report: "ReplayCheckReport", is_kept: bool) -> None:
    """Print a report as tables."""
    out = console()
    rows = {
        "pair": report.pair,
        "device": report.device,
        "texts": f"{report.prompts} prompts x {report.max_new_tokens} tokens, temperature {report.temperature:g}",
        "live milliseconds": f"mean of {report.repeats} decodes of each prompt, prefill left out",
        "modelled ones": report.prices.name,
        "policies decide by": report.cost,
    }
    if is_kept:
        rows["traces"] = report.folder
    out.print(facts(rows))
    out.print(decisions_table(report))
    for check in report.policies:
        for found in check.own.mismatches[:SHOWN]:
            warn(f"{check.policy}, own trace, {found.prompt_id} at {found.position}: {found.reason}")
        for flip in check.dense.flips[:SHOWN]:
            warn(f"{check.policy}, dense trace, {flip}")
        if len(check.dense.flips) > SHOWN:
            warn(f"{check.policy}, dense trace: {len(check.dense.flips) - SHOWN} more (--json lists them)")
    out.print(speed_table(report))
    for order in report.orders:
        if not order.agrees:
            warn(f"live, {order.faster} is {order.live} times as fast as {order.slower}; modelled {order.modelled:.3f}")
    out.print(
        facts(
            {
                "own traces repeated": yes(report.is_own_exact).plain,
                "dense traces": f"{yes(report.is_dense_close).plain}, {100 * report.differing:.3f} % of rounds differ",
                "speeds": f"{yes(report.is_speed_close).plain}, within {percent(report.tolerance)}",
                "order": f"{yes(report.is_ordered).plain}, {len(report.orders)} pairs told apart live",
            }
        )
    )
    verdict = "replay equals live" if report.passes else "replay does not equal live"
    out.print(Text(verdict, style="green" if report.passes else "bold red"))


def decisions_table(report: "ReplayCheckReport") -> Table:
    """One row per policy: rounds and how many differ."""
    headings = ("live rounds", "own trace:\ncompared", "differ", "dense trace:\ndiffer")
    table = figures_table("decisions", "policy", headings)
    for check in report.policies:
        own = check.own
        table.add_row(
            Text(check.policy),
            str(own.rounds),
            str(own.compared),
            Text(str(len(own.mismatches)), style="green" if check.is_own_exact else "bold red"),
            f"{check.dense.differing} ({100 * check.dense.share:.2f} %)",
        )
    return table


def speed_table(report: "ReplayCheckReport") -> Table:
    """One row per policy: tokens per second, live and modelled."""
    headings = ("tokens\nper round", "live\ntokens/s", "95 %", "modelled", "error", "95 %")
    table = figures_table("speeds", "policy", headings)
    for check in report.policies:
        speed, error = check.speed, check.error
        close = abs(error.value) <= report.tolerance
        table.add_row(
            Text(check.policy),
            f"{check.live.tokens.sum() / max(check.rounds, 1):.2f}",
            f"{speed.value:.2f}",
            f"{speed.low:.2f} to {speed.high:.2f}",
            f"{1e3 * check.modelled.speed:.2f}",
            Text(f"{100 * error.value:+.1f} %", style="green" if close else "bold red"),
            f"{100 * error.low:+.1f} to {100 * error.high:+.1f}",
        )
    return table
