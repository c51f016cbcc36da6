"""`treewise self-prompts`: prompts that a target writes itself, to distil a draft on."""

from pathlib import Path
from typing import Annotated

import typer

from treewise.cli._options import DEFAULT_TARGET, AsJson, Target, Threads, open_pair, prompts_from
from treewise.cli._show import console, facts, print_json, progress, warn

SCHEMA_VERSION = 1


def register(app: typer.Typer) -> None:
    """Add the command of this module to `app`."""
    app.command("self-prompts")(self_prompts)


def self_prompts(
    out: Annotated[Path, typer.Option("-o", "--out", help="JSON Lines file of the prompts.", show_default=False)],
    count: Annotated[int, typer.Option("--count", min=1, help="Prompts that the file shall hold.")] = 1000,
    target: Target = DEFAULT_TARGET,
    temperature: Annotated[float, typer.Option("--temperature", help="Of the target's words; above 0.")] = 0.7,
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", min=1, help="A prompt longer than that is dropped.")
    ] = 100,
    batch_rows: Annotated[int, typer.Option("--batch-rows", min=1, help="Prompts decoded at once.")] = 96,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Another seed gives other prompts.")] = 0,
    without: Annotated[
        list[str] | None,
        typer.Option(
            "--without", help="Prompt file, folder or own:SPLIT: nothing like these is kept. May be repeated."
        ),
    ] = None,
    threads: Threads = 0,
    as_json: AsJson = False,
) -> None:
    """Let a target write prompts: it goes on with a user's turn whose first words are given.

    The file is one that `--prompts` of `treewise distill` reads. Every line also names its opener, temperature, seed
    and the target's SHA-256. The same options give the same prompts; a larger `--count` continues the file, and so
    does a run that was stopped. Nothing like the project's own prompts is kept.
    """
    from treewise.engine.self_prompts import SelfPromptSettings, write_self_prompts

    settings = SelfPromptSettings(temperature, max_new_tokens, batch_rows, seed)
    known = [prompt.text for source in ("own:", *(without or ())) for prompt in prompts_from(source)]
    pair = open_pair(target, "none", threads, corpus="none")
    done = 0
    with progress("the target writes prompts", count) as advance:

        def wrote(kept: int, tried: int) -> None:
            nonlocal done
            advance(f"{tried:,} tried", kept - done)
            done = kept

        made = write_self_prompts(pair, out, count, settings, without=known, report=wrote)
    if len(made.prompts) < count:
        warn(f"only {len(made.prompts)} of {count} prompts after {made.tried} tries: {out}")
    result = {
        "schema_version": SCHEMA_VERSION,
        "out": str(out),
        "prompts": len(made.prompts),
        "tasks": made.by_task,
        "tried": made.tried,
        "dropped": made.dropped,
        "target_sha256": pair.description.target_sha256,
    }
    if as_json:
        print_json(result)
        return
    console().print(
        facts(
            {
                "prompts": f"{len(made.prompts):,} in {out}",
                "tasks": ", ".join(f"{task} {number}" for task, number in made.by_task.items()),
                "tried now": f"{made.tried:,}",
                "dropped now": ", ".join(f"{fault} {number}" for fault, number in made.dropped.items()) or "none",
            }
        )
    )
