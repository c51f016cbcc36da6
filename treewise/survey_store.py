"""Replays of a survey on disk: one line for each policy on the same traces under a cost profile."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from treewise.bench_store import ResultStore
from treewise.code_hash import code_closure
from treewise.policy_bench_store import ReplayKey, key_of

if TYPE_CHECKING:
    from treewise.data.cost import CostProfile
    from treewise.training.contest import Contender
    from treewise.training.logged_trace import LoggedTrace
    from treewise.training.survey_counts import SurveyCounts

_COUNTS = ("treewise.training.survey_counts",)  # whose code decides what is counted


@dataclass(frozen=True, slots=True)
class StoredCounts:
    """What one policy did, by request."""

    key: ReplayKey
    columns: dict[str, list[float]]  # those of `SurveyCounts`, each [requests]
    lengths: list[list[float]]  # [requests, longest + 1]

    def to_line(self) -> str:
        """One line of JSON; `from_line` reads it back."""
        key = self.key
        return json.dumps([key.policy, key.sources, key.cost, key.code, self.columns, self.lengths]) + "\n"

    @classmethod
    def from_line(cls, line: str) -> StoredCounts | None:
        """The counts in `line`; None where a killed run left half of one."""
        try:
            policy, sources, cost, code, columns, lengths = json.loads(line)
            found = {str(name): [float(value) for value in values] for name, values in columns.items()}
            return cls(ReplayKey(policy, int(sources), cost, code), found, [list(map(float, row)) for row in lengths])
        except (ValueError, TypeError, AttributeError):
            return None


class SurveyStore:
    """Counts on the same traces, made where they are missing. Its file belongs to the traces' content, in order."""

    def __init__(self, path: Path) -> None:
        self._store: ResultStore[ReplayKey, StoredCounts] = ResultStore(path, StoredCounts.from_line)

    def count(
        self,
        traces: Sequence[LoggedTrace],
        cost: CostProfile,
        contender: Contender,
        longest: int,
        advance: Callable[[int], None] | None = None,
    ) -> SurveyCounts:
        """As `survey_counts`; the contender's name must be a spec string."""
        from treewise.training.survey_counts import SurveyCounts, survey_counts

        key = key_of(contender.name, 0, cost.sha256)
        key = replace(key, code=f"{key.code} {code_closure(_COUNTS)}")
        entries = [entry for trace in traces for entry in trace.entries]
        if key not in self._store:
            made = survey_counts(traces, cost, contender, longest, advance)
            columns = {name: np.round(values, 9).tolist() for name, values in made.columns.items()}
            self._store.add(StoredCounts(key, columns, made.lengths.tolist()))
        elif advance is not None:
            advance(len(entries))
        stored = self._store[key]
        return SurveyCounts(
            np.asarray([entry.prompt_id for entry in entries], dtype=np.str_),
            np.asarray([entry.task for entry in entries], dtype=np.str_),
            {name: np.asarray(values, dtype=np.float64) for name, values in stored.columns.items()},
            np.asarray(stored.lengths, dtype=np.float64),
        )
