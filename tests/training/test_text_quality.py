"""Scores of one answer: what counts as a word, as JSON, and as the code in it."""

from __future__ import annotations

import sys

import pytest

from treewise.data.errors import MissingExtraError
from treewise.data.prompt_set import Prompt
from treewise.training.text_quality import RougeL, asks_for_json, is_json, python_of, shared_tokens


@pytest.mark.parametrize(
    ("reference", "text", "score"),
    [
        ("the cat sat on the mat", "the cat sat on the mat", 1.0),
        ("the cat sat on the mat", "The cat, sat on the mat!", 1.0),
        ("police killed the gunman", "police kill the gunman", 0.75),
        ("police killed the gunman", "the gunman kill police", 0.5),  # Lin 2004, section 3.1
        ("a b c d", "a b", 2 / 3),
        ("für immer", "für ewig", 0.5),
        ("我喜欢猫", "我喜欢狗", 0.75),
        ("!!", "!!", 1.0),
        ("!!", "words", 0.0),
        ("words", "", 0.0),
    ],
)
def test_rouge_l(reference: str, text: str, score: float) -> None:
    assert RougeL()(reference, text) == pytest.approx(score)


def test_english_words_are_those_of_the_package() -> None:
    from rouge_score.tokenizers import DefaultTokenizer

    text = "It's 3.5 km; snake_case (and CamelCase)\n\tre-run: done?"
    assert RougeL().tokenize(text) == DefaultTokenizer().tokenize(text)


def test_without_the_package_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    with pytest.raises(MissingExtraError, match=r"rouge-score is not installed.*`pip install treewise\[quality\]`"):
        RougeL()


@pytest.mark.parametrize(
    ("expected", "found", "shared"),
    [([1, 2, 3], [1, 2, 3], 3), ([1, 2, 3], [1, 4, 3], 1), ([1, 2], [1, 2, 3], 2), ([1], [2], 0), ([], [], 0)],
)
def test_shared_tokens(expected: list[int], found: list[int], shared: int) -> None:
    assert shared_tokens(expected, found) == shared_tokens(found, expected) == shared


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ('{"a": [1, 2.5, null, true]}', True),
        ("\n[]\n", True),
        ('Here it is:\n```json\n{"a": 1}\n```\nAnything else?', True),
        ('```\n{"a": 1}\n```', True),
        ('```json\n{"a": 1}', True),  # cut off behind its end
        ('```json\n{"a": 1', False),
        ('Here it is: {"a": 1}', False),
        ("{'a': 1}", False),
        ('{"a": NaN}', False),
        ('{"a": 1,}', False),
        ('"only a string"', False),
        ("3", False),
        ("", False),
        ("[" * 100_000, False),
        ('```python\nprint(1)\n```\n```json\n{"a": 1}\n```', False),  # the first block counts
    ],
)
def test_is_json(text: str, valid: bool) -> None:
    assert is_json(text) is valid


@pytest.mark.parametrize(
    ("task", "text", "tests", "asked"),
    [
        ("structured", "Give me a JSON object for a member.", "", True),
        ("code", "Answer in json.", "", True),
        ("function-calling", "Call the right function.", "", True),
        ("structured", "Write a function that reads jsonlines.", "", False),
        ("structured", "Write an SQL query.", "", False),
        ("structured", "Write a JSON parser in Python.", "assert parse('1') == 1", False),
        ("chat", "What is JSON?", "", False),
    ],
)
def test_asks_for_json(task: str, text: str, tests: str, asked: bool) -> None:
    assert asks_for_json(Prompt("p", task, text, tests=tests)) is asked


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Sure:\n```python\nx = 1\n```\nand\n```python\ny = 2\n```", "x = 1\n"),
        ("```\nplain\n```\n```py\nx = 1\n```", "x = 1\n"),
        ("```bash\nls\n```", "ls\n"),
        ("```python\ndef f():\n    return 1", "def f():\n    return 1"),
        ("def f():\n    return 1\n", "def f():\n    return 1\n"),
    ],
)
def test_python_of(text: str, code: str) -> None:
    assert python_of(text) == code
