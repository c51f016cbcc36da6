"""Tiny random Llama pairs in float64, policies that decide at random, and plain decoding written a second time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from treewise.data.cost import CostGrid, CostProfile
from treewise.data.envelope import Envelope
from treewise.data.noise import gumbel
from treewise.data.pair import PairDescription
from treewise.engine.decode import EngineSettings
from treewise.engine.draft_model import DraftModel, decoder_of, draft_from_model, prune_layers
from treewise.engine.pair import Pair
from treewise.engine.sampling import Sampling
from treewise.policy.everything import EverythingPolicy
from treewise.policy.hook import BoolArray, Expansion, ForestView, Level, RequestInfo

Draft = Literal["none", "same", "other", "pruned", "cut"]
DRAFTS: tuple[Draft, ...] = ("none", "same", "other", "pruned", "cut")
VOCAB = 24
CONTEXT = 64
LAX = 1e9  # milliseconds: no policy call is ever late

# Wide enough for trees with branches, narrow enough for tests.
NARROW = Envelope(max_depth=5, draft_width=3, lookup_width=2, min_path_prior=0.02, min_grow_prior=0.06)


def example_cost() -> CostProfile:
    """Milliseconds of a made-up machine."""
    verify = CostGrid((1, 8, 9, 32, 64), (0,), ((20.0, 21.0, 24.0, 28.0, 45.0),))
    return CostProfile("tiny", verify, CostGrid((1, 32), (0,), ((1.0, 2.0),)), policy_ms=0.05)


def lax_settings(**changes: Any) -> EngineSettings:
    """Engine settings under which nothing depends on a clock."""
    return EngineSettings(**{"envelope": NARROW, "time_limit_ms": LAX, **changes})


@cache
def tiny_model(
    seed: int = 0,
    vocab_size: int = VOCAB,
    layers: int = 2,
    attention: str = "sdpa",
    context: int = CONTEXT,
    spread: float = 0.35,
) -> LlamaForCausalLM:
    """A random model. `spread`: standard deviation of its weights; larger makes it surer of itself."""
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=context,
        initializer_range=spread,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    config._attn_implementation = attention
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.double().eval().requires_grad_(False)
    return model


def tiny_pair(
    draft: Draft = "pruned", seed: int = 0, vocab_size: int = VOCAB, attention: str = "sdpa", context: int = CONTEXT
) -> Pair:
    """A pair whose draft is nothing, the target, another model, the target less a layer, or one with a cut head."""
    target = tiny_model(seed, vocab_size, attention=attention, context=context)
    made = _draft_of(draft, target, seed, vocab_size, attention, context)
    return pair_of(target, made)


def pair_of(target: PreTrainedModel, draft: DraftModel | None) -> Pair:
    """A pair of ready models, without a tokenizer."""
    description = PairDescription(
        target="tiny",
        target_sha256="0" * 64,
        tokenizer_sha256="1" * 64,
        vocab_size=int(target.config.vocab_size),
        draft=None if draft is None else draft.name,
        draft_sha256=None if draft is None else draft.sha256,
        draft_head_size=None if draft is None else draft.head_size,
    )
    return Pair(description.name, target, draft, None, description)


def _draft_of(
    draft: Draft, target: LlamaForCausalLM, seed: int, vocab_size: int, attention: str, context: int
) -> DraftModel | None:
    if draft == "none":
        return None
    if draft == "pruned":
        return prune_layers(target, [1], "0" * 64)
    model = target if draft == "same" else tiny_model(seed + 1000, vocab_size, 1, attention, context)
    if draft != "cut":
        return draft_from_model(draft, model, num_tokens=vocab_size, target_vocab_size=vocab_size)
    # The target's own decoder, whose head says the odd tokens alone and in falling order.
    ids = np.arange(vocab_size - 1, -1, -2, dtype=np.int32)
    weight = target.get_output_embeddings().weight.detach()[ids.tolist()]
    return DraftModel("cut", decoder_of(target), weight, ids, "2" * 64)


@contextmanager
def end_token(pair: Pair, *tokens: int) -> Iterator[None]:
    """Let `tokens` end the pair's answers."""
    config = pair.target.generation_config
    assert config is not None
    before = config.eos_token_id
    config.eos_token_id = list(tokens)
    try:
        yield
    finally:
        config.eos_token_id = before


@torch.no_grad()
def next_logits(model: PreTrainedModel, tokens: Sequence[int]) -> NDArray[np.float64]:
    """Logits [vocabulary] behind `tokens`, from a pass over all of them without a cache."""
    out = model(input_ids=torch.tensor([list(tokens)]), use_cache=False)
    return np.asarray(out.logits[0, -1].numpy(), dtype=np.float64)


def say(logits: NDArray[np.float64], position: int, sampling: Sampling) -> int:
    """The verification rule a second time, in numpy."""
    if sampling.temperature == 0.0:
        return int(np.argmax(logits))
    scores = logits.astype(np.float32) / np.float32(sampling.temperature)
    allowed = np.ones(len(scores), dtype=np.bool_)
    if sampling.top_k:
        floor = np.sort(scores)[::-1][min(sampling.top_k, len(scores)) - 1]
        allowed &= scores >= floor
    if sampling.top_p < 1.0:
        weights = np.where(allowed, np.exp(scores.astype(np.float64) - scores.max()), 0.0)
        probs = weights / weights.sum()
        order = np.argsort(-probs, kind="stable")
        before = np.cumsum(probs[order]) - probs[order]
        allowed[order[before >= sampling.top_p]] = False
    weights = np.where(allowed, np.exp(scores.astype(np.float64) - scores.max()), 0.0)
    if sampling.min_p:
        allowed &= weights >= sampling.min_p
    if sampling.typical_p < 1.0:
        weights[~allowed] = 0.0
        surprise = np.full(len(scores), np.inf)
        surprise[allowed] = np.log(weights.sum()) - np.log(weights[allowed])
        probs = weights / weights.sum()
        distance = np.abs(surprise - (probs[allowed] * surprise[allowed]).sum())
        order = np.argsort(distance, kind="stable")
        last = min(int((np.cumsum(probs[order]) < sampling.typical_p).sum()), int(allowed.sum()) - 1)
        allowed &= distance <= distance[order[last]]
    noisy = scores + gumbel(sampling.seed, position, np.arange(len(scores)))
    return int(np.argmax(np.where(allowed, noisy, -np.inf)))


def plain_text(pair: Pair, prompt: Sequence[int], max_new_tokens: int, sampling: Sampling) -> tuple[int, ...]:
    """Plain decoding by a loop of its own: no cache, no tree, the whole prefix anew for every token."""
    text = list(prompt)
    room = min(max_new_tokens, pair.max_context_tokens - len(prompt))
    for _ in range(room):
        token = say(next_logits(pair.target, text), len(text), sampling)
        text.append(token)
        if token in pair.eos_token_ids:
            break
    return tuple(text[len(prompt) :])


class RandomPolicy(EverythingPolicy):
    """Admits, grows and selects at random, the same on every run of the same requests."""

    def __init__(self, seed: int = 0, share: float = 0.6) -> None:
        super().__init__()
        self._seed = seed
        self._share = share
        self._draw = np.random.default_rng(seed)

    def begin(self, request: RequestInfo) -> None:
        self._draw = np.random.default_rng(self._seed)

    def expand(self, level: Level) -> Expansion:
        may = level.candidates.may_grow
        bits = self._draw.integers(0, 4, size=len(may), dtype=np.uint8)
        grow = np.where(self._draw.random(len(may)) < self._share, may & bits, 0).astype(np.uint8)
        admit = (self._draw.random(len(may)) < self._share) | (grow > 0)
        return Expansion(admit, grow)

    def select(self, forest: ForestView) -> BoolArray:
        return np.asarray(self._draw.random(len(forest.nodes.parent)) < self._share)
