"""`treewise agreement`: how often drafts would have said what their target says."""

from pathlib import Path
from typing import Annotated, Any

import typer

from treewise.cli._exam import agreement_table, exam_prompts, open_exam
from treewise.cli._options import DEFAULT_DRAFT, DEFAULT_TARGET, AsJson, MaxNewTokens, Target, Threads, open_pair
from treewise.cli._show import console, print_json
from treewise.data.errors import ParameterError

SCHEMA_VERSION = 1


def register(app: typer.Typer) -> None:
    """Add the command of this module to `app`."""
    app.command("agreement")(agreement)


def agreement(
    prompts: Annotated[str, typer.Option("--prompts", help="Prompt file, folder, or own:SPLIT.", show_default=False)],
    drafts: Annotated[
        str, typer.Option("--draft", help="One draft or several joined by commas, each as `treewise decode` takes it.")
    ] = DEFAULT_DRAFT,
    target: Target = DEFAULT_TARGET,
    split: Annotated[str, typer.Option("--split", help="Only prompts of this split; empty: all.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=0, help="Only so many, tasks taking turns; 0: all.")] = 0,
    max_new_tokens: MaxNewTokens = 96,
    work: Annotated[
        Path | None, typer.Option("--work", help="Where the target's answers lie; default: in the user's cache.")
    ] = None,
    threads: Threads = 0,
    as_json: AsJson = False,
) -> None:
    """Measure how often the target's greedy token is among a draft's first 1, 2, 4, 8, over the target's own answers.

    By task, and over the answers that repeat themselves least: `strict` and `non-degenerate`, as `bench-policy` has
    them. The answers are made once and kept. A token that the draft's head lacks is a miss.
    """
    from treewise.engine.distill_run import default_work_folder

    names = [name for name in drafts.split(",") if name]
    if not names or "none" in names:
        raise ParameterError(f"draft must name a draft, or several joined by commas, got {drafts!r}")
    chosen = exam_prompts(prompts, split, limit)
    results: dict[str, Any] = {}
    exam = None
    for name in names:
        pair = open_pair(target, name, threads, corpus="none")
        exam = exam or open_exam(pair, chosen, work or default_work_folder(target), max_new_tokens)
        assert pair.draft is not None
        results[name] = exam.take(pair.draft, pair.target)
        del pair
    if as_json:
        found = [{"draft": name, "agreement": [row.to_json() for row in rows]} for name, rows in results.items()]
        assert exam is not None
        head = {"schema_version": SCHEMA_VERSION, "target": target, "prompts": len(chosen)}
        print_json({**head, "prompts_sha256": exam.prompts_sha256, "drafts": found})
        return
    for name, rows in results.items():
        console().print(agreement_table(f"agreement of draft {name} with the target's greedy token", rows))
