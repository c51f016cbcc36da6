"""Lessons: a target's answers and its states on them, made once, shared by workers, refused where damaged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.engine.tiny_lessons import ANSWERS, PROMPTS, lessons, pair
from treewise.data.errors import SchemaVersionError, ShardError
from treewise.engine import answers as answers_module
from treewise.engine.answers import AnswerSettings, answer_shards, make_answers, read_answers, states_path
from treewise.engine.lessons import LessonProgress, collect_lessons, planned_answers
from treewise.engine.pair import Pair
from treewise.engine.teacher import Lesson

__all__ = ["lessons", "pair"]  # fixtures


def test_every_prompt_is_answered_once_a_round_and_half_of_it_greedily(pair: Pair) -> None:
    jobs = [job for batch in planned_answers(pair, PROMPTS, ANSWERS) for job in batch]
    assert len(jobs) == len({job.key for job in jobs}) == 20
    greedy = [job.prompt.id for job in jobs if job.temperature == 0]
    assert sorted(greedy) == sorted(prompt.id for prompt in PROMPTS)
    warm = [job.temperature for job in jobs if job.temperature > 0]
    assert min(warm) >= 0.7 and max(warm) <= 1.0


def test_keys_follow_what_decides_an_answer(pair: Pair) -> None:
    def keys(settings: AnswerSettings) -> set[str]:
        return {job.key for batch in planned_answers(pair, PROMPTS, settings) for job in batch}

    base = keys(ANSWERS)
    assert keys(replace(ANSWERS, batch_rows=3)) == base
    assert not keys(replace(ANSWERS, max_new_tokens=13)) & base
    # Another seed leaves greedy answers as they are.
    assert len(keys(replace(ANSWERS, seed=1)) & base) == len(PROMPTS)


def test_a_killed_collection_loses_at_most_a_batch(pair: Pair, tmp_path: Path) -> None:
    batches = planned_answers(pair, PROMPTS, ANSWERS)
    running = make_answers(pair.target, batches, tmp_path, ANSWERS, eos_ids=pair.eos_token_ids)
    first = next(running)
    del running
    assert {answer.key for answer in read_answers(tmp_path)} == {answer.key for answer in first}
    reports: list[LessonProgress] = []
    lessons = collect_lessons(pair, PROMPTS, tmp_path, ANSWERS, report=reports.append)
    assert sum(report.num_texts for report in reports if report.stage == "answers") == 20 - len(first)
    assert len(lessons) == 20
    collect_lessons(pair, PROMPTS, tmp_path, ANSWERS, report=reports.append)
    assert sum(report.num_texts for report in reports) == 20 - len(first)  # nothing was made again


def test_states_that_are_gone_are_made_again(pair: Pair, tmp_path: Path, lessons: list[Lesson]) -> None:
    collect_lessons(pair, PROMPTS, tmp_path, ANSWERS)
    for shard in answer_shards(tmp_path):
        states_path(shard).unlink()
    reports: list[LessonProgress] = []
    again = collect_lessons(pair, PROMPTS, tmp_path, ANSWERS, report=reports.append)
    assert {(report.stage, report.num_texts) for report in reports} <= {("states", 4), ("states", 2)}
    assert sum(report.num_texts for report in reports) == 20
    for mine, theirs in zip(again, lessons, strict=True):
        assert mine.key == theirs.key and torch.allclose(mine.states.float(), theirs.states.float(), atol=2e-3)


def test_two_workers_share_the_batches(pair: Pair, tmp_path: Path, lessons: list[Lesson]) -> None:
    batches = planned_answers(pair, PROMPTS, ANSWERS)
    for worker in (1, 0):
        kinds = {"worker": worker, "num_workers": 2}
        list(make_answers(pair.target, batches, tmp_path, ANSWERS, eos_ids=pair.eos_token_ids, **kinds))
        assert len(answer_shards(tmp_path)) == len(batches[1::2]) + (len(batches[0::2]) if worker == 0 else 0)
    again = {answer.key: answer.prompt_ids + answer.answer_ids for answer in read_answers(tmp_path)}
    assert again == {lesson.key: tuple(lesson.token_ids.tolist()) for lesson in lessons}


def test_states_are_what_predicts_the_next_token(pair: Pair, lessons: list[Lesson]) -> None:
    lesson = next(lesson for lesson in lessons if lesson.temperature == 0 and lesson.num_answer_tokens > 3)
    logits = pair.target.lm_head(lesson.states.float())
    span = slice(lesson.num_prompt_tokens - 1, -1)
    assert torch.equal(logits[span].argmax(-1), lesson.token_ids[lesson.num_prompt_tokens :])


def test_damaged_shards_are_refused_by_name(pair: Pair, tmp_path: Path) -> None:
    collect_lessons(pair, PROMPTS[:3], tmp_path, ANSWERS)
    shard = answer_shards(tmp_path)[0]
    states_path(shard).write_bytes(b"nothing")
    with pytest.raises(ShardError, match=r"states-.*cannot be read .* delete it"):
        collect_lessons(pair, PROMPTS[:3], tmp_path, ANSWERS)
    shard.write_bytes(b"nothing")
    with pytest.raises(ShardError, match=r"answers-.*cannot be read"):
        read_answers(tmp_path)


def test_answers_of_another_schema_are_refused(pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collect_lessons(pair, PROMPTS[:2], tmp_path, ANSWERS)
    monkeypatch.setattr(answers_module, "ANSWER_SCHEMA_VERSION", 2)
    with pytest.raises(SchemaVersionError, match="has schema version '1', this treewise reads 2"):
        read_answers(tmp_path)
