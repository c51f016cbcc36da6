"""Tables that rule policies read from a JSON file of the user's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from treewise.data.errors import ParameterError, require
from treewise.data.stored_json import read_object


def read_table(path: str | Path, name: str = "table") -> dict[str, Any]:
    """The one JSON object in a file. Raises `ParameterError`, which calls it `name`, where there is none."""
    file = Path(path)
    require(str(path) != "" and file.is_file(), name, "a file that exists", str(path))
    return read_object(file, name, ParameterError)
