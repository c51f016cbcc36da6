"""How often a draft would have said what the target says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from treewise.engine.draft_model import DraftModel
from treewise.engine.teacher import Lesson, length_batches, pad_right

AGREEMENT_RANKS = (1, 2, 4, 8)
PASS_TOKENS = 2048  # padded tokens in one pass of the draft


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often the target's greedy token is among the draft's first 1, 2, 4, 8, on text the draft never saw."""

    task: str  # "all" for all of them
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


@torch.inference_mode()
def measure_agreement(draft: DraftModel, target: PreTrainedModel, lessons: Sequence[Lesson]) -> list[Agreement]:
    """Agreement on the answer positions of greedy lessons, over all and by task.

    The target's own greedy token is compared, over its whole vocabulary: one that the cut head lacks is a miss.
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
            greedy = head(lesson.states[span].to(head.weight)).argmax(dim=-1).cpu()
            ranked = head_ids[draft.head(hidden[row, span]).topk(max(AGREEMENT_RANKS), dim=-1).indices.cpu()]
            found = ranked == greedy[:, None]
            top = torch.stack([found[:, :rank].any(dim=-1) for rank in AGREEMENT_RANKS], dim=1)
            covered = torch.isin(greedy, head_ids)[:, None]
            hits.setdefault(lesson.task, []).append(torch.cat([top, covered], dim=1).double())
    grouped = {task: torch.cat(rows) for task, rows in sorted(hits.items())}
    grouped = {"all": torch.cat(list(grouped.values())), **grouped} if grouped else {}
    return [
        Agreement(task, len(rows), tuple(rows[:, :-1].mean(dim=0).tolist()), float(rows[:, -1].mean()))
        for task, rows in grouped.items()
    ]
