"""Tokenizers: repairing a lossy GGUF conversion, hashing, comparing token maps, encoding prompts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence

from treewise.data.errors import PairError, PromptError, TokenMapError


def pre_tokenizer_named(name: str) -> PreTokenizer:
    """The pre-tokenizer that `tokenizer.ggml.pre` names.

    GGUF stores only its name, and the conversion puts a plain byte-level one in its place: numbers then merge into
    multi-digit tokens that the model hardly saw in training.
    """
    match name:
        case "smollm":  # every digit on its own, then GPT-2's byte-level split
            parts = [Digits(individual_digits=True), ByteLevel(add_prefix_space=False, trim_offsets=True)]
            restored: PreTokenizer = Sequence(parts)
            return restored
        case "gpt-2":
            plain: PreTokenizer = ByteLevel(add_prefix_space=False, trim_offsets=True)
            return plain
        case _:
            raise PairError(f"tokenizer.ggml.pre must be one of 'smollm', 'gpt-2', got {name!r}")


def backend_tokenizer(tokenizer: Any) -> Tokenizer:
    """The `tokenizers.Tokenizer` inside a fast tokenizer.

    Raises:
        PairError: the tokenizer has none (a slow one).
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise PairError(f"tokenizer must be a fast tokenizer, got {type(tokenizer).__name__}")
    return backend


def tokenizer_sha256(tokenizer: Any) -> str:
    """Hash of everything that decides ids: vocabulary, merges, normalizer, pre-tokenizer, and the chat template."""
    state = json.loads(backend_tokenizer(tokenizer).to_str())
    for setting in ("truncation", "padding"):  # settings of a call, not of the token map
        state.pop(setting, None)
    template = getattr(tokenizer, "chat_template", None)
    text = json.dumps({"tokenizer": state, "chat_template": template}, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def check_token_maps(here: Mapping[str, int], there: Mapping[str, int]) -> None:
    """Raise unless both maps give every token the same id.

    Raises:
        TokenMapError: names the first difference in id order: the token, its id here, its id there.
    """
    if here == there:
        return
    tokens = sorted(here.keys() | there.keys(), key=lambda token: (here.get(token, there.get(token, -1)), token))
    for token in tokens:
        mine, other = here.get(token), there.get(token)
        if mine != other:
            raise TokenMapError(
                f"token maps must agree, got {token!r}: id {_show(mine)} in the target, id {_show(other)} in the draft"
            )


def _show(token_id: int | None) -> str:
    return "none" if token_id is None else str(token_id)


def encode_text(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a user prompt: under the chat template with the assistant's opening, else as plain text.

    Raises:
        PromptError: the prompt is empty, encodes to nothing, or holds half of a surrogate pair.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise PromptError(f"prompt must be encodable as UTF-8, got {text[error.start : error.end]!r}") from error
    if not text.strip():
        raise PromptError(f"prompt must be non-empty text, got {text!r}")
    if getattr(tokenizer, "chat_template", None):
        message = [{"role": "user", "content": text}]
        rendered = tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False)
        ids = tokenizer(rendered, add_special_tokens=False)["input_ids"]
    else:
        ids = tokenizer(text)["input_ids"]
    if not ids:
        raise PromptError(f"prompt must encode to at least one token, got {text!r}")
    return [int(token) for token in ids]
