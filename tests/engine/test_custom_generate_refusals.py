"""What `generate` with our trees refuses, by name."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest
import torch
from transformers import (
    LlamaForCausalLM,
    LogitsProcessor,
    LogitsProcessorList,
    MistralConfig,
    MistralForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    TopKLogitsWarper,
    TopPLogitsWarper,
)
from transformers.cache_utils import DynamicCache

from tests.engine.generating import PROMPT, generation, run
from tests.engine.tiny import (
    LAX,
    VOCAB,
    example_cost,
    tiny_model,
)
from treewise.data.errors import (
    CacheRollbackError,
    PairError,
    ParameterError,
    PolicySpecError,
)
from treewise.engine.cache import cache_argument
from treewise.engine.custom_generate import TRIED_VERSIONS, TreewiseGeneration, check_version


class Ban(LogitsProcessor):
    """A user's own processor."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> Any:
        return scores


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
