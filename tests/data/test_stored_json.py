"""JSON from outside: what is not one object of the right names is told by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from treewise.data.errors import BundleError, ParameterError, PromptError, TreewiseError
from treewise.data.stored_json import check_names, parse_object, read_object, short


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", r"thing must be a JSON file, got '.*x\.json': Expecting"),
        (b"\xff\xfe", r"thing must be a JSON file, got '.*x\.json': 'utf-8' codec"),
        (b"[" * 100_000, "thing must be a JSON file, got "),
        (b'{"a": ' + b"1" * 5_000 + b"}", "thing must be a JSON file, got "),
        (b"[1]", r"thing must be one JSON object, got 'list' in '.*x\.json'"),
    ],
)
def test_a_file_that_holds_no_object(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(BundleError, match=message):
        read_object(path, "thing", BundleError)
    path.write_text('{"a": 1}')
    assert read_object(path, "thing", BundleError) == {"a": 1}


@pytest.mark.parametrize("text", ["{", "[1, 2]", "", "3"])
def test_a_text_that_is_no_object(text: str) -> None:
    with pytest.raises(PromptError, match="p:1: line must be a JSON object, got "):
        parse_object(text, "p:1: line", PromptError)
    assert parse_object(' {"a": [1]} ', "p:1: line", PromptError) == {"a": [1]}


def test_names_are_just_those_asked_for() -> None:
    check_names({"b": 1, "a": 2}, ("a", "b"), "thing", ParameterError)
    error: type[TreewiseError]
    for error in (ParameterError, BundleError):
        with pytest.raises(error, match=r"thing must hold the names \['a', 'b'\], got \['a'\] missing and \['c'\] unk"):
            check_names(["b", "c"], {"a", "b"}, "thing", error)


def test_what_errors_show_is_short() -> None:
    assert short("ab") == "'ab'"
    assert short("x" * 100) == "'" + "x" * 76 + "..."
    assert len(short(list(range(100)))) == 80
