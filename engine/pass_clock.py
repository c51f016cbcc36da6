"""A clock that runs inside the two models' forward passes and nowhere else."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import nn

from treewise.engine.draft_model import DraftModel
from treewise.engine.pair import Pair


class PassClock:
    """Seconds inside forward passes, by when they began; a pass inside another counts once."""

    def __init__(self) -> None:
        self._passes: list[tuple[float, float]] = []  # (began, seconds)
        self._depth = 0
        self._began = 0.0

    def enter(self, *_: Any) -> None:
        """A pass begins."""
        if self._depth == 0:
            self._began = time.perf_counter()
        self._depth += 1

    def leave(self, *found: Any) -> None:
        """A pass ends; on a GPU, once its work is done."""
        self._depth -= 1
        if self._depth == 0:
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()
            self._passes.append((self._began, time.perf_counter() - self._began))

    def seconds_since(self, moment: float) -> float:
        """Seconds inside passes that began at or after `moment` of `time.perf_counter`."""
        return sum(seconds for began, seconds in self._passes if began >= moment)

    def reset(self) -> None:
        """Forget what ran, also a pass that was broken off."""
        self._passes.clear()
        self._depth = 0


@dataclass(frozen=True, slots=True)
class ClockedDraft(DraftModel):
    """A draft whose head is timed too: it is a part of the draft's forward pass."""

    clock: PassClock | None = None

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [rows, head_size] of last hidden states [rows, hidden_size]."""
        if self.clock is None:
            return DraftModel.head(self, hidden)
        self.clock.enter()
        try:
            return DraftModel.head(self, hidden)
        finally:
            self.clock.leave()


class ClockedPair:
    """`pair` with a clock on its models for as long as the context is open."""

    def __init__(self, pair: Pair) -> None:
        self.clock = PassClock()
        self._models: list[nn.Module] = [pair.target]
        self._hooks: list[Any] = []
        self.pair = pair
        if pair.draft is not None:
            self._models.append(pair.draft.model)
            parts = {item.name: getattr(pair.draft, item.name) for item in fields(pair.draft)}
            self.pair = replace(pair, draft=ClockedDraft(**{**parts, "clock": self.clock}))

    def __enter__(self) -> ClockedPair:
        for model in self._models:
            self._hooks.append(model.register_forward_pre_hook(self.clock.enter))
            self._hooks.append(model.register_forward_hook(self.clock.leave, always_call=True))
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
