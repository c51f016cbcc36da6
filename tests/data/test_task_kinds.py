"""Names of tasks and the kinds that they are of."""

from __future__ import annotations

import pytest

from treewise.data.prompt_set import own_prompts
from treewise.data.task_kinds import SYNONYMS, in_order, in_words, kind_of


@pytest.mark.parametrize(
    ("task", "kind"),
    [
        ("knowledge", "knowledge"),
        ("code", "structured"),
        ("Function-Calling", "structured"),
        ("creative writing", "creative"),
        ("MATH", "reasoning"),
        ("retrieval", "rag"),
        ("Summarisation", "summarization"),
        ("my own", ""),
        ("", ""),
    ],
)
def test_kinds_by_name(task: str, kind: str) -> None:
    assert kind_of(task) == kind


def test_a_name_is_of_one_kind() -> None:
    names = [name for kind, others in SYNONYMS.items() for name in (kind, *others)]
    assert len(names) == len(set(names))


def test_the_projects_own_tasks_are_the_kinds() -> None:
    assert {prompt.task for prompt in own_prompts()} == set(SYNONYMS)


def test_tasks_come_by_kind_and_unknown_ones_last() -> None:
    assert in_order(["chat", "zebra", "json", "qa", "code", "aardvark", "qa"]) == (
        "qa", "code", "json", "chat", "aardvark", "zebra",
    )  # fmt: skip


def test_words_are_added_where_they_say_more() -> None:
    assert in_words("rag") == "rag (retrieval)"
    assert in_words("code") == "code (structured output and code)"
    assert in_words("retrieval") == "retrieval"
    assert in_words("chat") == "chat"
