"""`treewise distill`: make a draft for a target out of its first layers and its own answers."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treewise.cli._options import DEFAULT_TARGET, AsJson, MaxNewTokens, Target, Threads, open_pair, prompts_from
from treewise.cli._show import console, figures_table, note, percent, print_json, progress

if TYPE_CHECKING:
    from treewise.engine.agreement import Agreement

SCHEMA_VERSION = 1


def register(app: typer.Typer) -> None:
    """Add the command of this module to `app`."""
    app.command("distill")(distill)


def distill(
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder of the draft.", show_default=False)],
    target: Target = DEFAULT_TARGET,
    prompts: Annotated[str, typer.Option("--prompts", help="Prompt file, folder, or own:SPLIT.")] = "own:distill",
    limit: Annotated[int, typer.Option("--limit", min=0, help="Use only the first prompts; 0: all.")] = 0,
    samples: Annotated[int, typer.Option("--samples", min=1, help="Answers a prompt; half of two rounds greedy.")] = 6,
    max_new_tokens: MaxNewTokens = 160,
    batch_rows: Annotated[int, typer.Option("--batch-rows", min=1, help="Answers decoded at once.")] = 96,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Processes that make answers.")] = 1,
    layers: Annotated[int, typer.Option("--layers", min=1, help="The target's first layers to start from.")] = 2,
    head_size: Annotated[int, typer.Option("--head-size", min=1, help="Tokens the draft can say.")] = 16_384,
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Passes over the answers.")] = 2,
    learning_rate: Annotated[float, typer.Option("--learning-rate", help="Peak learning rate.")] = 3e-3,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of sampling and of the order of batches.")] = 0,
    work: Annotated[
        Path | None, typer.Option("--work", help="Where answers and checkpoints lie; default: in the user's cache.")
    ] = None,
    threads: Threads = 0,
    as_json: AsJson = False,
) -> None:
    """Distil a draft. Answers, states and checkpoints are kept, and a killed run goes on where it stopped."""
    from treewise.engine.answers import AnswerSettings
    from treewise.engine.distill import DistillSettings
    from treewise.engine.distill_run import default_work_folder, planned_steps, train_draft
    from treewise.engine.lessons import LessonProgress, collect_lessons, planned_answers

    answers = AnswerSettings(num_samples=samples, max_new_tokens=max_new_tokens, batch_rows=batch_rows, seed=seed)
    training = DistillSettings(
        num_layers=layers, head_size=head_size, epochs=epochs, learning_rate=learning_rate, seed=seed
    )
    pair = open_pair(target, "none", threads)
    chosen = prompts_from(prompts, limit=limit)
    place = work or default_work_folder(target)
    # Every batch is reported twice: its answers, then the target's states on them.
    with progress("the target answers", total=2 * len(planned_answers(pair, chosen, answers))) as advance:

        def stored(step: LessonProgress) -> None:
            advance(f"{step.stage}, {step.num_tokens:,} tokens")

        lessons = collect_lessons(pair, chosen, place / "answers", answers, num_workers=workers, report=stored)

    def after_epoch(epoch: int, agreement: "list[Agreement]") -> None:
        note(f"epoch {epoch}: " + ", ".join(f"top-{rank} {percent(share)}" for rank, share in _tops(agreement[0])))

    with progress("training", total=planned_steps(lessons, training)) as advance:
        report = train_draft(
            pair,
            lessons,
            chosen,
            answers,
            training,
            out,
            work=place,
            command="treewise " + shlex.join(sys.argv[1:]),
            tell=advance,
            after_epoch=after_epoch,
        )
    if as_json:
        print_json({"schema_version": SCHEMA_VERSION, **report.to_json()})
        return
    table = figures_table(
        f"agreement with the target's greedy token, prompts the draft never saw ({out})",
        "task",
        ("positions", "top-1", "top-2", "top-4", "top-8", "in head"),
    )
    for row in report.agreement:
        tops = [percent(share) for _, share in _tops(row)]
        table.add_row(row.task, f"{row.positions:,}", *tops, percent(row.head_coverage))
    console().print(table)


def _tops(row: "Agreement") -> "list[tuple[Any, float]]":
    from treewise.engine.agreement import AGREEMENT_RANKS

    return list(zip(AGREEMENT_RANKS, row.top, strict=True))
