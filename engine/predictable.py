"""A target of random weights whose text is known beforehand: each token is followed by one that a cycle names.

In half precision the text of random weights depends on the rounding of a pass, so that it could not be scripted.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import LlamaForCausalLM

from treewise.data.errors import require

QUIETER = 1e-4  # factor on what layers add to the residual stream


@torch.no_grad()
def make_predictable(model: LlamaForCausalLM, seed: int = 0) -> NDArray[np.int64]:
    """Let `model` say `successor[token]` behind every token, by a wide margin; returns `successor` [vocabulary].

    Layers are run as before and add next to nothing, so the last hidden state is the token's own embedding; the head's
    row of its successor is that embedding. The successors form one cycle through the vocabulary.
    """
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.mul_(QUIETER)
        layer.mlp.down_proj.weight.mul_(QUIETER)
    embeddings = model.model.embed_tokens.weight
    order = np.random.default_rng(seed).permutation(len(embeddings))
    successor = np.empty(len(order), dtype=np.int64)
    successor[order] = np.roll(order, -1)
    before = np.argsort(successor)
    own = embeddings[torch.from_numpy(before).to(embeddings.device)]
    model.lm_head.weight = nn.Parameter(own, requires_grad=False)
    return successor


def text_behind(successor: NDArray[np.int64], prompt: list[int], count: int) -> list[int]:
    """`prompt` and the `count` tokens that a predictable model says behind it."""
    require(len(prompt) > 0, "prompt", "at least one token", prompt)
    text = list(prompt)
    for _ in range(count):
        text.append(int(successor[text[-1]]))
    return text
