"""The `treewise` command line: one module per command, named in `COMMANDS`, imported when the command line is built.

Each `treewise/cli/<command>.py` defines `register(app: typer.Typer) -> None`, and imports torch, the trainers and
everything else that is slow inside its command's body, so that `treewise --help` stays quick.
"""

import importlib
import os
import warnings
from collections.abc import Sequence
from typing import Annotated, TextIO

import typer
from rich.console import Console
from rich.text import Text

from treewise import __version__
from treewise.data.errors import TreewiseError, TreewiseWarning

COMMANDS: tuple[str, ...] = (
    "demo",
    "models",
    "policies",
    "profile",
    "decode",
    "generate",
    "collect",
    "traces",
    "train",
    "ab",
    "fit_tree",
    "tune",
    "diagnose",
    "tasks",
    "survey",
    "quality",
    "replay",
    "check_replay",
    "export",
    "distill",
    "agreement",
    "self_prompts",
    "corpus",
    "bench",
    "bench_policy",
    "compare",
    "device_check",
    "rankings",
    "tables",
)

EXIT_ERROR = 2
TRACEBACK_VARIABLE = "TREEWISE_TRACEBACK"


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"treewise {__version__}")
        raise typer.Exit


def _front_door(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Tree speculative decoding whose width, depth and node budget are decided by a learned policy."""


def build_app() -> typer.Typer:
    """The Typer application with every command of `COMMANDS` registered, in that order."""
    app = typer.Typer(
        name="treewise",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_front_door)
    for command in COMMANDS:
        importlib.import_module(f"treewise.cli.{command}").register(app)
    return app


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename2 or error.filename}: {error.strerror}"  # the second is where it was to go
    return str(error)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning of treewise as one yellow line, another one as Python shows it."""
    if issubclass(category, TreewiseWarning):
        Console(stderr=True).print(Text(f"warning: {message}", style="yellow"), soft_wrap=True)
    else:
        _PYTHON_SHOWS(message, category, filename, lineno, file, line)


_PYTHON_SHOWS = warnings.showwarning


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; `arguments` default to the process's own.

    A `TreewiseError`, and an `OSError` such as a full disk or a folder that is a file, becomes one red line on stderr
    and exit status 2; with `TREEWISE_TRACEBACK=1` it is raised. Other exceptions are faults of treewise and keep their
    traceback. Typer itself leaves by `SystemExit`.
    """
    if arguments is None:  # a process of its own
        warnings.showwarning = _show_warning
    try:
        build_app()(args=None if arguments is None else list(arguments), prog_name="treewise")
    except (TreewiseError, OSError) as error:
        if os.environ.get(TRACEBACK_VARIABLE) == "1":
            raise
        line = " ".join(f"error: {_words(error)}".splitlines())
        Console(stderr=True).print(Text(line, style="red"), soft_wrap=True)
        return EXIT_ERROR
    return 0
