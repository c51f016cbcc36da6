"""Draft models: what proposes continuations below a node. Every draft here reads token ids alone (`prefix`)."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import PreTrainedModel

from treewise.data.errors import PairError, ParameterError
from treewise.engine.weights import weights_sha256


@dataclass(frozen=True, slots=True)
class DraftModel:
    """A decoder without its head, and the head over the tokens it can say.

    `model` is called like any transformers decoder: `model(input_ids=..., attention_mask=..., position_ids=...,
    cache=..., use_cache=True).last_hidden_state`, with a boolean mask [batch, 1, rows, keys].
    """

    name: str
    model: PreTrainedModel
    head_weight: torch.Tensor  # [head_size, hidden_size]
    head_token_ids: NDArray[np.int32] | None  # [head_size] token id of each head row; None: row r is token r of all
    sha256: str
    logit_scale: float = 1.0
    head_bias: torch.Tensor | None = None  # [head_size]

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [rows, head_size] of last hidden states [rows, hidden_size]."""
        logits = nn.functional.linear(hidden, self.head_weight, self.head_bias)
        return logits if self.logit_scale == 1.0 else logits * self.logit_scale

    @property
    def config(self) -> Any:
        """The decoder's transformers configuration."""
        return self.model.config

    @property
    def num_layers(self) -> int:
        """How many layers its cache needs."""
        return int(self.model.config.num_hidden_layers)

    @property
    def hidden_size(self) -> int:
        """Width of the hidden states that `head` reads."""
        return int(self.head_weight.shape[1])

    @property
    def head_size(self) -> int:
        """How many tokens the draft can say."""
        return int(self.head_weight.shape[0])


def parse_layer_range(text: str, num_layers: int) -> range:
    """The layers that `prune:FIRST-LAST` leaves out, both ends included.

    Raises:
        ParameterError: not two layer numbers in order, out of the target's range, or all of its layers.
    """
    first, dash, last = text.partition("-")
    rule = f"FIRST-LAST with 0 <= FIRST <= LAST < {num_layers}, leaving at least one layer"
    if not (dash and first.isdecimal() and last.isdecimal()):
        raise ParameterError(f"prune must be {rule}, got {text!r}")
    left_out = range(int(first), int(last) + 1)
    if not (0 < len(left_out) < num_layers and left_out.stop <= num_layers):
        raise ParameterError(f"prune must be {rule}, got {text!r}")
    return left_out


def prune_layers(target: PreTrainedModel, left_out: Sequence[int], target_sha256: str) -> DraftModel:
    """The target without some of its layers, untrained; shares the target's weights, has its own layer numbers."""
    name = f"prune:{left_out[0]}-{left_out[-1]}"
    decoder = decoder_of(target)
    kept = [index for index in range(len(decoder_layers(decoder))) if index not in set(left_out)]
    head = target.get_output_embeddings()
    return DraftModel(
        name=name,
        model=decoder_with_layers(decoder, kept),
        head_weight=head.weight.detach(),
        head_bias=_bias(head),
        head_token_ids=None,
        sha256=hashlib.sha256(f"{name} of {target_sha256}".encode()).hexdigest(),
        logit_scale=_logit_scale(target.config),
    )


def draft_from_model(name: str, model: PreTrainedModel, *, num_tokens: int, target_vocab_size: int) -> DraftModel:
    """A whole causal language model as draft, its head cut to the tokens that the tokenizer has.

    Args:
        num_tokens: highest token id of the shared token map, plus one; head rows beyond it are padding.
        target_vocab_size: width of the target's logits.
    """
    head = model.get_output_embeddings()
    weight, bias = head.weight.detach(), _bias(head)
    ids: NDArray[np.int32] | None = None
    if weight.shape[0] != target_vocab_size:
        size = min(num_tokens, weight.shape[0])
        weight, bias = weight[:size], None if bias is None else bias[:size]
        ids = np.arange(size, dtype=np.int32)
    return DraftModel(
        name=name,
        model=decoder_of(model),
        head_weight=weight,
        head_bias=bias,
        head_token_ids=ids,
        sha256=weights_sha256(model),
        logit_scale=_logit_scale(model.config),
    )


def decoder_of(model: PreTrainedModel) -> PreTrainedModel:
    """The decoder below a causal language model's head."""
    decoder = getattr(model, model.base_model_prefix, None)
    if not isinstance(decoder, PreTrainedModel) or model.get_output_embeddings() is None:
        raise PairError(f"model must be a causal language model with a decoder and a head, got {type(model).__name__}")
    return decoder


def decoder_layers(decoder: PreTrainedModel) -> nn.ModuleList:
    """The decoder's stack of layers.

    Raises:
        PairError: the architecture keeps them elsewhere than in `layers`.
    """
    layers = getattr(decoder, "layers", None)
    if not isinstance(layers, nn.ModuleList):
        raise PairError(f"decoder must keep its layers in `layers`, got {type(decoder).__name__}")
    return layers


def decoder_with_layers(decoder: PreTrainedModel, kept: Sequence[int]) -> PreTrainedModel:
    """The same decoder with only the layers `kept`, numbered anew; modules are new, parameters are shared."""
    layers = decoder_layers(decoder)
    smaller = _share(decoder)
    smaller.layers = nn.ModuleList([_share(layers[index]) for index in kept])
    config = copy.deepcopy(decoder.config)
    config.num_hidden_layers = len(kept)
    if getattr(config, "layer_types", None) is not None:
        config.layer_types = [decoder.config.layer_types[index] for index in kept]
    config._attn_implementation = decoder.config._attn_implementation
    smaller.config = config
    for index, layer in enumerate(smaller.layers):
        for module in layer.modules():
            if hasattr(module, "layer_idx"):
                module.layer_idx = index  # the cache slot it writes
    assert isinstance(smaller, PreTrainedModel)
    return smaller


def _share(module: nn.Module) -> Any:
    # A module tree of new objects around the same tensors: numbers can change in the copy, weights exist once.
    twin = copy.copy(module)
    twin.__dict__ = dict(module.__dict__)
    for part in ("_parameters", "_buffers", "_forward_hooks", "_forward_pre_hooks"):
        twin.__dict__[part] = copy.copy(module.__dict__[part])
    twin.__dict__["_modules"] = {
        name: None if child is None else _share(child) for name, child in module._modules.items()
    }
    return twin


def _bias(head: nn.Module) -> torch.Tensor | None:
    bias = getattr(head, "bias", None)
    return None if bias is None else bias.detach()


def _logit_scale(config: Any) -> float:
    # Two families scale their logits after the head, one as a factor and one as a divisor.
    factor = getattr(config, "logit_scale", None) or 1.0
    return float(factor) / float(getattr(config, "logits_scaling", None) or 1.0)
