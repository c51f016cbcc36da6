"""How a draft's exam is told apart: by task, and how far the target's texts repeat themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treewise.engine.teacher import Lesson


def exam_groups(lesson: Lesson) -> tuple[str, ...]:
    """The task of an exam text, and those of `SUBSETS` that its answer is of: what `bench-policy` calls them."""
    from treewise.training.text_repetition import SUBSETS, repeated_share

    share = repeated_share(lesson.token_ids[lesson.num_prompt_tokens :].tolist())
    return (lesson.task, *(name for name, most in SUBSETS.items() if share <= most < 1.0))
