"""What a controller's loop may say, and what is refused before anything changes."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from tests.policy.loops import COST, VOCAB
from treewise.data.errors import ParameterError
from treewise.policy.controller import Controller, ControllerSettings, DraftCall
from treewise.policy.controller_draft import DraftVocabulary, checked_guesses
from treewise.policy.hook import LOOKUP, DraftGuesses

REPEAT = [1, 2, 3, 4] * 4


def controller_of(**settings: Any) -> Controller:
    return Controller("chain:3", cost=COST, vocab_size=VOCAB, sources=LOOKUP, settings=ControllerSettings(**settings))


@pytest.mark.parametrize("limit", [sys.maxsize, 2**31, 2**31 - 1])
def test_no_limit_is_what_positions_can_hold(limit: int) -> None:
    controller = controller_of()
    request = controller.begin(REPEAT, limit)
    for _ in range(3):
        tree = controller.propose(request)
        assert tree.num_nodes == 3
        assert controller.accept(request, tree.tokens % 4 + 1).accepted_length == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompt_id": "\ud800"}, "prompt_id must be text that UTF-8 can hold"),
        ({"prompt_id": 5}, "prompt_id must be a str, got 5"),
        ({"task": None}, "task must be a str, got None"),
        ({"temperature": 1e39}, "temperature must be finite and >= 0 in float32"),
        ({"temperature": 1j}, "temperature must be finite"),
        ({"temperature": float("nan")}, "temperature must be finite"),
    ],
)
def test_requests_that_no_trace_could_hold(arguments: dict[str, Any], message: str) -> None:
    controller = controller_of()
    with pytest.raises(ParameterError, match=message):
        controller.begin(REPEAT, 4, **arguments)
    assert controller.open_requests == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"chosen": [None] * 4}, "chosen must be of an integer type, got 'object'"),
        ({"chosen": None}, "chosen must be of shape"),
        ({"chosen": np.zeros(4, dtype="m8[s]")}, "chosen must be of an integer type, got 'timedelta64"),
        ({"target_entropy": np.zeros(4, dtype=complex)}, "target_entropy must be of a number type"),
        ({"target_margin": np.zeros(4, dtype="m8[s]")}, "target_margin must be of a number type"),
        ({"verify_ms": None}, "verify_ms must be a number of milliseconds, got None"),
        ({"verify_ms": "x"}, "verify_ms must be a number of milliseconds, got 'x'"),
        ({"request": [0]}, "request must be one that began"),
        ({"request": 0.0}, "request must be one that began"),
        ({"request": False}, "request must be one that began"),
    ],
)
def test_what_accept_refuses_changes_nothing(arguments: dict[str, Any], message: str) -> None:
    controller = controller_of()
    tree = controller.propose(controller.begin(REPEAT, 9))
    good: dict[str, Any] = {"request": 0, "chosen": tree.tokens % 4 + 1}
    with pytest.raises(ParameterError, match=message):
        controller.accept(**{**good, **arguments})
    assert controller.accept(**good).tokens == (1, 2, 3, 4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"row_buckets": ("a",)}, "row_buckets must be whole numbers of rows, got .'a',"),
        ({"row_buckets": (2.5,)}, "row_buckets must be whole numbers of rows"),
        ({"time_limit_ms": "a"}, "time_limit_ms must be a number, got 'a'"),
        ({"corpus_tokens": np.zeros((2, 2), dtype=np.int64)}, "corpus_tokens must be whole numbers"),
    ],
)
def test_settings_of_other_types(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        controller_of(**settings)


def test_vocabularies_are_of_int32() -> None:
    with pytest.raises(ParameterError, match=r"vocab_size must be below 2\*\*31"):
        Controller("chain:3", cost=COST, vocab_size=2**32)
    with pytest.raises(ParameterError, match=r"draft_token_ids must be whole numbers, \[columns\], got 'float64"):
        DraftVocabulary(VOCAB, np.asarray([0.0, 1.5]))


def test_arrays_stand_for_tuples() -> None:
    arrays = controller_of(corpus_tokens=np.arange(5), eos_token_ids=np.asarray([4]), row_buckets=np.asarray([4, 8]))
    tuples = controller_of(corpus_tokens=tuple(range(5)), eos_token_ids=(4,), row_buckets=(4, 8))
    assert arrays.settings == tuples.settings
    assert arrays.corpus_hash == tuples.corpus_hash is not None
    assert arrays.propose(arrays.begin([9, 1, 2], 9)).tokens.tolist() == [2, 3, 4, 9]


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (np.asarray([[3, 3]], dtype=np.int32), "draft tokens must be distinct below one row, got 3 twice"),
        (np.asarray([[3.0, np.nan]]), "draft guesses' tokens must be an array of whole numbers, got float64"),
        ([[3, 2]], "draft guesses' tokens must be an array of whole numbers, got list"),
    ],
)
def test_guessed_tokens_are_distinct_whole_numbers(tokens: Any, message: str) -> None:
    none, flat = np.zeros(0, dtype=np.int32), np.zeros(1, dtype=np.float32)
    call = DraftCall(0, np.zeros(1, dtype=np.int32), none[:0], np.zeros(1, dtype=np.int32), 0, 0, none, none)
    empty = np.zeros(0, dtype=np.float32)
    probs = np.asarray([[0.5, 0.25]], dtype=np.float32)
    with pytest.raises(ParameterError, match=message):
        checked_guesses(DraftGuesses(tokens, probs, flat, flat, empty, empty), call, VOCAB)
