"""A draft as a whole causal language model of transformers, for engines that know no cut heads."""

from __future__ import annotations

import copy

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from treewise.data.errors import PairError
from treewise.engine.draft_model import DraftModel


class FullHead(nn.Module):
    """A draft's head over the target's vocabulary: tokens that the draft cannot say have logit minus infinity.

    The draft's `logit_scale` is left to the causal model around it, whose class applies it where its family has one.
    """

    def __init__(self, draft: DraftModel, vocab_size: int) -> None:
        super().__init__()
        self._weight = draft.head_weight
        self._bias = draft.head_bias
        self._vocab_size = vocab_size
        ids = draft.head_token_ids
        self._is_full = ids is None
        said = torch.arange(draft.head_size) if ids is None else torch.from_numpy(ids.astype("int64"))
        self._rows = torch.nonzero(said < vocab_size).flatten().to(draft.head_weight.device)
        self._tokens = said.to(draft.head_weight.device)[self._rows]
        self._is_cut_short = len(self._rows) < draft.head_size

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [..., vocabulary] of hidden states [..., hidden size]."""
        logits = nn.functional.linear(hidden, self._weight, self._bias)
        if self._is_full and logits.shape[-1] == self._vocab_size:
            return logits
        if self._is_cut_short:
            logits = logits[..., self._rows]
        whole = logits.new_full((*logits.shape[:-1], self._vocab_size), float("-inf"))
        whole[..., self._tokens] = logits
        return whole


def assistant_model(draft: DraftModel, target: PreTrainedModel) -> PreTrainedModel:
    """The draft as `assistant_model` of `target.generate`: the causal model of its family around its own decoder.

    Nothing is copied: decoder and head weights are the draft's.

    Raises:
        PairError: the draft's family has no causal language model with a decoder and a head.
    """
    vocab_size = int(target.get_output_embeddings().weight.shape[0])
    config = copy.deepcopy(draft.config)
    config.vocab_size = int(target.config.get_text_config().vocab_size)  # generate compares the two
    with torch.device("meta"):  # the shell's own weights are thrown away
        model = AutoModelForCausalLM.from_config(
            config, dtype=draft.head_weight.dtype, attn_implementation=draft.config._attn_implementation
        )
    if not isinstance(model, PreTrainedModel) or not hasattr(model, model.base_model_prefix):
        raise PairError(f"draft must be of a family with a causal language model, got {type(draft.model).__name__}")
    setattr(model, model.base_model_prefix, draft.model)
    model.set_output_embeddings(FullHead(draft, vocab_size))
    model.eval()
    return model
