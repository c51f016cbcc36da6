"""A tiny random pair on disk, and prompts for it: enough to run whole commands in seconds."""

from __future__ import annotations

import json
import string
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from tokenizers.decoders import Fuse
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from treewise import cli
from treewise.training.fit import TrainSettings
from treewise.training.planner_fit import PlannerFitSettings

EOS = "<eos>"
UNKNOWN = "<unk>"
DRAFT = "prune:1-1"  # of the three layers
HASTY = TrainSettings(planner=PlannerFitSettings(requests=2, rate_rounds=1, tune=False))


def make_pair(folder: Path, seed: int = 0) -> Path:
    """A random Llama of three narrow layers and a tokenizer of one token a character; returns `folder`."""
    vocab = {token: place for place, token in enumerate([EOS, UNKNOWN, *string.printable[:96]])}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("[\\s\\S]"), "isolated")
    tokenizer.decoder = Fuse()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=UNKNOWN, eos_token=EOS)
    fast.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=len(vocab),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=8192,
        initializer_range=0.4,  # wide enough that some guesses are sure
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=vocab[EOS],
    )
    torch.manual_seed(seed)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def write_prompts(path: Path, count: int = 10) -> Path:
    """`count` short prompts of two tasks; returns `path`."""
    words = ("red", "green", "blue", "round", "square")
    lines = [
        {
            "id": f"tiny/{number}",
            "task": ("copy", "chat")[number % 2],
            "prompt": f"{words[number % 5]} {words[number * 3 % 5]} {number} " * 2,
        }
        for number in range(count)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def leave(arguments: list[str]) -> int:
    """Exit status of a command, however Typer leaves."""
    try:
        return cli.main(arguments)
    except SystemExit as leaving:
        assert isinstance(leaving.code, int)
        return leaving.code
