"""A key/value cache of several requests: each has a slot of its own, written at places of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from treewise.data.errors import require
from treewise.engine import host


@dataclass(frozen=True, slots=True)
class Window:
    """What one pass writes, and the slots `first` to `first + count` that it sees."""

    first: int
    count: int
    width: int  # places of every slot that are handed out
    slots: torch.Tensor | None = None  # [rows] the slot of each row, counted from `first`; None: one text's first rows
    places: torch.Tensor | None = None  # [rows] where each is written; the place behind the last one is nobody's


class SlotLayer(CacheLayerMixin):
    """One layer's keys and values, [slots, heads, capacity + 1, head_dim], written in place as `window` says.

    The last place of a slot is where dead rows are written; nobody sees it.
    """

    is_sliding = False
    is_croppable = False

    def __init__(self, num_slots: int, capacity: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.keys: torch.Tensor
        self.values: torch.Tensor
        self.window = Window(0, 1, 0)
        self.num_slots = num_slots
        self.capacity = capacity

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate buffers of the shape, type and device of the first states."""
        self.device = key_states.device
        for name, states in (("keys", key_states), ("values", value_states)):
            shape = (self.num_slots, states.shape[1], self.capacity + 1, states.shape[3])
            setattr(self, name, states.new_zeros(shape))
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write [1, heads, rows, head_dim]; returns views [slots of the window, heads, places, head_dim]."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        window = self.window
        own = slice(window.first, window.first + window.count)
        for held, states in ((self.keys, key_states), (self.values, value_states)):
            if window.slots is None:
                held[own, :, : states.shape[2]] = states
            else:
                # the two index tensors stand apart, so their dimension comes first: [rows, heads, head_dim]
                held[own][window.slots, :, window.places] = states[0].transpose(0, 1)
        return self.keys[own, :, : window.width], self.values[own, :, : window.width]

    def move(self, slots: torch.Tensor, sources: torch.Tensor, places: torch.Tensor) -> None:
        """Copy place `sources` [n] to `places` [n] within `slots` [n], all at once."""
        if self.is_initialized:
            for held in (self.keys, self.values):
                held[slots, :, places] = held[slots, :, sources]

    def take_over(self, slot: int, other: int, length: int) -> None:
        """Make the first `length` places of `slot` those of the slot `other`."""
        if self.is_initialized:
            for held in (self.keys, self.values):
                held[slot, :, :length] = held[other, :, :length]

    def widen(self, capacity: int) -> None:
        """Go on with more places in every slot."""
        if self.is_initialized:
            for name in ("keys", "values"):
                old = getattr(self, name)
                new = old.new_zeros((*old.shape[:2], capacity + 1, old.shape[3]))
                new[:, :, : self.capacity] = old[:, :, : self.capacity]
                setattr(self, name, new)
        self.capacity = capacity

    def copy_from(self, other: SlotLayer) -> None:
        """Hold what the narrower layer `other` holds, and nothing else."""
        if not other.is_initialized:
            self.wipe()
            return
        if not self.is_initialized:
            self.lazy_initialization(other.keys, other.values)
        for held, old in ((self.keys, other.keys), (self.values, other.values)):
            held.zero_()
            held[:, :, : other.capacity] = old[:, :, : other.capacity]

    def wipe(self) -> None:
        """Hold nothing."""
        if self.is_initialized:
            self.keys.zero_()
            self.values.zero_()

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Keys that the pass attends over, and their offset."""
        return self.window.width, 0

    def get_seq_length(self) -> int:
        """Asked where a text's first rows are run, behind which there is nothing yet."""
        return 0

    def get_max_length(self) -> int:
        """No maximum: the buffers widen."""
        return -1


class SlotCache(Cache):
    """All layers of several requests. How long each slot's text is, its owners know."""

    def __init__(self, num_layers: int, num_slots: int, capacity: int) -> None:
        require(num_layers >= 1, "num_layers", ">= 1", num_layers)
        require(num_slots >= 1, "num_slots", ">= 1", num_slots)
        require(capacity >= 1, "capacity", ">= 1 tokens", capacity)
        self.num_slots = num_slots
        self.slot_layers = [SlotLayer(num_slots, capacity) for _ in range(num_layers)]
        super().__init__(layers=list(self.slot_layers))

    @property
    def capacity(self) -> int:
        """Places of every slot."""
        return self.slot_layers[0].capacity

    @torch.inference_mode()
    def open(self, window: Window) -> None:
        """Let the next pass write and see `window`; buffers widen where it has more places than they."""
        assert 0 <= window.first < window.first + window.count <= self.num_slots
        for layer in self.slot_layers:
            if window.width > layer.capacity:
                layer.widen(max(window.width, 2 * layer.capacity))
            layer.window = window

    @torch.inference_mode()
    def copy_from(self, other: SlotCache) -> None:
        """Hold what the cache `other`, of no more places, holds, and nothing else."""
        for layer, old in zip(self.slot_layers, other.slot_layers, strict=True):
            layer.copy_from(old)

    @torch.inference_mode()
    def wipe(self) -> None:
        """Hold nothing: a number that is not finite would reach rows that are masked from it."""
        for layer in self.slot_layers:
            layer.wipe()

    @torch.inference_mode()
    def keep(self, kept: Sequence[tuple[int, int, Sequence[int]]], device: torch.device) -> None:
        """Roll slots back: of each (slot, base, places), `places` (ascending, all >= base) move up behind `base`."""
        moves = [
            (slot, source, base + number)
            for slot, base, places in kept
            for number, source in enumerate(places)
            if source != base + number
        ]
        if not moves:
            return
        slots, sources, places = host.to_device(np.asarray(moves, dtype=np.int64), device).unbind(1)
        for layer in self.slot_layers:
            layer.move(slots, sources, places)

    @torch.inference_mode()
    def take_over(self, slot: int, other: int, length: int) -> None:
        """Make the first `length` places of `slot` those of the slot `other`."""
        for layer in self.slot_layers:
            layer.take_over(slot, other, length)

    def check_integrity(self) -> None:
        """Assert that every layer has the same places."""
        assert len({layer.capacity for layer in self.slot_layers}) == 1
