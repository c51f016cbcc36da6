"""Kinds of tasks: how differently named tasks of prompt sets are known to be of one kind."""

from __future__ import annotations

from collections.abc import Iterable

# Kind -> what else it is called. The order is that of reports; a kind is a name of its own.
SYNONYMS: dict[str, tuple[str, ...]] = {
    "knowledge": ("qa", "question_answering", "factual", "facts", "trivia"),
    "reasoning": ("math", "maths", "mathematics", "arithmetic", "logic"),
    "creative": ("creative_writing", "writing", "story", "stories", "poetry", "roleplay"),
    "structured": ("structured_output", "code", "coding", "programming", "json", "function_calling", "tool_use"),
    "instruction": ("instructions", "instruction_following", "complex_instruction"),
    "translation": ("translate", "mt"),
    "summarization": ("summarisation", "summary", "summaries"),
    "rag": ("retrieval", "reading", "reading_comprehension", "context_qa"),
    "chat": ("conversation", "dialogue", "dialog", "multi_turn"),
}
# Kind -> in words, where its own name says too little.
WORDS: dict[str, str] = {
    "structured": "structured output and code",
    "instruction": "complex instruction",
    "rag": "retrieval",
}
_KIND_OF = {name: kind for kind, names in SYNONYMS.items() for name in (kind, *names)}


def kind_of(task: str) -> str:
    """The kind of a task by its name, whatever its case and its hyphens; empty where the table does not know it."""
    return _KIND_OF.get("_".join(task.lower().replace("-", " ").replace("_", " ").split()), "")


def in_words(task: str) -> str:
    """The task's own name, its kind behind it where that says more."""
    words = WORDS.get(kind_of(task), "")
    return f"{task} ({words})" if words and words != task else task


def in_order(tasks: Iterable[str]) -> tuple[str, ...]:
    """Different `tasks` by kind, in the table's order and by name within a kind; unknown ones last."""
    kinds = list(SYNONYMS)
    return tuple(sorted(set(tasks), key=lambda task: (_place(kinds, kind_of(task)), task)))


def _place(kinds: list[str], kind: str) -> int:
    return kinds.index(kind) if kind else len(kinds)
