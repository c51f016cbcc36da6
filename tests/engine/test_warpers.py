"""Warpers leave what transformers' own leave, in the same order."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from treewise.engine.sampling import Sampling, target_token, warp
from treewise.engine.warpers import NUCLEUS_STEPS, nucleus, probabilities, typical, warp_row


def theirs(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Scores [vocabulary] of transformers' warpers, minus infinity for what they leave out."""
    chain = LogitsProcessorList([TemperatureLogitsWarper(sampling.temperature)])
    if sampling.top_k:
        chain.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1.0:
        chain.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p:
        chain.append(MinPLogitsWarper(sampling.min_p))
    if sampling.typical_p < 1.0:
        chain.append(TypicalLogitsWarper(sampling.typical_p))
    return chain(torch.LongTensor([[0]]), logits[None])[0]


WARPS = [
    Sampling(0.7),
    Sampling(1.3, top_k=1),
    Sampling(1.3, top_k=40),
    Sampling(1.1, top_p=0.9),
    Sampling(0.8, top_p=0.2),
    Sampling(1.1, min_p=0.1),
    Sampling(0.6, min_p=1.0),
    Sampling(0.9, typical_p=0.95),
    Sampling(0.9, typical_p=0.2),
    Sampling(1.2, top_k=50, top_p=0.95, min_p=0.05, typical_p=0.8),
    Sampling(0.5, top_k=3, top_p=0.5, min_p=0.02, typical_p=0.5),
]


@pytest.mark.parametrize("sampling", WARPS)
@pytest.mark.parametrize("size", [2, 61, 3000])
def test_the_same_tokens_and_scores_as_transformers(sampling: Sampling, size: int) -> None:
    draw = torch.Generator().manual_seed(size)
    for spread in (0.3, 1.0, 4.0, 12.0):
        logits = torch.randn(size, generator=draw) * spread
        expected = theirs(logits, sampling)
        tokens, scores = warp(logits, sampling)
        left = set(torch.isfinite(expected).nonzero()[:, 0].tolist())
        # Shares are summed in float32 there: of thousands of tokens, the one on the edge may fall on either side.
        sums = size > 1000 and (sampling.top_p < 1.0 or sampling.typical_p < 1.0)
        assert len(left ^ set(tokens.tolist())) <= sums
        assert tokens.tolist() == sorted(tokens.tolist())
        assert torch.equal(scores, (logits / sampling.temperature)[tokens])


@pytest.mark.parametrize(
    "sampling", [Sampling(1.0, top_k=2), Sampling(1.0, min_p=0.3), Sampling(1.0, typical_p=0.3)], ids=repr
)
def test_ties_stay_as_with_transformers(sampling: Sampling) -> None:
    logits = torch.tensor([1.0, 3.0, 2.0, 3.0, 2.0, 2.0, -torch.inf, 0.0])
    assert warp(logits, sampling)[0].tolist() == torch.isfinite(theirs(logits, sampling)).nonzero()[:, 0].tolist()


@given(
    st.lists(st.sampled_from([0.0, 0.5, 1.0, -3.0, 7.0, -np.inf]), min_size=1, max_size=30),
    st.sampled_from([1e-300, 0.1, 0.5, 0.999, 1.0 - 1e-9]),
)
def test_a_nucleus_holds_its_share_and_no_token_too_many(values: list[float], top_p: float) -> None:
    scores = np.asarray([*values, 0.0], dtype=np.float32)
    kept = nucleus(scores, top_p)
    assert kept.tolist() == sorted(set(kept.tolist())) and len(kept) >= 1
    probs = probabilities(scores).astype(np.float64)
    assert probs[kept].sum() >= top_p - 1e-6
    assert probs[kept].sum() - probs[kept].min() < top_p + 1e-6 or len(kept) == 1
    left = np.setdiff1d(np.arange(len(scores)), kept)
    assert not left.size or scores[left].max() <= scores[kept].min()


@pytest.mark.parametrize("spread", [0.01, 0.5, 3.0])
def test_a_nucleus_is_the_same_however_few_are_sorted(spread: float, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = (np.random.default_rng(4).normal(size=20_000) * spread).astype(np.float32)
    scores[::3] = np.round(scores[::3], 2)  # ties across the edge of what is sorted
    for top_p in (0.01, 0.3, 0.9, 0.9999):
        few = nucleus(scores, top_p)
        with monkeypatch.context() as patch:
            patch.setattr("treewise.engine.warpers.NUCLEUS_STEPS", ())
            np.testing.assert_array_equal(few, nucleus(scores, top_p))
    assert NUCLEUS_STEPS[-1] < len(scores)


def test_typical_leaves_out_the_likeliest_where_it_says_too_little() -> None:
    # two bits of surprise are typical here; the first token says a third of one
    scores = np.log(np.asarray([0.4, 0.15, 0.15, 0.15, 0.15], dtype=np.float32))
    assert typical(scores, 0.5).tolist() == [1, 2, 3, 4]
    assert typical(scores, 0.9).tolist() == [0, 1, 2, 3, 4]


def test_broken_rows_are_left_whole() -> None:
    rough = np.asarray([1.0, np.nan, np.inf, -np.inf, 1e30], dtype=np.float32)
    for sampling in WARPS:
        for row in (rough, rough[1:2], rough[2:4], rough[3:4]):
            tokens, scores = warp_row(row, sampling)
            assert tokens is None
            assert len(scores) == len(row)


@pytest.mark.parametrize("sampling", WARPS)
def test_the_target_says_what_the_warpers_leave(sampling: Sampling) -> None:
    logits = torch.randn(700, generator=torch.Generator().manual_seed(1))
    allowed = set(torch.isfinite(theirs(logits, sampling)).nonzero()[:, 0].tolist())
    assert {target_token(logits, position, sampling) for position in range(50)} <= allowed
