"""A second, larger set of own prompts for distillation, drawn from forms and word lists when it is asked for."""

import hashlib
import itertools
from collections.abc import Iterator, Mapping
from typing import Protocol

from treewise.data.own_prompts import (
    more_benchmarks,
    more_chat,
    more_code,
    more_creative,
    more_instruction,
    more_knowledge,
    more_rag,
    more_reasoning,
    more_structured,
    more_summarization,
    more_translation,
)
from treewise.data.own_prompts.choices import Choices
from treewise.data.own_prompts.json_schemas import SchemaDocuments
from treewise.data.own_prompts.python_exercises import PythonExercises
from treewise.data.own_prompts.subjects import SUBJECTS
from treewise.data.own_prompts.tool_calls import ToolCalls
from treewise.data.prompt_set import DRAWN_SPLIT

SEED = "treewise-more-prompts-1"


class Source(Protocol):
    """What prompts are drawn from: forms, or a generator of its own."""

    def draw(self, seed: str, shared: Mapping[str, tuple[str, ...]]) -> list[list[str]]:
        """Lists of prompts, one a kind; `shared` are word lists by name."""


TASK_SOURCES: dict[str, tuple[Source, ...]] = {
    "knowledge": (*more_knowledge.FORMS, Choices()),
    "reasoning": (*more_reasoning.FORMS, *more_benchmarks.REASONING),
    "creative": (*more_creative.FORMS, *more_benchmarks.CREATIVE),
    "structured": (*more_structured.FORMS, *more_code.FORMS, PythonExercises(), ToolCalls(230), SchemaDocuments(6)),
    "instruction": (*more_instruction.FORMS, *more_benchmarks.INSTRUCTION),
    "translation": more_translation.FORMS,
    "summarization": more_summarization.FORMS,
    "rag": (*more_rag.FORMS, *more_benchmarks.RAG),
    "chat": more_chat.FORMS,
}


def more_records() -> list[dict[str, str]]:
    """The records of the set; tasks take turns, and so do the forms of a task, so that any prefix is balanced.

    An id names its text, not its place: prompts keep theirs when forms are added.
    """
    columns = [[(task, text) for text in _texts(task)] for task in TASK_SOURCES]
    turns = (entry for row in itertools.zip_longest(*columns) for entry in row if entry)
    unique = {text: task for task, text in reversed(list(turns))}
    return [
        {
            "id": f"more/{task}/{hashlib.sha256(text.encode()).hexdigest()[:12]}",
            "task": task,
            "split": DRAWN_SPLIT,
            "prompt": text,
        }
        for text, task in reversed(unique.items())
    ]


def _texts(task: str) -> Iterator[str]:
    """The prompts of one task: from every template its first one, then from every template its second one."""
    drawn = [texts for source in TASK_SOURCES[task] for texts in source.draw(SEED, SUBJECTS)]
    spread = sorted(
        ((rank + 0.5) / len(texts), place, text) for place, texts in enumerate(drawn) for rank, text in enumerate(texts)
    )
    return (text for _, _, text in spread)
