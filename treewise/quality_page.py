"""A report of `treewise quality` as a section of a report page, and as a page of its own."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from treewise.data.errors import require
from treewise.data.task_kinds import in_words
from treewise.html_sections import Section
from treewise.quality_report import ALL, QualityReport
from treewise.quality_words import notes, verdicts
from treewise.section_page import write_section_page

if TYPE_CHECKING:
    from treewise.training.quality import QualityFigure
    from treewise.training.statistics import Interval


def check_page(path: Path) -> None:
    """Raise `ParameterError` where a folder stands in the page's place."""
    require(not path.is_dir(), "html", "a file", str(path))


def write_quality_page(path: str | Path, report: QualityReport, more: Sequence[Section] = ()) -> Path:
    """Write the page of `report`, and of the sections `more` behind its own, whole or not at all; returns `path`."""
    sections = [quality_section(report), *more]
    title = f"Quality under verification rules, {report.pair}"
    lead = f"{len(report.prompts)} prompts decoded live with policy {report.policy}, plainly and under every rule."
    return write_section_page(path, title, lead, sections, (f"prices from cost profile {report.cost}",))


def quality_section(report: QualityReport) -> Section:
    """Verdicts, and a table of all figures by task."""
    from treewise.training.quality import FIGURES

    said = "".join(f"<li>{escape(line)}</li>" for line in verdicts(report))
    known = "".join(f'<p class="note">{escape(line[0].upper() + line[1:])}.</p>' for line in notes(report))
    head = "".join(f'<th scope="col">{escape(figure.heading)}</th>' for figure in FIGURES)
    rows = "".join(_group(report, task) for task in report.tasks)
    meanings = "".join(f"<dt>{escape(figure.heading)}</dt><dd>{escape(figure.meaning)}</dd>" for figure in FIGURES)
    return Section(
        "quality",
        "Output quality by verification rule",
        (
            f"<ul>{said}</ul>{known}",
            f'<div class="wide"><table><thead><tr><th scope="col">verification</th>{head}</tr></thead>'
            f"<tbody>{rows}</tbody></table></div>",
            f'<p class="note">Brackets: 95 % intervals by prompt.</p><dl class="meanings">{meanings}</dl>',
        ),
    )


def _group(report: QualityReport, task: str) -> str:
    from treewise.training.quality import FIGURES, figure_of

    title = f"{in_words(task) if task != ALL else 'all tasks'}: {len(report.places(task)):,} prompts"
    heading = f'<th scope="rowgroup" colspan="{1 + len(FIGURES)}"><span>{escape(title)}</span></th>'
    lines = [f'<tr class="group">{heading}</tr>']
    for answers, values in zip(report.answers, report.figures(task), strict=True):
        cells = "".join(f"<td>{_cell(figure_of(values, figure.name), figure)}</td>" for figure in FIGURES)
        lines.append(f'<tr><th scope="row">{escape(answers.name)}</th>{cells}</tr>')
    return "".join(lines)


def _cell(found: Interval, figure: QualityFigure) -> str:
    if found.value != found.value:
        return "&ndash;"
    scale, digits, unit = (100.0, 0, " %") if figure.is_share else (1.0, 2, "")
    value = f"{scale * found.value:.{digits}f}{unit}"
    if found.low != found.low:
        return value
    return f"{value} [{scale * found.low:.{digits}f}, {scale * found.high:.{digits}f}]"
