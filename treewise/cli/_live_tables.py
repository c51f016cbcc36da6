"""Tables of live decoding."""

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from treewise.cli._show import figures_table, percent, yes
from treewise.live import LiveFigures, LiveRun

HEADINGS = ("tokens/s", "tokens\nper round", "nodes\nper round", "policy's\ntime", "speed-up", "same\ntext")


def live_table(run: LiveRun, policies: Iterable[tuple[str, str]], title: str) -> Table:
    """One row per (name, spec); the speed-up is over plain decoding, a ratio of totals."""
    table = figures_table(title, "policy", HEADINGS)
    for name, spec in policies:
        found = run.figures(spec)
        table.add_row(Text(name), *figures_cells(found), f"{run.speedup(spec):.2f}", yes(run.differing(spec) == 0))
    return table


def figures_cells(found: LiveFigures) -> tuple[str, ...]:
    """Speed, tokens and nodes per round, and the policy's share, as cells."""
    return (
        f"{found.tokens_per_second:.1f}",
        f"{found.tokens_per_round:.2f}",
        f"{found.nodes_per_round:.1f}",
        percent(found.policy_share),
    )


def divergence_lines(run: LiveRun, policies: Iterable[tuple[str, str]]) -> list[str]:
    """One line per differing text: policy, prompt, place, tokens and margin."""
    return [
        f"{name} differs on {prompt}: {found}"
        for name, spec in policies
        for prompt, found in zip(run.prompts, run.divergences[spec], strict=True)
        if found is not None
    ]
