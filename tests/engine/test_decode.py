"""Tree decoding commits what plain decoding does, one verify pass a round, whatever the policy does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache

from tests.engine.driving import INVENTIVE, OPEN, PROMPT, checked_rounds, engine_of, policy_of, samplings
from tests.engine.tiny import (
    CONTEXT,
    DRAFTS,
    VOCAB,
    Draft,
    RandomPolicy,
    end_token,
    example_cost,
    plain_text,
    tiny_pair,
)
from treewise.data.errors import ParameterError, PromptError
from treewise.engine.cache import cache_argument
from treewise.engine.decode import Engine, EngineSettings
from treewise.engine.draft_model import decoder_of
from treewise.engine.sampling import Sampling
from treewise.policy.everything import EverythingPolicy
from treewise.policy.hook import DRAFT, Expansion, Level, RoundOutcome, TreePolicy
from treewise.policy.registry import RULES, parse_policy

SPECS = [*RULES, "topn:12x3", "static:2x3,sources=draft", "chain:4,sources=lookup", "random", "everything"]


@pytest.mark.parametrize("spec", SPECS)
@settings(max_examples=8)
@given(
    prompt=st.one_of(
        st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=40),
        st.lists(st.integers(0, 3), min_size=1, max_size=20),
    ),
    limit=st.integers(1, 40),
    sampling=samplings(),
    draft=st.sampled_from(DRAFTS),
    seed=st.integers(0, 3),
    ends=st.one_of(st.none(), st.integers(0, 39)),
    buckets=st.sampled_from([(), (1, 4, 8, 16), (64,)]),
    lookup=st.booleans(),
)
def test_the_text_is_that_of_plain_decoding(
    spec: str,
    prompt: list[int],
    limit: int,
    sampling: Sampling,
    draft: Draft,
    seed: int,
    ends: int | None,
    buckets: tuple[int, ...],
    lookup: bool,
) -> None:
    pair = tiny_pair(draft, seed)
    expected = plain_text(pair, prompt, limit, sampling)
    engine = engine_of(pair, policy_of(spec, seed), row_buckets=buckets, use_lookup=lookup)
    # A token of the text ends it, somewhere in the middle.
    stop = [] if ends is None else [expected[ends % len(expected)]]
    with end_token(pair, *stop):
        if stop:
            expected = expected[: expected.index(stop[0]) + 1]
        records = list(checked_rounds(engine, prompt, limit, sampling))
    text = tuple(token for record in records for token in record.committed)
    assert text == expected
    assert [record.finish for record in records[:-1]] == [""] * (len(records) - 1)
    assert records[-1].finish == ("eos" if stop else "length")
    for record in records:
        accepted = int(record.walk.accepted_length[0])
        ended = record.finish == "eos" and accepted > 0
        assert len(record.committed) in ((accepted, accepted + 1) if ended else (accepted + 1,))
        assert record.verify_rows >= 1 + record.tree.num_nodes
        assert not buckets or record.verify_rows in buckets or record.verify_rows > max(buckets)


def test_an_end_of_text_on_the_accepted_path_ends_the_request() -> None:
    pair = tiny_pair("same")
    prompt = INVENTIVE
    text = plain_text(pair, prompt, 20, Sampling())
    engine = engine_of(pair, "chain:4,sources=draft", envelope=OPEN)
    whole = list(checked_rounds(engine, prompt, 20))
    inside = whole[0].committed[2]  # accepted from the tree, with more behind it
    assert int(whole[0].walk.accepted_length[0]) == 4
    with end_token(pair, inside):
        records = list(checked_rounds(engine, prompt, 20))
        completion = engine.generate(prompt, 20)
    assert records[-1].finish == completion.finish == "eos"
    assert completion.tokens == text[: text.index(inside) + 1]
    # A prompt that ends with the token does not end the answer.
    with end_token(pair, prompt[-1]):
        assert len(engine.generate(prompt, 2).tokens) >= 1


@pytest.mark.parametrize("length", [1, CONTEXT - 12, CONTEXT - 3, CONTEXT - 1])
def test_the_context_limits_the_answer(length: int) -> None:
    pair = tiny_pair("same")
    prompt = [token % VOCAB for token in range(length)]
    completion = engine_of(pair, "everything").generate(prompt, 500)
    assert completion.finish == "length"
    assert len(completion.tokens) == CONTEXT - length
    assert completion.tokens == plain_text(pair, prompt, 500, Sampling())


@pytest.mark.parametrize("spec", ["everything", "topn:12x3", "plain"])
def test_one_forward_pass_of_the_target_a_round(spec: str) -> None:
    pair = tiny_pair("other")
    calls: list[int] = []
    hook = decoder_of(pair.target).register_forward_pre_hook(
        lambda module, args, kwargs: calls.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    try:
        completion = engine_of(pair, spec).generate(PROMPT, 15)
    finally:
        hook.remove()
    assert calls[0] == len(PROMPT) - 1  # prefill
    assert calls[1:] == [1 + nodes for nodes in completion.verified_nodes]
    assert len(calls) == 1 + completion.num_rounds


class EveryThird(EverythingPolicy):
    """Drafts in every third round alone, so that the draft has to catch up."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds = 0

    def expand(self, level: Level) -> Expansion:
        answer = super().expand(level)
        wanted = answer.grow if self.rounds % 3 == 2 else answer.grow & np.uint8(~DRAFT & 0xFF)
        return Expansion(answer.admit, wanted.astype(np.uint8))

    def observe(self, outcome: RoundOutcome) -> None:
        self.rounds += 1


@pytest.mark.parametrize("make", [EveryThird, lambda: RandomPolicy(5), EverythingPolicy])
@pytest.mark.parametrize("draft", ["same", "other", "pruned"])
def test_caches_hold_the_committed_text_and_nothing_else(make: Callable[[], TreePolicy], draft: Draft) -> None:
    """Keys and values equal those of a fresh prefill of the committed text, so no rejected token is in them."""
    pair = tiny_pair(draft, seed=1)
    engine = engine_of(pair, make())
    assert pair.draft is not None and engine._draft is not None
    text = list(PROMPT)
    lags, passes = 0, 0
    for record in checked_rounds(engine, PROMPT, 24, Sampling(1.0, seed=3)):
        text.extend(record.committed)
        lags += int(record.context.catch_up[0]) > 0 and len(record.tree.growth_tokens) > 0
        passes += len(record.tree.growth_tokens)
        assert engine._draft.num_growths == passes
        caches = (
            (engine._target.tree_model.cache, decoder_of(pair.target)),
            (engine._draft.tree_model.cache, pair.draft.model),
        )
        for cache, decoder in caches:
            with torch.no_grad():
                fresh = decoder(input_ids=torch.tensor([text]), use_cache=True, **empty_cache(decoder))
            kept = getattr(fresh, cache_argument(decoder))
            assert cache.length <= len(text) - 1
            for layer, expected in zip(cache.tree_layers, kept.layers, strict=True):
                for mine, theirs in ((layer.keys, expected.keys), (layer.values, expected.values)):
                    torch.testing.assert_close(
                        mine[:, :, : cache.length], theirs[:, :, : cache.length], rtol=1e-4, atol=1e-5
                    )
    assert lags > 0 or not isinstance(engine.policy.policy, EveryThird)


def empty_cache(decoder: PreTrainedModel) -> dict[str, DynamicCache]:
    return {cache_argument(decoder): DynamicCache()}


@pytest.mark.parametrize("draft", ["other", "pruned"])
def test_a_growth_is_one_forward_pass_however_far_the_draft_lags(draft: Draft) -> None:
    pair = tiny_pair(draft, seed=1)
    assert pair.draft is not None
    passes: list[int] = []
    hook = pair.draft.model.register_forward_pre_hook(
        lambda module, args, kwargs: passes.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    try:
        records = list(engine_of(pair, EveryThird()).rounds(PROMPT, 24, Sampling(1.0, seed=3)))
    finally:
        hook.remove()
    assert max(int(record.context.catch_up[0]) for record in records) >= 2
    assert passes[0] == len(PROMPT) - 1
    # Rows of each pass, catch-up included, are what the round's record says.
    assert passes[1:] == [tokens for record in records for tokens in record.tree.growth_tokens]


class Thinned(RandomPolicy):
    """Everything, of which `select` keeps a random part or all."""

    def __init__(self, seed: int, share: float) -> None:
        super().__init__(seed, share)

    def expand(self, level: Level) -> Expansion:
        return EverythingPolicy.expand(self, level)


@settings(max_examples=12)
@given(seed=st.integers(0, 1000), share=st.floats(0.05, 0.95), draft=st.sampled_from(["same", "other", "cut"]))
def test_more_nodes_never_shorten_the_accepted_length(seed: int, share: float, draft: Draft) -> None:
    pair = tiny_pair(draft, seed=2)
    sampling = Sampling(0.9, seed=seed)
    prompt = np.random.default_rng(seed).integers(0, VOCAB, 6).tolist()
    thin = next(engine_of(pair, Thinned(seed, share)).rounds(prompt, 12, sampling))
    few, few_kept = int(thin.walk.accepted_length[0]), thin.tree.num_nodes
    full = next(engine_of(pair, EverythingPolicy()).rounds(prompt, 12, sampling))
    assert full.tree.num_nodes >= few_kept
    assert int(full.walk.accepted_length[0]) >= few
    assert full.committed[: len(thin.committed)] == thin.committed


@pytest.mark.parametrize(
    ("prompt", "limit", "error", "message"),
    [
        ([], 4, PromptError, "prompt must be at least one token, got an empty one"),
        ([1] * CONTEXT, 4, PromptError, f"context of {CONTEXT} tokens, got {CONTEXT}"),
        ([1, VOCAB], 4, ParameterError, f"between 0 and {VOCAB - 1}, got {VOCAB}"),
        ([1, -1, 5], 4, ParameterError, f"between 0 and {VOCAB - 1}, got -1"),
        ([1], 0, ParameterError, "max_new_tokens must be a whole number >= 1, got 0"),
        ([1], 5.5, ParameterError, "max_new_tokens must be a whole number >= 1, got 5.5"),
        ([1.5], 4, ParameterError, "prompt must be token ids between 0 and 23, got 1.5"),
    ],
)
def test_prompts_that_cannot_be_decoded(prompt: list[Any], limit: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        engine_of(tiny_pair()).rounds(prompt, limit)


def test_the_eager_kernel_is_exact_too() -> None:
    pair = tiny_pair("pruned", attention="eager")
    for sampling in (Sampling(), Sampling(0.8, seed=4)):
        completion = engine_of(pair, "everything").generate(PROMPT, 24, sampling)
        assert completion.tokens == plain_text(pair, PROMPT, 24, sampling)
        assert completion.tokens == plain_text(tiny_pair("pruned"), PROMPT, 24, sampling)


def test_other_kernels_are_refused() -> None:
    pair = tiny_pair("none", seed=77)
    model = pair.target
    before = model.config._attn_implementation
    model.config._attn_implementation = "flex_attention"
    try:
        with pytest.raises(ParameterError, match=r"attn_implementation must be 'sdpa' or 'eager'.*'flex_attention'"):
            engine_of(pair)
    finally:
        model.config._attn_implementation = before


def test_a_completion_counts_what_was_done() -> None:
    engine = engine_of(tiny_pair("same"), "chain:4,sources=draft", envelope=OPEN)
    completion = engine.generate(PROMPT, 20)
    assert completion.num_rounds == len(completion.verified_nodes) == 4
    assert completion.tokens_per_round == 5.0
    assert completion.nodes_per_round == 4.0
    assert completion.policy_calls == 4 * 6
    assert completion.growths == 16
    parts = completion.draft_seconds + completion.verify_seconds + completion.policy_seconds
    assert 0 < parts < completion.decode_seconds
    assert completion.tokens_per_second == pytest.approx(20 / completion.decode_seconds)


@pytest.mark.parametrize("buckets", [(8, 4), (4, 4), (0, 4)])
def test_row_buckets_that_do_not_rise_are_refused(buckets: tuple[int, ...]) -> None:
    with pytest.raises(ParameterError, match=r"row_buckets must be ascending and above 0, got \("):
        Engine(tiny_pair(), parse_policy("plain"), example_cost(), EngineSettings(row_buckets=buckets))
