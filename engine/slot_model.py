"""A decoder and its cache of several requests: ragged rows in, one forward pass without padding between them.

Rows of all requests are one sequence to every part of the model but attention: there they are laid out by request,
[requests, rows], each over its own slot of the cache under a mask of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AttentionInterface, PreTrainedConfig, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from treewise.data.errors import ParameterError
from treewise.engine.slot_cache import SlotCache, Window
from treewise.engine.tree_model import BoolMatrix, MaskedModel

SLOT_ATTENTION = "treewise_slots"


class SlotRows(Protocol):
    """One slot's part of a pass."""

    @property
    def tokens(self) -> NDArray[np.int32]:
        """[rows]"""

    @property
    def positions(self) -> NDArray[np.int32]:
        """[rows] absolute."""

    @property
    def mask(self) -> BoolMatrix:
        """[rows, start + rows] the places that each sees."""

    @property
    def start(self) -> int:
        """Places written before."""


class SlotModel(MaskedModel):
    """Runs rows of several requests, each over its own slot of the cache, exactly.

    Raises:
        ParameterError: an attention kernel other than sdpa.
    """

    def __init__(self, model: PreTrainedModel, num_layers: int, num_slots: int, capacity: int = 512) -> None:
        super().__init__(model)
        if self.kernel != "sdpa":
            raise ParameterError(f"attn_implementation must be 'sdpa' for several requests, got {self.kernel!r}")
        AttentionInterface.register(SLOT_ATTENTION, _slot_attention)
        self.cache = SlotCache(num_layers, num_slots, capacity)
        found = (getattr(module, "config", None) for module in model.modules())
        self._configs = list({id(config): config for config in found if config is not None}.values())

    def prefill(self, slot: int, tokens: Sequence[int], decoder: PreTrainedModel | None = None) -> None:
        """Write the first committed `tokens` of the text in `slot`; `decoder`: the model without its head."""
        if tokens:
            self.cache.open(Window(slot, 1, len(tokens)))
            self.run_text(self.cache, tokens, 0, decoder)

    def forward(self, parts: Mapping[int, SlotRows], padded_rows: int = 0) -> torch.Tensor:
        """One pass over the rows of `parts` (slot -> rows), in order of their slots.

        Returns hidden states or logits [rows, width] of all parts together; up to `padded_rows` dead rows, which
        repeat the first, follow.
        """
        order = sorted(parts)
        counts = [len(parts[slot].tokens) for slot in order]
        total, most, first = sum(counts), max(counts), order[0]
        count = order[-1] - first + 1
        width = max(parts[slot].start for slot in order) + most
        live = np.zeros(max(total, padded_rows), dtype=np.intp)  # dead rows write what the first row writes
        live[:total] = np.arange(total)
        slots = np.repeat(np.asarray(order) - first, counts)[live]
        ranks = np.concatenate([np.arange(rows) for rows in counts])[live]
        starts = np.repeat([parts[slot].start for slot in order], counts)[live]
        mask: NDArray[Any] = np.zeros((count, most, width), dtype=np.bool_)
        mask[:, :, 0] = True  # nobody's rows see something, so that their softmax is defined
        for slot, rows in zip(order, counts, strict=True):
            seen = parts[slot].mask
            mask[slot - first, :rows, : seen.shape[1]] = seen
            mask[slot - first, :rows, seen.shape[1] :] = False
        device = self.device
        places = torch.as_tensor(starts + ranks, device=device)
        window = Window(
            first,
            count,
            width,
            torch.as_tensor(slots, device=device),
            places,
            torch.as_tensor(ranks, device=device),
            most,
        )
        self.cache.open(window)
        tokens = np.concatenate([parts[slot].tokens for slot in order])[live]
        positions = np.concatenate([parts[slot].positions for slot in order])[live]
        with _slots_attended(self._configs):
            return self.run(self.cache, tokens[None], positions[None], mask, slot_window=window)[0]


def _slot_attention(
    module: torch.nn.Module,
    query: torch.Tensor,  # [1, heads, rows, head_dim]
    key: torch.Tensor,  # [slots, key heads, places, head_dim]
    value: torch.Tensor,
    attention_mask: torch.Tensor,  # [slots, 1, most, places] bool
    scaling: float | None = None,
    dropout: float = 0.0,
    *,
    slot_window: Window,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    rows = query[0].transpose(0, 1)  # [rows, heads, head_dim]
    by_slot = query.new_zeros((slot_window.count, query.shape[1], slot_window.most, query.shape[3]))
    by_slot[slot_window.slots, :, slot_window.ranks] = rows
    mixed, _ = sdpa_attention_forward(module, by_slot, key, value, attention_mask, scaling=scaling)
    return mixed[slot_window.slots, slot_window.ranks][None], None


@contextmanager
def _slots_attended(configs: Sequence[PreTrainedConfig]) -> Iterator[None]:
    """Let a model whose parts read `configs` attend by slots, and give it its own kernel back: others run it too."""
    before = [config._attn_implementation for config in configs]
    for config in configs:
        config._attn_implementation = SLOT_ATTENTION
    try:
        yield
    finally:
        for config, kernel in zip(configs, before, strict=True):
            config._attn_implementation = kernel
