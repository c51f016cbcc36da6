"""A decoder and its cache: rows of a tree in, hidden states or logits out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from treewise.data.errors import ParameterError
from treewise.engine.cache import TreeCache, cache_argument

BoolMatrix = NDArray[np.bool_]


class TreeModel:
    """Runs tree rows through a transformers model, exactly, with an explicit mask.

    `model` may be a decoder (last hidden states come out) or a causal language model (logits come out).
    """

    def __init__(self, model: PreTrainedModel, num_layers: int, capacity: int = 1024) -> None:
        kernel = model.config._attn_implementation
        if kernel not in ("sdpa", "eager"):
            raise ParameterError(f"attn_implementation must be 'sdpa' or 'eager' for tree masks, got {kernel!r}")
        self.model = model
        self.kernel = kernel
        self.num_layers = num_layers
        self.capacity = capacity
        self.device = next(model.parameters()).device
        self.dtype = next(model.parameters()).dtype
        self._cache_argument = cache_argument(model)
        self.cache = TreeCache(num_layers, capacity)

    def reset(self, capacity: int | None = None) -> None:
        """Forget every slot; buffers are allocated anew where `capacity` asks for more."""
        if capacity is not None and capacity > self.capacity:
            self.capacity = capacity
            self.cache = TreeCache(self.num_layers, capacity)
        self.cache.keep(0, ())

    @torch.inference_mode()
    def prefill(self, tokens: Sequence[int], decoder: PreTrainedModel | None = None) -> torch.Tensor | None:
        """Append committed `tokens` behind the cache; returns the decoder's hidden states [tokens, hidden].

        `decoder`: the model without its head, so that a prefill computes no logits.
        """
        if not tokens:
            return None
        model = self.model if decoder is None else decoder
        start = self.cache.length
        ids = torch.as_tensor([list(tokens)], device=self.device)
        positions = torch.arange(start, start + len(tokens), device=self.device)[None]
        mask = None
        if start:
            rows = np.tri(len(tokens), start + len(tokens), start, dtype=np.bool_)
            mask = self._mask(rows)
        arguments = {self._cache_argument: self.cache}
        out = model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True, **arguments)
        hidden = getattr(out, "last_hidden_state", None)
        return None if hidden is None else hidden[0]

    @torch.inference_mode()
    def forward(self, tokens: NDArray[np.int32], positions: NDArray[np.int32], mask: BoolMatrix) -> torch.Tensor:
        """Append rows and return hidden states or logits, [rows, width].

        Args:
            tokens: [rows] token ids.
            positions: [rows] absolute positions.
            mask: [rows, cache length + rows] True where a row attends to a slot.
        """
        ids = torch.as_tensor(tokens.astype(np.int64), device=self.device)[None]
        place = torch.as_tensor(positions.astype(np.int64), device=self.device)[None]
        # One row that sees everything needs no mask, which keeps the faster kernels open.
        seen = None if mask.shape[0] == 1 and bool(mask.all()) else self._mask(mask)
        arguments = {self._cache_argument: self.cache}
        out = self.model(input_ids=ids, attention_mask=seen, position_ids=place, use_cache=True, **arguments)
        logits = getattr(out, "logits", None)
        return (out.last_hidden_state if logits is None else logits)[0]  # type: ignore[no-any-return]

    def _mask(self, rows: BoolMatrix) -> torch.Tensor:
        boolean = torch.as_tensor(rows, device=self.device)[None, None]
        if self.kernel == "sdpa":
            return boolean
        # The eager kernel adds its mask: a boolean one would be added as 0 and 1.
        floor = torch.finfo(self.dtype).min
        return torch.zeros(boolean.shape, dtype=self.dtype, device=self.device).masked_fill(~boolean, floor)


def see_ancestors(
    sees: BoolMatrix, rows: NDArray[np.integer[Any]], above: NDArray[np.integer[Any]], depths: NDArray[np.integer[Any]]
) -> None:
    """Let `rows` [n] of `sees` [slots, slots] see what their parents `above` [n] see, parents before children.

    One pass for each of the `depths` [n]: rows of one depth are never each other's parents.
    """
    for depth in np.unique(depths).tolist():
        here = depths == depth
        sees[rows[here]] |= sees[above[here]]
