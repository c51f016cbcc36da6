"""What a controller may grow and how its loop runs passes, and the rules that a controller's arguments keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treewise.data.envelope import Envelope, PriorTable
from treewise.data.errors import ParameterError, require

LARGEST_POSITION = 2**31 - 1  # positions and token ids are int32
Tokens = Sequence[int] | NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """What a controller may grow, and how the loop runs its passes."""

    envelope: Envelope | None = None  # None: a learned policy's own, else the default
    prior_table: PriorTable | None = None  # None: likewise
    row_buckets: tuple[int, ...] = ()  # verify passes are padded up to these rows; empty: no padding
    time_limit_ms: float = 50.0  # of one policy call; three slower ones in a row suspend it for the request
    corpus_tokens: Tokens = ()  # a frozen text that the lookup knows beside the request's own; a list or an array
    eos_token_ids: Tokens = ()  # tokens that end a request
    draft_token_ids: Tokens | None = None  # token id of each column of the draft's head; None: its number


def checked_settings(settings: ControllerSettings, vocab_size: int) -> ControllerSettings:
    """`settings` with tuples in place of lists and arrays. Raises `ParameterError` on values that break a rule."""
    require(is_number(settings.time_limit_ms), "time_limit_ms", "a number", settings.time_limit_ms)
    buckets = settings.row_buckets
    whole = isinstance(buckets, Sequence | np.ndarray) and all(is_whole(rows) for rows in buckets)
    require(whole, "row_buckets", "whole numbers of rows", buckets)
    return replace(
        settings,
        row_buckets=tuple(int(rows) for rows in buckets),
        corpus_tokens=tuple(checked_tokens("corpus_tokens", settings.corpus_tokens, vocab_size).tolist()),
        eos_token_ids=tuple(checked_tokens("eos_token_ids", settings.eos_token_ids, vocab_size).tolist()),
    )


def checked_tokens(name: str, tokens: ArrayLike, vocab_size: int) -> NDArray[Any]:
    """`tokens` as an array [tokens]. Raises `ParameterError` unless all are token ids of the vocabulary."""
    ids = np.asarray(tokens)
    if not ids.size:
        return ids.reshape(-1)
    given = f"{ids.dtype} of shape {list(ids.shape)}"
    require(ids.ndim == 1 and ids.dtype.kind in "iu", name, "whole numbers, [tokens]", given)
    strays = ids[(ids < 0) | (ids >= vocab_size)]
    require(not strays.size, name, f"token ids between 0 and {vocab_size - 1}", strays[:3].tolist())
    return ids


def checked_temperature(temperature: float) -> float:
    """`temperature` as float32 holds it, as a trace keeps it. Raises `ParameterError` unless finite and >= 0."""
    rule = "finite and >= 0"
    require(is_number(temperature) and 0.0 <= temperature < float("inf"), "temperature", rule, temperature)
    fits = float(temperature) <= float(np.finfo(np.float32).max)
    require(fits, "temperature", f"{rule} in float32", temperature)
    return float(np.float32(temperature))


def check_text(name: str, text: object) -> None:
    """Raise `ParameterError` unless `text` is a str that UTF-8 can hold."""
    if not isinstance(text, str):
        raise ParameterError(f"{name} must be a str, got {text!r}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ParameterError(f"{name} must be text that UTF-8 can hold, got {text!r}") from error


def is_whole(value: object) -> bool:
    """Whether `value` is a whole number, no bool."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64)


def is_number(value: object) -> bool:
    """Whether `value` is a real number, NaN and infinity included, no bool."""
    return is_whole(value) or isinstance(value, float | np.floating)
