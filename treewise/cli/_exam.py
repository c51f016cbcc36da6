"""What `distill` and `agreement` share: the prompts of an exam, its texts, and the table of its result."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from treewise.cli._options import of_split
from treewise.cli._show import figures_table, percent, progress
from treewise.data.prompt_set import Prompt, in_turns

if TYPE_CHECKING:
    from treewise.engine.agreement import Agreement, Exam
    from treewise.engine.pair import Pair

EXAM_TOKENS = 96  # longest answer
EXAM_ROWS = 24  # answers decoded at once: prompts of other origin differ in length, and short ones are padded


def exam_prompts(source: str, split: str, limit: int) -> tuple[Prompt, ...]:
    """Prompts of a source and split, at most `limit` (0: all), tasks taking turns. Raises as `of_split`."""
    found = of_split(source, split)
    return in_turns(found, limit) if limit else found


def open_exam(pair: "Pair", prompts: Sequence[Prompt], work: Path, max_new_tokens: int = EXAM_TOKENS) -> "Exam":
    """The exam over `prompts`; the target's greedy answers are kept in `work` for the next one."""
    from treewise.draft_exam import exam_groups
    from treewise.engine.agreement import collect_exam
    from treewise.engine.answers import AnswerSettings
    from treewise.engine.lessons import LessonProgress, planned_answers

    settings = AnswerSettings(num_samples=1, max_new_tokens=max_new_tokens, batch_rows=EXAM_ROWS, greedy=True)
    with progress("the target sits the exam", total=2 * len(planned_answers(pair, prompts, settings))) as advance:

        def stored(step: LessonProgress) -> None:
            advance(f"{step.stage}, {step.num_tokens:,} tokens")

        return collect_exam(pair, prompts, work / "exam", settings, groups_of=exam_groups, report=stored)


def agreement_table(title: str, rows: Sequence["Agreement"]) -> Table:
    """Agreement with the target's greedy token, one row a group."""
    table = figures_table(title, "task", ("positions", "top-1", "top-2", "top-4", "top-8", "in head"))
    for row in rows:
        tops = [percent(share) for share in row.top]
        table.add_row(row.task, f"{row.positions:,}", *tops, percent(row.head_coverage))
    return table


def top_words(row: "Agreement") -> str:
    """The shares of one group in words."""
    from treewise.engine.agreement import AGREEMENT_RANKS

    return ", ".join(f"top-{rank} {percent(share)}" for rank, share in zip(AGREEMENT_RANKS, row.top, strict=True))
