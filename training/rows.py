"""Tables of training rows, and how they are piled up."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.envelope import Envelope, PriorTable
from treewise.policy.hook import Float32Array, Int8Array, Int32Array, UInt8Array

BOTH, FREE_ONLY, DRAFT_ONLY = 0, 1, 2
KINDS = ("both", "free only", "draft only")  # whether a free source proposed a row, and whether the draft scored it


@dataclass(frozen=True, slots=True)
class MatchRows:
    """One row per candidate whose parent is on the path, per view."""

    x: Float32Array  # [rows, FEATURES]
    label: Int8Array  # [rows] 1 where the candidate is the target's token
    weight: Float32Array  # [rows]
    prompt: Int32Array  # [rows] index into the data set's prompts
    prior: Float32Array  # [rows] what rule policies read
    kind: UInt8Array  # [rows] index into KINDS


@dataclass(frozen=True, slots=True)
class GrowthRows:
    """One row per path node that the draft could be asked at, as seen before it was."""

    x: Float32Array  # [rows, GROWTH_FEATURES]
    label: Int8Array  # [rows] 1 where the draft would offer the target's token and no free source that was asked did
    weight: Float32Array  # [rows]
    prompt: Int32Array  # [rows]


@dataclass(frozen=True, slots=True)
class TreeRows:
    """Whole trees of some positions, for judging survival along paths; never trained on."""

    x: Float32Array  # [rows, FEATURES]
    parent: Int32Array  # [rows] row of the parent in these arrays, -1 below a root
    path_prior: Float32Array  # [rows]
    survives: Int8Array  # [rows] 1 where the whole path matches
    prompt: Int32Array  # [rows]


@dataclass(frozen=True, slots=True)
class Dataset:
    """Rows of every request of the traces."""

    prompts: tuple[str, ...]  # [prompts] ids
    tasks: tuple[str, ...]  # [prompts]
    match: MatchRows
    growth: GrowthRows
    trees: TreeRows
    envelope: Envelope
    prior_table: PriorTable
    positions: int  # root positions that gave rows
    uncovered: int  # views of a position that were left out because they asked for more than the log holds
    whole_rows: int | None = None  # the first so many match rows are of the traces' own sources; None: all of them


@dataclass(slots=True)
class Pile:
    """Parts of one table, joined at the end."""

    parts: dict[str, list[NDArray[Any]]] = field(default_factory=dict)

    def add(self, **columns: NDArray[Any]) -> None:
        """Put rows on top, one array per column."""
        for name, values in columns.items():
            self.parts.setdefault(name, []).append(values)

    def join(self, table: Any, width: int) -> Any:
        """All rows as a `table`; `width` features where there is none."""
        kinds = {"x": np.float32, "label": np.int8, "weight": np.float32, "prompt": np.int32, "prior": np.float32,
                 "kind": np.uint8, "parent": np.int32, "path_prior": np.float32, "survives": np.int8}  # fmt: skip
        columns = {}
        for item in fields(table):
            kind = kinds[item.name]
            empty = np.zeros((0, width) if item.name == "x" else 0, dtype=kind)
            # A table's columns are most of what training holds: no second copy where they are of their kind already.
            columns[item.name] = np.concatenate([*self.parts.pop(item.name, []), empty]).astype(kind, copy=False)
        return table(**columns)
