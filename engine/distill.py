"""Distilling a draft: a few of the target's layers taught to say what the target says, by KL over a cut head."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import PreTrainedModel

from treewise.data.errors import PairError, require
from treewise.engine.distill_checkpoint import restore_checkpoint, store_checkpoint
from treewise.engine.draft_folder import trainable_draft, trained_parameters
from treewise.engine.draft_model import DraftModel
from treewise.engine.teacher import Lesson, length_batches, pad_right

KL, HARD = LOSSES = ("kl", "hard")  # the target's distribution over the cut head, or the likeliest token of it
LOSS_ROWS = 256  # positions whose logits are held at once; a few megabytes stay in the cache


@dataclass(frozen=True, slots=True)
class DistillSettings:
    """How a draft is trained."""

    from_layers: tuple[int, ...] = (0, 1)  # of the target, to start from
    head_size: int = 16_384
    loss: str = KL  # of LOSSES
    epochs: int = 2
    batch_tokens: int = 1024  # padded tokens in one optimiser step
    learning_rate: float = 3e-3
    warmup_steps: int = 30
    final_rate_share: float = 0.05  # of the learning rate, at the end of the cosine
    weight_decay: float = 0.01
    gradient_norm: float = 1.0  # clipped to
    held_out_share: float = 0.05  # of the prompts, for the reported agreement
    seed: int = 0

    def __post_init__(self) -> None:
        require(bool(self.from_layers), "from_layers", "at least one layer", self.from_layers)
        require(self.loss in LOSSES, "loss", f"one of {', '.join(LOSSES)}", self.loss)
        for name in ("head_size", "epochs", "batch_tokens"):
            require(getattr(self, name) >= 1, name, ">= 1", getattr(self, name))
        require(self.warmup_steps >= 0, "warmup_steps", ">= 0", self.warmup_steps)
        require(self.learning_rate > 0, "learning_rate", "> 0", self.learning_rate)
        require(0 <= self.final_rate_share <= 1, "final_rate_share", "between 0 and 1", self.final_rate_share)
        require(0 < self.held_out_share < 1, "held_out_share", "between 0 and 1", self.held_out_share)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class DistillStep:
    """Where training stands after one step."""

    step: int
    num_steps: int
    epochs: float  # passes over the lessons so far
    tokens_seen: int  # positions learned from so far
    loss_nats: float  # mean per position: KL(target || draft), or -log draft(target's token), over the cut head
    seconds: float  # since this process began to train


def frequent_tokens(lessons: Iterable[Lesson], always: Sequence[int], head_size: int, vocab_size: int) -> NDArray[Any]:
    """The `head_size` most frequent tokens of the lessons, rising ids; `always` come first whatever their count.

    Equal counts go to the lower id: byte-pair vocabularies number their tokens by how early they were merged.
    """
    counts: Counter[int] = Counter()
    for lesson in lessons:
        counts.update(lesson.token_ids.tolist())
    forced = set(always)
    order = sorted(range(vocab_size), key=lambda token: (token not in forced, -counts[token], token))
    return np.sort(np.array(order[:head_size], dtype=np.int32))


def split_lessons(lessons: Sequence[Lesson], settings: DistillSettings) -> tuple[list[Lesson], list[Lesson]]:
    """Training and held-out lessons; a prompt is on one side with all its answers."""
    prompts = sorted({lesson.prompt_id for lesson in lessons}, key=lambda name: hashlib.sha256(name.encode()).digest())
    held = set(prompts[: max(1, round(settings.held_out_share * len(prompts)))])
    if len(held) == len(prompts):
        raise PairError(f"distillation needs at least 2 prompts, got {len(prompts)}")
    return [x for x in lessons if x.prompt_id not in held], [x for x in lessons if x.prompt_id in held]


def distill(
    target: PreTrainedModel,
    lessons: Sequence[Lesson],
    head_token_ids: NDArray[np.int32],
    settings: DistillSettings,
    checkpoint: Path,
    *,
    report: Callable[[DistillStep], None] = lambda step: None,
    examine: Callable[[DistillStep, DraftModel], None] = lambda step, draft: None,
    examine_every_tokens: int = 0,
    checkpoint_every_s: float = 60.0,
) -> DraftModel:
    """Train a draft, going on from `checkpoint` when it was written under the same settings and lessons.

    The loss is taken over the cut head at every answer position and, once a prompt, at the prompt's own positions
    behind what all prompts share.

    Args:
        examine: called after every pass over the lessons, and
        examine_every_tokens: each time that so many more positions have been learned from; 0: only after passes.
    """
    draft = trainable_draft(target, settings.from_layers, head_token_ids)
    parameters = trained_parameters(draft)
    for parameter in parameters.values():
        parameter.requires_grad_(True)
    optimiser = torch.optim.AdamW(  # fused: a quarter of the time on a CPU
        parameters.values(), settings.learning_rate, (0.9, 0.95), weight_decay=settings.weight_decay, fused=True
    )
    plan = plan_batches(lessons, settings)
    num_steps = len(plan) * settings.epochs
    identity = training_identity(settings, lessons, head_token_ids)
    step = restore_checkpoint(checkpoint, identity, parameters, optimiser)
    starts = _supervised_from(lessons)
    learned = np.array([sum(len(lessons[i].token_ids) - starts[i] for i in batch) for batch in plan], dtype=np.int64)
    began = saved = time.monotonic()
    draft.model.train()
    while step < num_steps:
        epoch, place = divmod(step, len(plan))
        order = np.random.default_rng([settings.seed, epoch]).permutation(len(plan))
        before = epoch * int(learned.sum()) + int(learned[order[:place]].sum())
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * rate_share(step, num_steps, settings)
        batch = [(lessons[i], starts[i]) for i in plan[order[place]]]
        loss = _train_step(draft, batch, settings.loss)
        nn.utils.clip_grad_norm_(list(parameters.values()), settings.gradient_norm)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        step += 1
        after = before + int(learned[order[place]])
        done = DistillStep(step, num_steps, step / len(plan), after, loss, time.monotonic() - began)
        report(done)
        every = examine_every_tokens
        if step % len(plan) == 0 or (every and before // every < after // every):
            draft.model.eval()
            examine(done, draft)
            draft.model.train()
        # Behind the exam: a training that is stopped in one sits it again.
        if step == num_steps or time.monotonic() - saved >= checkpoint_every_s:
            store_checkpoint(checkpoint, identity, step, parameters, optimiser)
            saved = time.monotonic()
    for parameter in parameters.values():
        parameter.requires_grad_(False)
    draft.model.eval()
    return draft


def rate_share(step: int, num_steps: int, settings: DistillSettings) -> float:
    """Share of the learning rate at a step: linear warm-up, then a cosine down to `final_rate_share`."""
    if step < settings.warmup_steps:
        return (step + 1) / (settings.warmup_steps + 1)
    progress = (step - settings.warmup_steps) / max(1, num_steps - settings.warmup_steps)
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return settings.final_rate_share + (1 - settings.final_rate_share) * cosine


def plan_batches(lessons: Sequence[Lesson], settings: DistillSettings) -> list[list[int]]:
    """Indices of the lessons of each step of one pass, before the pass is shuffled."""
    return length_batches([len(lesson.token_ids) for lesson in lessons], settings.batch_tokens)


def _supervised_from(lessons: Sequence[Lesson]) -> list[int]:
    # First supervised position of each lesson. The opening that every prompt shares (the system message) teaches
    # nothing twice; other prompt positions are worth one visit, on the prompt's first answer.
    shared = min(len(lesson.token_ids) for lesson in lessons) - 1
    first = lessons[0].token_ids
    for lesson in lessons:
        same = (lesson.token_ids[:shared] == first[:shared]).cumprod(0)
        shared = int(same.sum())
    seen: set[str] = set()
    starts = []
    for lesson in lessons:
        starts.append(lesson.num_prompt_tokens - 1 if lesson.prompt_id in seen else shared)
        seen.add(lesson.prompt_id)
    return starts


def _train_step(draft: DraftModel, batch: Sequence[tuple[Lesson, int]], loss: str) -> float:
    """Accumulate gradients of one batch; returns the mean loss in nats."""
    ids = pad_right([lesson.token_ids for lesson, _ in batch]).to(draft.head_weight.device)
    hidden = draft.model(input_ids=ids, use_cache=False).last_hidden_state
    pieces = [hidden[row, start : len(lesson.token_ids)] for row, (lesson, start) in enumerate(batch)]
    wanted = torch.cat([lesson.states[start:] for lesson, start in batch]).to(hidden)
    said = torch.cat(pieces)
    loss_nats, gradient = _loss_and_gradient(draft, said.detach(), wanted, loss)
    said.backward(gradient)
    return loss_nats


@torch.no_grad()
def _loss_and_gradient(
    draft: DraftModel, said: torch.Tensor, wanted: torch.Tensor, loss: str
) -> tuple[float, torch.Tensor]:
    # The head is frozen, so the gradient at the hidden states is all that is needed: (draft - target) @ head.
    # Written out block by block, it never holds [positions, head] twice, as autograd would several times over.
    gradient = torch.empty_like(said)
    total = 0.0
    for start in range(0, len(said), LOSS_ROWS):
        rows = slice(start, start + LOSS_ROWS)
        target_logits = draft.head(wanted[rows])
        draft_log = draft.head(said[rows]).log_softmax(dim=-1)
        if loss == HARD:
            likeliest = target_logits.argmax(dim=-1, keepdim=True)
            total -= float(draft_log.gather(1, likeliest).sum())
            pull = draft_log.exp_().scatter_add_(1, likeliest, torch.full_like(draft_log[:, :1], -1.0))
        else:
            target_log = target_logits.log_softmax(dim=-1)
            target = target_log.exp()
            total += float(torch.dot(target.flatten(), target_log.sub_(draft_log).flatten()))
            pull = draft_log.exp_().sub_(target)
        gradient[rows] = pull @ draft.head_weight
    return total / len(said), gradient.div_(len(said))


def lessons_sha256(lessons: Sequence[Lesson]) -> str:
    """Hash of the texts that a draft learns from."""
    digest = hashlib.sha256()
    for lesson in lessons:
        digest.update(f"{lesson.prompt_id} {lesson.num_prompt_tokens} {len(lesson.token_ids)}\n".encode())
        digest.update(lesson.token_ids.numpy().tobytes())
    return digest.hexdigest()


def training_identity(settings: DistillSettings, lessons: Sequence[Lesson], head_token_ids: NDArray[np.int32]) -> str:
    """What a checkpoint belongs to: settings, texts and head, as JSON."""
    head = hashlib.sha256(head_token_ids.tobytes()).hexdigest()
    return json.dumps([settings.to_json(), lessons_sha256(lessons), head], sort_keys=True)
