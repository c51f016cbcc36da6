"""Attention over a long shared prefix without a mask and over a few tree rows with one, merged by log-sum-exp.

Every row of a verify pass sees all committed tokens, and they are nearly all of the keys; a mask is needed for the
tree alone. A mask over everything costs more than it looks like: stock kernels then leave the grouped-query path and
write out a copy of keys and values for each query head. Without one, the rows of all query heads that share a key head
are simply more rows of one product.

With S the scores of a row over the keys of one part, m = max S, z = sum exp(S - m) and o = sum exp(S - m) V, two parts
merge into (o1 exp(m1 - m) + o2 exp(m2 - m)) / (z1 exp(m1 - m) + z2 exp(m2 - m)) with m = max(m1, m2): the softmax over
both, exactly. Source: online softmax, arXiv 1805.02867; for decoding, arXiv 2402.05099.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from treewise.data.errors import require

SPLIT_ATTENTION = "treewise_split"
ATTENTIONS = {"sdpa": "sdpa", "split": SPLIT_ATTENTION}  # name that people write -> name that transformers knows
_HALF = (torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class KeySplit:
    """Which keys of a pass every row sees, and which ones its mask is about."""

    shared: int  # the first keys, seen by every row; the mask's are those behind them
    # Where the mask's keys are listed instead, for all texts of a batch or for each one:
    tail: torch.Tensor | None = None  # [masked keys] or [batch, masked keys] int64
    hidden: torch.Tensor | None = None  # [keys] or [batch, keys] bool, with `tail`: not among the shared ones


def shared_keys(mask: NDArray[np.bool_]) -> int:
    """How many of the first keys every row of `mask` [rows, keys] sees."""
    seen: NDArray[np.bool_] = np.asarray(mask.all(axis=0))
    return len(seen) if seen.all() else int(seen.argmin())


def use_attention(models: Sequence[PreTrainedModel], name: str) -> None:
    """Let `models` attend by the kernel that people call `name`: `sdpa`, or `split`, this module's.

    Raises `ParameterError` on another name.
    """
    require(name in ATTENTIONS, "attention", f"one of {', '.join(ATTENTIONS)}", name)
    AttentionInterface.register(SPLIT_ATTENTION, split_attention)
    AttentionMaskInterface.register(SPLIT_ATTENTION, sdpa_mask)  # for passes that bring no mask of their own
    # Parts of a model may share a configuration with another model, or have one of their own.
    for module in (module for model in models for module in model.modules()):
        config = getattr(module, "config", None)
        if config is not None:
            config._attn_implementation = ATTENTIONS[name]


def split_attention(
    module: torch.nn.Module,
    query: torch.Tensor,  # [batch, heads, rows, head_dim]
    key: torch.Tensor,  # [batch, key heads, keys, head_dim]
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,  # [batch, 1, rows, masked keys] bool; each row sees one of them at least
    scaling: float | None = None,
    dropout: float = 0.0,
    *,
    key_split: KeySplit | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention [batch, rows, heads, head_dim], in the form that transformers asks of a kernel.

    Without `key_split` it is torch's scaled dot product attention, as passes are that are not tree passes.
    """
    if key_split is None or attention_mask is None:
        mixed, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
        return mixed, None
    batch, heads, rows, width = query.shape
    key_heads = key.shape[1]
    group = heads // key_heads
    asked = query.reshape(batch * key_heads, group * rows, width)
    scale = width**-0.5 if scaling is None else scaling
    shared, tail = key_split.shared, key_split.tail
    far_key, far_value = key[:, :, :shared], value[:, :, :shared]
    near_key, near_value = (_near(part, shared, tail) for part in (key, value))
    unseen = ~attention_mask.expand(batch, key_heads, rows, -1)
    unseen = unseen[:, :, None].expand(-1, -1, group, -1, -1).reshape(batch * key_heads, group * rows, -1)
    part = _Part.over(asked, near_key.flatten(0, 1), near_value.flatten(0, 1), scale, unseen)
    if shared:
        hidden = key_split.hidden
        if hidden is not None and hidden.ndim == 2:
            hidden = hidden[:, None].expand(-1, key_heads, -1).reshape(batch * key_heads, 1, -1)
        far = _Part.over(asked, far_key.flatten(0, 1), far_value.flatten(0, 1), scale, hidden)
        part = part.merge(far)
    mixed = (part.mixed / part.total).to(query.dtype).view(batch, heads, rows, width)
    return mixed.transpose(1, 2).contiguous(), None


def _near(held: torch.Tensor, shared: int, tail: torch.Tensor | None) -> torch.Tensor:
    """The keys or values [batch, key heads, masked keys, head_dim] that the mask is about."""
    if tail is None:
        return held[:, :, shared:]
    if tail.ndim == 1:
        return held.index_select(2, tail)
    return held.gather(2, tail[:, None, :, None].expand(-1, held.shape[1], -1, held.shape[3]))


@dataclass(frozen=True, slots=True)
class _Part:
    """Attention over some of the keys, before it is divided; in float32 at least."""

    mixed: torch.Tensor  # [key heads, rows, head_dim] sum of exp(score - top) times value
    top: torch.Tensor  # [key heads, rows, 1] the highest score, or the lowest number where nothing is seen
    total: torch.Tensor  # [key heads, rows, 1] sum of exp(score - top)

    @classmethod
    def over(
        cls, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, unseen: torch.Tensor | None
    ) -> _Part:
        """Of `query` [key heads, rows, head_dim] over the keys that `unseen` [.., keys] is not true of."""
        scores = _product(query, key.transpose(1, 2)).mul_(scale)
        if unseen is not None:
            scores = scores.masked_fill_(unseen, -torch.inf)
        top = scores.amax(dim=-1, keepdim=True).clamp_(min=torch.finfo(scores.dtype).min)
        weights = scores.sub_(top).exp_()
        return cls(_product(weights.to(value.dtype), value), top, weights.sum(dim=-1, keepdim=True))

    def merge(self, other: _Part) -> _Part:
        """Attention over the keys of both."""
        top = torch.maximum(self.top, other.top)
        own, its = (self.top - top).exp(), (other.top - top).exp()
        return _Part(self.mixed * own + other.mixed * its, top, self.total * own + other.total * its)


def _product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Batched matrix product; of numbers in half precision, in float32."""
    if left.dtype not in _HALF:
        return torch.bmm(left, right)
    if left.device.type == "cuda":
        return torch.bmm(left, right, out_dtype=torch.float32)
    return torch.bmm(left.float(), right.float())
