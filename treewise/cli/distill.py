"""`treewise distill`: make a draft for a target out of its first layers and its own answers."""

import hashlib
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treewise.cli._exam import agreement_table, exam_prompts, open_exam, top_words
from treewise.cli._options import (
    DEFAULT_TARGET,
    OWN_PROMPTS,
    AsJson,
    MaxNewTokens,
    Target,
    Threads,
    joined_prompts,
    numbers_of,
    open_pair,
)
from treewise.cli._show import console, note, print_json, progress
from treewise.data.errors import ParameterError
from treewise.data.prompt_set import Prompt, prompts_sha256

if TYPE_CHECKING:
    from treewise.engine.agreement import Agreement
    from treewise.engine.distill import DistillStep

SCHEMA_VERSION = 1


def register(app: typer.Typer) -> None:
    """Add the command of this module to `app`."""
    app.command("distill")(distill)


def distill(
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder of the draft; not with --answers-only.")
    ] = None,
    target: Target = DEFAULT_TARGET,
    prompts: Annotated[
        list[str] | None,
        typer.Option(
            "--prompts",
            help="Prompt file, folder, or own:SPLIT; several times, or several joined by commas.",
            show_default=OWN_PROMPTS,
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Use only the first prompts; 0: all.")] = 0,
    samples: Annotated[int, typer.Option("--samples", min=1, help="Answers a prompt; half of two rounds greedy.")] = 6,
    max_new_tokens: MaxNewTokens = 160,
    batch_rows: Annotated[int, typer.Option("--batch-rows", min=1, help="Answers decoded at once.")] = 96,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Processes that make answers.")] = 1,
    layers: Annotated[int, typer.Option("--layers", min=1, help="The target's first layers to start from.")] = 2,
    from_layers: Annotated[
        str, typer.Option("--from-layers", help="Instead: these layers of the target, from 0, such as 0,14,29.")
    ] = "",
    head_size: Annotated[int, typer.Option("--head-size", min=1, help="Tokens the draft can say.")] = 16_384,
    loss: Annotated[str, typer.Option("--loss", help="kl, or hard: the target's likeliest token alone.")] = "kl",
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Passes over the answers.")] = 2,
    learning_rate: Annotated[float, typer.Option("--learning-rate", help="Peak learning rate.")] = 3e-3,
    batch_tokens: Annotated[int, typer.Option("--batch-tokens", min=1, help="Tokens of one step.")] = 1024,
    exam: Annotated[
        str, typer.Option("--exam", help="Prompt file, folder, or own:SPLIT of another origin, to report agreement on.")
    ] = "",
    exam_split: Annotated[str, typer.Option("--exam-split", help="Only the exam's prompts of this split.")] = "",
    exam_limit: Annotated[
        int, typer.Option("--exam-limit", min=0, help="Only so many, tasks taking turns; 0: all.")
    ] = 96,
    examine_every: Annotated[
        int,
        typer.Option("--examine-every", min=0, help="Positions learned from between exams; 0: only after passes."),
    ] = 0,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of sampling and of the order of batches.")] = 0,
    work: Annotated[
        Path | None, typer.Option("--work", help="Where answers and checkpoints lie; default: in the user's cache.")
    ] = None,
    answers_only: Annotated[
        bool, typer.Option("--answers-only", help="Make answers and states for a later training, and stop.")
    ] = False,
    ready_only: Annotated[
        bool,
        typer.Option(
            "--ready-only",
            help="Train on the answers that are stored already, make none; a restart trains on the same.",
        ),
    ] = False,
    threads: Threads = 0,
    as_json: AsJson = False,
) -> None:
    """Distil a draft. Answers, states and checkpoints are kept, and a killed run goes on where it stopped."""
    from treewise.engine.answers import AnswerSettings
    from treewise.engine.distill import DistillSettings
    from treewise.engine.distill_run import default_work_folder, planned_steps, train_draft
    from treewise.engine.draft_folder import check_layers
    from treewise.engine.lessons import LessonProgress, collect_lessons, planned_answers, ready_lessons

    if answers_only and out is not None:
        raise ParameterError(f"out must be left out with --answers-only, got {str(out)!r}")
    if not answers_only and out is None:
        raise ParameterError("out must be a folder, got none")
    if answers_only and ready_only:
        raise ParameterError("ready_only must be left out with --answers-only, got both")
    answers = AnswerSettings(num_samples=samples, max_new_tokens=max_new_tokens, batch_rows=batch_rows, seed=seed)
    training = DistillSettings(
        from_layers=numbers_of("from_layers", from_layers, int) if from_layers else tuple(range(layers)),
        head_size=head_size,
        loss=loss,
        epochs=epochs,
        batch_tokens=batch_tokens,
        learning_rate=learning_rate,
        seed=seed,
    )
    pair = open_pair(target, "none", threads)
    check_layers(pair.target, training.from_layers)  # bad ones should cost no answers
    chosen = joined_prompts(prompts or [OWN_PROMPTS], limit)
    exam_on = exam_prompts(exam, exam_split, exam_limit) if exam else ()
    known = {prompt.text for prompt in chosen} & {prompt.text for prompt in exam_on}
    if known:
        raise ParameterError(f"exam must have prompts that are not trained on, got {len(known)} of --prompts")
    place = work or default_work_folder(target)
    # Without it, answers that arrived while a training stood still would make it start anew.
    ready_list = _ready_list(place, out, chosen) if ready_only and out else None
    if ready_list is not None and ready_list.is_file():
        note(f"going on with the answers that {ready_list} names; remove it to choose among all that are stored now")
    planned = planned_answers(pair, chosen, answers)
    # Every batch is reported twice: its answers, then the target's states on them.
    with progress("the target answers", total=None if ready_only else 2 * len(planned)) as advance:

        def stored(step: LessonProgress) -> None:
            advance(f"{step.stage}, {step.num_tokens:,} tokens")

        if ready_list is not None:
            lessons = ready_lessons(pair, chosen, place / "answers", ready_list, report=stored)
        else:
            lessons = collect_lessons(pair, chosen, place / "answers", answers, num_workers=workers, report=stored)
    tokens = sum(lesson.num_answer_tokens for lesson in lessons)
    keys = {job.key for batch in planned for job in batch}
    found = len(keys & {lesson.key for lesson in lessons})
    note(f"{len(lessons):,} answers, {tokens:,} answer tokens; {found:,} of the {len(keys):,} planned ones")
    if out is None:
        if as_json:
            print_json({"schema_version": SCHEMA_VERSION, "answers": len(lessons), "answer_tokens": tokens})
        return

    sitting = open_exam(pair, exam_on, place) if exam_on else None

    def examined(step: "DistillStep", held_out: "Agreement", on_exam: "Agreement | None") -> None:
        place = f"{step.tokens_seen:,} positions, pass {step.epochs:.2f}"
        note(f"{place}: held-out {top_words(held_out)}" + (f"; exam {top_words(on_exam)}" if on_exam else ""))

    with progress("training", total=planned_steps(lessons, training)) as advance:
        report = train_draft(
            pair,
            lessons,
            chosen,
            answers,
            training,
            out,
            work=place,
            exam=sitting,
            examine_every_tokens=examine_every,
            command="treewise " + shlex.join(sys.argv[1:]),
            tell=advance,
            examined=examined,
        )
    if ready_list is not None:
        ready_list.unlink()
    if as_json:
        print_json({"schema_version": SCHEMA_VERSION, **report.to_json()})
        return
    about = "agreement with the target's greedy token, "
    console().print(agreement_table(f"{about}prompts the draft never saw ({out})", report.agreement))
    if report.exam:
        console().print(agreement_table(f"{about}the exam's prompts", report.exam))


def _ready_list(place: Path, out: Path, prompts: Sequence[Prompt]) -> Path:
    """Where a training on ready answers names them, by its draft's folder and its prompts."""
    decides = f"{out.resolve()} {prompts_sha256(prompts)}"
    return place / f"ready-{hashlib.sha256(decides.encode()).hexdigest()[:16]}.json"
