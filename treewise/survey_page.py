"""A survey as sections of a report page, and as a page of its own that asks the network for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from treewise.data.task_kinds import in_words
from treewise.html_report import short_names
from treewise.html_sections import Section, figure_html, titled
from treewise.section_page import write_section_page
from treewise.survey_charts import EVERYTHING, figure_by_task, lengths_by_task, origins
from treewise.survey_words import coverage

if TYPE_CHECKING:
    from treewise.training.statistics import Interval
    from treewise.training.survey import Survey
    from treewise.training.survey_counts import Figure

RANGED = ("accepted", "speedup")  # figures that the first table shows with their intervals
HEATS = ("accepted", "speedup", "on_path", "calls_saved")  # figures with heat maps, the first two unfolded
_DEEPEST = 50.0  # percent of its tint that a heat map's cell may take, so that its figure stays readable


def write_survey_page(path: str | Path, survey: Survey, more: Sequence[Section] = ()) -> Path:
    """Write the page of `survey`, and of the sections `more` behind its own, whole or not at all; returns `path`.

    Raises `MissingExtraError` without matplotlib.
    """
    sections = [*survey_sections(survey), *more]
    tasks = [task for task in survey.tasks if task]
    lead = (
        f"{survey.prompts[0]:,} prompts of {len(tasks)} {'tasks' if len(tasks) != 1 else 'task'}, "
        f"{survey.tokens[0]:,} tokens, {len(survey.policies)} policies replayed exactly. Milliseconds, and so "
        "speed-up and drafting, are modelled."
    )
    title = f"Survey of {survey.acceptance[0].rpartition(' of pair ')[2]}"
    return write_section_page(path, title, lead, sections, _origins(survey))


def survey_sections(survey: Survey) -> list[Section]:
    """Map, distributions, heat maps and all figures."""
    shown, by_name = _shown(survey), _figures()
    names = short_names(survey.policies)
    charts = (
        titled(
            f"{figure.heading[0].upper()}{figure.heading[1:]} by task",
            figure_by_task(f"survey-{figure.name}", survey, figure, shown),
        )
        for figure in (by_name["accepted"], by_name["speedup"])
    )
    rows = "".join(_group(survey, task, survey.highlights(task), names, RANGED) for task in survey.tasks)
    warnings = "".join(f'<p class="warning" role="note">{escape(line)}</p>' for line in survey.warnings)
    map_section = Section(
        "map",
        "By task",
        (f"{_origin_note(survey)}{warnings}", f'<div class="wide">{_table(rows)}</div>', *charts),
    )
    fixed = [(names[spec], spec) for spec in survey.highlights()]
    lengths = Section("lengths", "Accepted lengths", (figure_html(lengths_by_task("survey-lengths", survey, fixed)),))
    every = "".join(
        f"<details><summary>All figures, {escape(in_words(task) or EVERYTHING)}</summary>"
        f'<div class="wide">{_table(_group(survey, task, survey.policies, names, tuple(by_name)))}</div></details>'
        for task in survey.tasks
    )
    meanings = "".join(
        f"<dt>{escape(figure.heading)}</dt><dd>{escape(figure.meaning)}</dd>" for figure in by_name.values()
    )
    notes = "".join(f'<p class="note">{escape(_sentence(line))}</p>' for line in coverage(survey))
    figures = Section("figures", "All figures", (f'{notes}<dl class="meanings">{meanings}</dl>', every))
    return [map_section, lengths, _heat_section(survey), figures]


def _figures() -> dict[str, Figure]:
    """The figures of a survey by name, in order."""
    from treewise.training.survey_counts import FIGURES

    return {figure.name: figure for figure in FIGURES}


def _shown(survey: Survey) -> list[tuple[str, dict[str, str]]]:
    """(title, task -> policy) of what the charts by task show."""
    fixed = {*survey.grid.chains, *survey.grid.trees}
    shown = []
    for title, specs in (("fastest chain", survey.grid.chains), ("fastest static tree", survey.grid.trees)):
        best = {task: survey.fastest(specs, task) for task in survey.tasks}
        if all(best.values()):
            shown.append((title, best))
    others = [policy for policy in survey.policies if policy not in fixed]
    names = short_names(others)
    return [*shown, *((names[policy], dict.fromkeys(survey.tasks, policy)) for policy in others)]


def _heat_section(survey: Survey) -> Section:
    parts = [
        '<p class="note">Rows: children below one node, chains first. Columns: depth. The highest figure of a task is '
        "framed; all tasks share one scale of tints. Intervals stand under All figures.</p>"
    ]
    for place, name in enumerate(HEATS):
        figure = _figures()[name]
        maps = "".join(heat_map(survey, figure, task) for task in survey.tasks)
        title = f"{figure.heading[0].upper()}{figure.heading[1:]} by width and depth"
        said = f"{_sentence(figure.meaning)} {origins(survey) if figure.is_modelled else ''}".strip()
        block = f'<p class="note">{escape(said)}</p><div class="heats">{maps}</div>'
        if place < 2:
            parts.append(f"<h3>{escape(title)}</h3>{block}")
        else:
            parts.append(f"<details><summary>{escape(title)}</summary>{block}</details>")
    return Section("trees", "Chains and static trees", tuple(parts))


def heat_map(survey: Survey, figure: Figure, task: str) -> str:
    """One task's table over width and depth; what the trace does not cover is said to be so."""
    from treewise.training.survey_grid import CHAIN_WIDTH

    every = [value for each in survey.tasks for value in survey.heat(figure.name, each).ravel().tolist()]
    known = [value for value in every if value == value]
    values = survey.heat(figure.name, task).tolist()
    best = max((value for row in values for value in row if value == value), default=None)
    head = "".join(f'<th scope="col">{depth}</th>' for depth in survey.grid.depths)
    lines = []
    for width, row in zip(survey.grid.rows, values, strict=True):
        cells = "".join(_cell(value, figure, value == best, known) for value in row)
        name = "chain" if width == CHAIN_WIDTH else str(width)
        lines.append(f'<tr><th scope="row">{name}</th>{cells}</tr>')
    return (
        f"<table><caption>{escape(in_words(task) or EVERYTHING)}</caption>"
        f'<thead><tr><th scope="col">width</th>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table>"
    )


def _cell(value: float, figure: Figure, is_best: bool, known: Sequence[float]) -> str:
    if value != value:
        return '<td class="none" title="not covered by the trace" aria-label="not covered">&ndash;</td>'
    least = 1.0 if figure.name == "speedup" else 0.0
    span = max(max(known) - least, least - min(known), 1e-9)
    share = _DEEPEST * min(abs(value - least) / span, 1.0)
    tint = "--bad" if value < least else "--good" if figure.name == "speedup" else "--s0"
    best = ' class="best"' if is_best else ""
    return f'<td{best} style="--share: {share:.0f}; --tint: var({tint})">{_word(value, figure)}</td>'


def _table(rows: str) -> str:
    head = "".join(f'<th scope="col">{escape(figure.heading)}</th>' for figure in _figures().values())
    return f'<table><thead><tr><th scope="col">policy</th>{head}</tr></thead><tbody>{rows}</tbody></table>'


def _group(survey: Survey, task: str, policies: Sequence[str], names: dict[str, str], ranged: Sequence[str]) -> str:
    """The rows of one task under a heading of their own; figures named in `ranged` with their intervals."""
    place, figures = survey.tasks.index(task), _figures().values()
    title = f"{in_words(task) or EVERYTHING}: {survey.prompts[place]:,} prompts, {survey.tokens[place]:,} tokens"
    lines = [
        f'<tr class="group"><th scope="rowgroup" colspan="{1 + len(figures)}"><span>{escape(title)}</span></th></tr>'
    ]
    for policy in policies:
        cells = "".join(
            f"<td>{_ranged(survey.figure(figure.name, policy, task), figure, figure.name in ranged)}</td>"
            for figure in figures
        )
        lines.append(f'<tr><th scope="row">{escape(names[policy])}</th>{cells}</tr>')
    return "".join(lines)


def _ranged(interval: Interval, figure: Figure, is_ranged: bool) -> str:
    value = _word(interval.value, figure)
    if not is_ranged or interval.low != interval.low:
        return value
    scale, digits = (100.0, 0) if figure.is_share else (1.0, 2)
    return f"{value} [{scale * interval.low:.{digits}f}, {scale * interval.high:.{digits}f}]"


def _word(value: float, figure: Figure) -> str:
    if value != value:
        return "&ndash;"
    return f"{100.0 * value:.0f} %" if figure.is_share else f"{value:.2f}"


def _origin_note(survey: Survey) -> str:
    note = f"Counted by exact replay; speed-up and drafting are modelled. {origins(survey)}"
    return f'<p class="note">{escape(note)} Brackets: 95 % intervals by prompt.</p>'


def _origins(survey: Survey) -> list[str]:
    origin = survey.milliseconds
    words = f"{origin.words}: {origin.origin}" if origin.origin else origin.words
    return [*survey.acceptance, words]


def _sentence(line: str) -> str:
    return f"{line[0].upper()}{line[1:]}."
