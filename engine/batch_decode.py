"""Plain batched decoding, tuned for throughput: the target's answers and states that drafts are distilled from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import AttentionInterface, PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from treewise.data.errors import require
from treewise.engine.cache import cache_argument
from treewise.engine.draft_model import decoder_of

GROUPED_ATTENTION = "treewise_grouped"
COMPACT_BELOW = 0.8  # share of rows still decoding under which the finished ones leave the batch


@dataclass(frozen=True, slots=True)
class DecodeRow:
    """One answer to decode.

    `seed` fixes the row's sampling noise whatever shares its batch; a temperature of 0 is greedy.
    """

    prompt_ids: Sequence[int]
    temperature: float
    seed: Sequence[int]


class _PreallocatedLayer(CacheLayerMixin):
    """A cache layer whose rows share one length; writes in place instead of concatenating at every step."""

    def __init__(self, capacity_tokens: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.capacity_tokens = capacity_tokens
        self.length_tokens = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        batch, heads, _, width = key_states.shape
        self.keys = key_states.new_zeros(batch, heads, self.capacity_tokens, width)
        self.values = value_states.new_zeros(batch, heads, self.capacity_tokens, width)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        end = self.length_tokens + key_states.shape[-2]
        self.keys[:, :, self.length_tokens : end] = key_states
        self.values[:, :, self.length_tokens : end] = value_states
        self.length_tokens = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length_tokens + query_length, 0

    def get_seq_length(self) -> int:
        return self.length_tokens

    def get_max_length(self) -> int:
        return self.capacity_tokens

    def keep_rows(self, rows: torch.Tensor) -> None:
        assert self.keys is not None and self.values is not None
        self.keys = self.keys[rows]
        self.values = self.values[rows]


def _grouped_attention(
    module: torch.nn.Module,
    query: torch.Tensor,  # [batch, heads, rows, width]
    key: torch.Tensor,  # [batch, key heads, keys, width]
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,  # [batch, 1, rows, keys] bool
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    # Reads each key head once for its group of query heads, where the stock kernels first write out repeated copies.
    batch, heads, rows, width = query.shape
    key_heads = key.shape[1]
    grouped = query.reshape(batch, key_heads, (heads // key_heads) * rows, width) * scaling
    scores = grouped @ key.transpose(-1, -2)
    scores = scores.view(batch, heads, rows, -1)
    if attention_mask is not None:
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1).view(batch, key_heads, -1, key.shape[2])
    mixed = (weights @ value).view(batch, heads, rows, width)
    return mixed.transpose(1, 2).contiguous(), None


@contextmanager
def grouped_attention(model: PreTrainedModel) -> Iterator[None]:
    """Run `model` with the grouped attention kernel, and put its own one back."""
    AttentionInterface.register(GROUPED_ATTENTION, _grouped_attention)
    before = str(model.config._attn_implementation)
    model.set_attn_implementation(GROUPED_ATTENTION)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


@contextmanager
def _last_states(model: PreTrainedModel) -> Iterator[list[torch.Tensor]]:
    # Holds the final hidden states of the latest forward pass, [batch, rows, hidden] float16.
    latest: list[torch.Tensor] = []

    def keep(module: torch.nn.Module, inputs: object, outputs: Any) -> None:
        latest[:] = [outputs.last_hidden_state.to(torch.float16).cpu()]

    handle = decoder_of(model).register_forward_hook(keep)
    try:
        yield latest
    finally:
        handle.remove()


def decode_batch(
    model: PreTrainedModel, rows: Sequence[DecodeRow], *, max_new_tokens: int, eos_ids: Sequence[int]
) -> list[list[int]]:
    """Decode one batch, left-padded, greedy or sampled row by row.

    Sampling inverts the cumulative distribution with one uniform number per row and step, drawn from
    `numpy.random.default_rng(seed)`, so a row's answer depends on its batch only through rounding.

    Returns:
        One list of token ids a row, at most `max_new_tokens`, with the EOS token when the row reached it.
    """
    return _decode(model, rows, max_new_tokens, eos_ids)[0]


def decode_with_states(
    model: PreTrainedModel, rows: Sequence[DecodeRow], *, max_new_tokens: int, eos_ids: Sequence[int]
) -> tuple[list[list[int]], list[torch.Tensor]]:
    """As `decode_batch`, and beside each answer the final hidden states that the target had on the way.

    Returns:
        The answers, and one [prompt and answer tokens, hidden_size] float16 tensor a row, on the CPU.
    """
    with _last_states(model) as latest:
        answers, pieces = _decode(model, rows, max_new_tokens, eos_ids, latest)
    return answers, [torch.cat(row) for row in pieces]


@torch.inference_mode()
def _decode(
    model: PreTrainedModel,
    rows: Sequence[DecodeRow],
    max_new_tokens: int,
    eos_ids: Sequence[int],
    latest: list[torch.Tensor] | None = None,  # states of the pass before, to keep row by row
) -> tuple[list[list[int]], list[list[torch.Tensor]]]:
    require(max_new_tokens >= 1, "max_new_tokens", ">= 1", max_new_tokens)
    require(len(rows) >= 1 and all(row.prompt_ids for row in rows), "rows", "non-empty prompts", len(rows))
    device = model.device
    width = max(len(row.prompt_ids) for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long, device=device)
    real = torch.zeros(len(rows), width + max_new_tokens, dtype=torch.bool, device=device)
    for index, row in enumerate(rows):
        ids[index, width - len(row.prompt_ids) :] = torch.tensor(row.prompt_ids, device=device)
        real[index, width - len(row.prompt_ids) :] = True
    padding = torch.tensor([width - len(row.prompt_ids) for row in rows], device=device)
    temperature = torch.tensor([row.temperature for row in rows], dtype=torch.float32, device=device)
    noise = np.stack([np.random.default_rng(list(row.seed)).random(max_new_tokens, dtype=np.float32) for row in rows])
    uniform = torch.from_numpy(noise).to(device)
    eos = torch.tensor(list(eos_ids), dtype=torch.long, device=device)
    num_layers = model.config.get_text_config().num_hidden_layers
    layers = [_PreallocatedLayer(width + max_new_tokens) for _ in range(num_layers)]
    cached = {cache_argument(model): Cache(layers=layers)}  # type: ignore[arg-type]

    answers: list[list[int]] = [[] for _ in rows]
    owners = torch.arange(len(rows), device=device)  # [active rows] index into `rows`
    causal = torch.ones(width, width, dtype=torch.bool, device=device).tril()
    # A padding row attends to itself, so that its softmax is defined; nobody reads it.
    mask = (causal & real[:, None, :width]) | torch.eye(width, dtype=torch.bool, device=device)
    positions = (torch.arange(width, device=device) - padding[:, None]).clamp_min(0)
    done = torch.zeros(len(rows), dtype=torch.bool, device=device)
    pieces: list[list[torch.Tensor]] = [[] for _ in rows]
    with grouped_attention(model):
        # A last pass says nothing: it reads the last token of every row, for its state.
        for step in range(max_new_tokens + (latest is not None)):
            logits = model(
                input_ids=ids,
                attention_mask=mask[:, None] if step == 0 else mask,
                position_ids=positions,
                use_cache=True,
                logits_to_keep=1,
                **cached,
            ).logits[:, -1]
            if latest is not None:
                for place, owner in enumerate(owners.tolist()):
                    if step == 0:
                        pieces[owner].append(latest[0][place, width - len(rows[owner].prompt_ids) :].clone())
                    elif len(answers[owner]) >= step:
                        pieces[owner].append(latest[0][place].clone())
            if step == max_new_tokens:
                break
            read = done  # rows whose EOS token has been through the model
            token = _speak(logits.float(), temperature[owners], uniform[owners, step])
            for owner, spoken, finished in zip(owners.tolist(), token.tolist(), done.tolist(), strict=True):
                if not finished:
                    answers[owner].append(spoken)
            done = done | torch.isin(token, eos)
            over = done if latest is None else read
            if bool(over.all()):
                break
            if float(over.float().mean()) > 1 - COMPACT_BELOW:
                kept = (~over).nonzero().flatten()
                owners, token, done = owners[kept], token[kept], done[kept]
                for layer in layers:
                    layer.keep_rows(kept)
            end = width + step + 1
            ids = token[:, None]
            mask = real[owners, None, None, :end]
            positions = (end - 1 - padding[owners])[:, None]
    return answers, pieces


def _speak(logits: torch.Tensor, temperature: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    greedy = logits.argmax(dim=-1)
    warm = (temperature > 0).nonzero().flatten()
    if len(warm):
        cumulative = (logits[warm] / temperature[warm, None]).softmax(dim=-1).cumsum(dim=-1)
        drawn = torch.searchsorted(cumulative, uniform[warm, None] * cumulative[:, -1:]).flatten()
        greedy[warm] = drawn.clamp_max(logits.shape[-1] - 1)
    return greedy
