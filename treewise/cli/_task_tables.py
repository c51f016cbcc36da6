"""`treewise tasks fit`, `show` and `tell`: tables of starting settings by task, and what policies are told."""

import math
import os
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from treewise.cli._options import AsJson, Workers, of_split, workers_for
from treewise.cli._show import console, facts, figures_table, print_json
from treewise.cli.ab import Traces, counting, opened, origin_lines
from treewise.cli.fit_tree import named_by_content
from treewise.data.errors import ParameterError

if TYPE_CHECKING:
    from treewise.policy.task_recogniser import TaskRecogniser
    from treewise.training.task_table import TaskGain

SCHEMA_VERSION = 1
Prompts = Annotated[
    str,
    typer.Option(
        "--prompts", help="Texts of the traces' prompts: file, folder, or own:SPLIT.", show_default="own:, all splits"
    ),
]


def register(tasks: typer.Typer) -> None:
    """Add the commands of this module to the group."""
    tasks.command("fit")(fit)
    tasks.command("show")(show)
    tasks.command("tell")(tell)


def fit(
    folders: Traces,
    cost: Annotated[str, typer.Option("--cost", help="Cost profile: a file or a built-in name.", show_default=False)],
    out: Annotated[Path, typer.Option("-o", "--out", help="File of the table.", show_default=False)],
    file: Annotated[
        Path | None,
        typer.Option("--recogniser", help="File of `treewise tasks train` that live requests are told by."),
    ] = None,
    judge: Annotated[
        list[Path] | None,
        typer.Option("--judge", help="Traces of other prompts to judge the table on; may be repeated."),
    ] = None,
    prompts: Prompts = "own:",
    family: Annotated[
        list[str] | None,
        typer.Option("--family", help="Only this family; may be repeated.", show_default="chain, static, topn"),
    ] = None,
    workers: Workers = 0,
    as_json: AsJson = False,
) -> None:
    """Fit a table of settings by task to dense traces of training prompts, for the policy by-task:FILE.

    Tasks have settings of their own only where that is surely faster on prompts left out; gains are over the one
    setting that is fastest for all tasks. With --judge also on other prompts, told by their labels and, with
    --recogniser, by what it makes of their texts.
    """
    from treewise.data.cost import CostProfile
    from treewise.data.whole_file import check_place
    from treewise.policy.task_recogniser import TaskRecogniser
    from treewise.training.ab_report import ProfileOrigin
    from treewise.training.task_table import FAMILIES, SettingGrid, fit_table, gains, settings_to_try

    check_place(out)
    recogniser = None if file is None else TaskRecogniser.load(file)
    profile = CostProfile.load(cost)
    tuned, judged = opened(folders, ""), opened(judge or [], "")
    named = named_by_content(tuned, folders)
    specs = settings_to_try([*tuned, *judged], profile, tuple(family or FAMILIES))
    told = {} if recogniser is None or not judged else told_tasks(recogniser, prompts)
    with counting("replay", [*tuned, *judged], len(specs)) as advance:
        share = workers_for(workers, [*tuned, *judged], len(specs))
        grid = SettingGrid.replayed(tuned, profile, specs, advance, share)
        fitted = fit_table(grid)
        parts: dict[str, tuple[TaskGain, ...]] = {"the prompts it was fitted on": fitted.rows}
        if judged:
            other = SettingGrid.replayed(judged, profile, specs, advance, share)
            parts["judged, told by label"] = gains(other, fitted.settings, other.task.tolist())
            if recogniser is not None:
                answers = [_told(told, prompt) for prompt in other.prompt_id.tolist()]
                parts["judged, told by the recogniser"] = gains(other, fitted.settings, answers)
    origin = {"traces": list(named), "cost": profile.name, "settings_tried": len(specs)}
    beside = "" if file is None else os.path.relpath(file, out.parent)
    table = fitted.table(beside, "" if recogniser is None else recogniser.sha256, **origin)
    table.save(out)
    if as_json:
        rows = [{"task": task, "spec": spec} for task, spec in fitted.settings.items()]
        judged_rows = [{"name": name, "rows": [_row_json(row) for row in part]} for name, part in parts.items()]
        held_out, borrowed = asdict(fitted.held_out), None if math.isinf(fitted.borrow) else fitted.borrow
        result = {"settings": rows, "borrowed_prompts": borrowed, "held_out": held_out, "gains": judged_rows}
        print_json({"schema_version": SCHEMA_VERSION, "out": str(out), **origin, **result})
        return
    for name, part in parts.items():
        console().print(_gains(f"speed over {fitted.single} for every task: {name}", part))
    words = f"rows of their own on prompts left out one at a time: {fitted.held_out} of the single setting's speed"
    console().print(Text(f"{words}; {_used(fitted.borrow)}"))
    for line in origin_lines(tuple(trace.origin for trace in tuned), [ProfileOrigin.of(profile).words]):
        console().print(line, soft_wrap=True)
    console().print(Text(f"--policy 'by-task:{out}'"), soft_wrap=True)


def show(
    file: Annotated[Path, typer.Argument(metavar="TABLE", help="File of `treewise tasks fit`.", show_default=False)],
) -> None:
    """Show a table of settings by task; the file is JSON, to be edited by hand.

    Fails where the table or its recogniser cannot be used, so that an edited file can be checked.
    """
    from treewise.policy.by_task import ByTaskPolicy, ByTaskSettings

    policy = ByTaskPolicy(ByTaskSettings(str(file)))
    table = figures_table(str(file), "task", ())
    table.add_column("policy")
    for task, spec in policy.table.settings.items():
        table.add_row(Text(task), Text(spec))
    console().print(table)
    recogniser = policy.recogniser
    known = "none: callers name the task"
    if recogniser is not None:
        known = f"{policy.table.recogniser_file}, knows {', '.join(recogniser.tasks)}"
    fitted = {name.replace("_", " "): str(value) for name, value in policy.table.fitted.items()}
    console().print(facts({"recogniser": known, **fitted}))


def tell(
    folder: Annotated[Path, typer.Argument(metavar="TRACE", help="Folder of a dense trace.", show_default=False)],
    file: Annotated[Path, typer.Option("--recogniser", help="File of `treewise tasks train`.", show_default=False)],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder of the copy.", show_default=False)],
    prompts: Prompts = "own:",
) -> None:
    """Copy a dense trace so that replay tells policies what a recogniser says of its prompts, not their labels."""
    from treewise.policy.task_recogniser import TaskRecogniser
    from treewise.training.told_trace import tell_trace

    recogniser = TaskRecogniser.load(file)
    command = "treewise " + shlex.join(sys.argv[1:])
    count = tell_trace(folder, told_tasks(recogniser, prompts), out, recogniser.sha256, command)
    console().print(facts({"trace": str(out), "requests": f"{count}"}))


def told_tasks(recogniser: "TaskRecogniser", prompts: str) -> dict[str, str]:
    """What `recogniser` says of each of `prompts`, by id. Raises as `prompts_from`."""
    return {prompt.id: recogniser.recognise(prompt.text).task for prompt in of_split(prompts, "")}


def _told(told: dict[str, str], prompt: str) -> str:
    if prompt not in told:
        raise ParameterError(f"prompts must hold the text of every judged prompt, got none of {prompt!r}")
    return told[prompt]


def _gains(title: str, rows: "tuple[TaskGain, ...]") -> Table:
    table = figures_table(title, "task", ("prompts", "speed, 95 % over prompts", "its own setting"))
    table.columns[-1].justify = "left"
    for row in rows:
        table.add_row(Text(row.task or "all"), f"{row.prompts}", str(row.gain), Text(row.spec))
    return table


def _used(borrow: float) -> str:
    if math.isinf(borrow):
        return "not surely above 1, so every task has the single setting"
    return f"each task's prompts are joined by {borrow:g} average ones"


def _row_json(row: "TaskGain") -> dict[str, object]:
    gain = {name: None if math.isnan(value) else value for name, value in asdict(row.gain).items()}
    return {**asdict(row), "gain": gain}
