"""The recogniser's arithmetic, what it reads off a text, and files that are none."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy.recognisers import tiny_recogniser
from treewise.data.errors import ParameterError, SchemaVersionError
from treewise.policy.task_recogniser import UNKNOWN, TaskRecogniser, TermBlock
from treewise.policy.task_text import HEAD_CHARACTERS, characters, words


def test_probabilities_are_a_softmax_of_weighted_terms() -> None:
    text = "JSON json: 5"
    found = tiny_recogniser().recognise(text)
    counts = {term: words(text).count(term) for term in words(text)}
    length = math.sqrt(sum((1 + math.log(count)) ** 2 for count in counts.values()))  # unknown terms take part in it
    odds = 6.0 / 2.0 * (1 + math.log(2)) / length
    assert counts["json"] == 2
    assert found.probabilities["structured"] == pytest.approx(1 / (1 + math.exp(-odds)))
    assert sum(found.probabilities.values()) == pytest.approx(1.0)
    assert (found.task, found.likeliest) == ("structured", "structured")
    assert found.confidence == found.probabilities["structured"]
    both = tiny_recogniser().recognise("hello json")
    assert both.probabilities["chat"] == pytest.approx(0.5)


def test_the_more_it_does_not_know_the_less_it_says() -> None:
    recogniser = tiny_recogniser()
    confidences = [recogniser.recognise("hello" + " other words" * count).confidence for count in (0, 1, 4)]
    assert confidences == sorted(confidences, reverse=True)
    assert recogniser.recognise("").confidence == recogniser.recognise("other").confidence == 0.5


def test_below_the_threshold_it_does_not_know() -> None:
    unsure = tiny_recogniser(0.6)
    assert unsure.recognise("nothing known").task == UNKNOWN
    assert unsure.recognise("hello").task == "chat"
    assert tiny_recogniser(0.99).recognise("hello").task == UNKNOWN
    assert tiny_recogniser(0.99).recognise("hello").likeliest == "chat"


def test_words_are_marked_by_their_place() -> None:
    assert words("Write 12 Lines") == [
        *("write", "00", "lines", "write 00", "00 lines"),
        *("^0write", "^00", "^lines", "$write", "$00", "$lines"),
        *("#long 3", "#digits 1", "#tells"),
    ]
    assert "#asks" in words("why? ")
    assert "#code 2" in words("{a: [1]}")


def test_characters_stay_within_words() -> None:
    assert characters("ab c") == [" a", "ab", "b ", " ab", "ab ", " ab ", " c", "c ", " c "]


def test_of_a_long_prompt_head_and_tail_are_read() -> None:
    long = "first " + "x " * HEAD_CHARACTERS + "last"
    found = words(long)
    assert "^0first" in found
    assert "$last" in found
    assert len(found) < 2500


@given(st.text(max_size=80))
def test_any_text_has_probabilities(text: str) -> None:
    found = tiny_recogniser().recognise(text)
    assert sum(found.probabilities.values()) == pytest.approx(1.0)
    assert found.task in ("chat", "structured", UNKNOWN)


def test_files_round_trip(tmp_path: Path) -> None:
    recogniser = tiny_recogniser()
    recogniser.save(tmp_path / "new" / "r.json")
    again = TaskRecogniser.load(tmp_path / "new" / "r.json")
    assert again.sha256 == recogniser.sha256 != tiny_recogniser(0.4).sha256
    assert again.recognise("hello you") == recogniser.recognise("hello you")


def damaged(**changes: Any) -> str:
    return json.dumps({**tiny_recogniser().to_json(), **changes})


BLOCK = tiny_recogniser().to_json()["blocks"][0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "recogniser must be a JSON file"),
        ("[]", "recogniser must be one JSON object, got 'list'"),
        ("{}", "recogniser must be a JSON object of kind treewise-task-recogniser"),
        (damaged(tasks="ab"), "tasks must be a list of strings"),
        (damaged(tasks=["a"]), "tasks must be two or more different names"),
        (damaged(tasks=["a", "unknown"]), "tasks must be two or more different names, none of them unknown"),
        (damaged(bias=[0.0]), r"bias must be of shape \(2,\)"),
        (damaged(bias=["x", 1]), "recogniser must be one that `treewise tasks train` wrote"),
        (damaged(bias=[1e300, 0.0]), r"bias must be finite and at most 1e\+09 in size"),
        (damaged(temperature=0), "temperature must be between 1e-09 and 1e\\+09, got 0.0"),
        (damaged(temperature=1e-320), "temperature must be between"),
        (damaged(temperature=math.nan), "temperature must be between"),
        (damaged(blocks=[{**BLOCK, "idf": [1e300, 1.0]}]), "idf and weights must be finite and at most"),
        (damaged(threshold=None), "recogniser must be one that"),
        (damaged(threshold=2), "threshold must be between 0 and 1"),
        (damaged(blocks=[]), "blocks must be at least one"),
        (damaged(blocks=[{**BLOCK, "reader": "eval"}]), "reader must be one of words, characters"),
        (damaged(blocks=[{**BLOCK, "terms": ["a", "a"]}]), "terms must be each named once"),
        (damaged(blocks=[{**BLOCK, "idf": [1.0]}]), "idf must be of shape"),
        (damaged(blocks=[{**BLOCK, "weights": [[1.0], [2.0]]}]), "weights must be of 2 tasks"),
        (damaged(blocks=[{**BLOCK, "weights": [[math.nan] * 2] * 2}]), "idf and weights must be finite"),
        (damaged(blocks=[{**BLOCK, "weights": [[1.0], [2.0, 3.0]]}]), "recogniser must be one that"),
        (damaged(blocks=7), "recogniser must be one that"),
    ],
)
def test_other_files_are_refused(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ParameterError, match=message):
        TaskRecogniser.load(path)


def test_another_version_names_its_cure(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(damaged(schema_version=9), encoding="utf-8")
    with pytest.raises(SchemaVersionError, match="version 9, this treewise reads 1: train it again"):
        TaskRecogniser.load(tmp_path / "r.json")
    with pytest.raises(ParameterError, match="recogniser must be a file that exists"):
        TaskRecogniser.load(tmp_path / "none.json")


def test_blocks_must_fit() -> None:
    with pytest.raises(ParameterError, match="terms must be at least one"):
        TermBlock("words", {}, np.zeros(0), np.zeros((0, 2)))
    with pytest.raises(ParameterError, match="temperature"):
        replace(tiny_recogniser(), temperature=math.inf)
