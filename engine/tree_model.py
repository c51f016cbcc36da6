"""A decoder and its cache: rows of a tree in, hidden states or logits out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from treewise.data.errors import ParameterError
from treewise.engine import host
from treewise.engine.cache import TreeCache, cache_argument
from treewise.engine.split_attention import SPLIT_ATTENTION, KeySplit, shared_keys

BoolMatrix = NDArray[np.bool_]


class MaskedModel:
    """A transformers model that is run with explicit masks and positions, over a cache of ours.

    `model` may be a decoder (last hidden states come out) or a causal language model (logits come out).

    Raises:
        ParameterError: an attention kernel that is not known to honour such masks.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        kernel = model.config._attn_implementation
        if kernel not in ("sdpa", "eager", SPLIT_ATTENTION):
            rule = f"'sdpa' or 'eager' for tree masks (or {SPLIT_ATTENTION!r})"
            raise ParameterError(f"attn_implementation must be {rule}, got {kernel!r}")
        self.model = model
        self.kernel = kernel
        self.device = next(model.parameters()).device
        self.dtype = next(model.parameters()).dtype
        self._cache_argument = cache_argument(model)

    @torch.inference_mode()
    def run(
        self,
        cache: Cache,
        tokens: NDArray[np.int32],
        positions: NDArray[np.int32],
        mask: BoolMatrix,
        **attention: Any,
    ) -> torch.Tensor:
        """Hidden states or logits, [batch, rows, width].

        Args:
            tokens: [batch, rows] token ids.
            positions: [batch, rows] absolute positions.
            mask: [batch, rows, keys] True where a row attends to a slot of what the cache hands out.
            attention: what the attention kernel is handed besides.
        """
        ids = host.to_device(tokens.astype(np.int64), self.device)
        place = host.to_device(positions.astype(np.int64), self.device)
        # One row that sees everything needs no mask, which keeps the faster kernels open.
        sees_all = mask.shape[1] == 1 and not attention and bool(mask.all())
        if self.kernel == SPLIT_ATTENTION and not attention and not sees_all:
            shared = min(shared_keys(mask.reshape(-1, mask.shape[2])), mask.shape[2] - 1)
            mask, attention = mask[:, :, shared:], {"key_split": KeySplit(shared)}
        seen = None if sees_all else self._mask(mask)
        arguments = {self._cache_argument: cache, **attention}
        out = self.model(input_ids=ids, attention_mask=seen, position_ids=place, use_cache=True, **arguments)
        logits = getattr(out, "logits", None)
        return out.last_hidden_state if logits is None else logits  # type: ignore[no-any-return]

    @torch.inference_mode()
    def run_text(
        self, cache: Cache, tokens: Sequence[int], start: int, decoder: PreTrainedModel | None
    ) -> torch.Tensor | None:
        """Run one text's `tokens` behind `start` slots of its own; the decoder's hidden states [tokens, hidden].

        `decoder`: the model without its head, so that no logits are computed.
        """
        if not tokens:
            return None
        model = self.model if decoder is None else decoder
        ids = host.to_device(np.asarray(tokens, dtype=np.int64)[None], self.device)
        positions = torch.arange(start, start + len(tokens), device=self.device)[None]
        mask = None
        if start:
            rows = np.tri(len(tokens), start + len(tokens), start, dtype=np.bool_)
            mask = self._mask(rows[None])
        arguments = {self._cache_argument: cache}
        out = model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True, **arguments)
        hidden = getattr(out, "last_hidden_state", None)
        return None if hidden is None else hidden[0]

    def _mask(self, rows: BoolMatrix) -> torch.Tensor:
        boolean = host.to_device(rows, self.device)[:, None]
        if self.kernel != "eager":
            return boolean
        # The eager kernel adds its mask: a boolean one would be added as 0 and 1.
        floor = torch.finfo(self.dtype).min
        return torch.zeros(boolean.shape, dtype=self.dtype, device=self.device).masked_fill(~boolean, floor)


class TreeModel(MaskedModel):
    """Runs one request's tree rows, exactly."""

    def __init__(self, model: PreTrainedModel, num_layers: int, capacity: int = 1024) -> None:
        super().__init__(model)
        self.num_layers = num_layers
        self.capacity = capacity
        self.cache = TreeCache(num_layers, capacity)

    def reset(self, capacity: int | None = None) -> None:
        """Forget every slot; buffers are allocated anew where `capacity` asks for more."""
        if capacity is not None and capacity > self.capacity:
            self.capacity = capacity
            self.cache = TreeCache(self.num_layers, capacity)
        self.cache.keep(0, ())

    def prefill(self, tokens: Sequence[int], decoder: PreTrainedModel | None = None) -> torch.Tensor | None:
        """Append committed `tokens` behind the cache; see `run_text`."""
        return self.run_text(self.cache, tokens, self.cache.length, decoder)

    def forward(self, tokens: NDArray[np.int32], positions: NDArray[np.int32], mask: BoolMatrix) -> torch.Tensor:
        """Append rows and return hidden states or logits, [rows, width].

        Args:
            tokens: [rows] token ids.
            positions: [rows] absolute positions.
            mask: [rows, cache length + rows] True where a row attends to a slot.
        """
        return self.run(self.cache, tokens[None], positions[None], mask[None])[0]


def settle(made: torch.Tensor) -> None:
    """Wait until the device has made it, so that a clock may be read."""
    if made.device.type != "cpu":
        torch.cuda.synchronize(made.device)


def see_ancestors(
    sees: BoolMatrix, rows: NDArray[np.integer[Any]], above: NDArray[np.integer[Any]], depths: NDArray[np.integer[Any]]
) -> None:
    """Let `rows` [n] of `sees` [slots, slots] see what their parents `above` [n] see, parents before children.

    One pass for each of the `depths` [n]: rows of one depth are never each other's parents.
    """
    for depth in np.unique(depths).tolist():
        here = depths == depth
        sees[rows[here]] |= sees[above[here]]
