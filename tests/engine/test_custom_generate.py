"""`generate(custom_generate=...)` gives the text of `generate`, and refuses by name what it cannot honour."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    MaxTimeCriteria,
    MinPLogitsWarper,
    PreTrainedTokenizerFast,
    StoppingCriteria,
    StoppingCriteriaList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)
from transformers.generation.streamers import BaseStreamer
from transformers.generation.utils import GenerateDecoderOnlyOutput

from tests.engine.disk_pairs import write_tokenizer
from tests.engine.generating import PROMPT, generation, run
from tests.engine.tiny import (
    CONTEXT,
    VOCAB,
    RandomPolicy,
    end_token,
    example_cost,
    pair_of,
    plain_text,
    tiny_model,
)
from tests.policy.models import tiny_bundle
from treewise.data.errors import (
    BundleError,
    PairError,
    ParameterError,
    PromptError,
)
from treewise.engine.custom_generate import TreewiseGeneration, live_pair
from treewise.engine.custom_request import read_sampling
from treewise.engine.decode import Completion
from treewise.engine.draft_model import prune_layers
from treewise.engine.sampling import Sampling, warp
from treewise.policy.everything import EverythingPolicy
from treewise.policy.hook import Expansion, Level, TreePolicy
from treewise.policy.learned import LearnedPolicy
from treewise.policy.registry import RULES, parse_policy

SPECS = [*RULES, "topn:12x3", "random", "everything"]


def policy_of(spec: str) -> TreePolicy:
    if spec == "random":
        return RandomPolicy()
    return EverythingPolicy() if spec == "everything" else parse_policy(spec)


def last_of(made: TreewiseGeneration) -> Completion:
    assert made.last is not None
    return made.last


class StopAfter(StoppingCriteria):
    """Fires when the last tokens are `ending`; remembers every text that it was shown."""

    def __init__(self, ending: list[int]) -> None:
        self.ending = ending
        self.seen: list[list[int]] = []

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> Any:
        text = input_ids[0].tolist()
        self.seen.append(text)
        return torch.tensor([text[-len(self.ending) :] == self.ending])


class Ear(BaseStreamer):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.heard: list[list[int]] = []
        self.ended = 0

    def put(self, value: torch.Tensor) -> None:
        self.heard.append(value.reshape(-1).tolist())

    def end(self) -> None:
        self.ended += 1


class Failing(EverythingPolicy):
    def expand(self, level: Level) -> Expansion:
        raise ArithmeticError("no idea")


@pytest.mark.parametrize("spec", SPECS)
@settings(max_examples=4)
@given(
    prompt=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=30),
    limit=st.integers(1, 30),
    draft=st.sampled_from([None, "prune:1-1", "other"]),
    seed=st.integers(0, 3),
    ends=st.one_of(st.none(), st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=2)),
    by_length=st.booleans(),
)
def test_greedy_text_is_that_of_generate(
    spec: str, prompt: list[int], limit: int, draft: str | None, seed: int, ends: list[int] | None, by_length: bool
) -> None:
    model = tiny_model(seed)
    made = generation(policy_of(spec), tiny_model(9, layers=1) if draft == "other" else draft)
    end = ends[0] if ends is not None and len(ends) == 1 else ends  # an int or a list
    asked: dict[str, Any] = {"eos_token_id": end}
    asked |= {"max_length": len(prompt) + limit, "max_new_tokens": None} if by_length else {"max_new_tokens": limit}
    expected = run(None, prompt, model, **asked)
    assert run(made, prompt, model, **asked).tolist() == expected.tolist()
    assert last_of(made).tokens == tuple(expected[0, len(prompt) :].tolist())
    assert last_of(made).fallbacks == 0


@settings(max_examples=12)
@given(
    spec=st.sampled_from(["topn:12x3", "frontier", "random"]),
    prompt=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=20),
    temperature=st.sampled_from([0.5, 1.0, 1.5]),
    top_k=st.sampled_from([0, 1, 5, 100]),
    top_p=st.sampled_from([1.0, 0.8]),
    seed=st.integers(0, 2**40),
)
def test_sampled_text_is_the_engines_own_seeded_text(
    spec: str, prompt: list[int], temperature: float, top_k: int, top_p: float, seed: int
) -> None:
    made = generation(policy_of(spec), seed=seed)
    found = run(made, prompt, do_sample=True, temperature=temperature, top_k=top_k, top_p=top_p)
    sampling = Sampling(temperature, top_k, top_p, seed)
    assert made.sampling == sampling
    assert tuple(found[0, len(prompt) :].tolist()) == plain_text(pair_of(tiny_model(), None), prompt, 24, sampling)


def test_a_greedy_call_leaves_torchs_generator_alone() -> None:
    made, model = generation(), tiny_model()
    before = torch.get_rng_state()
    run(made, model=model)
    assert torch.equal(torch.get_rng_state(), before)
    assert made.sampling == Sampling()


def test_without_a_seed_texts_vary_and_follow_torchs_generator() -> None:
    made = generation()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        first = [run(made, do_sample=True).tolist() for _ in range(3)]
        torch.manual_seed(3)
        again = [run(made, do_sample=True).tolist() for _ in range(3)]
    assert first == again
    assert len({str(text) for text in first}) > 1
    seeded = generation(seed=4)
    assert run(seeded, do_sample=True).tolist() == run(seeded, do_sample=True).tolist()


@pytest.mark.parametrize(
    "warpers",
    [
        [TemperatureLogitsWarper(0.7), TopKLogitsWarper(6)],
        [TopPLogitsWarper(0.7)],
        [TemperatureLogitsWarper(1.3), TopKLogitsWarper(12), TopPLogitsWarper(0.8)],
        [MinPLogitsWarper(0.08)],
        [TypicalLogitsWarper(0.6)],
        [TemperatureLogitsWarper(0.9), MinPLogitsWarper(0.05), TypicalLogitsWarper(0.8)],
    ],
)
def test_the_warped_distribution_is_that_of_the_processors(warpers: list[Any]) -> None:
    sampling = read_sampling(LogitsProcessorList(warpers), sampled=True)
    logits = torch.randn(200, 40, generator=torch.Generator().manual_seed(0)) * 2.0
    scores = LogitsProcessorList(warpers)(torch.zeros(200, 1, dtype=torch.long), logits.clone())  # type: ignore[arg-type]
    for row in range(len(logits)):
        tokens, found = warp(logits[row], sampling)
        expected = torch.isfinite(scores[row]).nonzero().reshape(-1)
        assert tokens.tolist() == expected.tolist()
        torch.testing.assert_close(found, scores[row][expected])


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_stopping_criterion_cuts_the_text_where_it_fires(length: int) -> None:
    text = run(None)[0].tolist()
    for place in range(len(PROMPT) + length, len(text), 4):
        ending = text[place - length + 1 : place + 1]
        theirs, ours = StopAfter(ending), StopAfter(ending)
        expected = run(None, stopping_criteria=StoppingCriteriaList([theirs]))
        made = generation()
        found = run(made, stopping_criteria=StoppingCriteriaList([ours]))
        assert found.tolist() == expected.tolist()
        assert ours.seen == theirs.seen  # asked as often, with the same texts
        full = len(text) - len(PROMPT)
        stopped = len(last_of(made).tokens) < full
        assert last_of(made).finish == ("stopped" if stopped else "length")
        assert sum(last_of(made).accepted_lengths) + last_of(made).num_rounds == len(last_of(made).tokens)


def test_after_a_cut_text_the_next_one_is_whole() -> None:
    made = generation("frontier")
    cut = run(made, stopping_criteria=[StopAfter([run(None)[0, 6].item()])])
    assert cut.shape[1] <= 7
    assert run(made).tolist() == run(None).tolist()


def test_max_time_is_a_criterion_like_any_other() -> None:
    made = generation()
    began = time.time() - 100.0
    found = run(made, stopping_criteria=[MaxTimeCriteria(10.0, initial_timestamp=began)])
    assert found.shape[1] == len(PROMPT) + 1
    assert last_of(made).finish == "stopped"


def test_a_streamer_hears_what_generate_tells_it() -> None:
    theirs, ours = Ear(), Ear()
    run(None, streamer=theirs)
    made = generation()
    run(made, streamer=ours)
    assert ours.heard == theirs.heard
    assert ours.ended == 1
    wrapped = Ear()
    run(lambda *arguments, **options: made(*arguments, **options), streamer=wrapped)  # type: ignore[arg-type]
    assert wrapped.heard == theirs.heard


def test_the_models_own_generation_config_holds() -> None:
    model, made = tiny_model(), generation()
    end = run(None)[0, 8].item()
    with end_token(pair_of(model, None), int(end)):
        ids = torch.tensor([PROMPT])
        config = GenerationConfig(max_new_tokens=24, do_sample=False)
        expected = model.generate(ids, generation_config=config)
        found = model.generate(ids, generation_config=config, custom_generate=made)
    assert found.tolist() == expected.tolist()
    assert found.shape[1] < len(PROMPT) + 24
    assert last_of(made).finish == "eos"


def test_a_dict_holds_the_sequences() -> None:
    found = run(generation(), return_dict_in_generate=True)
    assert isinstance(found, GenerateDecoderOnlyOutput)
    assert found.sequences.tolist() == run(None).tolist()
    assert found.scores is None


def test_trees_save_passes_and_the_policys_memory_stays() -> None:
    made = generation(draft=tiny_model())  # the draft is the target
    run(made)
    assert last_of(made).num_rounds < 12
    assert last_of(made).tokens_per_round > 2.0
    first = made.engine
    run(made, eos_token_id=3)
    assert made.engine is first
    run(made, model=tiny_model(2))
    assert made.engine is not first


def test_a_failing_policy_loses_nothing_but_time() -> None:
    made = generation(Failing())
    with pytest.warns(RuntimeWarning, match="ArithmeticError: no idea"):
        found = run(made)
    assert found.tolist() == run(None).tolist()
    assert last_of(made).fallbacks == last_of(made).num_rounds > 0


def test_the_text_ends_at_the_models_context_with_a_warning() -> None:
    made = generation()
    prompt = [1, 2, 3] * 20
    with pytest.warns(RuntimeWarning, match=f"context of {CONTEXT} tokens"):
        found = run(made, prompt)
    assert found.shape[1] == CONTEXT
    assert found[0].tolist() == run(None, prompt, max_new_tokens=CONTEXT - len(prompt))[0].tolist()
    with pytest.raises(PromptError, match="context of 64"):
        run(made, [1] * CONTEXT)


def test_drafts_of_every_kind(tmp_path: Path) -> None:
    target = tiny_model()
    expected = run(None).tolist()
    for draft in (None, "none", "prune:0-0", prune_layers(target, [0], "0" * 64)):
        assert run(generation(draft=draft)).tolist() == expected
    with pytest.raises(PairError, match="target's 24 tokens, got one with 20; give the tokenizer"):
        run(generation(draft=tiny_model(5, vocab_size=20)))
    with pytest.raises(ParameterError, match="draft must be a model in memory, 'none'"):
        run(generation(draft=str(tmp_path)))
    with pytest.raises(ParameterError, match="prune must be"):
        run(generation(draft="prune:0-9"))


def test_the_description_says_what_is_not_known(tmp_path: Path) -> None:
    model = tiny_model()
    bare = live_pair(model).description
    assert (bare.target_sha256, bare.tokenizer_sha256) == ("not hashed", "not given")
    assert bare.vocab_size == VOCAB
    write_tokenizer(tmp_path)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    known = live_pair(model, "prune:1-1", tokenizer, hash_weights=True).description
    assert len(known.target_sha256) == len(known.tokenizer_sha256) == 64
    assert known.draft == "prune:1-1"
    assert bare.differences(known)


def test_a_learned_policy_knows_its_pair_again(tmp_path: Path) -> None:
    model, bundle = tiny_model(), tiny_bundle()
    write_tokenizer(tmp_path)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    pair = live_pair(model, "prune:1-1", tokenizer, hash_weights=True).description
    policy = LearnedPolicy(replace(bundle, pair=pair))
    made = TreewiseGeneration(policy, example_cost(), "prune:1-1", tokenizer=tokenizer)
    assert made.settings.envelope == bundle.envelope
    assert run(made).tolist() == run(None).tolist()
    assert last_of(made).fallbacks == 0
    stranger = TreewiseGeneration(LearnedPolicy(replace(bundle, pair=pair)), example_cost(), "prune:1-1")
    with pytest.raises(BundleError, match="tokenizer_sha256"):
        run(stranger)


def test_arrays_of_numpy_integers_make_prompts() -> None:
    ids = torch.from_numpy(np.asarray([PROMPT]))
    found = tiny_model().generate(ids, max_new_tokens=6, do_sample=False, custom_generate=generation())
    assert found.dtype == torch.int64
    assert found[0, : len(PROMPT)].tolist() == PROMPT


def test_threads_that_share_one_object_wait_for_each_other() -> None:
    made, model = generation(), tiny_model()
    prompts = [[5, 2, 9, number] for number in range(4)]
    expected = [run(None, prompt, model).tolist() for prompt in prompts]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda prompt: run(made, prompt, model).tolist(), prompts * 2))
    assert found == expected * 2
