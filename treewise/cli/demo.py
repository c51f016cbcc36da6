"""`treewise demo`: the main job, end to end, on a real pair."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from treewise.cli._live_tables import divergence_lines, live_table
from treewise.cli._options import DEFAULT_DRAFT, DEFAULT_TARGET, AsJson, Draft, Target
from treewise.cli._show import console, facts, figures_table, note, print_json, progress, warn

if TYPE_CHECKING:
    from treewise.demo_summary import AbPart, DemoSummary
    from treewise.training.statistics import Interval

EXIT_DIFFERS = 1


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("demo")(demo)


def demo(
    prompts: Annotated[int, typer.Option("--prompts", min=1, max=9, help="Prompts to decode live.")] = 9,
    max_new_tokens: Annotated[int, typer.Option("--max-new-tokens", min=1, help="Tokens per live answer.")] = 48,
    target: Target = DEFAULT_TARGET,
    draft: Draft = DEFAULT_DRAFT,
    traces: Annotated[
        Path | None, typer.Option("--traces", help="Dense trace of the pair.", show_default="the one that ships")
    ] = None,
    threads: Annotated[int, typer.Option("--threads", min=0, help="Torch threads; 0: all cores.")] = 0,
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for summary, profile and policy.")] = Path(
        "treewise-demo"
    ),
    as_json: AsJson = False,
) -> None:
    """Train a policy from the traces that ship, decode live with it and its rivals, and A/B them offline.

    Pulls the default pair when it is missing. Exits with 1 where any policy's text differs from plain decoding's.
    """
    from treewise.demo import DemoSettings, run_demo

    settings = DemoSettings(
        prompts=prompts,
        max_new_tokens=max_new_tokens,
        target=target,
        draft=draft,
        traces=traces,
        threads=threads,
        folder=out,
    )
    summary = run_demo(settings, progress, note)
    if as_json:
        print_json(summary.to_json())
    else:
        show(summary)
    if not summary.is_identical:
        raise typer.Exit(EXIT_DIFFERS)


def show(summary: "DemoSummary") -> None:
    """Print the tables of a run."""
    policies = [(label.name, label.spec) for label in summary.labels]
    out = console()
    rows = {
        "pair": summary.pair,
        "device": summary.cost.device,
        "trained on": f"{summary.train_prompts} prompts of {Path(summary.trace).name}",
        "judged on": f"{summary.held_out_prompts} other prompts by replay, {len(summary.prompts)} demo prompts live",
        **{label.name: label.spec for label in summary.labels if label.name.startswith("tuned")},
    }
    rows["match model"] = _match_line(summary.training["match"][0])
    out.print(facts(rows))
    title = f"live, {len(summary.prompts)} prompts x {summary.max_new_tokens} tokens, greedy"
    out.print(live_table(summary.live, policies, title))
    for line in divergence_lines(summary.live, policies):
        warn(line)
    for part in summary.ab:
        out.print(ab_table(part))
        for origin in (*part.report.acceptance, *(profile.words for profile in part.report.profiles)):
            out.print(Text(f"  {origin}", style="dim"))
    out.print(verdict(summary))
    out.print(f"took {summary.seconds / 60:.1f} minutes; wrote {summary.folder}/summary.json, profile.json and policy")
    if summary.page:
        out.print(Text(f"the report, to be opened in a browser: {summary.page}"), soft_wrap=True)


def verdict(summary: "DemoSummary") -> str:
    """What the tables say of the first policy, in words."""
    first, rivals = summary.labels[0], summary.labels[1:]
    rival = max(
        (label for label in rivals if label.name != "plain"), key=lambda label: summary.live.speedup(label.spec)
    )
    mine = summary.live.speedup(first.spec)
    over = mine / summary.live.speedup(rival.spec)
    same = "every text equals plain decoding's" if summary.is_identical else "TEXTS DIFFER from plain decoding's"
    parts = [
        f"live, {first.name} is {mine:.2f} x plain decoding and {over:.2f} x the fastest rival ({rival.name}); {same}"
    ]
    for part in summary.ab:
        ratios = [(name, row.ratio) for name, row in part.rows() if row.ratio and not row.is_upper_bound]
        wins = [name for name, ratio in ratios if ratio.high < 1.0]
        losses = [name for name, ratio in ratios if ratio.low > 1.0]
        ties = [name for name, ratio in ratios if name not in (*wins, *losses) and name != first.name]
        said = [
            f"{word} {', '.join(names)}"
            for word, names in (("beats", wins), ("loses to", losses), ("ties", ties))
            if names
        ]
        parts.append(f"by replay under {part.profile}, {first.name} {'; '.join(said)} (95 % intervals)")
    return "\n".join(parts)


def _match_line(row: dict[str, Any]) -> str:
    """Held-out figures of the match model, the prior's in brackets."""
    figures = (("AUC", "auc"), ("log loss", "log_loss"), ("ECE", "ece"))
    parts = [f"{name} {row['model'][key]:.3f} ({row['baseline'][key]:.3f})" for name, key in figures]
    return f"{', '.join(parts)} on held-out prompts, the prior's in brackets"


def ab_table(part: "AbPart") -> Table:
    """Replayed figures under one profile, and how much faster the first contender is than each other."""
    mark = "" if part.report.profiles[0].verified else ", unverified"
    first = part.labels[0].name
    headings = ("tokens\nper round", "nodes\nper round", "drafts\nper round", "speed-up", f"{first} is\nfaster by")
    table = figures_table(f"A/B by replay, {part.profile}{mark}", "policy", headings)
    for name, row in part.rows():
        faster = "-" if row.ratio is None or row.is_upper_bound else inverse(row.ratio)
        table.add_row(
            Text(f"{name} (bound)" if row.is_upper_bound else name),
            f"{row.tokens_per_round:.2f}",
            f"{row.nodes_per_round:.1f}",
            f"{row.growths_per_round:.2f}",
            f"{row.speedup.value:.2f}",
            faster,
        )
    return table


def inverse(ratio: "Interval") -> str:
    """One over an interval, in words: a percentile interval turns around with its ratio."""
    return f"{1 / ratio.value:.3f} [{1 / ratio.high:.3f}, {1 / ratio.low:.3f}]"
