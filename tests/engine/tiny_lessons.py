"""What distillation is tested on: answers of a tiny target to ten prompts, with its states."""

from __future__ import annotations

import pytest

from tests.engine.disk_pairs import write_model
from treewise.data.prompt_set import Prompt
from treewise.engine.answers import AnswerSettings
from treewise.engine.lessons import collect_lessons
from treewise.engine.pair import Pair, load_pair
from treewise.engine.teacher import Lesson

ANSWERS = AnswerSettings(num_samples=2, max_new_tokens=12, batch_rows=4)
PROMPTS = [
    Prompt(f"p{index}", "letters" if index % 2 else "digits", text)
    for index, text in enumerate(("abc", "xy", "hello you", "12", "99 red", "q", "zebra", "to be", "or", "not"))
]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = write_model(tmp_path_factory.mktemp("target"), seed=5, num_layers=2, initializer_range=0.6)
    return load_pair(str(folder), "none")


@pytest.fixture(scope="module")
def lessons(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> list[Lesson]:
    return collect_lessons(pair, PROMPTS, tmp_path_factory.mktemp("work"), ANSWERS)
