"""What the page's charts share: a chart with its table, small multiples, legends, names that fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from treewise.html_svg import Drawing, drawing, place_axes, text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = "osD^vPX*"
One: TypeAlias = "Callable[[Axes, int, int], None]"  # (axes, their place, characters that a name may have)


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: headings, and rows of words; the first column names the row."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart of the page."""

    title: str
    note: str
    drawing: Drawing
    table: Grid


def panels(
    name: str, label: str, count: int, one: One, height: float, x: str, words: Sequence[str] = ("00.0 ", "y label")
) -> Drawing:
    """Small multiples: `one` draws on axes number 0 to `count` - 1; columns as the width allows, axes shared.

    `words` are what stands left of the axes; names longer than the `room` that `one` is told must be cut.
    """

    def draw(figure: Figure, is_wide: bool) -> None:
        columns = min(count, 3 if is_wide else 1 if height > 2.0 else 2)
        lines = math.ceil(count / columns)
        grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        for place, axes in enumerate(grid.flat):
            if place < count:
                one(axes, place, room_of(is_wide))
            else:
                axes.set_visible(False)
            if place + columns >= count:
                axes.tick_params(labelbottom=True)
                axes.set_xlabel(x)
            if place % columns:
                axes.set_ylabel("")
        place_axes(figure, 12 + text_width(cut(word, room_of(is_wide)) for word in words), 6, 24, 42, 32)

    wide, narrow = math.ceil(count / 3), math.ceil(count / (1 if height > 2.0 else 2))
    return drawing(name, label, draw, 0.35 + wide * height, 0.35 + narrow * height, 1.0 if count > 1 else 0.5)


def legends(figure: Figure, is_wide: bool, words: Sequence[str]) -> None:
    """A legend for each of the axes: beside it on a wide figure, above it on a narrow one."""
    lines = math.ceil(len(words) / 2)
    for axes in figure.axes:
        if is_wide:
            axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        else:
            axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=9.5, columnspacing=1.0)
    above = 10.0 if is_wide else 20.0 + 17.0 * lines
    beside = 44 + text_width(cut(word, room_of(is_wide)) for word in words) if is_wide else 8
    place_axes(figure, 64, beside, above, 42, 18 if is_wide else above)


def cut(name: str, room: int) -> str:
    """`name` without its middle where it has more than `room` characters: specs differ at their ends."""
    if len(name) <= room:
        return name
    head = (room - 1) // 2
    return f"{name[:head]}…{name[head + 1 - room :]}"


def room_of(is_wide: bool) -> int:
    """Characters of a name that a figure has room for."""
    return 40 if is_wide else 22


def whole_numbers(axes: Axes) -> None:
    """Whole numbers along the x axis."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))


def last_class(counts: NDArray[np.int64]) -> int:
    """Place of the last count above 0; 0 where there is none."""
    return int(np.flatnonzero(counts).max(initial=0))


def filled(counts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """`counts` cut or filled up with zeros to `length`."""
    return np.pad(counts[:length], (0, max(0, length - len(counts))))
