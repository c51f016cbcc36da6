"""From lessons to a stored draft: choose the head, train, measure agreement, keep where it came from."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from treewise.data.errors import PairError
from treewise.data.prompt_set import Prompt, prompts_sha256
from treewise.engine.agreement import Agreement, Exam, measure_agreement
from treewise.engine.answers import AnswerSettings
from treewise.engine.distill import (
    DistillSettings,
    DistillStep,
    distill,
    frequent_tokens,
    lessons_sha256,
    plan_batches,
    split_lessons,
    training_identity,
)
from treewise.engine.distill_curve import LearningCurve
from treewise.engine.draft_folder import DraftDescription, load_draft, save_draft
from treewise.engine.draft_model import DraftModel
from treewise.engine.hub import cache_home
from treewise.engine.pair import DEFAULT_TARGET, Pair
from treewise.engine.teacher import Lesson

SMOLLM2_NOTICE = "modified from SmolLM2-135M-Instruct (Q4_1, dequantised), Apache-2.0"


@dataclass(frozen=True, slots=True)
class DistillReport:
    """What came out: the stored draft and its agreement on prompts it never saw, after rounding to float16."""

    out: str
    description: DraftDescription
    agreement: tuple[Agreement, ...]  # on the held-out share of the prompts it was trained with
    exam: tuple[Agreement, ...]  # on prompts of another origin; empty without an exam

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        return {
            "out": self.out,
            "draft": self.description.to_json(),
            "agreement": [row.to_json() for row in self.agreement],
            "exam": [row.to_json() for row in self.exam],
        }


def default_work_folder(target: str) -> Path:
    """Where a target's answers, states and checkpoints lie when the caller names no place."""
    return cache_home() / "distill" / re.sub(r"[^A-Za-z0-9._-]+", "--", target).strip("-.")


def target_notice(target: str) -> str:
    """The licence notice of what is made from a target."""
    return SMOLLM2_NOTICE if target == DEFAULT_TARGET else f"modified from {target}"


def planned_steps(lessons: Sequence[Lesson], training: DistillSettings) -> int:
    """How many optimiser steps `train_draft` takes when it starts anew."""
    return training.epochs * len(plan_batches(split_lessons(lessons, training)[0], training))


def train_draft(
    pair: Pair,
    lessons: Sequence[Lesson],
    prompts: Sequence[Prompt],
    answers: AnswerSettings,
    training: DistillSettings,
    out: Path,
    *,
    work: Path,
    exam: Exam | None = None,
    examine_every_tokens: int = 0,
    command: str = "",
    tell: Callable[[str], None] = lambda word: None,
    examined: Callable[[DistillStep, Agreement, Agreement | None], None] = lambda step, held_out, exam: None,
) -> DistillReport:
    """Train a draft of the pair's target on ready lessons, and store it in `out` with where it came from.

    Args:
        lessons: from `collect_lessons`, made of `prompts` under `answers`, or from `ready_lessons`; a share of the
            prompts is held out.
        work: where the checkpoint lies, named by settings and lessons; a stopped training goes on from it, and
            trainings that differ keep out of each other's way.
        exam: taken with the held-out lessons after every pass, and each time that
        examine_every_tokens: more positions have been learned from (0: only after passes).
        command: kept in the draft's provenance.
        tell: told a word after every step.
        examined: told the agreement over all held-out lessons, and over all of the exam.

    Raises:
        PairError: too few prompts to hold some out, or answers without tokens.
    """
    kept, held_out = split_lessons(lessons, training)
    greedy = [lesson for lesson in held_out if lesson.temperature == 0] or held_out
    if not sum(lesson.num_answer_tokens for lesson in greedy):
        raise PairError("held-out prompts must have answers, got none")
    head_ids = frequent_tokens(kept, always_said(pair), training.head_size, pair.description.vocab_size)
    identity = hashlib.sha256(training_identity(training, kept, head_ids).encode()).hexdigest()[:16]
    about = f"-{exam.prompts_sha256[:8]}" if exam else ""
    curve = LearningCurve.read(work / f"curve-{identity}{about}.json")
    seen: dict[str, Any] = {}

    def stepped(step: DistillStep) -> None:
        seen["seconds"] = round(step.seconds, 1)
        seen["tokens"] = step.tokens_seen
        tell(f"step {step.step}/{step.num_steps}, loss {step.loss_nats:.3f}")

    def examine(step: DistillStep, draft: DraftModel) -> None:
        on_held_out = measure_agreement(draft, pair.target, greedy)[0]
        on_exam = exam.take(draft, pair.target) if exam else []
        curve.add(step, on_held_out, on_exam)
        examined(step, on_held_out, on_exam[0] if on_exam else None)

    draft = distill(
        pair.target,
        kept,
        head_ids,
        training,
        work / f"checkpoint-{identity}.safetensors",
        report=stepped,
        examine=examine,
        examine_every_tokens=examine_every_tokens,
    )
    of = pair.description
    provenance = {
        "notice": target_notice(of.target),
        "command": command,
        "prompts_sha256": prompts_sha256(prompts),
        "lessons_sha256": lessons_sha256(kept),
        "head_sha256": hashlib.sha256(head_ids.tobytes()).hexdigest(),
        "tokenizer_sha256": of.tokenizer_sha256,
        "answers": asdict(answers),
        "training": training.to_json(),
        "lessons": len(kept),
        "answer_tokens": sum(lesson.num_answer_tokens for lesson in kept),
        "answer_tokens_seen": training.epochs * sum(lesson.num_answer_tokens for lesson in kept),
        "positions_seen": seen.get("tokens"),
        "held_out_prompts": sorted({lesson.prompt_id for lesson in held_out}),
        "exam_prompts_sha256": exam.prompts_sha256 if exam else None,
        "train_seconds": seen.get("seconds"),
        "curve": curve.rows,
        "torch": torch.__version__,
    }
    sha = of.target_sha256
    description = save_draft(out, draft, target=of.target, target_sha256=sha, provenance=provenance)
    stored = load_draft(out, pair.target, target_sha256=sha)
    return DistillReport(
        str(out),
        description,
        tuple(measure_agreement(stored, pair.target, greedy)),
        tuple(exam.take(stored, pair.target)) if exam else (),
    )


def always_said(pair: Pair) -> list[int]:
    """Tokens that a cut head keeps whatever their count: special tokens, and every single byte or character."""
    special = {int(token) for token in pair.tokenizer.all_special_ids} | set(pair.eos_token_ids)
    single = {index for token, index in pair.tokenizer.get_vocab().items() if len(token) == 1}
    return sorted(token for token in special | single if token < pair.description.vocab_size)
