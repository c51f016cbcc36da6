"""A key/value cache of fixed buffers: a pass writes to places that a tensor names and sees every slot there is.

So no shape of a pass depends on how long the text is, which is what a CUDA graph needs.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache

from treewise.data.errors import ParameterError, require
from treewise.engine.cache import TreeCache, TreeLayer


class StaticTreeLayer(TreeLayer):
    """One layer's keys and values, [1, heads, capacity, head_dim], which never move.

    Where `places` is set, a pass writes there and is handed every slot; else it is that of a `TreeLayer`.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.places: torch.Tensor | None = None  # [rows] int64

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write [1, heads, rows, head_dim]; the keys and values that the rows may attend to."""
        if self.places is None:
            return super().update(key_states, value_states, *args, **kwargs)
        assert self.is_initialized, "buffers are allocated before a pass of static shape"
        self.keys.index_copy_(2, self.places, key_states)
        self.values.index_copy_(2, self.places, value_states)
        return self.keys, self.values

    def _widen(self, capacity: int) -> None:
        raise ParameterError(f"tokens in a static cache must be at most {self.capacity}, got {capacity // 2} or more")


class StaticTreeCache(TreeCache):
    """All layers of one request, in buffers that stay where they are."""

    def __init__(self, num_layers: int, capacity: int) -> None:
        require(num_layers >= 1, "num_layers", ">= 1", num_layers)
        require(capacity >= 1, "capacity", ">= 1 tokens", capacity)
        self.static_layers = [StaticTreeLayer(capacity) for _ in range(num_layers)]
        self.tree_layers = list(self.static_layers)
        Cache.__init__(self, layers=list(self.static_layers))

    @property
    def capacity(self) -> int:
        """Slots of every layer."""
        return self.static_layers[0].capacity

    def write_at(self, places: torch.Tensor | None) -> None:
        """Let the passes from here on write at `places` [rows] and see every slot; None: behind the last slot."""
        for layer in self.static_layers:
            layer.places = places

    @torch.inference_mode()
    def wipe(self) -> None:
        """Hold nothing: passes see every slot, and a number that is not finite comes through a mask."""
        for layer in self.static_layers:
            if layer.is_initialized:
                layer.keys.zero_()
                layer.values.zero_()

    def set_length(self, length: int) -> None:
        """Say how many slots are written, behind a pass that was told its places."""
        for layer in self.static_layers:
            layer.length = length
