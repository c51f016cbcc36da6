"""Attention split into a shared prefix and a tree, merged: the same as one softmax over both."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from tests.engine.tiny import RandomPolicy, example_cost, lax_settings, pair_of, plain_text, tiny_model
from treewise.data.errors import ParameterError
from treewise.engine.decode import Engine
from treewise.engine.draft_model import prune_layers
from treewise.engine.random_tree import random_tree, tree_mask
from treewise.engine.sampling import Sampling
from treewise.engine.shapes import random_model
from treewise.engine.split_attention import SPLIT_ATTENTION, KeySplit, shared_keys, split_attention, use_attention
from treewise.engine.tree_model import TreeModel


def drawn(
    seed: int, rows: int, base: int, dtype: torch.dtype, heads: int = 6, key_heads: int = 2
) -> list[torch.Tensor]:
    """Query, key, value of a pass of `rows` rows behind `base` keys, and a tree's mask [1, 1, rows, keys]."""
    generator = torch.Generator().manual_seed(seed)

    def some(count: int, length: int) -> torch.Tensor:
        return 2.0 * torch.randn(1, count, length, 8, generator=generator, dtype=torch.float64).to(dtype)

    _, mask = tree_mask(random_tree(rows, np.random.default_rng(seed)), base)
    return [
        some(heads, rows),
        some(key_heads, base + rows),
        some(key_heads, base + rows),
        torch.from_numpy(mask)[None, None],
    ]


def reference(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """One masked softmax over all keys, in the kernel's layout."""
    group = query.shape[1] // key.shape[1]
    key, value = (part.repeat_interleave(group, dim=1) for part in (key, value))
    return nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask).transpose(1, 2)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("dtype", "within"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_equals_one_masked_softmax(seed: int, dtype: torch.dtype, within: float) -> None:
    rng = np.random.default_rng(seed)
    rows, base = int(rng.integers(1, 30)), int(rng.integers(0, 200))
    query, key, value, mask = drawn(seed, rows, base, dtype)
    for shared in {0, base // 2, base}:
        out, _ = split_attention(
            nn.Module(), query, key, value, mask[..., shared:], scaling=8**-0.5, key_split=KeySplit(shared)
        )
        assert out.shape == (1, rows, 6, 8)
        assert float((out - reference(query, key, value, mask)).abs().max()) <= within


def test_a_ragged_tail_is_listed() -> None:
    """Buffers longer than the text, the tree's slots anywhere in them."""
    query, key, value, mask = drawn(3, 7, 40, torch.float64)
    room = torch.randperm(60, generator=torch.Generator().manual_seed(1))[:20].sort().values
    places = torch.cat([torch.arange(40), 40 + room[:7]])
    wide_key, wide_value = (torch.randn(1, 2, 100, 8, dtype=torch.float64) for _ in range(2))
    wide_key[:, :, places], wide_value[:, :, places] = key, value
    split = KeySplit(100, places[40:], torch.arange(100) >= 40)
    out, _ = split_attention(nn.Module(), query, wide_key, wide_value, mask[..., 40:], key_split=split)
    assert float((out - reference(query, key, value, mask)).abs().max()) <= 1e-12
    nothing = KeySplit(100, places, torch.ones(100, dtype=torch.bool))
    out, _ = split_attention(nn.Module(), query, wide_key, wide_value, mask, key_split=nothing)
    assert float((out - reference(query, key, value, mask)).abs().max()) <= 1e-12


def test_half_precision_is_as_near_as_the_stock_kernel() -> None:
    for seed in range(4):
        exact = drawn(seed, 16, 150, torch.float64)
        query, key, value = (part.to(torch.bfloat16) for part in exact[:3])
        truth = reference(query.double(), key.double(), value.double(), exact[3])
        stock = (reference(query, key, value, exact[3]).double() - truth).abs().max()
        out, _ = split_attention(nn.Module(), query, key, value, exact[3][..., 150:], key_split=KeySplit(150))
        assert float((out.double() - truth).abs().max()) <= 2.0 * float(stock)


def test_shared_keys_are_the_first_that_all_rows_see() -> None:
    _, mask = tree_mask(random_tree(5, np.random.default_rng(0)), 9)
    assert shared_keys(mask) == 10  # the root's own is seen by all below it
    assert shared_keys(mask[:1]) == 10 and shared_keys(np.ones((1, 4), dtype=np.bool_)) == 4
    mask[2, 4] = False
    assert shared_keys(mask) == 4


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_model_says_the_same(dtype: torch.dtype) -> None:
    whole, split = random_model("tiny", dtype), random_model("tiny", dtype)
    use_attention([split], "split")
    assert split.config._attn_implementation == SPLIT_ATTENTION
    runs = [TreeModel(model, 2) for model in (whole, split)]
    rng = np.random.default_rng(5)
    for base, rows in ((20, 9), (29, 1), (30, 17)):
        for run in runs:
            run.cache.keep(min(run.cache.length, 0), ())
            run.prefill(list(range(base // 2)))
            run.prefill(list(range(base - base // 2)))
        depths, mask = tree_mask(random_tree(rows, rng), base)
        mask[:, 3:5] &= rng.random((rows, 2)) < 0.5  # as rows of an earlier growth, seen by some
        tokens = rng.integers(0, 64, rows).astype(np.int32)
        made = [run.forward(tokens, (base + depths).astype(np.int32), mask) for run in runs]
        assert float((made[0] - made[1]).abs().max()) <= (1e-12 if dtype == torch.float64 else 1e-4)


def test_texts_are_plain_decodings() -> None:
    target = tiny_model.__wrapped__(3)  # of its own, since the kernel is set in place
    draft = prune_layers(target, [1], "0" * 64)
    pair = pair_of(target, draft)
    prompt, sampling = [3, 1, 4, 1, 5], Sampling(0.7, seed=2)
    expected = plain_text(pair, prompt, 20, sampling)
    use_attention([target, draft.model], "split")
    configs = [getattr(module, "config", None) for module in draft.model.modules()]
    assert {config._attn_implementation for config in configs if config is not None} == {SPLIT_ATTENTION}
    answer = Engine(pair, RandomPolicy(4), example_cost(), lax_settings()).generate(prompt, 20, sampling)
    assert answer.tokens == expected
    assert sum(answer.verified_nodes) > 5


def test_without_a_split_it_is_the_stock_kernel() -> None:
    model = random_model("tiny", torch.float64)
    ids = torch.arange(12)[None]
    before = model(input_ids=ids).logits
    use_attention([model], "split")
    assert torch.equal(model(input_ids=ids).logits, before)
    padded = torch.ones(1, 12, dtype=torch.long)
    padded[0, :3] = 0
    masked = model(input_ids=ids, attention_mask=padded).logits
    use_attention([model], "sdpa")
    assert torch.equal(model(input_ids=ids, attention_mask=padded).logits, masked)
    assert math.isfinite(float(masked.sum())) and not torch.equal(masked, before)


def test_an_unknown_kernel_is_refused() -> None:
    with pytest.raises(ParameterError, match="attention must be one of sdpa, split, got 'flash'"):
        use_attention([], "flash")
