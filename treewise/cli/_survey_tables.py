"""The tables of `treewise survey`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from treewise.cli._parts import in_parts
from treewise.cli._show import WIDTH
from treewise.data.task_kinds import in_words
from treewise.survey_words import coverage

if TYPE_CHECKING:
    from treewise.training.statistics import Interval
    from treewise.training.survey import Survey
    from treewise.training.survey_counts import Figure

EVERYTHING = "all tasks"
NOT_COVERED = "-"
_RANGED = 17  # columns that a figure takes with its interval
_WIDTHS = {
    "accepted": _RANGED,
    "with_bonus": 5,
    "nodes": 5,
    "on_path": 5,
    "decided": 7,
    "calls_saved": 5,
    "drafting": 8,
    "speedup": _RANGED,
}


def survey_tables(survey: Survey, heat: str, columns: int = WIDTH) -> Iterator[RenderableType]:
    """Everything that a terminal of `columns` shows; `heat` is the figure of the heat maps."""
    yield from by_task(survey, columns)
    yield Text("\n% of verifications by accepted length", style="italic")
    highlights = survey.highlights()
    longest = max(survey.most_accepted(policy) for policy in highlights)
    yield from _side_by_side([lengths(survey, policy) for policy in highlights], 19 + 4 * longest, columns)
    yield Text(f"\n{_figure(heat).heading} by width and depth", style="italic")
    maps = [heat_map(survey, heat, task) for task in survey.tasks]
    yield from _side_by_side(maps, 10 + 5 * len(survey.grid.depths), columns)


def _bare(title: str, is_cut: bool = True) -> Table:
    """A table without rules; a title wider than it is cut, or folds."""
    words = Text(title, no_wrap=is_cut, overflow="ellipsis" if is_cut else "fold")
    return Table(title=words, title_justify="left", box=None, padding=(0, 1, 0, 0), header_style="bold")


def _side_by_side(tables: Sequence[Table], width: int, columns: int) -> Iterator[Table]:
    """As many of `tables` in a line of `columns` as fit where each takes `width`; in parts where not even one does."""
    in_line = columns // width
    if in_line == 0:
        for table in tables:
            yield from in_parts(table, columns)
        return
    for place in range(0, len(tables), in_line):
        side = Table.grid(padding=(0, 3, 0, 0))
        side.add_row(*tables[place : place + in_line])
        yield side


def by_task(survey: Survey, columns: int = WIDTH) -> Iterator[RenderableType]:
    """Every task, and in it the fastest chain, the fastest tree and the policies that are not of the grid."""
    from treewise.training.survey_counts import FIGURES

    figures = {figure.name: figure for figure in FIGURES}
    shown = {short(policy) for task in survey.tasks for policy in survey.highlights(task)}
    longest = min(max(map(len, shown)), WIDTH - 1 - sum(width + 1 for width in _WIDTHS.values()))
    for place, task in enumerate(survey.tasks):
        yield Text()
        table = _bare(
            f"{in_words(task) or EVERYTHING}: {survey.prompts[place]:,} prompts, {survey.tokens[place]:,} tokens",
            is_cut=False,
        )
        table.add_column("policy", width=longest, overflow="fold")
        for name, width in _WIDTHS.items():
            heading = figures[name].heading + (" [95 %]" if width == _RANGED else "")
            table.add_column(heading, width=width, justify="right")
        for policy in survey.highlights(task):
            found = {name: survey.figure(name, policy, task) for name in _WIDTHS}
            table.add_row(
                Text(short(policy)),
                *(
                    _ranged(found[name]) if width == _RANGED else _plain(found[name].value, figures[name].is_share)
                    for name, width in _WIDTHS.items()
                ),
            )
        parts = list(in_parts(table, columns))
        for part in parts:
            part.show_header = place == 0 or len(parts) > 1  # else the columns stand below the first task's
        yield from parts


def lengths(survey: Survey, policy: str) -> Table:
    """Percent of verifications by accepted length of one policy, task by task."""
    most = survey.most_accepted(policy)
    table = _bare(short(policy))
    table.add_column("task", no_wrap=True)
    for length in range(most + 1):
        table.add_column(str(length), justify="right", no_wrap=True, min_width=3)
    for task in survey.tasks:
        shares = survey.length_shares(policy, task)[: most + 1, 0]
        table.add_row(Text(task or EVERYTHING), *(f"{100.0 * share:.0f}" for share in shares))
    return table


def heat_map(survey: Survey, name: str, task: str) -> Table:
    """One figure over width and depth; the highest is bold."""
    figure, grid, values = _figure(name), survey.grid, survey.heat(name, task)
    widest = max(len(_plain(value, figure.is_share)) for value in values.ravel().tolist())
    table = _bare(task or EVERYTHING)
    table.add_column("width", justify="left", no_wrap=True)
    for depth in grid.depths:
        table.add_column(str(depth), justify="right", no_wrap=True, min_width=max(4, widest))
    best = max((value for value in values.ravel().tolist() if value == value), default=None)
    for width, row in zip(grid.rows, values.tolist(), strict=True):
        cells = (Text(_plain(value, figure.is_share), style="bold" if value == best else "") for value in row)
        table.add_row("chain" if width == 1 else str(width), *cells)
    return table


def survey_notes(survey: Survey) -> list[str]:
    """What is to be known about the figures, one line each."""
    from treewise.training.survey_counts import FIGURES

    lines = [f"{figure.heading}: {figure.meaning}" for figure in FIGURES if figure.name in _WIDTHS]
    return [*lines, *coverage(survey)]


def _figure(name: str) -> Figure:
    from treewise.training.survey_counts import FIGURES

    return next(figure for figure in FIGURES if figure.name == name)


def short(spec: str) -> str:
    """A spec string without the folders of a bundle's path."""
    from treewise.html_report import short_names

    return short_names([spec])[spec]


def _plain(value: float, is_share: bool) -> str:
    if value != value:
        return NOT_COVERED
    return f"{100.0 * value:.0f} %" if is_share else f"{value:.2f}"


def _ranged(interval: Interval) -> str:
    if interval.low != interval.low:
        return f"{interval.value:.2f}"
    return f"{interval.value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"
