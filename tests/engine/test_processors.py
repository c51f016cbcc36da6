"""What of a generation config is honoured and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import GenerationConfig, LogitsProcessorList, MinLengthLogitsProcessor

from treewise.data.errors import ParameterError
from treewise.engine.processors import HISTORY_PROCESSORS, check_processors


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
        check_processors(config)
    with pytest.raises(ParameterError, match=f"^{name} must be off"):
        check_processors({name: value})


def test_custom_processors_and_grammars_are_refused_by_name() -> None:
    listed = LogitsProcessorList([MinLengthLogitsProcessor(3, 1)])
    with pytest.raises(ParameterError, match=r"^logits_processor must be off .*\['MinLengthLogitsProcessor'\]"):
        check_processors({"logits_processor": listed})
    with pytest.raises(ParameterError, match=r"^prefix_allowed_tokens_fn must be off"):
        check_processors({"prefix_allowed_tokens_fn": lambda batch, ids: [1]})
    with pytest.raises(ParameterError, match=r"^grammar must be off"):
        check_processors({"grammar": "root ::= 'a'"})


@pytest.mark.parametrize("name", HISTORY_PROCESSORS)
def test_neutral_values_are_no_processors(name: str) -> None:
    for value in (None, *HISTORY_PROCESSORS[name]):
        check_processors({name: value})
    with pytest.raises(ParameterError, match=f"^{name} must be off"):
        check_processors({name: 0.37})


@pytest.mark.parametrize("config", [GenerationConfig(), GenerationConfig(do_sample=True, top_p=0.5, typical_p=0.5), {}])
def test_warpers_of_one_row_are_let_through(config: Any) -> None:
    check_processors(config)
