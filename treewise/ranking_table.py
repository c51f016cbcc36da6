"""The table of rankings: what was asked, what one cell holds, and what was decoded for it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from treewise.data.envelope import Envelope
from treewise.data.errors import require

if TYPE_CHECKING:
    from treewise.training.statistics import Interval

SCHEMA_VERSION = 1
_GROW = 2.5


@dataclass(frozen=True, slots=True)
class StudySettings:
    """What is compared: static trees of draft candidates alone."""

    temperatures: tuple[float, ...] = (0.0, 0.7, 1.0)
    widths: tuple[int, ...] = (1, 2, 3, 4)
    depth: int = 4
    max_new_tokens: int = 32
    min_path_prior: float = 0.02  # of the envelope; a node may be drafted below from 2.5 times as much
    is_live: bool = True  # also decode every cell and compare the texts

    def __post_init__(self) -> None:
        require(len(self.temperatures) > 0, "temperatures", "at least one", self.temperatures)
        require(len(self.widths) > 0 and min(self.widths) >= 1, "widths", "at least one, each >= 1", self.widths)
        warm = all(0.0 <= temperature < float("inf") for temperature in self.temperatures)
        require(warm, "temperatures", "finite and >= 0", self.temperatures)
        _ = self.envelope  # raises on a depth, width or prior outside its bounds

    @property
    def envelope(self) -> Envelope:
        """What the trees may grow."""
        return Envelope(self.depth, max(self.widths), 0, self.min_path_prior, _GROW * self.min_path_prior)

    def spec(self, width: int) -> str:
        """Spec string of the tree."""
        return f"static:{width}x{self.depth},sources=draft"


@dataclass(frozen=True, slots=True)
class CellKey:
    """One prompt in one cell."""

    temperature: float
    ranking: str
    width: int  # 0: plain decoding
    prompt_id: str


@dataclass(frozen=True, slots=True)
class CellText:
    """What one prompt's live decoding brought."""

    key: CellKey
    tokens: tuple[int, ...]
    rounds: int

    def to_line(self) -> str:
        """One line of JSON; `from_line` reads it back."""
        key = self.key
        parts = [key.temperature, key.ranking, key.width, key.prompt_id, list(self.tokens), self.rounds]
        return json.dumps(parts) + "\n"

    @classmethod
    def from_line(cls, line: str) -> CellText | None:
        """The text in `line`; None where a killed run left half of one."""
        try:
            temperature, ranking, width, prompt_id, tokens, rounds = json.loads(line)
            return cls(CellKey(temperature, ranking, width, prompt_id), tuple(tokens), rounds)
        except (ValueError, TypeError):
            return None


@dataclass(frozen=True, slots=True)
class StudyCell:
    """One ranking at one width and temperature."""

    temperature: float
    ranking: str
    width: int
    replayed: Interval  # tokens per round, interval by prompt
    over_plain: Interval  # that over plain ranking's at the same width, paired by prompt
    nodes: float  # verified nodes per round
    live: float  # tokens per round; NaN where nothing was decoded
    identical: int  # live texts that equal plain decoding's with the prompt's seed
    coverage: float  # the law: P(the target's token is among the first `width` candidates)
    law: float  # tokens per round if every level down to the depth had that coverage
    ceiling: float  # coverage by the target's own first `width` tokens, the noise unknown


@dataclass(frozen=True, slots=True)
class Study:
    """The table, and what it was made from."""

    pair: str
    settings: StudySettings
    prompts: int
    cells: tuple[StudyCell, ...]

    def cell(self, temperature: float, ranking: str, width: int) -> StudyCell:
        """One of them."""
        return next(
            cell for cell in self.cells if (cell.temperature, cell.ranking, cell.width) == (temperature, ranking, width)
        )

    def kept(self, temperature: float, ranking: str, width: int) -> float:
        """Accepted length over plain ranking's at temperature 0, same width; NaN where nothing is accepted there."""
        cold = self.cell(0.0, "plain", width).replayed.value - 1.0
        return (self.cell(temperature, ranking, width).replayed.value - 1.0) / cold if cold else float("nan")

    @property
    def is_identical(self) -> bool:
        """Whether every text that was decoded equals plain decoding's."""
        return all(np.isnan(cell.live) or cell.identical == self.prompts for cell in self.cells)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping that fits `treewise/schemas/rankings.json`."""
        from treewise.training.ab_report import interval_json

        return {
            "schema_version": SCHEMA_VERSION,
            "pair": self.pair,
            "prompts": self.prompts,
            "max_new_tokens": self.settings.max_new_tokens,
            "depth": self.settings.depth,
            "envelope": self.settings.envelope.to_json(),
            "identical": self.is_identical,
            "cells": [
                {
                    "temperature": cell.temperature,
                    "ranking": cell.ranking,
                    "width": cell.width,
                    "tokens_per_round": interval_json(cell.replayed),
                    "over_plain": interval_json(cell.over_plain),
                    "nodes_per_round": round(cell.nodes, 6),
                    "live_tokens_per_round": None if np.isnan(cell.live) else round(cell.live, 6),
                    "identical": None if np.isnan(cell.live) else cell.identical,
                    "coverage": round(cell.coverage, 6),
                    "law_tokens_per_round": round(cell.law, 6),
                    "ceiling": round(cell.ceiling, 6),
                }
                for cell in self.cells
            ],
        }


@dataclass(frozen=True, slots=True)
class Law:
    """What the law says of one cell."""

    coverage: float
    ceiling: float
    depth: int
