"""The sections of the report page above its tree explorer, as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from treewise.html_charts import accepted_lengths, frontier, node_uses, speedups
from treewise.html_model_charts import calibration, costs, importances
from treewise.html_panels import Chart, Grid
from treewise.html_verdict import headline
from treewise.shipped import spread

if TYPE_CHECKING:
    from treewise.html_report import Compared
    from treewise.training.node_use import NodeUse


@dataclass(frozen=True, slots=True)
class Section:
    """One section of the page."""

    name: str  # of the anchor
    title: str
    parts: tuple[str, ...]  # HTML

    def html(self) -> str:
        """The section with its heading."""
        return (
            f'<section id="{self.name}" aria-labelledby="{self.name}-title">'
            f'<h2 id="{self.name}-title">{escape(self.title)}</h2>{"".join(self.parts)}</section>'
        )


def verdicts(compared: Sequence[Compared]) -> Section:
    """What each A/B says under each of its cost profiles, and its warnings."""
    parts = []
    for one in compared:
        for origin in one.report.profiles:
            said = headline(one.rows(origin.name))
            lines = "".join(f"<li>{escape(line)}</li>" for line in said.others)
            mark = "" if origin.verified else ", figures that nobody here measured"
            parts.append(
                f'<div class="verdict {said.standing}">'
                f'<p class="profile">under cost profile {escape(origin.name)}{mark}</p>'
                f'<p class="words">{escape(said.words)}.</p><ul>{lines}</ul>'
                f'<p class="origin">{escape("; ".join(one.report.acceptance))}; {escape(origin.words)}.</p></div>'
            )
        parts += [f'<p class="warning" role="note">{escape(line)}</p>' for line in one.report.warnings]
    return Section("verdict", "Verdict", tuple(parts))


def speeds(compared: Sequence[Compared]) -> list[Section]:
    """Speed-ups and frontiers under every profile."""
    bars, points = [], []
    for place, one in enumerate(compared):
        for at, origin in enumerate(one.report.profiles):
            tasks = ["", *(one.report.tasks if len(one.report.tasks) > 1 else [])]
            rows = [(task, one.rows(origin.name, task)) for task in tasks]
            bars.append(titled(f"under {origin.name}", speedups(f"speed{place}-{at}", rows)))
            points.append(titled(f"under {origin.name}", frontier(f"frontier{place}-{at}", one.rows(origin.name))))
    return [
        Section("speed", "Speed-up by task", tuple(bars)),
        Section("frontier", "Accepted length against verified nodes", tuple(points)),
    ]


def counts(first: Compared, most_prompts: int) -> list[Section]:
    """What a replay of at most `most_prompts` prompts of each trace shows, and what the bundles report."""
    from treewise.training.node_use import SOURCE_NAMES, node_use

    cost = first.costs[0]
    traces = [spread(trace, most_prompts) for trace in first.traces]
    uses: list[NodeUse] = []
    for contender in first.contenders:
        uses.append(node_use(traces, cost, contender, first.shown[contender.name]))
    requests = sum(len(trace.requests) for trace in traces)
    note = f'<p class="note">Counted over {requests:,} requests under {escape(cost.name)}.</p>'
    drawing = [use for use in uses if use.by_depth.kept.sum()]
    sections = [Section("lengths", "Accepted lengths", (note, figure_html(accepted_lengths("lengths", uses))))]
    if drawing:
        charts = (
            node_uses(f"use-{kind}", drawing, kind, SOURCE_NAMES if kind == "source" else ())
            for kind in ("depth", "rank", "source")
        )
        sections.append(Section("use", "Node use", (note, *(titled(chart.title, chart) for chart in charts))))
    curves = [(use.policy, use.prior, use.model) for use in uses if use.model is not None and use.prior.count.size]
    reports = _bundle_reports(first)
    parts = [note, figure_html(calibration("calibration", curves))] if curves else []
    parts += [_bundle_table(name, report) for name, report in reports if report.get("match")]
    if parts:
        sections.append(Section("calibration", "Calibration before and after", tuple(parts)))
    sections.append(Section("cost", "Cost and budgets", (note, figure_html(costs("cost", cost, uses)))))
    gains = [
        importances(
            f"gain{place}", name, [(str(each["feature"]), float(each["gain"])) for each in report["importances"]]
        )
        for place, (name, report) in enumerate(reports)
        if report.get("importances")
    ]
    if gains:
        sections.append(Section("features", "Feature importances", tuple(figure_html(chart) for chart in gains)))
    return sections


def _bundle_reports(first: Compared) -> list[tuple[str, dict[str, Any]]]:
    """(policy's name, training report) of every contender with a bundle."""
    found = []
    for contender in first.contenders:
        bundle = getattr(contender.make(), "bundle", None)
        if bundle is not None:
            found.append((first.shown[contender.name], bundle.report))
    return found


def _bundle_table(name: str, report: dict[str, Any]) -> str:
    """The bundle's own held-out figures, the prior's beside the model's."""
    rows = []
    for row in report["match"]:
        figures = [(row[side].get(key)) for key in ("ece", "log_loss", "auc") for side in ("baseline", "model")]
        cells = ("-" if value is None else f"{value:.4f}" for value in figures)
        rows.append((str(row["name"]), f"{row['rows']:,}", *cells))
    headings = [f"{what} {when}" for what in ("ECE", "log loss", "AUC") for when in ("before", "after")]
    grid = Grid(("candidates", "rows", *headings), tuple(rows))
    return (
        f"<h3>Held-out figures of {escape(name)}</h3>"
        '<p class="note">From its bundle: on prompts that each part of the model was not fitted on. Before: the '
        "sources' prior. After: the calibrated match model. ECE: expected calibration error.</p>"
        f'<div class="wide">{table_html(grid)}</div>'
    )


def titled(title: str, chart: Chart) -> str:
    """A chart under a heading of its own."""
    return f"<h3>{escape(title)}</h3>{figure_html(chart)}"


def figure_html(chart: Chart) -> str:
    """A chart in both widths, its note above and its table below, folded."""
    return (
        f'<p class="note">{escape(chart.note)}</p><figure><div class="w">{chart.drawing.wide}</div>'
        f'<div class="n">{chart.drawing.narrow}</div></figure>'
        f'<details><summary>{escape(chart.title)} as a table</summary><div class="wide">{table_html(chart.table)}</div>'
        "</details>"
    )


def table_html(grid: Grid) -> str:
    """A table whose first column heads its rows."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in grid.headings)
    lines = []
    for first, *rest in grid.rows:
        lines.append(f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{escape(c)}</td>" for c in rest)}</tr>')
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
