"""How commands print: tables within a hundred columns on stdout, progress and warnings on stderr."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from treewise.stages import Advance

WIDTH = 100
TELL_SECONDS = 20.0


def console(stderr: bool = False) -> Console:
    """A console of at most `WIDTH` columns, and of just as many where nobody's terminal says otherwise."""
    found = Console(stderr=stderr, highlight=False)
    found.width = min(found.width, WIDTH) if found.is_terminal else WIDTH
    return found


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on stdout."""
    typer.echo(json.dumps(value, indent=1))


def warn(line: str) -> None:
    """One yellow line on stderr."""
    console(stderr=True).print(Text(f"warning: {line}", style="yellow"), soft_wrap=True)


def note(line: str) -> None:
    """One dim line on stderr: what a command does that nobody asked for by name."""
    console(stderr=True).print(Text(line, style="dim"), soft_wrap=True)


def facts(rows: Mapping[str, str]) -> Table:
    """Names and values, one a line."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, Text(value))
    return table


def figures_table(title: str, first: str, headings: tuple[str, ...]) -> Table:
    """A table whose first column is words and whose others are numbers."""
    table = Table(title=title, title_justify="left")
    table.add_column(first, overflow="fold", min_width=13)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)  # figures stay whole; names fold
    return table


def percent(share: float) -> str:
    """A share of 1, such as 0.031, as `3.1 %`."""
    return f"{100 * share:.1f} %"


def yes(value: bool) -> Text:
    """A yes or no that catches the eye when it is no."""
    return Text("yes", style="green") if value else Text("no", style="bold red")


@contextmanager
def progress(title: str, total: int | None = None) -> Iterator[Advance]:
    """A progress bar on stderr: a stage that someone watches.

    Where stderr is no terminal, one line at its start and one every `TELL_SECONDS`.
    """
    screen = console(stderr=True)
    if not screen.is_terminal:
        note(title)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[word]}", style="dim"),
    )
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task(title, total=total, word="")
        done, told = 0, time.monotonic()

        def advance(word: str = "", steps: int = 1) -> None:
            nonlocal done, told
            bar.update(task, advance=steps, word=word[:36])
            done += steps
            if not screen.is_terminal and time.monotonic() - told > TELL_SECONDS:
                told = time.monotonic()
                note(f"  {done} of {total}" if total is not None else f"  {word}")

        yield advance
