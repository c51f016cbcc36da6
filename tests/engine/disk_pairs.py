"""Tiny random Llama models with a byte tokenizer, on disk as transformers stores them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL = ("<|start|>", "<|end|>")
TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>{% endif %}"
)


def write_model(folder: Path, *, seed: int = 0, num_layers: int = 3, **settings: Any) -> Path:
    """A random Llama with 258 tokens: two special ones and every byte."""
    config = LlamaConfig(
        **{
            "vocab_size": len(SPECIAL) + 256,
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": num_layers,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "max_position_embeddings": 128,
            "initializer_range": 0.3,
            "tie_word_embeddings": True,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "pad_token_id": 1,
            **settings,
        }
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        LlamaForCausalLM(config).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def write_tokenizer(folder: Path, *, swap: bool = False, template: str | None = TEMPLATE) -> None:
    """The byte tokenizer; `swap` exchanges the ids of its last two bytes."""
    tokens = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    if swap:
        tokens[-2:] = tokens[:-3:-1]
    model = models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=[])
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=SPECIAL[0], eos_token=SPECIAL[1], pad_token=SPECIAL[1]
    )
    fast.chat_template = template
    fast.save_pretrained(folder)
