"""How often a draft would have said what the target says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from treewise.data.errors import require
from treewise.data.prompt_set import Prompt, prompts_sha256
from treewise.engine.answers import AnswerSettings
from treewise.engine.draft_model import DraftModel
from treewise.engine.lessons import LessonProgress, collect_lessons
from treewise.engine.pair import Pair
from treewise.engine.teacher import Lesson, length_batches, pad_right

ALL = "all"
AGREEMENT_RANKS = (1, 2, 4, 8)
PASS_TOKENS = 2048  # padded tokens in one pass of the draft


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often the target's greedy token is among the draft's first 1, 2, 4, 8, on text the draft never saw."""

    task: str  # or another group; "all" for all of them
    positions: int
    top: tuple[float, ...]  # one share per rank of AGREEMENT_RANKS
    head_coverage: float  # share of positions whose greedy token the cut head can say

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        tops = {f"top_{rank}": round(share, 4) for rank, share in zip(AGREEMENT_RANKS, self.top, strict=True)}
        return {
            "task": self.task,
            "positions": self.positions,
            **tops,
            "head_coverage": round(self.head_coverage, 4),
        }


def by_task(lesson: Lesson) -> tuple[str, ...]:
    """The group of a lesson where only tasks are told apart."""
    return (lesson.task,)


@torch.inference_mode()
def measure_agreement(
    draft: DraftModel,
    target: PreTrainedModel,
    lessons: Sequence[Lesson],
    groups_of: Callable[[Lesson], Sequence[str]] = by_task,
) -> list[Agreement]:
    """Agreement on the answer positions of the lessons, over all and by group.

    The target's own greedy token is compared, over its whole vocabulary: one that the cut head lacks is a miss.

    Args:
        groups_of: the groups that a lesson is counted in, beside all.
    """
    head = target.get_output_embeddings()
    ids = draft.head_token_ids
    head_ids = torch.arange(draft.head_size) if ids is None else torch.from_numpy(ids.astype(np.int64))
    hits: dict[str, list[torch.Tensor]] = {}
    for batch in length_batches([len(lesson.token_ids) for lesson in lessons], PASS_TOKENS):
        padded = pad_right([lessons[index].token_ids for index in batch]).to(draft.head_weight.device)
        hidden = draft.model(input_ids=padded, use_cache=False).last_hidden_state
        for row, index in enumerate(batch):
            lesson = lessons[index]
            span = slice(lesson.num_prompt_tokens - 1, len(lesson.token_ids) - 1)
            if lesson.temperature == 0:  # the target said what it found likeliest
                greedy = lesson.token_ids[lesson.num_prompt_tokens :]
            else:
                greedy = head(lesson.states[span].to(head.weight)).argmax(dim=-1).cpu()
            ranked = head_ids[draft.head(hidden[row, span]).topk(max(AGREEMENT_RANKS), dim=-1).indices.cpu()]
            found = ranked == greedy[:, None]
            top = torch.stack([found[:, :rank].any(dim=-1) for rank in AGREEMENT_RANKS], dim=1)
            covered = torch.isin(greedy, head_ids)[:, None]
            for group in (ALL, *groups_of(lesson)):
                hits.setdefault(group, []).append(torch.cat([top, covered], dim=1).double())
    grouped = {group: torch.cat(hits[group]) for group in sorted(hits, key=lambda name: (name != ALL, name))}
    return [
        Agreement(group, len(rows), tuple(rows[:, :-1].mean(dim=0).tolist()), float(rows[:, -1].mean()))
        for group, rows in grouped.items()
        if len(rows)
    ]


@dataclass(frozen=True, slots=True)
class Exam:
    """Greedy texts of the target on prompts that no draft learns from."""

    lessons: Sequence[Lesson]
    prompts_sha256: str
    groups_of: Callable[[Lesson], Sequence[str]] = by_task

    def take(self, draft: DraftModel, target: PreTrainedModel) -> list[Agreement]:
        """The draft's agreement with the target, over all and by group."""
        return measure_agreement(draft, target, self.lessons, self.groups_of)


def collect_exam(
    pair: Pair,
    prompts: Sequence[Prompt],
    folder: Path,
    settings: AnswerSettings,
    *,
    groups_of: Callable[[Lesson], Sequence[str]] = by_task,
    report: Callable[[LessonProgress], None] = lambda progress: None,
) -> Exam:
    """The exam over `prompts`, whose `settings` are greedy: makes the answers and states that `folder` lacks."""
    require(settings.greedy, "greedy", "True in an exam", settings.greedy)
    lessons = collect_lessons(pair, prompts, folder, settings, report=report)
    return Exam(lessons, prompts_sha256(prompts), groups_of)
