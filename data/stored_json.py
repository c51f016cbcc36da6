"""JSON that people and programs hand over: one object, the names it must hold, and what errors show of it."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from treewise.data.errors import TreewiseError

_SHOWN = 80  # characters of a value in an error


def read_object(path: Path, what: str, error: type[TreewiseError]) -> dict[str, Any]:
    """The one JSON object in a file that is there. Raises `error`, which calls it `what`, where it holds none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as cause:  # not JSON, not UTF-8, or a number of too many digits
        raise error(f"{what} must be a JSON file, got {str(path)!r}: {cause}") from cause
    if not isinstance(value, dict):
        raise error(f"{what} must be one JSON object, got {type(value).__name__!r} in {str(path)!r}")
    return value


def parse_object(text: str, what: str, error: type[TreewiseError]) -> dict[str, Any]:
    """The JSON object that `text` is. Raises `error`, which calls it `what`, where it is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as cause:
        raise error(f"{what} must be a JSON object, got {short(text)}") from cause
    if not isinstance(value, dict):
        raise error(f"{what} must be a JSON object, got {short(value)}")
    return value


def check_names(given: Collection[str], names: Collection[str], what: str, error: type[TreewiseError]) -> None:
    """Raise `error`, which calls it `what`, unless the names that it holds, `given`, are just `names`."""
    missing, unknown = sorted(set(names) - set(given)), sorted(set(given) - set(names))
    if missing or unknown:
        raise error(f"{what} must hold the names {sorted(names)}, got {missing} missing and {unknown} unknown")


def short(value: object) -> str:
    """The value as text, cut to a length that fits an error message."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
