"""Tables that rule policies read from a JSON file of the user's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from treewise.data.errors import ParameterError, require


def read_table(path: str | Path, name: str = "table") -> dict[str, Any]:
    """The one JSON object in a file. Raises `ParameterError`, which calls it `name`, where there is none."""
    file = Path(path)
    require(str(path) != "" and file.is_file(), name, "a file that exists", str(path))
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, or a number of too many digits
        raise ParameterError(f"{name} must be a JSON file, got {str(path)!r}: {error}") from error
    if not isinstance(value, dict):
        raise ParameterError(f"{name} must be one JSON object, got {type(value).__name__!r}")
    return value
