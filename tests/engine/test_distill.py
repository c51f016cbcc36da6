"""Distillation on a tiny scale: it learns, it resumes bit for bit, and it makes nothing twice."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.engine.tiny_lessons import ANSWERS, PROMPTS, lessons, pair
from treewise.data.errors import PairError, ParameterError
from treewise.data.prompt_set import Prompt
from treewise.engine import distill as distill_module
from treewise.engine.agreement import Agreement, collect_exam, measure_agreement
from treewise.engine.answers import AnswerSettings
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
from treewise.engine.pair import Pair, load_pair
from treewise.engine.teacher import Lesson, length_batches

__all__ = ["lessons", "pair"]  # fixtures

TRAINING = DistillSettings(
    from_layers=(0,), head_size=64, epochs=2, batch_tokens=64, learning_rate=1e-2, warmup_steps=2, held_out_share=0.2
)


def head_ids(lessons: list[Lesson], pair: Pair) -> np.ndarray:
    return frequent_tokens(lessons, always_said(pair)[:4], 64, pair.description.vocab_size)


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
