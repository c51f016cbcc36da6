"""A decoder and its cache of several requests: ragged rows in, one forward pass without padding between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AttentionInterface, PreTrainedConfig, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from treewise.data.errors import require
from treewise.engine.slot_cache import SlotCache, Window
from treewise.engine.slot_rows import Parts, SlotInputs, SlotShape
from treewise.engine.split_attention import SPLIT_ATTENTION, KeySplit, split_attention
from treewise.engine.tree_model import MaskedModel

SLOT_ATTENTION = "treewise_slots"


class SlotModel(MaskedModel):
    """Runs rows of several requests, each over its own slot of the cache, exactly.

    Raises:
        ParameterError: an attention kernel other than sdpa and split.
    """

    def __init__(self, model: PreTrainedModel, num_layers: int, num_slots: int, capacity: int = 512) -> None:
        super().__init__(model)
        known = self.kernel in ("sdpa", SPLIT_ATTENTION)
        require(known, "attention", "sdpa or split for several requests", self.kernel)
        AttentionInterface.register(SLOT_ATTENTION, _slot_attention)
        self.num_layers = num_layers
        self.cache = SlotCache(num_layers, num_slots, capacity)
        found = (getattr(module, "config", None) for module in model.modules())
        self._configs = list({id(config): config for config in found if config is not None}.values())

    def reserve(self, capacity: int) -> None:
        """Say that a text of up to `capacity` tokens, trees behind it included, is about to begin; others go on."""

    def prefill(self, slot: int, tokens: Sequence[int], decoder: PreTrainedModel | None = None) -> None:
        """Write the first committed `tokens` of the text in `slot`; `decoder`: the model without its head."""
        if tokens:
            self.cache.open(Window(slot, 1, len(tokens)))
            self.run_text(self.cache, tokens, 0, decoder)

    def forward(self, parts: Parts, padded_rows: int = 0) -> torch.Tensor:
        """One pass over the rows of `parts` (slot -> rows), in order of their slots.

        Returns hidden states or logits [rows, width] of all parts together; dead rows, up to `padded_rows` or more,
        follow. Valid until the next pass.
        """
        shape = SlotShape.of(parts, padded_rows)
        self.cache.open(Window(shape.first, shape.slots, shape.width))  # so that there is room
        inputs = SlotInputs.empty(shape, self.device)
        inputs.fill(parts, self.cache.capacity)
        return self.run_slots(inputs)

    @torch.inference_mode()
    def run_slots(self, inputs: SlotInputs) -> torch.Tensor:
        """The forward pass itself, without a decision that depends on a number: [rows, width], dead rows included."""
        shape = inputs.shape
        self.cache.open(Window(shape.first, shape.slots, shape.width, inputs.slots, inputs.places))
        attention: dict[str, Any] = {"slot_inputs": inputs, "key_split": None}
        if self.kernel == SPLIT_ATTENTION:
            attention["key_split"] = KeySplit(shape.width, inputs.tail_places(), ~inputs.shared())
            seen = inputs.mask[:, None]
        else:
            seen = inputs.whole_mask()
        with _slots_attended(self._configs):
            out = self.model(
                input_ids=inputs.tokens[None],
                attention_mask=seen,
                position_ids=inputs.positions[None],
                use_cache=True,
                **{self._cache_argument: self.cache},
                **attention,
            )
        logits = getattr(out, "logits", None)
        return (out.last_hidden_state if logits is None else logits)[0]  # type: ignore[no-any-return]


def _slot_attention(
    module: torch.nn.Module,
    query: torch.Tensor,  # [1, heads, rows, head_dim]
    key: torch.Tensor,  # [slots, key heads, places, head_dim]
    value: torch.Tensor,
    attention_mask: torch.Tensor,  # [slots, 1, most, places or tail] bool
    scaling: float | None = None,
    dropout: float = 0.0,
    *,
    slot_inputs: SlotInputs,
    key_split: KeySplit | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    shape = slot_inputs.shape
    rows = query[0].transpose(0, 1)  # [rows, heads, head_dim]
    by_slot = rows.index_select(0, slot_inputs.sitters).view(shape.slots, shape.most, *rows.shape[1:]).transpose(1, 2)
    if key_split is None:
        mixed, _ = sdpa_attention_forward(module, by_slot, key, value, attention_mask, scaling=scaling)
    else:
        mixed, _ = split_attention(module, by_slot, key, value, attention_mask, scaling=scaling, key_split=key_split)
    return mixed.flatten(0, 1).index_select(0, slot_inputs.seats)[None], None


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
