"""Rows of a tree through a model: each one answers as if its own path were the whole text."""

import numpy as np
import pytest
import torch

from tests.engine.tiny import VOCAB, next_logits, tiny_model
from treewise.engine.draft_model import decoder_of
from treewise.engine.random_tree import random_tree, tree_mask
from treewise.engine.tree_model import TreeModel


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("seed", range(3))
def test_every_row_sees_its_own_path(attention: str, seed: int) -> None:
    draw = np.random.default_rng(seed)
    model = tiny_model(seed, attention=attention)
    tree = TreeModel(model, 2, capacity=4)
    text = draw.integers(0, VOCAB, 7).tolist()
    tree.prefill(text[:4], decoder=decoder_of(model))
    tree.prefill(text[4:])  # behind a filled cache
    parents = random_tree(12, draw)
    depths, mask = tree_mask(parents, len(text))
    tokens = draw.integers(0, VOCAB, 12).astype(np.int32)
    logits = tree.forward(tokens, (len(text) + depths).astype(np.int32), mask)
    assert tree.cache.length == len(text) + 12
    for row in range(12):
        path = [row]
        while parents[path[-1]] >= 0:
            path.append(int(parents[path[-1]]))
        expected = next_logits(model, [*text, *tokens[path[::-1]].tolist()])
        np.testing.assert_allclose(logits[row].numpy(), expected, rtol=1e-4, atol=1e-5)


def test_one_row_needs_no_mask_and_reset_forgets() -> None:
    model = tiny_model(4)
    tree = TreeModel(model, 2, capacity=8)
    for _ in range(2):
        tree.reset(16)
        assert (tree.cache.length, tree.capacity) == (0, 16)
        assert tree.prefill([]) is None
        hidden = tree.prefill([5, 6, 7], decoder=decoder_of(model))
        assert hidden is not None and hidden.shape == (3, 16)
        row = np.asarray([9], dtype=np.int32)
        logits = tree.forward(row, np.asarray([3], dtype=np.int32), np.ones((1, 4), dtype=np.bool_))
        np.testing.assert_allclose(logits[0].numpy(), next_logits(model, [5, 6, 7, 9]), rtol=1e-4, atol=1e-5)
    tree.reset(8)
    assert tree.capacity == 16  # never smaller


def test_a_decoder_answers_with_hidden_states() -> None:
    model = tiny_model(4)
    tree = TreeModel(decoder_of(model), 2)
    out = tree.forward(
        np.asarray([1, 2], dtype=np.int32), np.asarray([0, 1], dtype=np.int32), np.tri(2, dtype=np.bool_)
    )
    assert out.shape == (2, 16) and out.dtype == torch.float64
