"""Figures of matplotlib as inline SVG whose colours are the page's variables, so that they follow its theme."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from treewise.data.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# matplotlib wants real colours; each of these stands for a variable of the page's style sheet.
INK, MUTED, GRID = "#010203", "#010204", "#010205"
SERIES = tuple(f"#0203{number:02x}" for number in range(16, 24))
_VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    **{colour: f"--s{number}" for number, colour in enumerate(SERIES)},
}
WIDE_IN, NARROW_IN = 14.6, 4.75  # inches of 72 pixels: a column at 1280 pixels and one at 390

Draw = Callable[["Figure", bool], None]  # (empty figure, whether it is the wide one)


@dataclass(frozen=True, slots=True)
class Drawing:
    """One chart in two widths, and what it says in words."""

    wide: str  # inline SVG
    narrow: str
    label: str


def colour(place: int) -> str:
    """The colour of series number `place`; they start again after the last."""
    return SERIES[place % len(SERIES)]


def check_matplotlib() -> None:
    """Raise `MissingExtraError` where there is no matplotlib."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("matplotlib", "report") from error


def drawing(name: str, label: str, draw: Draw, wide_in: float, narrow_in: float, share: float = 1.0) -> Drawing:
    """`draw` on a figure `wide_in` inches high, `share` of the page wide, and on one `narrow_in` inches high.

    `name` must be of its own on the page: it marks the ids. Raises `MissingExtraError` without matplotlib.
    """
    check_matplotlib()
    from matplotlib.figure import Figure

    found = []
    for is_wide, width, height in ((True, WIDE_IN * share, wide_in), (False, NARROW_IN, narrow_in)):
        with _style():
            figure = Figure(figsize=(width, height), facecolor="none")
            draw(figure, is_wide)
            text = io.StringIO()
            figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
        found.append(inline(text.getvalue(), f"{name}-{'w' if is_wide else 'n'}", label))
    return Drawing(found[0], found[1], label)


def place_axes(figure: Figure, left: float, right: float, top: float, bottom: float, gap: float = 0.0) -> None:
    """Leave so many pixels around the axes, and `gap` between rows of them.

    matplotlib's own layouts draw everything twice to measure it, which takes most of a page's time.
    """
    width, height = figure.get_size_inches() * 72.0
    rows = max(axes.get_subplotspec().get_gridspec().nrows for axes in figure.axes)  # type: ignore[union-attr]
    each = max(20.0, (height - top - bottom - (rows - 1) * gap) / rows)
    figure.subplots_adjust(
        left=left / width,
        right=1.0 - right / width,
        top=1.0 - top / height,
        bottom=bottom / height,
        hspace=gap / each,
        wspace=0.08,
    )


def text_width(words: Iterable[str], size: float = 11.0) -> float:
    """About how many pixels the longest of `words` takes."""
    return 0.62 * size * max((len(word) for word in words), default=0)


def inline(svg: str, name: str, label: str) -> str:
    """An SVG file's text as an element of a page: named, without fixed size, own fonts or fixed colours."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", body, flags=re.DOTALL)
    box = re.search(r'viewBox="([^"]+)"', body)
    assert box is not None
    body = re.sub(r"<svg[^>]*>", "", body, count=1)
    body = re.sub(r"\n\s*", "\n", body)
    body = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', body)
    body = re.sub(r'xlink:href="#([^"]+)"', rf'href="#{name}-\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", body)
    body = re.sub(r"(\d+\.\d\d)\d+", r"\1", body)
    body = re.sub(r"font: (?:[a-z0-9]+ )*?([\d.]+)px [^;\"]*", r"font-size: \1px", body)
    for fixed, variable in _VARIABLES.items():
        body = body.replace(fixed, f"var({variable})")
    width = round(float(box.group(1).split()[2]))
    open_tag = f'<svg role="img" aria-label="{escape(label)}" viewBox="{box.group(1)}" style="max-width: {width}px">'
    return open_tag + body


@contextmanager
def _style() -> Iterator[None]:
    from matplotlib import rc_context

    with rc_context(
        {
            "axes.prop_cycle": f"cycler(color={list(SERIES)})",  # else hidden parts keep fixed colours
            "svg.fonttype": "none",
            "svg.hashsalt": "treewise",  # ids that are the same on every run
            "font.family": "DejaVu Sans",  # comes with matplotlib; only used to measure
            "font.size": 11.0,
            "text.parse_math": False,  # a dollar sign in a name is a dollar sign
            "text.color": INK,
            "axes.edgecolor": MUTED,
            "axes.facecolor": "none",
            "axes.labelcolor": INK,
            "axes.titlesize": 11.5,
            "axes.titlelocation": "left",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.color": GRID,
            "grid.linewidth": 0.8,
            "xtick.color": MUTED,
            "ytick.color": MUTED,
            "xtick.labelcolor": INK,
            "ytick.labelcolor": INK,
            "legend.frameon": False,
        }
    ):
        yield
