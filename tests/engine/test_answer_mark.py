"""Answers of two targets are told apart, and one that is stored twice is one lesson."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.engine.disk_pairs import write_model
from tests.engine.tiny_lessons import ANSWERS, PROMPTS
from treewise.data.errors import PairError
from treewise.engine.answer_mark import MARK_NAME
from treewise.engine.answers import answer_shards, read_answers, read_shard, states_path, write_answers
from treewise.engine.lessons import collect_lessons, ready_lessons
from treewise.engine.pair import Pair, load_pair
from treewise.engine.recycled_corpus import answers_to
from treewise.engine.teacher import read_lessons


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pair, Pair]:
    """Two targets with one tokenizer: a prompt is the same tokens to both."""
    folders = [write_model(tmp_path_factory.mktemp("target"), seed=seed, num_layers=1) for seed in (5, 6)]
    first, second = (load_pair(str(folder), "none") for folder in folders)
    return first, second


def test_another_targets_answers_are_refused_wherever_they_are_read_or_made(
    pairs: tuple[Pair, Pair], tmp_path: Path
) -> None:
    own, other = pairs
    folder, chosen = tmp_path / "answers", tmp_path / "ready.json"
    made = collect_lessons(own, PROMPTS[:3], folder, ANSWERS)
    before = sorted(folder.iterdir())
    told = f"answers in {folder} must be of target {other.description.target!r} "
    told += f"({other.description.target_sha256}), got those of '{own.description.target_sha256} "
    for ask in (
        lambda: ready_lessons(other, PROMPTS[:3], folder, chosen),
        lambda: collect_lessons(other, PROMPTS[:3], folder, ANSWERS),
        lambda: answers_to(other, PROMPTS[:3], folder),
    ):
        with pytest.raises(PairError, match=re.escape(told)):
            ask()
    assert sorted(folder.iterdir()) == before and not chosen.exists()
    assert len(ready_lessons(own, PROMPTS[:3], folder, chosen)) == len(made) == 6


def test_a_folder_without_a_mark_is_taken_and_marked(pairs: tuple[Pair, Pair], tmp_path: Path) -> None:
    own, other = pairs
    made = collect_lessons(own, PROMPTS[:3], tmp_path, ANSWERS)
    mark = tmp_path / MARK_NAME
    mark.unlink()
    assert len(answers_to(own, PROMPTS[:3], tmp_path)) == len(made)
    assert not mark.exists()  # whoever only reads leaves it as it is
    ready = ready_lessons(own, PROMPTS[:3], tmp_path, tmp_path / "ready.json")
    assert {lesson.key for lesson in ready} == {lesson.key for lesson in made}
    assert mark.read_text(encoding="utf-8").split() == [own.description.target_sha256, own.description.target]
    with pytest.raises(PairError, match="use another folder"):
        answers_to(other, PROMPTS[:3], tmp_path)
    mark.write_bytes(b"\xff")
    with pytest.raises(PairError, match=r"target\.sha256 cannot be read .* delete it if "):
        answers_to(own, PROMPTS[:3], tmp_path)


def test_an_answer_that_two_shards_hold_is_one_lesson(pairs: tuple[Pair, Pair], tmp_path: Path) -> None:
    own, _ = pairs
    collect_lessons(own, PROMPTS[:3], tmp_path, ANSWERS)
    once = read_lessons(tmp_path)
    shards = answer_shards(tmp_path)
    first = [read_shard(shard)[0] for shard in shards]
    states = [lesson.states for answer in first for lesson in once if lesson.key == answer.key]
    again = write_answers(tmp_path, first, states)
    assert again not in shards and states_path(again).is_file()
    found = read_lessons(tmp_path)
    assert sorted(lesson.key for lesson in found) == [answer.key for answer in read_answers(tmp_path)]
    assert len(found) == len(once) == 6
