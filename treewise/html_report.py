"""The report page: an A/B as one self-contained HTML file that asks the network for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from treewise.data.errors import require
from treewise.data.whole_file import write_whole
from treewise.html_frame import asset, framed
from treewise.html_sections import counts, speeds, verdicts
from treewise.html_tree import TokenText, dumps, explorer_data, first_tree_table
from treewise.shipped import spread

if TYPE_CHECKING:
    from treewise.data.cost import CostProfile
    from treewise.policy.hook import TreePolicy
    from treewise.training.ab_report import AbReport, AbRow
    from treewise.training.contest import Contender
    from treewise.training.logged_trace import LoggedTrace


@dataclass(frozen=True, slots=True)
class PageSettings:
    """How much the page shows."""

    prompts: int = 6  # in the tree explorer
    rounds: int = 12  # of each, as the first policy has them
    counted_prompts: int = 40  # replayed once more for the counts of nodes, at most

    def __post_init__(self) -> None:
        for name in ("prompts", "rounds", "counted_prompts"):
            require(getattr(self, name) >= 1, name, ">= 1", getattr(self, name))


@dataclass(frozen=True, slots=True)
class Compared:
    """An A/B with what it was made from. Contenders are in the report's order."""

    report: AbReport
    traces: Sequence[LoggedTrace]
    costs: Sequence[CostProfile]  # in the order of the report's profiles
    contenders: Sequence[Contender]
    names: dict[str, str] = field(default_factory=dict)  # policy -> as the page shows it; others by `short_names`

    @classmethod
    def of(
        cls,
        report: AbReport,
        traces: Sequence[LoggedTrace],
        costs: Sequence[CostProfile],
        policies: Sequence[str | TreePolicy | Contender],
        names: dict[str, str] | None = None,
    ) -> Compared:
        """From what `ab` was given."""
        from treewise.training.ab import contenders_of

        return cls(report, traces, costs, contenders_of(policies), names or {})

    @property
    def shown(self) -> dict[str, str]:
        """Policy -> name on the page."""
        return {**short_names([contender.name for contender in self.contenders]), **self.names}

    def rows(self, profile: str, task: str = "") -> list[tuple[str, AbRow]]:
        """(name, row) of the contenders, in order, and of the path oracle last."""
        from treewise.training.ab import ORACLE

        names = {**self.shown, ORACLE: ORACLE}
        return [(names[row.policy], row) for row in self.report.select(profile, task) if row.policy in names]


def short_names(specs: Sequence[str]) -> dict[str, str]:
    """Spec strings without the folders of a bundle's path, as long as they stay different."""
    short = []
    for spec in specs:
        head, colon, rest = spec.partition(":")
        short.append(f"{head}:{Path(rest).name}" if colon and "/" in rest else spec)
    return {spec: name if short.count(name) == 1 else spec for spec, name in zip(specs, short, strict=True)}


def write_page(
    path: str | Path,
    compared: Sequence[Compared],
    settings: PageSettings | None = None,
    text_of: TokenText | None = None,
) -> Path:
    """Write the page of `compared` to `path`, whole or not at all, and return it; folders above are made.

    The first of `compared` under its first cost profile gives the counts of nodes and the trees. `text_of` gives the
    text of a token; without it ids are shown. Raises `MissingExtraError` without matplotlib.
    """
    return write_whole(path, page(compared, settings or PageSettings(), text_of))


def page(compared: Sequence[Compared], settings: PageSettings, text_of: TokenText | None = None) -> str:
    """The page as text."""
    from treewise.training.explain import FATES, explain

    require(len(compared) > 0, "compared", "at least one", len(compared))
    first = compared[0]
    shown = first.shown
    names = [shown[contender.name] for contender in first.contenders]
    trace = spread(first.traces[0], settings.prompts)
    found = explain(trace, first.costs[0], first.contenders, settings.prompts, settings.rounds)
    data = explorer_data(found, names, text_of)
    sections = [verdicts(compared), *speeds(compared), *counts(first, settings.counted_prompts)]
    links = [*((section.name, section.title) for section in sections), ("trees", "Tree explorer")]
    title = f"A/B of {len(first.contenders)} {'policies' if len(first.contenders) > 1 else 'policy'}"
    explorer = Template(asset("explorer.html")).substitute(
        explorer_note=_explorer_note(data), first_tree=first_tree_table(data, FATES)
    )
    return framed(
        f"{title} on {first.traces[0].pair_name}",
        _lead(first),
        links,
        "\n".join([*(section.html() for section in sections), explorer.rstrip()]),
        [line for one in compared for line in _origins(one)],
        skip_to="the verdict",
        scripts=["explorer.js"],
        data=f'<script type="application/json" id="trees-data">{dumps(data)}</script>\n',
    )


def _lead(first: Compared) -> str:
    row = first.report.select(first.report.profiles[0].name)[0]
    return (
        f"{row.prompts:,} prompts, {row.tokens:,} tokens, replayed exactly: every policy commits the same text. "
        "All speeds are modelled."
    )


def _origins(one: Compared) -> list[str]:
    milliseconds = [
        f"{origin.words}: {origin.origin}" if origin.origin else origin.words for origin in one.report.profiles
    ]
    return [*one.report.acceptance, *milliseconds]


def _explorer_note(data: dict[str, Any]) -> str:
    left_out = f" {data['left_out']} more prompts were left out to keep the page small." if data["left_out"] else ""
    keys = (
        ("j", "next node"), ("k", "node before"), ("&rarr;", "next round"), ("&larr;", "round before"),
        ("n", "next prompt"), ("p", "prompt before"), ("o", "other tree"),
    )  # fmt: skip
    listed = ", ".join(f"<kbd>{key}</kbd> {what}" for key, what in keys)
    return (
        f"Rounds of an exact replay under {escape(data['profile'])}, those of the policy on the left; on the right "
        "stands the other policy's round that covers the same place of the text."
        f"{left_out} Keys in a tree: {listed}; the arrows up and down do as <kbd>k</kbd> and <kbd>j</kbd>."
    )
