"""Models by shape: named sizes of known architectures with random weights, for measuring what passes cost.

What a pass costs depends on sizes, dtype and device and not on what the weights say, so nothing has to be downloaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from treewise.data.errors import ParameterError, require
from treewise.data.pair import PairDescription
from treewise.engine.draft_model import DraftModel, decoder_of
from treewise.engine.pair import Pair

RANDOM = "random:"  # before the shape in the name of a model whose weights are random
NO_TOKENIZER = "none"
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "fp64": torch.float64}


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of one decoder of the Llama family."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_key_heads: int
    max_context_tokens: int
    ties_embeddings: bool
    spread: float = 0.02  # standard deviation of the random weights

    @property
    def num_parameters(self) -> int:
        """Weights, those of a tied head once."""
        head_dim = self.hidden_size // self.num_heads
        attention = 2 * self.hidden_size * head_dim * (self.num_heads + self.num_key_heads)
        layer = attention + 3 * self.hidden_size * self.intermediate_size + 2 * self.hidden_size
        embeddings = self.vocab_size * self.hidden_size * (1 if self.ties_embeddings else 2)
        return embeddings + self.num_layers * layer + self.hidden_size

    @property
    def config(self) -> LlamaConfig:
        """The transformers configuration; no token ends a text."""
        return LlamaConfig(
            vocab_size=self.vocab_size,
            hidden_size=self.hidden_size,
            intermediate_size=self.intermediate_size,
            num_hidden_layers=self.num_layers,
            num_attention_heads=self.num_heads,
            num_key_value_heads=self.num_key_heads,
            max_position_embeddings=self.max_context_tokens,
            tie_word_embeddings=self.ties_embeddings,
            initializer_range=self.spread,
            bos_token_id=None,
            eos_token_id=None,
        )


SHAPES: dict[str, Shape] = {
    "llama-8b": Shape(128256, 4096, 14336, 32, 32, 8, 131072, False),
    "llama-1b": Shape(128256, 2048, 8192, 16, 32, 8, 131072, True),
    "smollm2-135m": Shape(49152, 576, 1536, 30, 9, 3, 8192, True),
    "tiny": Shape(64, 32, 48, 2, 4, 2, 16384, False, spread=0.3),
    "tiny-draft": Shape(64, 16, 24, 1, 2, 1, 16384, True, spread=0.3),
}


def shape_of(name: str) -> Shape:
    """The shape of that name. Raises `ParameterError`."""
    require(name in SHAPES, "shape", f"one of {', '.join(SHAPES)}", name)
    return SHAPES[name]


def dtype_of(name: str) -> torch.dtype:
    """The dtype of `bf16`, `fp16`, `fp32` or `fp64`. Raises `ParameterError`."""
    require(name in DTYPES, "dtype", f"one of {', '.join(DTYPES)}", name)
    return DTYPES[name]


def random_model(name: str, dtype: torch.dtype, device: str | torch.device = "cpu", seed: int = 0) -> LlamaForCausalLM:
    """A model of the shape `name` with random weights, made on `device`, in eval mode.

    Raises `ParameterError` on an unknown shape, or where the device has not room for the weights.
    """
    shape, place = shape_of(name), torch.device(device)
    _check_room(name, shape.num_parameters * dtype.itemsize, place)
    config = shape.config
    config._attn_implementation = "sdpa"
    seeded = [torch.cuda.current_device()] if place.type == "cuda" else []
    with torch.random.fork_rng(devices=seeded), _default_dtype(dtype), place:
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.eval().requires_grad_(False)
    return model


def random_pair(
    target: str,
    draft: str = "",
    *,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
    threads: int | None = None,
    seed: int = 0,
) -> Pair:
    """A pair of shapes with random weights and no tokenizer; without `draft`, of a target alone.

    Its name says that the weights are random. Raises `ParameterError` as `random_model` does, and where the draft's
    vocabulary is not the target's. `threads`: when given, torch's threads in this process from now on.
    """
    size = shape_of(target).vocab_size
    if threads is not None:
        require(threads >= 1, "threads", ">= 1", threads)
        torch.set_num_threads(threads)
    if draft and shape_of(draft).vocab_size != size:
        raise ParameterError(
            f"draft shape must have the target's vocabulary of {size} tokens, "
            f"got {draft!r} with {shape_of(draft).vocab_size}"
        )
    model = random_model(target, dtype, device, seed)
    source = None
    if draft:
        other = random_model(draft, dtype, device, seed + 1)
        weight = other.get_output_embeddings().weight.detach()
        source = DraftModel(f"{RANDOM}{draft}", decoder_of(other), weight, None, _identity(draft, dtype, seed + 1))
    description = PairDescription(
        target=f"{RANDOM}{target}",
        target_sha256=_identity(target, dtype, seed),
        tokenizer_sha256=NO_TOKENIZER,
        vocab_size=size,
        draft=None if source is None else source.name,
        draft_sha256=None if source is None else source.sha256,
        draft_head_size=None if source is None else source.head_size,
    )
    return Pair(description.name, model, source, None, description)


def random_prompts(pair: Pair, count: int, tokens: int, seed: int = 0) -> list[list[int]]:
    """`count` prompts of `tokens` random token ids each."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, pair.description.vocab_size, tokens).tolist() for _ in range(count)]


def _identity(name: str, dtype: torch.dtype, seed: int) -> str:
    """Stands for a hash of weights that nobody needs to read back: what they are made from."""
    made_from = f"random weights of {shape_of(name)} in {dtype}, seed {seed}"
    return hashlib.sha256(made_from.encode()).hexdigest()


def _check_room(name: str, num_bytes: int, device: torch.device) -> None:
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
        fits = num_bytes < free
        require(fits, "shape", f"one that fits the device's {free / 2**30:.1f} GiB of free memory", name)


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
