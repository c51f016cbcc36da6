"""A recogniser small enough to know by heart, and tables that name it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from treewise.policy.task_recogniser import TaskRecogniser, TermBlock
from treewise.policy.task_table import TaskTable

SETTINGS = {"structured": "topn:12x3", "chat": "static:2x3", "unknown": "chain:2"}


def tiny_recogniser(threshold: float = 0.5) -> TaskRecogniser:
    """Knows two words: `json` is structured, `hello` is chat."""
    block = TermBlock("words", {"json": 0, "hello": 1}, np.ones(2), np.asarray([[-3.0, 3.0], [3.0, -3.0]]))
    return TaskRecogniser(("chat", "structured"), (block,), np.zeros(2), 2.0, threshold)


def write_table(folder: Path, settings: dict[str, str] | None = None) -> str:
    """A table beside the recogniser that it names."""
    recogniser = tiny_recogniser(0.6)
    recogniser.save(folder / "recogniser.json")
    table = TaskTable(settings or SETTINGS, "recogniser.json", recogniser.sha256, {"cost": "made up"})
    table.save(folder / "table x.json")
    return str(folder / "table x.json")
