"""`treewise tasks`: a recogniser of tasks, and tables of starting settings by task."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from treewise.cli import _task_tables
from treewise.cli._options import AsJson, of_split, prompts_from
from treewise.cli._show import console, facts, figures_table, note, percent, print_json, progress

if TYPE_CHECKING:
    from treewise.data.prompt_set import Prompt
    from treewise.training.task_recogniser import FittedRecogniser, RecogniserSettings
    from treewise.training.task_report import RecognisedPart, RecogniserReport

SCHEMA_VERSION = 1
RecogniserFile = Annotated[
    Path, typer.Argument(metavar="RECOGNISER", help="File of `treewise tasks train`.", show_default=False)
]
Split = Annotated[str, typer.Option("--split", help="Only the prompts of this split.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the commands of this module to `app`."""
    tasks = typer.Typer(
        no_args_is_help=True,
        help="Recognise what kind of task a prompt is, and start with settings that suit it.",
        rich_markup_mode=None,
    )
    tasks.command("train")(train)
    tasks.command("test")(test)
    tasks.command("recognise")(recognise)
    _task_tables.register(tasks)
    app.add_typer(tasks, name="tasks")


def train(
    out: Annotated[Path, typer.Option("-o", "--out", help="File of the recogniser.", show_default=False)],
    prompts: Annotated[
        str, typer.Argument(metavar="[PROMPTS]", help="Prompt file, folder, or own:SPLIT; their labels are learned.")
    ] = "own:",
    split: Split = "",
    threshold: Annotated[
        float,
        typer.Option("--threshold", min=0.0, max=1.0, help="Below this probability the answer is unknown."),
    ] = 0.5,
    terms: Annotated[int, typer.Option("--terms", min=1, help="Words, and runs of characters, at most, each.")] = 4000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the folds.")] = 0,
) -> None:
    """Learn to tell kinds of task from prompts' text; calibrated on prompts whose like was held out.

    The figures shown are of those. How it does on prompts of other people: `treewise tasks test`.
    """
    from treewise.data.whole_file import check_place
    from treewise.training.task_recogniser import RecogniserSettings
    from treewise.training.task_report import recogniser_report

    check_place(out)
    settings = RecogniserSettings(threshold=threshold, terms=terms, seed=seed)
    found = of_split(prompts, split)
    fitted = _fit(found, settings, (prompts,))
    fitted.recogniser.save(out)
    report = recogniser_report(found, fitted.held_out)
    console().print(
        facts(
            {
                "recogniser": f"{out}, {out.stat().st_size:,} bytes",
                "prompts": f"{len(found)} in {fitted.families} families that share no run of words",
                "tasks": ", ".join(fitted.recogniser.tasks),
                "sha256": fitted.recogniser.sha256,
            }
        )
    )
    console().print(_parts("held-out families, by task", "task", (report.whole, *report.by_task)))


def test(
    file: RecogniserFile,
    prompts: Annotated[str, typer.Option("--prompts", help="Prompt file, folder, or own:SPLIT.", show_default=False)],
    split: Split = "",
    as_json: AsJson = False,
) -> None:
    """Compare a recogniser's answers with prompts' labels: accuracy, calibration, confusion, share unknown.

    Names of the same kind of task, such as code and structured, count as one.
    """
    from treewise.policy.task_recogniser import TaskRecogniser
    from treewise.training.task_report import recogniser_report

    recogniser = TaskRecogniser.load(file)
    found = of_split(prompts, split)
    report = recogniser_report(found, [recogniser.recognise(prompt.text) for prompt in found])
    if as_json:
        print_json(report.to_json())
        return
    out = console()
    out.print(_parts(f"{len(found)} prompts, by task", "task", (report.whole, *report.by_task)))
    if report.by_source:
        out.print(_parts("by source", "source", report.by_source))
    out.print(_confusion(report))


def recognise(
    text: Annotated[str, typer.Argument(metavar="PROMPT", help="What a user says.", show_default=False)],
    file: Annotated[
        Path | None,
        typer.Option(
            "--recogniser",
            help="File of `treewise tasks train`.",
            show_default="trained on the project's own prompts now, some seconds",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what kind of task one prompt is, with the probability of each."""
    from treewise.policy.task_recogniser import TaskRecogniser

    recogniser = TaskRecogniser.load(file) if file is not None else _fit(prompts_from("own:")).recogniser
    answer = recogniser.recognise(text)
    if as_json:
        rows = [{"task": task, "probability": probability} for task, probability in answer.probabilities.items()]
        print_json({"schema_version": SCHEMA_VERSION, "task": answer.task, "probabilities": rows})
        return
    console().print(Text(answer.task, style="bold"))
    table = figures_table("", "task", ("probability",))
    for task, probability in sorted(answer.probabilities.items(), key=lambda item: -item[1]):
        table.add_row(task, percent(probability))
    console().print(table)
    if answer.task not in recogniser.tasks:
        note(f"unknown: no task is at least {percent(recogniser.threshold)} probable")


def _fit(
    prompts: "tuple[Prompt, ...]", settings: "RecogniserSettings | None" = None, origin: tuple[str, ...] = ("own:",)
) -> "FittedRecogniser":
    from treewise.training.task_recogniser import RecogniserSettings, fit_recogniser

    settings = settings or RecogniserSettings()
    with progress("fitting the recogniser", settings.folds + 1) as advance:
        return fit_recogniser(prompts, settings, origin, lambda: advance(steps=1))


def _parts(title: str, first: str, parts: "tuple[RecognisedPart, ...]") -> Table:
    table = figures_table(title, first, ("prompts", "right", "confidence", "ECE", "unknown", "right of\nanswered"))
    for part in parts:
        answered = "-" if part.answered_accuracy != part.answered_accuracy else percent(part.answered_accuracy)
        shares = (percent(part.accuracy), percent(part.confidence), f"{part.ece:.3f}", percent(part.unknown), answered)
        table.add_row(Text(part.name), f"{part.prompts}", *shares)
    return table


def _confusion(report: "RecogniserReport") -> Table:
    table = figures_table("answers by label", "label", ())
    table.add_column("answers, most frequent first", overflow="fold")
    for label, row in report.confusion.items():
        answers = sorted(row.items(), key=lambda item: -item[1])
        table.add_row(Text(label), Text(", ".join(f"{answer} {count}" for answer, count in answers)))
    return table
