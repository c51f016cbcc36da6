"""Distillation on a tiny scale: it learns, it resumes bit for bit, and it makes nothing twice."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.engine.disk_pairs import write_model
from treewise.data.errors import PairError, ParameterError, SchemaVersionError, ShardError
from treewise.data.prompt_set import Prompt
from treewise.engine import answers as answers_module
from treewise.engine import distill as distill_module
from treewise.engine.agreement import Agreement, collect_exam, measure_agreement
from treewise.engine.answers import AnswerSettings, answer_shards, make_answers, read_answers, states_path
from treewise.engine.distill import (
    DistillSettings,
    DistillStep,
    distill,
    frequent_tokens,
    rate_share,
    split_lessons,
)
from treewise.engine.distill_run import always_said, default_work_folder, planned_steps, train_draft
from treewise.engine.draft_folder import read_description, trainable_draft, trained_parameters
from treewise.engine.lessons import LessonProgress, collect_lessons, planned_answers
from treewise.engine.pair import Pair, load_pair
from treewise.engine.teacher import Lesson, length_batches

ANSWERS = AnswerSettings(num_samples=2, max_new_tokens=12, batch_rows=4)
TRAINING = DistillSettings(
    from_layers=(0,), head_size=64, epochs=2, batch_tokens=64, learning_rate=1e-2, warmup_steps=2, held_out_share=0.2
)
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


def head_ids(lessons: list[Lesson], pair: Pair) -> np.ndarray:
    return frequent_tokens(lessons, always_said(pair)[:4], 64, pair.description.vocab_size)


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


def test_prompts_stay_on_one_side(lessons: list[Lesson]) -> None:
    kept, held = split_lessons(lessons, TRAINING)
    assert {lesson.prompt_id for lesson in kept} & {lesson.prompt_id for lesson in held} == set()
    assert len({lesson.prompt_id for lesson in held}) == 2
    assert len(kept) + len(held) == len(lessons)
    with pytest.raises(PairError, match="at least 2 prompts, got 1"):
        split_lessons([lesson for lesson in lessons if lesson.prompt_id == "p0"], TRAINING)


def test_the_head_keeps_special_then_frequent_then_early_tokens(lessons: list[Lesson]) -> None:
    few = [replace_tokens(lessons[0], [7, 7, 9])]
    assert frequent_tokens(few, [200], 4, 258).tolist() == [0, 7, 9, 200]
    assert frequent_tokens(few, [200], 2, 258).tolist() == [7, 200]


def replace_tokens(lesson: Lesson, tokens: list[int]) -> Lesson:
    return replace(lesson, token_ids=torch.tensor(tokens))


def test_training_lowers_the_loss_and_raises_agreement(pair: Pair, lessons: list[Lesson], tmp_path: Path) -> None:
    steps: list[DistillStep] = []
    epochs: list[float] = []
    settings = replace(TRAINING, epochs=8)
    draft = distill(
        pair.target,
        lessons,
        head_ids(lessons, pair),
        settings,
        tmp_path / "checkpoint",
        report=steps.append,
        examine=lambda step, draft: epochs.append(step.epochs),
    )
    assert [step.step for step in steps] == list(range(1, steps[0].num_steps + 1))
    assert epochs == list(range(1, 9))
    quarter = len(steps) // 4
    before, after = (sum(step.loss_nats for step in part) for part in (steps[:quarter], steps[-quarter:]))
    assert after < 0.7 * before
    untrained = trainable_draft(pair.target, (0,), head_ids(lessons, pair))
    trained = measure_agreement(draft, pair.target, lessons)
    assert trained[0].top[0] > measure_agreement(untrained, pair.target, lessons)[0].top[0]
    assert [row.task for row in trained] == ["all", "digits", "letters"]
    assert trained[0].positions == sum(lesson.num_answer_tokens for lesson in lessons)
    assert trained[0].top == tuple(sorted(trained[0].top))


def test_the_whole_target_agrees_with_itself(pair: Pair, lessons: list[Lesson]) -> None:
    everything = np.arange(258, dtype=np.int32)
    draft = trainable_draft(pair.target, (0, 1), everything)
    greedy = [lesson for lesson in lessons if lesson.temperature == 0]
    assert measure_agreement(draft, pair.target, greedy)[0].top[0] > 0.99  # states are stored as float16


def test_a_stopped_training_resumes_bit_for_bit(pair: Pair, lessons: list[Lesson], tmp_path: Path) -> None:
    ids = head_ids(lessons, pair)

    class Killed(Exception):
        pass

    def kill(step: DistillStep) -> None:
        if step.step == 5:
            raise Killed

    through = distill(pair.target, lessons, ids, TRAINING, tmp_path / "a")
    with pytest.raises(Killed):
        distill(pair.target, lessons, ids, TRAINING, tmp_path / "b", report=kill, checkpoint_every_s=0.0)
    steps: list[DistillStep] = []
    resumed = distill(pair.target, lessons, ids, TRAINING, tmp_path / "b", report=steps.append)
    assert steps[0].step == 5
    for name, parameter in trained_parameters(through).items():
        assert torch.equal(parameter, trained_parameters(resumed)[name]), name


def test_a_training_that_is_stopped_in_an_exam_sits_it_again(pair: Pair, lessons: list[Lesson], tmp_path: Path) -> None:
    ids = head_ids(lessons, pair)

    class Killed(Exception):
        pass

    def kill(step: DistillStep, draft: object) -> None:
        if step.step == step.num_steps:
            raise Killed

    with pytest.raises(Killed):
        distill(pair.target, lessons, ids, TRAINING, tmp_path / "k", examine=kill, checkpoint_every_s=0.0)
    taken: list[float] = []
    distill(pair.target, lessons, ids, TRAINING, tmp_path / "k", examine=lambda step, draft: taken.append(step.epochs))
    assert taken == [2.0]


def test_a_checkpoint_of_other_settings_is_not_resumed(pair: Pair, lessons: list[Lesson], tmp_path: Path) -> None:
    ids = head_ids(lessons, pair)
    distill(pair.target, lessons, ids, TRAINING, tmp_path / "c")
    steps: list[DistillStep] = []
    distill(pair.target, lessons, ids, replace(TRAINING, seed=1), tmp_path / "c", report=steps.append)
    assert steps[0].step == 1


def test_a_damaged_checkpoint_is_refused(pair: Pair, lessons: list[Lesson], tmp_path: Path) -> None:
    (tmp_path / "d").write_bytes(b"nothing")
    with pytest.raises(PairError, match=r"checkpoint .* cannot be read"):
        distill(pair.target, lessons, head_ids(lessons, pair), TRAINING, tmp_path / "d")


def test_examinations_follow_what_was_learned_from(pair: Pair, lessons: list[Lesson], tmp_path: Path) -> None:
    steps: list[DistillStep] = []
    taken: list[DistillStep] = []
    distill(
        pair.target,
        lessons,
        head_ids(lessons, pair),
        TRAINING,
        tmp_path / "e",
        report=steps.append,
        examine=lambda step, draft: taken.append(step),
        examine_every_tokens=100,
    )
    seen = [0, *(step.tokens_seen for step in steps)]
    assert seen == sorted(seen)
    assert seen[-1] == 2 * seen[len(steps) // 2]
    crossed = [i for i in range(len(steps)) if seen[i] // 100 < seen[i + 1] // 100 or steps[i].epochs in (1, 2)]
    assert [step.step for step in taken] == [i + 1 for i in crossed]
    assert len(taken) > 4


def test_hard_labels_pull_towards_the_likeliest_token(pair: Pair, lessons: list[Lesson], tmp_path: Path) -> None:
    ids = head_ids(lessons, pair)
    steps: list[DistillStep] = []
    settings = replace(TRAINING, loss="hard", epochs=4)
    draft = distill(pair.target, lessons, ids, settings, tmp_path / "h", report=steps.append)
    assert sum(step.loss_nats for step in steps[-4:]) < sum(step.loss_nats for step in steps[:4])
    # The loss is the cross entropy that torch computes of the same labels.
    said, wanted = torch.randn(2, 5, draft.hidden_size, generator=torch.Generator().manual_seed(3)).unbind()
    said.requires_grad_(True)
    found, gradient = distill_module._loss_and_gradient(draft, said.detach(), wanted, "hard")
    loss = torch.nn.functional.cross_entropy(draft.head(said), draft.head(wanted).argmax(-1))
    loss.backward()
    assert found == pytest.approx(float(loss.detach()), rel=1e-5)
    assert said.grad is not None
    assert torch.allclose(gradient, said.grad, atol=1e-6)


def test_a_draft_starts_from_the_layers_named(pair: Pair, lessons: list[Lesson]) -> None:
    ids = head_ids(lessons, pair)
    last = trained_parameters(trainable_draft(pair.target, (1,), ids))["layers.0.mlp.up_proj.weight"]
    assert torch.equal(last, pair.target.model.layers[1].mlp.up_proj.weight)
    for wrong in ((), (0, 2), (-1,)):
        with pytest.raises(PairError, match="from_layers must be of the target's 2, from 0, got "):
            trainable_draft(pair.target, wrong, ids)


def test_a_whole_run_ends_in_a_draft_that_loads(pair: Pair, lessons: list[Lesson], tmp_path: Path) -> None:
    words: list[str] = []
    told: list[tuple[DistillStep, Agreement, Agreement | None]] = []
    others = [Prompt("o1", "letters", "over"), Prompt("o2", "digits", "7 7 7")]
    greedy = AnswerSettings(num_samples=1, max_new_tokens=9, greedy=True)
    exam = collect_exam(pair, others, tmp_path / "exam", greedy, groups_of=lambda lesson: (lesson.task, "strict"))
    report = train_draft(
        pair,
        lessons,
        PROMPTS,
        ANSWERS,
        TRAINING,
        tmp_path / "draft",
        work=tmp_path / "work",
        exam=exam,
        command="treewise distill",
        tell=words.append,
        examined=lambda *found: told.append(found),
    )
    assert [step.epochs for step, _, _ in told] == [1, 2]
    assert len(words) == planned_steps(lessons, TRAINING)
    assert words[0].startswith(f"step 1/{len(words)}, loss ")
    provenance = read_description(tmp_path / "draft").provenance
    assert provenance["command"] == "treewise distill"
    assert provenance["lessons"] == 16
    assert len(provenance["held_out_prompts"]) == 2
    curve = provenance["curve"]
    assert [(row["epochs"], row["positions_seen"]) for row in curve] == [(s.epochs, s.tokens_seen) for s, _, _ in told]
    assert [row["task"] for row in curve[0]["exam"]] == ["all", "digits", "letters", "strict"]
    assert curve[1]["exam"][0]["positions"] == curve[1]["exam"][3]["positions"] > 0
    assert curve[1]["exam"][0]["top_1"] == told[1][2].to_json()["top_1"]  # type: ignore[union-attr]
    found = report.to_json()
    assert found["agreement"][0]["task"] == found["exam"][0]["task"] == "all"
    loaded = load_pair(pair.description.target, str(tmp_path / "draft"))
    assert loaded.draft is not None
    assert loaded.draft.head_size == 64


def test_batches_hold_like_lengths_within_the_limit() -> None:
    batches = length_batches([5, 1, 30, 5, 2], 10)
    assert batches == [[1, 4], [0, 3], [2]]


def test_the_rate_warms_up_and_falls() -> None:
    shares = [rate_share(step, 100, replace(TRAINING, warmup_steps=10)) for step in range(100)]
    assert shares[:11] == sorted(shares[:11])
    assert shares[10:] == sorted(shares[10:], reverse=True)
    assert shares[10] == 1.0
    assert TRAINING.final_rate_share <= shares[-1] < 0.06


def test_work_folders_are_named_by_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREEWISE_HOME", str(tmp_path))
    assert default_work_folder("org/model") == tmp_path / "distill" / "org--model"


@pytest.mark.parametrize(
    ("kind", "field", "value", "message"),
    [
        (DistillSettings, "epochs", 0, "epochs must be >= 1, got 0"),
        (DistillSettings, "from_layers", (), "from_layers must be at least one layer, got ()"),
        (DistillSettings, "loss", "mse", "loss must be one of kl, hard, got 'mse'"),
        (AnswerSettings, "greedy", True, "num_samples must be 1 where greedy, got 6"),
        (DistillSettings, "held_out_share", 1.0, "held_out_share must be between 0 and 1, got 1.0"),
        (DistillSettings, "learning_rate", 0.0, "learning_rate must be > 0, got 0.0"),
        (AnswerSettings, "num_samples", 0, "num_samples must be >= 1, got 0"),
        (AnswerSettings, "temperature_low", 2.0, "temperature_low must be > 0 and <= temperature_high, got 2.0"),
    ],
)
def test_settings_break_by_name(kind: Callable[..., object], field: str, value: object, message: str) -> None:
    with pytest.raises(ParameterError, match=re.escape(message)):
        kind(**{field: value})
