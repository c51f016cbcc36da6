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
from treewise.engine.agreement import Agreement, measure_agreement
from treewise.engine.answers import AnswerSettings
from treewise.engine.distill import (
    DistillSettings,
    DistillStep,
    distill,
    frequent_tokens,
    lessons_sha256,
    plan_batches,
    split_lessons,
)
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
    agreement: tuple[Agreement, ...]

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        rows = [row.to_json() for row in self.agreement]
        return {"out": self.out, "draft": self.description.to_json(), "agreement": rows}


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
    command: str = "",
    tell: Callable[[str], None] = lambda word: None,
    after_epoch: Callable[[int, list[Agreement]], None] = lambda epoch, agreement: None,
) -> DistillReport:
    """Train a draft of the pair's target on ready lessons, and store it in `out` with where it came from.

    Args:
        lessons: from `collect_lessons`, made of `prompts` under `answers`; a share of the prompts is held out.
        work: where the checkpoint lies; a stopped training goes on from it.
        command: kept in the draft's provenance.
        tell: told a word after every step.
        after_epoch: told the agreement on held-out prompts after every pass over the lessons.

    Raises:
        PairError: too few prompts to hold some out, or answers without tokens.
    """
    kept, held_out = split_lessons(lessons, training)
    exam = [lesson for lesson in held_out if lesson.temperature == 0] or held_out
    if not sum(lesson.num_answer_tokens for lesson in exam):
        raise PairError("held-out prompts must have answers, got none")
    head_ids = frequent_tokens(kept, always_said(pair), training.head_size, pair.description.vocab_size)
    seen: dict[str, Any] = {"tokens": 0}
    curve: list[dict[str, Any]] = []

    def stepped(step: DistillStep) -> None:
        seen["seconds"] = round(step.seconds, 1)
        tell(f"step {step.step}/{step.num_steps}, loss {step.loss_nats:.3f}")

    def epoch_done(epoch: int, draft: DraftModel) -> None:
        agreement = measure_agreement(draft, pair.target, exam)
        curve.append({"epoch": epoch, **agreement[0].to_json()})
        after_epoch(epoch, agreement)

    draft = distill(
        pair.target,
        kept,
        head_ids,
        training,
        work / "checkpoint.safetensors",
        report=stepped,
        after_epoch=epoch_done,
    )
    identity = pair.description
    provenance = {
        "notice": target_notice(identity.target),
        "command": command,
        "prompts_sha256": prompts_sha256(prompts),
        "lessons_sha256": lessons_sha256(kept),
        "head_sha256": hashlib.sha256(head_ids.tobytes()).hexdigest(),
        "tokenizer_sha256": identity.tokenizer_sha256,
        "answers": asdict(answers),
        "training": training.to_json(),
        "lessons": len(kept),
        "answer_tokens": sum(lesson.num_answer_tokens for lesson in kept),
        "answer_tokens_seen": training.epochs * sum(lesson.num_answer_tokens for lesson in kept),
        "held_out_prompts": sorted({lesson.prompt_id for lesson in held_out}),
        "train_seconds": seen.get("seconds"),
        "agreement_by_epoch": curve,
        "torch": torch.__version__,
    }
    sha = identity.target_sha256
    description = save_draft(out, draft, target=identity.target, target_sha256=sha, provenance=provenance)
    stored = load_draft(out, pair.target, target_sha256=sha)
    return DistillReport(str(out), description, tuple(measure_agreement(stored, pair.target, exam)))


def always_said(pair: Pair) -> list[int]:
    """Tokens that a cut head keeps whatever their count: special tokens, and every single byte or character."""
    special = {int(token) for token in pair.tokenizer.all_special_ids} | set(pair.eos_token_ids)
    single = {index for token, index in pair.tokenizer.get_vocab().items() if len(token) == 1}
    return sorted(token for token in special | single if token < pair.description.vocab_size)
