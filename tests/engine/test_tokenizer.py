"""Restored pre-tokenizers, token maps, hashes."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from tests.engine.disk_pairs import write_tokenizer
from treewise.data.errors import PairError, PromptError, TokenMapError
from treewise.engine.tokenizer import (
    backend_tokenizer,
    check_token_maps,
    encode_text,
    pre_tokenizer_named,
    tokenizer_sha256,
)


def pieces(name: str, text: str) -> list[str]:
    return [piece for piece, _ in pre_tokenizer_named(name).pre_tokenize_str(text)]


def test_smollm_keeps_digits_apart() -> None:
    assert pieces("smollm", "in 2019, it's") == ["in", "Ġ", "2", "0", "1", "9", ",", "Ġit", "'s"]
    assert pieces("gpt-2", "in 2019, it's") == ["in", "Ġ2019", ",", "Ġit", "'s"]


def test_an_unknown_pre_tokenizer_is_refused() -> None:
    with pytest.raises(PairError, match="must be one of 'smollm', 'gpt-2', got 'llama-bpe'"):
        pre_tokenizer_named("llama-bpe")


def test_only_fast_tokenizers_will_do() -> None:
    with pytest.raises(PairError, match="tokenizer must be a fast tokenizer, got str"):
        backend_tokenizer("slow")


@pytest.mark.parametrize(
    ("there", "message"),
    [
        ({"a": 0, "b": 2, "c": 1}, "got 'b': id 1 in the target, id 2 in the draft"),
        ({"a": 0, "b": 1}, "got 'c': id 2 in the target, id none in the draft"),
        ({"a": 0, "b": 1, "c": 2, "d": 3}, "got 'd': id none in the target, id 3 in the draft"),
    ],
)
def test_the_first_difference_is_named(there: dict[str, int], message: str) -> None:
    with pytest.raises(TokenMapError, match=message):
        check_token_maps({"a": 0, "b": 1, "c": 2}, there)


def test_equal_maps_pass() -> None:
    check_token_maps({"a": 0, "b": 1}, {"b": 1, "a": 0})


def test_half_a_surrogate_pair_is_no_prompt() -> None:
    with pytest.raises(PromptError, match=r"prompt must be encodable as UTF-8, got '\\udcff'"):
        encode_text(None, "a\udcffb")


def test_the_hash_follows_what_decides_ids(tmp_path: Path) -> None:
    hashes = []
    for name, settings in (("a", {}), ("b", {}), ("c", {"swap": True}), ("d", {"template": "{{ 'x' }}"})):
        write_tokenizer(tmp_path / name, **settings)
        hashes.append(tokenizer_sha256(AutoTokenizer.from_pretrained(tmp_path / name)))
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3
