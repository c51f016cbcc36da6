"""Tree decoding commits what plain decoding does, one verify pass a round, whatever the policy does."""

from __future__ import annotations

import gc
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache

from tests.engine.tiny import (
    CONTEXT,
    DRAFTS,
    NARROW,
    VOCAB,
    Draft,
    RandomPolicy,
    end_token,
    example_cost,
    lax_settings,
    plain_text,
    tiny_pair,
)
from treewise.data.envelope import Envelope
from treewise.data.errors import ModelOutputError, ParameterError, PromptError
from treewise.engine.cache import cache_argument
from treewise.engine.decode import Engine, EngineSettings, RoundRecord
from treewise.engine.draft_model import decoder_of
from treewise.engine.pair import Pair
from treewise.engine.sampling import Sampling
from treewise.policy.everything import EverythingPolicy
from treewise.policy.hook import DRAFT, BoolArray, Expansion, ForestView, Level, RoundOutcome, TreePolicy
from treewise.policy.registry import RULES, parse_policy

SPECS = [*RULES, "topn:12x3", "static:2x3,sources=draft", "chain:4,sources=lookup", "random", "everything"]
PROMPT = [3, 7, 1, 3, 7, 1, 3, 7]
OPEN = Envelope(min_path_prior=1e-9, min_grow_prior=1e-9)  # chains are cut by their policy alone
INVENTIVE = [5, 2, 9, 14]  # the model of seed 0 does not answer it with one token over and over


def policy_of(spec: str, seed: int = 0) -> TreePolicy:
    """A policy by spec, or one of the two that exist for tests and dense traces."""
    if spec == "random":
        return RandomPolicy(seed)
    return EverythingPolicy() if spec == "everything" else parse_policy(spec)


def engine_of(pair: Pair, spec: str | TreePolicy = "topn:12x3", **changes: Any) -> Engine:
    policy = policy_of(spec) if isinstance(spec, str) else spec
    return Engine(pair, policy, example_cost(), lax_settings(**changes))


def checked_rounds(
    engine: Engine, prompt: list[int], limit: int, sampling: Sampling | None = None
) -> Iterator[RoundRecord]:
    """Rounds of the engine, with both caches looked at after each."""
    for record in engine.rounds(prompt, limit, sampling):
        end = int(record.context.position[0]) + len(record.committed)
        assert engine._target.num_passes == record.index + 1
        assert engine._target.tree_model.cache.length == end
        engine._target.tree_model.cache.check_integrity()
        if engine._draft is not None:
            engine._draft.check_integrity()
        record.tree.forest.check_integrity()
        yield record


@st.composite
def samplings(draw: st.DrawFn) -> Sampling:
    if draw(st.booleans()):
        return Sampling()
    return Sampling(
        draw(st.sampled_from([0.5, 0.8, 1.0, 1.5])),
        draw(st.sampled_from([0, 1, 3, 8, 100])),
        draw(st.sampled_from([1.0, 0.9, 0.5, 0.05])),
        draw(st.integers(0, 2**40)),
    )


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
        ([1], 0, ParameterError, "max_new_tokens must be >= 1, got 0"),
    ],
)
def test_prompts_that_cannot_be_decoded(prompt: list[int], limit: int, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        engine_of(tiny_pair()).rounds(prompt, limit)


@contextmanager
def spoilt(module: torch.nn.Module, value: float, from_call: int = 1) -> Iterator[None]:
    """Let the output of `module` hold `value` from its nth call on."""
    calls = 0

    def spoil(module: torch.nn.Module, args: Any, output: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls < from_call:
            return output
        output = output.clone()
        output[..., 0] = value
        return output

    hook = module.register_forward_hook(spoil)
    try:
        yield
    finally:
        hook.remove()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0), Sampling(1.0, top_k=1), Sampling(1.0, top_p=0.5)])
def test_broken_target_logits_are_an_error(value: float, sampling: Sampling) -> None:
    pair = tiny_pair("pruned")
    engine = engine_of(pair)
    with spoilt(pair.target.get_output_embeddings(), value), pytest.raises(ModelOutputError, match="must be finite"):
        engine.generate(PROMPT, 8, sampling)
    assert engine.generate(PROMPT, 8, sampling).tokens == plain_text(pair, PROMPT, 8, sampling)


def test_broken_draft_logits_cost_guesses_and_nothing_else() -> None:
    pair = tiny_pair("other")
    assert pair.draft is not None
    with spoilt(pair.draft.model.get_submodule("norm"), float("nan"), from_call=4):
        engine = engine_of(pair, "topn:12x3", use_lookup=False)
        completion = engine.generate(PROMPT, 16)
        assert engine._draft is not None and engine._draft.num_unhealthy > 0
    assert completion.tokens == plain_text(pair, PROMPT, 16, Sampling())
    assert completion.fallbacks == 0
    assert completion.verified_nodes[-2] == 0


class Broken(EverythingPolicy):
    """Goes wrong in one way, from its second round on."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.rounds = 0

    def expand(self, level: Level) -> Expansion:
        answer = super().expand(level)
        spoilt: Any = answer.grow * np.float32(np.nan)
        if self.rounds == 0 or level.index == 0:
            return answer
        if self.way == "raises":
            raise ZeroDivisionError("out of guesses")
        if self.way == "shape":
            return Expansion(answer.admit[:-1], answer.grow)
        if self.way == "nan":
            return Expansion(answer.admit, spoilt)
        return answer

    def select(self, forest: ForestView) -> BoolArray:
        if self.way == "select" and self.rounds:
            return np.asarray([np.nan] * 3)
        if self.way == "slow" and self.rounds:
            time.sleep(0.05)
        return super().select(forest)

    def observe(self, outcome: RoundOutcome) -> None:
        self.rounds += 1
        if self.way == "observe":
            raise ValueError("saw too much")


@pytest.mark.parametrize("way", ["raises", "shape", "nan", "select", "observe"])
def test_a_policy_that_goes_wrong_loses_nothing(way: str) -> None:
    pair = tiny_pair("other")
    engine = engine_of(pair, Broken(way))
    with pytest.warns(RuntimeWarning, match="polic"):
        completion = engine.generate(PROMPT, 16)
    assert completion.tokens == plain_text(pair, PROMPT, 16, Sampling())
    assert completion.fallbacks == (0 if way == "observe" else completion.num_rounds - 1)
    assert completion.suspensions == 0


def test_a_slow_policy_is_suspended_and_loses_nothing() -> None:
    pair = tiny_pair("other")

    class Slow(Broken):
        def expand(self, level: Level) -> Expansion:
            time.sleep(0.02)
            return super().expand(level)

    engine = Engine(pair, Slow("slow"), example_cost(), EngineSettings(envelope=NARROW, time_limit_ms=10.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        completion = engine.generate(PROMPT, 16)
    assert completion.tokens == plain_text(pair, PROMPT, 16, Sampling())
    assert completion.suspensions == completion.num_rounds - 1
    assert completion.fallbacks == 0


def test_rounds_may_be_abandoned() -> None:
    pair = tiny_pair("pruned")
    engine = engine_of(pair, "everything")
    expected = plain_text(pair, PROMPT, 20, Sampling())
    abandoned = engine.rounds(PROMPT[::-1], 20)
    next(abandoned)
    next(abandoned)
    assert engine.generate(PROMPT, 20).tokens == expected
    with pytest.raises(ParameterError, match="rounds must be taken before the engine's next request begins"):
        next(abandoned)
    del abandoned
    gc.collect()
    assert engine.generate(PROMPT, 20).tokens == expected


def test_two_engines_in_two_threads_share_a_pair() -> None:
    pair = tiny_pair("pruned")
    prompts = [PROMPT, PROMPT[::-1]]
    expected = [plain_text(pair, prompt, 24, Sampling()) for prompt in prompts]
    found: list[list[tuple[int, ...]]] = [[], []]
    engines = [engine_of(pair, "everything"), engine_of(pair, "topn:12x3")]

    def work(number: int) -> None:
        for _ in range(3):
            found[number].append(engines[number].generate(prompts[number], 24).tokens)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[text] * 3 for text in expected]


def test_the_same_prompt_takes_the_same_rounds() -> None:
    engine = engine_of(tiny_pair("other"), "entropy")
    sampling = Sampling(1.0, seed=9)
    first = engine.generate(PROMPT, 30, sampling)
    engine.generate(PROMPT[:3], 5)
    again = engine.generate(PROMPT, 30, sampling)
    assert (first.tokens, first.accepted_lengths, first.verified_nodes) == (
        again.tokens,
        again.accepted_lengths,
        again.verified_nodes,
    )
    assert (first.growths, first.policy_calls) == (again.growths, again.policy_calls)


def test_caches_do_not_grow_from_round_to_round() -> None:
    engine = engine_of(tiny_pair("other"), RandomPolicy(1))
    sizes = set()
    rounds = 0
    while rounds < 300:
        for _ in checked_rounds(engine, PROMPT, 40, Sampling(1.0, seed=rounds)):
            rounds += 1
        assert engine._draft is not None
        caches = engine._target.tree_model.cache, engine._draft.tree_model.cache
        sizes.add(tuple(layer.capacity for cache in caches for layer in cache.tree_layers))
    assert len(sizes) == 1


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
