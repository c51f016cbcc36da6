"""`treewise profile`: what a pair costs on this machine."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from treewise.cli._options import DEFAULT_DRAFT, DEFAULT_TARGET, AsJson, Draft, Target, Threads, numbers_of
from treewise.cli._show import console, facts, figures_table, percent, print_json, progress, warn
from treewise.data.errors import CostProfileError, SchemaVersionError, require

if TYPE_CHECKING:
    from treewise.data.cost import CostGrid, CostProfile
    from treewise.engine.pair import Pair

SCHEMA_VERSION = 1
RANDOM_WEIGHTS = "random weights"


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
    shape: Annotated[
        str,
        typer.Option(
            "--shape",
            help="Measure a target of random weights in this shape instead, without a download: llama-8b, llama-1b, "
            "smollm2-135m or tiny.",
        ),
    ] = "",
    draft_shape: Annotated[
        str, typer.Option("--draft-shape", help="With --shape: a draft of this shape.", show_default="no draft")
    ] = "",
    dtype: Annotated[
        str, typer.Option("--dtype", help="bf16, fp16 or fp32.", show_default="fp32 on a CPU, else bf16")
    ] = "",
    device: Annotated[str, typer.Option("--device", help="A torch device, such as cpu or cuda.")] = "cpu",
    attention: Annotated[
        str, typer.Option("--attention", help="sdpa, or split: no mask over the committed tokens.")
    ] = "sdpa",
    passes: Annotated[
        str, typer.Option("--passes", help="eager, static, or captured: replayed from CUDA graphs.")
    ] = "eager",
    rows: Annotated[str, typer.Option("--rows", help="Rows of verify passes, joined by commas.")] = "",
    capacities: Annotated[str, typer.Option("--capacities", help="Tokens of cache, joined by commas.")] = "",
    as_json: AsJson = False,
) -> None:
    """Measure the cost profile of a pair on this machine, or of a shape with random weights.

    What a pass costs depends on sizes, dtype and device, not on what the weights say: `--shape llama-8b --device cuda`
    prices a target that is not at hand. Such a profile says that its weights are random.

    Without -o it goes where other commands look for it. A profile that is there already and was measured on another
    device or pair is told before it is replaced.
    """
    from treewise.data.prompt_set import own_prompts
    from treewise.engine.pair import encode_prompt, load_pair
    from treewise.engine.profile import ProfileSettings, measure_profile
    from treewise.engine.shapes import dtype_of, random_pair
    from treewise.engine.split_attention import use_attention
    from treewise.profiles import profile_steps, quick_settings, store, stored_path

    settings = quick_settings() if quick else ProfileSettings()
    if repeats:
        settings = replace(settings, repeats=repeats)
    settings = replace(settings, passes=passes)
    if rows:
        settings = replace(settings, verify_rows=numbers_of("rows", rows, int))
    if capacities:
        settings = replace(settings, capacities=numbers_of("capacities", capacities, int))
    require(bool(shape) or not draft_shape, "draft-shape", "given with --shape", draft_shape)
    kind = dtype_of(dtype or ("fp32" if device.startswith("cpu") else "bf16"))
    if shape:
        pair = random_pair(shape, draft_shape, dtype=kind, device=device, threads=threads or None)
        use_attention([pair.target] if pair.draft is None else [pair.target, pair.draft.model], attention)
    else:
        pair = load_pair(target, draft, dtype=kind, device=device, threads=threads or None, attention=attention)
    path = out or stored_path(pair)
    if path.is_file():
        _tell_replaced(path, pair)
    with progress("profiling", profile_steps(settings)) as advance:
        prompts = [] if shape else [encode_prompt(pair, prompt.text) for prompt in own_prompts("demo")[:2]]
        found = measure_profile(pair, settings, prompts, measured=advance, name=name)
    if shape:
        found = replace(found, origin=f"{found.origin}; {RANDOM_WEIGHTS}")
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
        "origin": f"{found.origin}; " + ", ".join(f"{part} {number}" for part, number in found.versions.items()),
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
        table.add_row(str(capacity), *(f"{value:.3g}" for value in row))
    return table
