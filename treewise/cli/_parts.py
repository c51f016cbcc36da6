"""Tables that are wider than the screen, cut between their columns, so that no figure is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace

from rich.cells import cell_len
from rich.table import Column, Table

_NAMES = 13  # columns that names are left with, as `figures_table` leaves them


def in_parts(table: Table, columns: int) -> Iterator[Table]:
    """`table`, or where its figures do not fit in `columns`, several that each begin with its first column.

    Cells are text. They fold between words, those of the first column anywhere; the title stands over the first part.
    """
    _, right, _, left = table.padding
    gap, edge = right + left + (table.box is not None), int(table.box is not None)
    names, *figures = table.columns
    first = min(_least(names), _NAMES) if names.width is None else names.width
    room = columns - edge - gap - first
    for place, part in enumerate(_groups([_least(column) + gap for column in figures], room)):
        held = figures[part]
        spare = room - sum(_least(column) + gap for column in held)
        widths = []
        for column in (*held, names):  # names get what figures leave
            least = first if column is names else _least(column)
            more = max(0, min(_most(column) - least, spare))
            spare -= more
            widths.append(least + more)
        shown = copy(table)
        shown.title = table.title if place == 0 else None
        shown.columns = [
            replace(column, width=width, no_wrap=False, overflow="fold", _index=index)
            for index, (column, width) in enumerate(zip((names, *held), (widths[-1], *widths[:-1]), strict=True))
        ]
        yield shown


def _groups(widths: Sequence[int], room: int) -> Iterator[slice]:
    """Neighbours that fit in `room` together, as many as do; one alone where it does not."""
    start, taken = 0, 0
    for place, width in enumerate(widths):
        if place > start and taken + width > room:
            yield slice(start, place)
            start, taken = place, 0
        taken += width
    yield slice(start, len(widths))


def _texts(column: Column) -> list[str]:
    return [str(cell) for cell in (column.header, *column.cells)]


def _least(column: Column) -> int:
    """Columns of the screen in which no word is cut."""
    if column.width is not None:
        return column.width
    words = [word for text in _texts(column) for word in text.split()]
    return max([column.min_width or 1, *map(cell_len, words)])


def _most(column: Column) -> int:
    """Columns of the screen in which nothing folds."""
    if column.width is not None:
        return column.width
    lines = [line for text in _texts(column) for line in text.splitlines()]
    return max([column.min_width or 1, *map(cell_len, lines)])
