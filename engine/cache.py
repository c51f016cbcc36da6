"""A key/value cache that a tree is written into and rolled back from."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from treewise.data.errors import require
from treewise.engine import host


class TreeLayer(CacheLayerMixin):
    """One layer's keys and values, [1, heads, capacity, head_dim], written in place behind `length` slots."""

    is_sliding = False
    is_croppable = False

    def __init__(self, capacity: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.keys: torch.Tensor
        self.values: torch.Tensor
        self.capacity = capacity
        self.length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate buffers of the shape, type and device of the first states."""
        self.device = key_states.device
        _, heads, _, key_dim = key_states.shape
        value_dim = value_states.shape[-1]
        self.keys = key_states.new_zeros((1, heads, self.capacity, key_dim))
        self.values = value_states.new_zeros((1, heads, self.capacity, value_dim))
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append [1, heads, rows, head_dim] and return everything written so far, as views."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.length + key_states.shape[-2]
        if end > self.capacity:
            self._widen(max(end, 2 * self.capacity))
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def keep(self, base: int, slots: torch.Tensor | None, count: int) -> None:
        """Hold the first `base` slots and, behind them, `slots` [count]; None: the next `count` as they are."""
        if slots is not None and self.is_initialized:
            self.keys[:, :, base : base + count] = self.keys[:, :, slots]
            self.values[:, :, base : base + count] = self.values[:, :, slots]
        self.length = base + count

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Keys that a pass of `query_length` rows attends over, and their offset."""
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        """Slots written."""
        return self.length

    def get_max_length(self) -> int:
        """No maximum: the buffers widen."""
        return -1

    def _widen(self, capacity: int) -> None:
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = old.new_zeros((*old.shape[:2], capacity, old.shape[3]))
            new[:, :, : self.length] = old[:, :, : self.length]
            setattr(self, name, new)
        self.capacity = capacity


class TreeCache(Cache):
    """All layers of one request. Slots below a tree's first row hold committed tokens only."""

    def __init__(self, num_layers: int, capacity: int) -> None:
        require(num_layers >= 1, "num_layers", ">= 1", num_layers)
        require(capacity >= 1, "capacity", ">= 1 tokens", capacity)
        self.tree_layers = [TreeLayer(capacity) for _ in range(num_layers)]
        super().__init__(layers=list(self.tree_layers))

    @property
    def length(self) -> int:
        """Slots written, committed tokens and tree rows."""
        return self.tree_layers[0].length

    @torch.inference_mode()
    def keep(self, base: int, slots: Sequence[int]) -> None:
        """Roll back to the first `base` slots plus `slots` (ascending, all >= base), moved up behind them."""
        in_place = all(slot == base + place for place, slot in enumerate(slots))
        index = None
        if not in_place:
            index = host.to_device(np.asarray(slots, dtype=np.int64), self.tree_layers[0].keys.device)
        for layer in self.tree_layers:
            layer.keep(base, index, len(slots))

    def check_integrity(self) -> None:
        """Assert that every layer holds the same number of slots."""
        assert len({layer.length for layer in self.tree_layers}) == 1


def cache_argument(model: PreTrainedModel) -> str:
    """The name under which this model's `forward` takes its cache; it was renamed in transformers 5.24."""
    parameters = inspect.signature(model.forward).parameters
    return "cache" if "cache" in parameters else "past_key_values"
