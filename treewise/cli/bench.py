"""`treewise bench`: text equality, overhead and replay on a real pair."""

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
from treewise.cli._show import console, facts, figures_table, note, percent, print_json, progress, warn

if TYPE_CHECKING:
    from treewise.bench import BenchReport

EXIT_DIFFERS = 1
SHARES = (
    "policy: share of decode time inside the policy's calls; outside models: share not inside the two models' forward "
    "passes, heads included, the policy's calls among it"
)


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("bench")(bench)


def bench(
    quick: Annotated[bool, typer.Option("--quick", help="4 prompts.")] = False,
    bundle: Annotated[
        Path | None,
        typer.Option("--bundle", help="Bundle of the learned policy.", show_default="trained from shipped traces"),
    ] = None,
    policies: Annotated[
        str, typer.Option("--policies", help="Names, joined by commas.", show_default="every one")
    ] = "",
    max_new_tokens: Annotated[int, typer.Option("--max-new-tokens", min=1, help="Tokens per answer.")] = 48,
    target: Target = DEFAULT_TARGET,
    draft: Draft = DEFAULT_DRAFT,
    corpus: Corpus = DEFAULT_CORPUS,
    threads: Threads = 0,
    cost: Cost = "",
    as_json: AsJson = False,
) -> None:
    """Compare every policy's text with plain decoding's at temperatures 0 and 1, and replay live rounds.

    50 prompts with entropy and learned, 6 with each other policy: the project's own, or those of the folder that
    TREEWISE_PROMPTS names. Results are kept, so an interrupted run goes on. Exits with 1 where a text differs or a
    replay decides otherwise.
    """
    from treewise.bench import BenchSettings, run_bench
    from treewise.profiles import find_cost

    names = chosen_policies(policies)
    settings = BenchSettings(max_new_tokens=max_new_tokens, bundle=bundle, policies=names or BenchSettings().policies)
    pair = open_pair(target, draft, threads, corpus)
    profile = find_cost(pair, cost, warn, note)
    report = run_bench(pair, profile, settings.quick() if quick else settings, progress)
    if as_json:
        print_json(report.to_json())
    else:
        show(report)
    if not (report.is_identical and report.replays_live):
        raise typer.Exit(EXIT_DIFFERS)


def chosen_policies(policies: str) -> tuple[str, ...]:
    """Registered names from a list joined by commas. Raises `PolicySpecError` on another name."""
    from treewise.bench import BenchSettings
    from treewise.data.errors import PolicySpecError

    names = tuple(dict.fromkeys(part.strip() for part in policies.split(",") if part.strip()))
    known = BenchSettings().policies  # those that need no file
    for name in names:
        if name not in known:
            raise PolicySpecError(f"policies must be among {', '.join(known)}, got {name!r}")
    return names


def show(report: "BenchReport") -> None:
    """Print the tables of a run."""
    out = console()
    rows = {
        "pair": report.pair,
        "device": f"{report.cost.device}, {report.cost.dtype}",
        "learned": report.bundle or "not asked for",
        "results": f"{report.results_file}, {report.resumed} from an earlier run",
    }
    out.print(facts(rows))
    out.print(texts_table(report))
    out.print(Text(SHARES, style="dim"))
    for row in report.rows:
        for result in row.results:
            if result.divergence is not None:
                place = f"{row.policy} at temperature {row.temperature:g} on {result.key.prompt_id}"
                warn(f"{place} differs: {result.divergence}")
    out.print(replay_table(report))
    for name, check in report.replays.items():
        for found in check.mismatches[:5]:
            warn(f"replay of {name} on {found.prompt_id} at {found.position}: {found.reason}")


def texts_table(report: "BenchReport") -> Table:
    """One row per policy and temperature."""
    headings = ("temp.", "texts", "identical", "tokens/s", "tokens\nper round", "policy", "outside\nmodels")
    table = figures_table(
        f"texts of {report.settings.max_new_tokens} tokens against plain decoding", "policy", headings
    )
    for row in report.rows:
        found = row.figures
        same = row.identical == len(row.results)
        table.add_row(
            Text(row.policy),
            f"{row.temperature:g}",
            str(len(row.results)),
            Text(str(row.identical), style="green" if same else "bold red"),
            f"{found.tokens_per_second:.1f}",
            f"{found.tokens_per_round:.2f}",
            percent(found.policy_share),
            percent(found.overhead_share),
        )
    return table


def replay_table(report: "BenchReport") -> Table:
    """One row per replayed policy."""
    table = figures_table("replay against live", "policy", ("live rounds", "compared", "decided\notherwise"))
    for name, check in report.replays.items():
        table.add_row(Text(name), str(check.rounds), str(check.compared), str(len(check.mismatches)))
    return table
