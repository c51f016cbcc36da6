"""`treewise replay`: a policy on the live trace that it wrote, decision by decision."""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from treewise.cli._options import AsJson, Workers, workers_for
from treewise.cli._show import console, figures_table, print_json, warn
from treewise.cli.ab import counting

SCHEMA_VERSION = 1
EXIT_MISMATCH = 1
SHOWN = 20  # mismatches in the table


def register(app: typer.Typer) -> None:
    """Add the command of this module to `app`."""
    app.command("replay")(replay)


def replay(
    folders: Annotated[
        list[Path], typer.Argument(metavar="TRACES...", help="Folders of live traces.", show_default=False)
    ],
    policy: Annotated[
        str, typer.Option("--policy", help="Spec string. Without it the one that the trace names.", show_default=False)
    ] = "",
    cost: Annotated[
        str, typer.Option("--cost", help="The cost profile of the live run: a file or a built-in name.")
    ] = "example-a100-70b",
    buckets: Annotated[
        str, typer.Option("--row-buckets", help="Row buckets of the live run, joined by commas.", show_default=False)
    ] = "",
    as_recorded: Annotated[
        bool, typer.Option("--as-recorded", help="Take rounds that a fallback finished live from the log as they are.")
    ] = False,
    workers: Workers = 0,
    as_json: AsJson = False,
) -> None:
    """Replay a policy on its own live traces; exit status 1 where a decision or an accepted length differs."""
    from treewise.data.cost import CostProfile
    from treewise.data.errors import ParameterError, TraceError
    from treewise.training.live_check import replay_live
    from treewise.training.logged_trace import open_trace

    profile = CostProfile.load(cost)
    parts = [part for part in buckets.split(",") if part.strip()]
    if not all(part.strip().isdecimal() and len(part.strip()) <= 9 for part in parts):
        raise ParameterError(f"row_buckets must be whole numbers of rows joined by commas, got {buckets!r}")
    row_buckets = tuple(sorted(int(part) for part in parts))
    traces = [open_trace(folder) for folder in folders]
    for trace in traces:
        if trace.manifest.kind != "live":
            raise TraceError(f"trace {trace.name} must be live to be compared with its replay, got a dense one")
        if trace.manifest.input_hashes.get("cost", profile.sha256) != profile.sha256:
            warn(f"trace {trace.name} was written under another cost profile than {profile.name}")
    checks = []
    with counting("replay", traces, 1) as advance:
        for trace in traces:
            spec = policy or trace.manifest.policy or ""
            share = workers_for(workers, [trace], 1, in_batches=False)
            check = replay_live(trace, spec, profile, row_buckets, advance, as_recorded, share)
            checks.append((trace.name, spec, check))
    mismatches = sum(len(check.mismatches) for _, _, check in checks)
    if as_json:
        print_json(
            {
                "schema_version": SCHEMA_VERSION,
                "profile": profile.name,
                "traces": [{"trace": name, "policy": spec, **check.to_json()} for name, spec, check in checks],
            }
        )
    else:
        out = console()
        table = figures_table("replay of live traces", "trace", ("policy", "rounds", "compared", "mismatches"))
        for name, spec, check in checks:
            table.add_row(
                Text(name), Text(spec), f"{check.rounds:,}", f"{check.compared:,}", f"{len(check.mismatches):,}"
            )
        out.print(table)
        shown = [found for _, _, check in checks for found in check.mismatches][:SHOWN]
        for found in shown:
            out.print(Text(f"{found.prompt_id}, position {found.position}: {found.reason}"), soft_wrap=True)
        if mismatches > SHOWN:
            out.print(Text(f"and {mismatches - SHOWN:,} more"))
        if mismatches:
            out.print(Text("A policy that reads prices replays only under the --cost and --row-buckets of its run."))
    if mismatches:
        raise typer.Exit(EXIT_MISMATCH)
