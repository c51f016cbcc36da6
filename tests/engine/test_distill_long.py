"""What a long distillation leans on: the exam, its curve, and lessons that stay the same while answers arrive."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.engine.disk_pairs import write_model
from tests.engine.tiny_lessons import ANSWERS, PROMPTS
from treewise.data.errors import PairError, ParameterError
from treewise.engine.agreement import Agreement, collect_exam
from treewise.engine.answers import AnswerSettings, make_answers
from treewise.engine.distill import DistillStep
from treewise.engine.distill_curve import LearningCurve
from treewise.engine.draft_folder import trainable_draft
from treewise.engine.lessons import collect_lessons, planned_answers, ready_lessons
from treewise.engine.pair import Pair, load_pair


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = write_model(tmp_path_factory.mktemp("target"), seed=5, num_layers=2, initializer_range=0.6)
    return load_pair(str(folder), "none")


def test_an_exam_is_greedy_and_made_once(pair: Pair, tmp_path: Path) -> None:
    settings = AnswerSettings(num_samples=1, max_new_tokens=9, greedy=True)
    exam = collect_exam(pair, PROMPTS[:4], tmp_path, settings)
    assert {lesson.temperature for lesson in exam.lessons} == {0.0}
    assert len(exam.lessons) == 4
    made = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    again = collect_exam(pair, PROMPTS[:4], tmp_path, settings)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == made
    whole = trainable_draft(pair.target, (0, 1), np.arange(258, dtype=np.int32))
    rows = again.take(whole, pair.target)
    assert [row.task for row in rows] == ["all", "digits", "letters"]
    assert rows[0].top[0] > 0.99
    with pytest.raises(ParameterError, match="greedy must be True in an exam, got False"):
        collect_exam(pair, PROMPTS[:4], tmp_path, replace(settings, greedy=False))


def test_a_curve_is_found_again_and_goes_on_where_training_does(tmp_path: Path) -> None:
    def step(number: int) -> DistillStep:
        return DistillStep(number, 9, number / 3, 10 * number, 1.0, 0.0)

    held_out = Agreement("all", 5, (0.1, 0.2, 0.3, 0.4), 1.0)
    curve = LearningCurve.read(tmp_path / "curve.json")
    for number in (2, 4, 6):
        curve.add(step(number), held_out, [])
    again = LearningCurve.read(tmp_path / "curve.json")
    assert again.rows == curve.rows
    again.add(step(4), held_out, [held_out])
    assert [row["step"] for row in LearningCurve.read(tmp_path / "curve.json").rows] == [2, 4]
    assert again.rows[1]["exam"] == [held_out.to_json()]
    (tmp_path / "curve.json").write_text("nothing")
    with pytest.raises(PairError, match=r"curve .*curve.json cannot be read .* delete it"):
        LearningCurve.read(tmp_path / "curve.json")


def test_ready_lessons_are_what_is_stored_and_stay_the_same_until_chosen_anew(pair: Pair, tmp_path: Path) -> None:
    lessons = collect_lessons(pair, PROMPTS, tmp_path / "all", ANSWERS)
    batches = planned_answers(pair, PROMPTS, ANSWERS)
    making = make_answers(pair.target, batches, tmp_path, ANSWERS, eos_ids=pair.eos_token_ids)
    first = {answer.key for answer in next(making)}
    renamed = [replace(prompt, id=f"new {prompt.id}") for prompt in PROMPTS[1:]]
    chosen = tmp_path / "ready.json"
    ready = ready_lessons(pair, renamed, tmp_path, chosen)
    of_first = [lesson for lesson in lessons if lesson.key in first and lesson.prompt_id != "p0"]
    assert sorted(lesson.key for lesson in ready) == sorted(lesson.key for lesson in of_first)
    assert {lesson.prompt_id for lesson in ready} == {f"new {lesson.prompt_id}" for lesson in of_first}
    list(making)
    assert [lesson.key for lesson in ready_lessons(pair, renamed, tmp_path, chosen)] == [x.key for x in ready]
    chosen.unlink()
    assert len(ready_lessons(pair, renamed, tmp_path, chosen)) == 18
    chosen.write_text("[1]")
    with pytest.raises(PairError, match=r"ready.json cannot be read .* delete it"):
        ready_lessons(pair, renamed, tmp_path, chosen)
