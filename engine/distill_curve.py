"""The curve of a distillation: agreement against what the draft has seen, kept where a stopped training finds it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treewise.data.errors import PairError
from treewise.engine.agreement import Agreement
from treewise.engine.distill import DistillStep
from treewise.engine.hub import write_atomically


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """Rows of JSON, one a step that was examined, rising; `add` writes all of them to `path`."""

    path: Path
    rows: list[dict[str, Any]]

    @classmethod
    def read(cls, path: Path) -> LearningCurve:
        """The curve so far; empty where there is no file. Raises `PairError` where it cannot be read."""
        if not path.is_file():
            return cls(path, [])
        try:
            rows = json.loads(path.read_text(encoding="utf-8"))
            return cls(path, sorted(rows, key=lambda row: int(row["step"])))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise PairError(f"curve {path} cannot be read ({error}); delete it to start anew") from error

    def add(self, step: DistillStep, held_out: Agreement, exam: Sequence[Agreement]) -> None:
        """Keep what was found at a step; a step that a resumed training takes again, and later ones, are replaced.

        Args:
            held_out: over all held-out lessons.
            exam: over all and by group.
        """
        self.rows[:] = [row for row in self.rows if row["step"] < step.step]
        place = {"step": step.step, "epochs": round(step.epochs, 3), "positions_seen": step.tokens_seen}
        self.rows.append({**place, "held_out": held_out.to_json(), "exam": [row.to_json() for row in exam]})
        write_atomically(self.path, json.dumps(self.rows, indent=1).encode())
