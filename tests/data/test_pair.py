"""Pair descriptions: JSON there and back, rules, and what makes another pair."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from treewise.data.errors import ParameterError
from treewise.data.pair import PairDescription

ALONE = PairDescription("big", "aa", "bb", 1000)
WITH_DRAFT = PairDescription("big", "aa", "bb", 1000, "small", "cc", 200)


@pytest.mark.parametrize("pair", [ALONE, WITH_DRAFT])
def test_json_round_trip(pair: PairDescription) -> None:
    assert PairDescription.from_json(json.loads(json.dumps(pair.to_json()))) == pair


def test_names() -> None:
    assert ALONE.name == "big+none"
    assert WITH_DRAFT.name == "big+small"


def test_only_content_makes_another_pair() -> None:
    assert WITH_DRAFT.differences(replace(WITH_DRAFT, target="other", draft="other")) == []
    other = replace(WITH_DRAFT, target_sha256="xx", draft_head_size=100)
    assert WITH_DRAFT.differences(other) == [
        "target_sha256 'aa' here, 'xx' there",
        "draft_head_size 200 here, 100 there",
    ]
    assert len(ALONE.differences(WITH_DRAFT)) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": ""}, "target must be non-empty text, got ''"),
        ({"vocab_size": 0}, "vocab_size must be >= 1, got 0"),
        ({"draft_reads": "tea leaves"}, "draft_reads must be one of"),
        ({"draft_sha256": None}, "draft_sha256 must be given with a draft, got None"),
        ({"draft": None}, "draft_sha256 must be given with a draft, got 'cc'"),
        ({"colour": "red"}, "must have only the fields"),
    ],
)
def test_rules(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message.replace("(", r"\(")):
        PairDescription.from_json({**WITH_DRAFT.to_json(), **change})


def test_a_missing_field_is_named() -> None:
    with pytest.raises(ParameterError, match=r"must name \['vocab_size'\]"):
        PairDescription.from_json({"target": "big", "target_sha256": "aa", "tokenizer_sha256": "bb"})
