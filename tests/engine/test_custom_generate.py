"""`generate(custom_generate=...)` gives the text of `generate`, and refuses by name what it cannot honour."""

from __future__ import annotations

import re
import time
import warnings
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
    LlamaForCausalLM,
    LogitsProcessor,
    LogitsProcessorList,
    MaxTimeCriteria,
    MinPLogitsWarper,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
    StoppingCriteria,
    StoppingCriteriaList,
    T5Config,
    T5ForConditionalGeneration,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)
from transformers.cache_utils import DynamicCache
from transformers.generation.streamers import BaseStreamer
from transformers.generation.utils import GenerateDecoderOnlyOutput

from tests.engine.disk_pairs import write_tokenizer
from tests.engine.tiny import (
    CONTEXT,
    LAX,
    VOCAB,
    RandomPolicy,
    end_token,
    example_cost,
    lax_settings,
    pair_of,
    plain_text,
    tiny_model,
)
from tests.policy.models import tiny_bundle
from treewise.data.errors import (
    BundleError,
    CacheRollbackError,
    PairError,
    ParameterError,
    PolicySpecError,
    PromptError,
)
from treewise.engine.cache import cache_argument
from treewise.engine.custom_generate import TRIED_VERSIONS, TreewiseGeneration, check_version, live_pair
from treewise.engine.custom_request import read_sampling
from treewise.engine.decode import Completion
from treewise.engine.draft_model import prune_layers
from treewise.engine.sampling import Sampling, warp
from treewise.policy.everything import EverythingPolicy
from treewise.policy.hook import Expansion, Level, TreePolicy
from treewise.policy.learned import LearnedPolicy
from treewise.policy.registry import RULES, parse_policy

PROMPT = [5, 2, 9, 14]
SPECS = [*RULES, "topn:12x3", "random", "everything"]


def policy_of(spec: str) -> TreePolicy:
    if spec == "random":
        return RandomPolicy()
    return EverythingPolicy() if spec == "everything" else parse_policy(spec)


def generation(policy: TreePolicy | str = "topn:12x3", draft: Any = "prune:1-1", **changes: Any) -> TreewiseGeneration:
    return TreewiseGeneration(policy, example_cost(), draft, lax_settings(), **changes)


def run(
    with_trees: TreewiseGeneration | None, prompt: list[int] | None = None, model: Any = None, **options: Any
) -> Any:
    """Token ids of `generate`, with trees or without."""
    model = tiny_model() if model is None else model
    ids = torch.tensor([PROMPT if prompt is None else prompt])
    if with_trees is not None:
        options["custom_generate"] = with_trees
    return model.generate(ids, **{"do_sample": False, "max_new_tokens": 24, **options})


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


class Ban(LogitsProcessor):
    """A user's own processor."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> Any:
        return scores


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


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"num_beams": 2}, "num_beams must be off"),
    ({"do_sample": True, "num_return_sequences": 2}, "num_return_sequences must be off"),
    ({"repetition_penalty": 1.2}, "repetition_penalty must be off"),
    ({"no_repeat_ngram_size": 2}, "no_repeat_ngram_size must be off"),
    ({"bad_words_ids": [[3]]}, "bad_words_ids must be off"),
    ({"min_new_tokens": 4, "eos_token_id": 3}, "min_(length|new_tokens) must be off"),
    ({"suppress_tokens": [3]}, "suppress_tokens must be off"),
    ({"prefix_allowed_tokens_fn": lambda batch, ids: [1, 2]}, "PrefixConstrainedLogitsProcessor"),
    ({"logits_processor": LogitsProcessorList([Ban()])}, "got Ban"),
    ({"logits_processor": LogitsProcessorList([TopKLogitsWarper(3)])}, "got TopKLogitsWarper"),
    ({"do_sample": True, "logits_processor": [TopPLogitsWarper(0.5)], "temperature": 0.5}, "in this order"),
    ({"do_sample": True, "eta_cutoff": 0.1}, "EtaLogitsWarper"),
    ({"do_sample": True, "epsilon_cutoff": 0.1}, "EpsilonLogitsWarper"),
    ({"do_sample": True, "temperature": 1e-9}, "temperature must be 0 or at least"),
    ({"prompt_lookup_num_tokens": 3}, "prompt_lookup_num_tokens must be None"),
    ({"output_scores": True, "return_dict_in_generate": True}, "output_scores must be False"),
    ({"output_logits": True, "return_dict_in_generate": True}, "output_logits must be False"),
    ({"output_attentions": True, "return_dict_in_generate": True}, "output_attentions must be False"),
    ({"cache_implementation": "static"}, "cache_implementation must be dynamic"),
    ({"use_cache": False}, "use_cache must be True"),
    ({"attention_mask": torch.tensor([[0, 1, 1, 1]])}, "attention_mask must be all ones"),
    ({"position_ids": torch.tensor([[3, 4, 5, 6]])}, "position_ids must count from 0"),
    ({"logits_to_keep": 1, "output_hidden_states": True}, "output_hidden_states must be False"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_cannot_be_honoured_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers' own, about the same options
        run(generation(), **options)


def test_an_assistant_is_refused_though_transformers_hides_it() -> None:
    with pytest.raises(ParameterError, match="assistant_model must be left out"):
        run(generation(), assistant_model=tiny_model(3))


def test_a_batch_or_a_cache_of_the_callers_is_refused() -> None:
    model = tiny_model()
    with pytest.raises(ParameterError, match=re.escape("[2, 4]")):
        model.generate(torch.tensor([PROMPT, PROMPT]), max_new_tokens=4, custom_generate=generation())
    name = cache_argument(model)
    with pytest.raises(ParameterError, match=f"{name} must be left out"):
        run(generation(), None, model, **{name: DynamicCache(config=model.config)})
    embeds = model.get_input_embeddings()(torch.tensor([PROMPT]))
    with pytest.raises(ParameterError):
        model.generate(inputs_embeds=embeds, max_new_tokens=4, custom_generate=generation())


def odd_model(kind: str) -> Any:
    """A model that cannot draw trees."""
    with torch.random.fork_rng(devices=[]):
        if kind == "encoder":
            sizes: dict[str, Any] = {
                "vocab_size": VOCAB,
                "d_model": 8,
                "d_kv": 4,
                "d_ff": 8,
                "num_layers": 1,
                "num_heads": 2,
            }
            sizes["decoder_start_token_id"] = 0
            return T5ForConditionalGeneration(T5Config(**sizes)).eval()
        if kind == "training":
            return LlamaForCausalLM(tiny_model().config)
        small = {"vocab_size": VOCAB, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
        heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "sliding_window": 4}
        return MistralForCausalLM(MistralConfig(**small, **heads)).eval()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("encoder", ParameterError, "decoder-only"),
        ("training", ParameterError, "eval mode"),
        ("window", CacheRollbackError, "sliding window of 4"),
    ],
)
def test_models_that_cannot_draw_trees_are_refused(kind: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        run(generation(draft=None), model=odd_model(kind))


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


def test_a_draft_elsewhere_is_refused() -> None:
    with torch.device("meta"):
        elsewhere = type(tiny_model())(tiny_model().config)
    with pytest.raises(PairError, match="draft must be on the target's device cpu, got meta"):
        run(generation(draft=elsewhere))


def test_settings_are_checked_before_any_model() -> None:
    with pytest.raises(PolicySpecError):
        TreewiseGeneration("nonsense", example_cost())
    with pytest.raises(ParameterError, match="seed must be"):
        generation(seed=-1)
    assert generation().settings.time_limit_ms == LAX
    assert TreewiseGeneration("plain", "example-a100-70b").cost.name == "example-a100-70b"
    assert generation().last is None


@pytest.mark.parametrize("version", ["5.16.2", "4.57.1"])
def test_an_older_version_than_any_tried_is_an_error(version: str) -> None:
    with pytest.raises(ParameterError, match=f"tried with {', '.join(TRIED_VERSIONS)}.*got {version}"):
        check_version(version)


def test_another_version_is_a_warning() -> None:
    with pytest.warns(RuntimeWarning, match=r"tried with transformers 5\.17\.0, 5\.24\.0, got 5\.99\.0\.dev0"):
        check_version("5.99.0.dev0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for tried in TRIED_VERSIONS:
            check_version(tried)


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
