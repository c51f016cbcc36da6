"""`treewise device-check`: whether this machine's GPU does what is promised, and how fast."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from treewise.cli._options import AsJson
from treewise.cli._show import console, facts, figures_table, note, print_json, warn, yes

if TYPE_CHECKING:
    from treewise.device_check import DeviceCheck

EXIT_MISSED = 1


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("device-check")(device_check)


def device_check(
    device: Annotated[str, typer.Option("--device", help="A torch device, such as cuda or cuda:1.")] = "cuda",
    dtype: Annotated[str, typer.Option("--dtype", help="Of curve and speed: bf16, fp16 or fp32.")] = "bf16",
    shape: Annotated[str, typer.Option("--shape", help="Target's shape: llama-8b, llama-1b, ...")] = "llama-8b",
    draft_shape: Annotated[str, typer.Option("--draft-shape", help="Draft's shape.")] = "llama-1b",
    bundle: Annotated[
        Path | None, typer.Option("--bundle", help="A trained policy to measure as `learned`; without it, none is.")
    ] = None,
    limit: Annotated[
        float, typer.Option("--limit", min=1.0, help="Seconds; what would pass them is left out.")
    ] = 450.0,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="JSON file, written after each part.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tiny shapes on the CPU: every part in seconds, figures mean nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check a GPU in one run of under eight minutes: exact texts, verify curve, policy cost, tokens/s, batches.

    Weights are random, nothing is downloaded. In fp32, texts of every way to run passes are compared with plain
    decoding's. In --dtype, verify passes are timed by rows, capacity, attention kernel and way to run them, and
    policies are raced with a draft that proposes the true next token with a given probability. Exits with 1 where a
    promise was measured and is not kept, or a step failed.
    """
    from treewise.device_check import DeviceCheckSettings, missed
    from treewise.device_check_run import check_device

    settings = DeviceCheckSettings(
        device=device, dtype=dtype, shape=shape, draft_shape=draft_shape, bundle=bundle, limit_s=limit
    )
    settings = settings.dry() if dry_run else settings
    found = check_device(settings, note, lambda so_far: _keep(so_far, out))
    if as_json:
        print_json(found.to_json())
    else:
        show(found)
        if out is not None:
            note(f"written to {out}")
    broken = [] if dry_run else missed(found.targets)
    for line in (*broken, *found.failed):
        warn(line)
    if found.failed or broken:
        raise typer.Exit(EXIT_MISSED)


def _keep(found: "DeviceCheck", out: Path | None) -> None:
    from treewise.engine.hub import write_atomically

    if out is not None:
        write_atomically(out, (json.dumps(found.to_json(), indent=1) + "\n").encode("utf-8"))


def show(found: "DeviceCheck") -> None:
    """Print the check as tables, the promises last."""
    out, own = console(), found.settings
    out.print(
        facts(
            {
                "device": found.device,
                "versions": ", ".join(f"{name} {version}" for name, version in found.versions.items()),
                "weights": f"random, {own.shape} + {own.draft_shape} in {own.dtype}; texts {own.text_shape} in fp32",
                "seconds": ", ".join(f"{name} {taken:.0f}" for name, taken in found.seconds.items()),
            }
        )
    )
    for rows, table_of in ((found.texts, _texts), (found.curve, _curve), (found.speed, _speed)):
        if rows:
            out.print(table_of(found))
    for line in (*found.skipped, *found.warnings):
        out.print(line, soft_wrap=True)
    table = figures_table("promises", "of this machine", ("measured", "at most", "unit", "kept"))
    for target in found.targets:
        value = "not measured" if target.value is None else f"{target.value:.3g}"
        met = "-" if target.is_met is None else yes(target.is_met)
        table.add_row(target.name, value, f"{target.limit:g}", target.unit, met)
    out.print(table)


def _texts(found: "DeviceCheck") -> Table:
    table = figures_table("texts against plain decoding's", "way", ("policy", "T", "tokens", "a round", "differing"))
    for row in found.texts:
        differing = str(row.differing)
        if row.differing:
            differing += f", from token {row.first_difference}"
        figures = (f"{row.temperature:g}", str(row.tokens), f"{row.tokens_per_round:.2f}", differing)
        table.add_row(row.way, row.policy, *figures)
    return table


def _curve(found: "DeviceCheck") -> Table:
    own, base = found.settings, found.base_ms
    counts = own.rows if len(own.rows) <= 8 else tuple(rows for rows in own.rows if rows in (1, 4, 8, 16, 36, 64, 128))
    title = f"verify, ms by rows; one unmasked token takes {base:.3g} ms" if base else "verify, ms by rows"
    table = figures_table(title, "way", ("cache", *(str(rows) for rows in counts)))
    cells = {(cell.passes, cell.attention, cell.capacity, cell.rows): cell for cell in found.curve}
    for passes, attention, capacity in dict.fromkeys(key[:3] for key in cells):
        line = [cells.get((passes, attention, capacity, rows)) for rows in counts]
        figures = ["-" if cell is None else f"{cell.ms:.2f}" + ("*" if cell.ran_as != passes else "") for cell in line]
        table.add_row(f"{passes} {attention}", str(capacity), *figures)
    return table


def _speed(found: "DeviceCheck") -> Table:
    headings = ("hit", "batch", "tokens/s", "over plain", "a round", "nodes", "call, us", "text")
    table = figures_table("tokens per second", "policy", headings)
    for row in found.speed:
        like = (row.passes, row.attention, row.batch)
        plain = [
            other.tokens_per_second
            for other in found.speed
            if other.policy == "plain" and (other.passes, other.attention, other.batch) == like
        ]
        table.add_row(
            f"{row.policy}, {row.passes} {row.attention}",
            f"{row.hit:g}",
            str(row.batch or "-"),
            f"{row.tokens_per_second:.0f}",
            f"{row.tokens_per_second / plain[0]:.2f}" if plain and plain[0] else "-",
            f"{row.tokens_per_round:.2f}",
            f"{row.nodes_per_round:.1f}",
            f"{row.policy_ms * 1e3:.0f}",
            yes(row.is_true_text),
        )
    return table
