"""The tables of `treewise quality`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from treewise.cli._show import console, facts, figures_table
from treewise.data.task_kinds import in_words

if TYPE_CHECKING:
    from treewise.quality_report import QualityReport
    from treewise.training.quality import Answers
    from treewise.training.replay_result import Float64Array
    from treewise.training.statistics import Interval

NONE = "-"


def show(report: QualityReport) -> None:
    """Print the whole report."""
    from treewise.quality_words import notes, verdicts

    out = console()
    heat = "greedy" if report.temperature == 0.0 else f"temperature {report.temperature:g}"
    rows = {"pair": report.pair, "policy": report.policy, "decoded": f"{len(report.prompts)} prompts, {heat}"}
    out.print(facts(rows))
    for line in verdicts(report):
        out.print(Text(line, style="" if "identical:" in line else "bold"), soft_wrap=False)
    values = report.figures()
    out.print(text_table(report, values))
    out.print(speed_table(report, values))
    if len(report.prompts) > len(report.tasks[1:]) > 1:  # one prompt of each task says nothing of the task
        out.print(task_table(report))
    out.print(Text("kept: share of plain decoding's tokens before the first difference", style="dim"))
    for line in notes(report):
        out.print(Text(line, style="dim"))


def text_table(report: QualityReport, values: Float64Array) -> Table:
    """What happened to the texts, a row a rule; `values` are `report.figures()`."""
    from treewise.training.quality import figure_of

    headings = ("same\ntext", "kept", "ROUGE-L", "valid\nJSON", "tests\npass")
    table = figures_table("texts beside plain decoding's, with 95 % intervals by prompt", "verification", headings)
    for answers, found in zip(report.answers, values, strict=True):
        is_plain = answers is report.plain
        table.add_row(
            Text(answers.name),
            NONE if is_plain else _same(answers),
            NONE if is_plain else share(figure_of(found, "kept")),
            NONE if is_plain else ranged(figure_of(found, "rouge_l")),
            _right(report.json_change(answers).right, report.json_change(answers).of),
            _right(report.test_change(answers).right, report.test_change(answers).of),
        )
    return table


def speed_table(report: QualityReport, values: Float64Array) -> Table:
    """How fast the rules were, a row a rule."""
    from treewise.training.quality import figure_of

    headings = ("tokens/s", "tokens per round", "over plain", "over exact")
    table = figures_table("speed, decoded in turns", "verification", headings)
    for answers, found in zip(report.answers, values, strict=True):
        speed = 1e3 * answers.tokens.sum() / answers.ms.sum()
        cells = (ranged(figure_of(found, name)) for name in ("tokens_per_round", "speedup", "over_exact"))
        table.add_row(Text(answers.name), f"{speed:.1f}", *cells)
    return table


def task_table(report: QualityReport) -> Table:
    """Texts and speed of the rules that change a text, task by task."""
    from treewise.training.quality import figure_of

    headings = ("same\ntext", "ROUGE-L", "over exact")
    table = figures_table("by task, rules under which a text differs", "task", headings)
    table.add_column("verification", no_wrap=True)
    changed = [place for place, answers in enumerate(report.answers) if answers.num_differing]
    for task in report.tasks[1:]:
        values, places = report.figures(task), report.places(task)
        for number, place in enumerate(changed):
            answers, found = report.answers[place], values[place]
            table.add_row(
                Text("" if number else in_words(task)),
                _right(int(answers.is_same[places].sum()), len(places)),
                ranged(figure_of(found, "rouge_l")),
                ranged(figure_of(found, "over_exact")),
                Text(answers.name),
                end_section=place == changed[-1],
            )
    return table


def ranged(found: Interval) -> str:
    """A figure with its interval where there is one."""
    if found.value != found.value:
        return NONE
    bounds = "" if found.low != found.low else f" [{found.low:.2f}, {found.high:.2f}]"
    return f"{found.value:.2f}{bounds}"


def share(found: Interval) -> str:
    """A share in percent, with its interval where there is one."""
    if found.value != found.value:
        return NONE
    bounds = "" if found.low != found.low else f" [{100 * found.low:.0f}, {100 * found.high:.0f}]"
    return f"{100 * found.value:.0f} %{bounds}"


def _same(answers: Answers) -> Text:
    prompts = len(answers.tokens)
    words = "identical" if answers.is_identical else _right(prompts - answers.num_differing, prompts)
    return Text(words, style="green" if answers.is_identical else "bold")


def _right(right: int, of: int) -> str:
    return f"{right}/{of}" if of else NONE
