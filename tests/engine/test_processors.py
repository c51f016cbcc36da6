"""What of a generation config is honoured and what is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from transformers import GenerationConfig, LogitsProcessorList, MinLengthLogitsProcessor

from treewise.data.errors import ParameterError
from treewise.engine.processors import HISTORY_PROCESSORS, OTHER_WARPERS, check_processors, sampling_of
from treewise.engine.sampling import Sampling


def test_warpers_of_a_generation_config_become_the_sampling() -> None:
    config = GenerationConfig(do_sample=True, temperature=0.7, top_k=0, top_p=0.9, min_p=0.1, typical_p=0.8)
    assert sampling_of(config, 5) == Sampling(0.7, 0, 0.9, 5, 0.1, 0.8)
    assert sampling_of(SimpleNamespace(do_sample=True, top_k=7), 1) == Sampling(1.0, 7, 1.0, 1)
    # what nobody set is as `generate` takes it
    assert sampling_of({"do_sample": True}) == Sampling(1.0, top_k=50)


@pytest.mark.parametrize("config", [GenerationConfig(), {}, {"do_sample": False, "temperature": 0.9, "top_h": 0.4}])
def test_without_sampling_it_is_greedy(config: Any) -> None:
    assert sampling_of(config, 3) == Sampling(seed=3)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("repetition_penalty", 1.2),
        ("no_repeat_ngram_size", 3),
        ("bad_words_ids", [[4]]),
        ("sequence_bias", [[[4], -1.0]]),
        ("forced_bos_token_id", 1),
        ("forced_eos_token_id", 1),
        ("min_length", 5),
        ("min_new_tokens", 5),
        ("exponential_decay_length_penalty", (5, 1.1)),
        ("suppress_tokens", [1]),
        ("begin_suppress_tokens", [1]),
        ("guidance_scale", 1.5),
        ("encoder_repetition_penalty", 1.5),
        ("remove_invalid_values", True),
        ("num_beams", 2),
    ],
)
@pytest.mark.parametrize("do_sample", [True, False])
def test_what_reads_more_than_one_row_is_refused_by_name(name: str, value: Any, do_sample: bool) -> None:
    config = GenerationConfig(do_sample=do_sample, **{name: value})
    with pytest.raises(ParameterError, match=f"^{name} must be off for tree decoding .*got "):
        sampling_of(config)
    with pytest.raises(ParameterError, match=f"^{name} must be off"):
        check_processors({name: value})


def test_custom_processors_and_grammars_are_refused_by_name() -> None:
    listed = LogitsProcessorList([MinLengthLogitsProcessor(3, 1)])
    with pytest.raises(ParameterError, match=r"^logits_processor must be off .*\['MinLengthLogitsProcessor'\]"):
        sampling_of({"logits_processor": listed})
    with pytest.raises(ParameterError, match=r"^prefix_allowed_tokens_fn must be off"):
        sampling_of({"prefix_allowed_tokens_fn": lambda batch, ids: [1]})
    with pytest.raises(ParameterError, match=r"^grammar must be off"):
        sampling_of({"grammar": "root ::= 'a'"})


@pytest.mark.parametrize(("name", "value"), [("epsilon_cutoff", 3e-4), ("eta_cutoff", 3e-4), ("top_h", 0.4)])
def test_other_warpers_are_refused_where_they_would_be_applied(name: str, value: float) -> None:
    with pytest.raises(ParameterError, match=f"^{name} must be off .*does not have"):
        sampling_of({"do_sample": True, name: value})
    assert sampling_of({"do_sample": False, name: value}) == Sampling()


@pytest.mark.parametrize("name", [*HISTORY_PROCESSORS, *OTHER_WARPERS])
def test_neutral_values_are_no_processors(name: str) -> None:
    for value in (None, *HISTORY_PROCESSORS.get(name, OTHER_WARPERS.get(name, ()))):
        assert sampling_of({"do_sample": True, name: value}) == Sampling(1.0, top_k=50)


def test_values_out_of_range_are_the_samplings_errors() -> None:
    with pytest.raises(ParameterError, match=r"min_p must be between 0 and 1, got 1\.5"):
        sampling_of({"do_sample": True, "min_p": 1.5})
