"""Drafts as whole models of transformers."""

from __future__ import annotations

import pytest
import torch

from tests.engine.tiny import Draft, tiny_pair
from treewise.engine.assistant import FullHead, assistant_model


@pytest.mark.parametrize("kind", ["same", "other", "pruned", "cut"])
def test_it_says_what_the_draft_says(kind: Draft) -> None:
    pair = tiny_pair(kind)
    draft = pair.draft
    assert draft is not None
    model = assistant_model(draft, pair.target)
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    with torch.inference_mode():
        logits = model(input_ids=ids, use_cache=False).logits[0]
        own = draft.head(draft.model(input_ids=ids, use_cache=False).last_hidden_state[0])
    vocab_size = pair.description.vocab_size
    assert logits.shape == (5, vocab_size)
    said = range(vocab_size) if draft.head_token_ids is None else draft.head_token_ids.tolist()
    assert torch.equal(logits[:, list(said)], own)
    unsaid = sorted(set(range(vocab_size)) - set(said))
    assert len(unsaid) == (vocab_size // 2 if kind == "cut" else 0)
    assert bool((logits[:, unsaid] == float("-inf")).all())


def test_nothing_is_copied_and_generate_accepts_it() -> None:
    pair = tiny_pair("cut")
    assert pair.draft is not None
    model = assistant_model(pair.draft, pair.target)
    assert model.base_model is pair.draft.model
    assert not any(parameter.is_meta for parameter in model.parameters())
    assert model.device == pair.target.device
    assert model.config is not pair.draft.config
    assert model.config.vocab_size == pair.target.config.vocab_size
    assert model.can_generate()


def test_head_rows_beyond_the_targets_vocabulary_are_left_out() -> None:
    draft = tiny_pair("same").draft
    assert draft is not None
    hidden = torch.ones((2, draft.hidden_size), dtype=draft.head_weight.dtype)
    assert torch.equal(FullHead(draft, 20)(hidden), draft.head(hidden)[:, :20])
    wider = FullHead(draft, 30)(hidden)
    assert torch.equal(wider[:, :24], draft.head(hidden))
    assert bool((wider[:, 24:] == float("-inf")).all())
