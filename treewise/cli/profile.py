"""`treewise profile`: what a pair costs on this machine."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from treewise.cli._options import DEFAULT_DRAFT, DEFAULT_TARGET, AsJson, Draft, Target, Threads, open_pair
from treewise.cli._show import console, facts, figures_table, percent, print_json, progress, warn
from treewise.data.errors import CostProfileError, SchemaVersionError

if TYPE_CHECKING:
    from treewise.data.cost import CostGrid, CostProfile
    from treewise.engine.pair import Pair

SCHEMA_VERSION = 1


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("profile")(profile)


def profile(
    target: Target = DEFAULT_TARGET,
    draft: Draft = DEFAULT_DRAFT,
    threads: Threads = 0,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="File to write.", show_default="the user's cache")
    ] = None,
    repeats: Annotated[int, typer.Option("--repeats", min=0, help="Timed passes a cell; 0: the default.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Few cells and repeats: seconds, coarse figures.")] = False,
    name: Annotated[str, typer.Option("--name", help="Name of the profile.", show_default="the pair's")] = "",
    as_json: AsJson = False,
) -> None:
    """Measure the cost profile of a pair on this machine.

    Without -o it goes where other commands look for it. A profile that is there already and was measured on another
    device or pair is told before it is replaced.
    """
    from treewise.data.prompt_set import own_prompts
    from treewise.engine.pair import encode_prompt
    from treewise.engine.profile import ProfileSettings, measure_profile
    from treewise.profiles import profile_steps, quick_settings, store, stored_path

    settings = quick_settings() if quick else ProfileSettings()
    if repeats:
        settings = replace(settings, repeats=repeats)
    pair = open_pair(target, draft, threads)
    path = out or stored_path(pair)
    if path.is_file():
        _tell_replaced(path, pair)
    with progress("profiling", profile_steps(settings)) as advance:
        prompts = [encode_prompt(pair, prompt.text) for prompt in own_prompts("demo")[:2]]
        found = measure_profile(pair, settings, prompts, measured=advance, name=name)
    store(found, path)
    if as_json:
        print_json({"schema_version": SCHEMA_VERSION, "path": str(path), "profile": found.to_json()})
    else:
        show(found, path)


def _tell_replaced(path: Path, pair: "Pair") -> None:
    """Warn where `path` holds a profile of another deployment, or one that cannot be read: measuring is its cure."""
    from treewise.data.cost import CostProfile
    from treewise.profiles import mismatch

    try:
        line = mismatch(CostProfile.load(path), pair)
    except (CostProfileError, SchemaVersionError) as error:
        line = str(error)
    if line:
        warn(f"{line}; {path} is replaced")


def show(found: "CostProfile", path: Path) -> None:
    """Print a profile as tables."""
    rows = {
        "profile": found.name,
        "device": found.device,
        "dtype": f"{found.dtype}, {found.attention} attention",
        "policy call": f"{found.policy_ms:.3f} ms (a rule policy's)",
        "level": f"{found.level_ms:.3f} ms",
        "rest of a round": f"{found.round_ms:.3f} ms",
        "spread": ", ".join(f"{part} {percent(share)}" for part, share in found.spread.items()),
        "written to": str(path),
    }
    out = console()
    out.print(facts(rows))
    out.print(_grid("verify, ms", "cache", "rows", found.verify))
    if any(value > 0 for row in found.draft.ms for value in row):
        out.print(_grid("draft growth, ms", "cache", "tokens", found.draft))


def _grid(title: str, first: str, unit: str, grid: "CostGrid") -> Table:
    table = figures_table(f"{title} by {unit}", first, tuple(str(count) for count in grid.counts))
    for capacity, row in zip(grid.capacities, grid.ms, strict=True):
        table.add_row(str(capacity), *(f"{value:.1f}" for value in row))
    return table
