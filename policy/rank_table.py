"""A table of acceptance by rank: how often the k-th likeliest child of a node is the target's token."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from treewise.data.errors import PolicyError, SchemaVersionError, require
from treewise.policy.hook import SOURCES
from treewise.policy.table_file import read_table

SCHEMA_VERSION = 1
MAX_RANKS = 64
_TOLERANCE = 1e-6  # of a sum of rounded probabilities


def sources_name(bits: int) -> str:
    """Names of the sources of `bits`, joined by a plus: `lookup+draft`; `none` for no bits."""
    return "+".join(source.name for source in SOURCES if bits & source.bit) or "none"


SOURCE_SETS = {sources_name(bits): bits for bits in range(1, 1 << len(SOURCES))}  # bits of every choice of sources


@dataclass(frozen=True, slots=True)
class RankTable:
    """Probability that the child of each rank, siblings ranked by prior, is the target's token, by sources asked."""

    acceptance: dict[int, tuple[float, ...]]  # source bits -> [ranks], sums at most 1
    positions: dict[int, int] = field(default_factory=dict)  # source bits -> text positions that it was fitted on
    prompts: int = 0  # that it was fitted on
    origin: tuple[str, ...] = ()  # names and content hashes of the traces it was fitted on

    def __post_init__(self) -> None:
        require(len(self.acceptance) > 0, "acceptance", "of at least one choice of sources", self.acceptance)
        for bits, by_rank in self.acceptance.items():
            name = f"acceptance of {sources_name(bits)}"
            require(1 <= len(by_rank) <= MAX_RANKS, name, f"1 to {MAX_RANKS} probabilities", len(by_rank))
            values = np.asarray(by_rank, dtype=np.float64)
            fits = bool((values >= 0.0).all() and (values <= 1.0).all() and values.sum() <= 1.0 + _TOLERANCE)
            require(fits, name, "probabilities that add up to at most 1", list(by_rank))
        counts = {"prompts": self.prompts, **{f"positions of {sources_name(k)}": v for k, v in self.positions.items()}}
        for name, count in counts.items():
            require(count >= 0, name, ">= 0", count)

    def of(self, sources: int) -> tuple[float, ...]:
        """Acceptance by rank where these source bits are asked. Raises `PolicyError` where it was not fitted for them.

        Where nothing is asked, nothing is accepted.
        """
        if not sources:
            return ()
        found = self.acceptance.get(sources)
        if found is None:
            known = ", ".join(sources_name(bits) for bits in sorted(self.acceptance))
            raise PolicyError(
                f"rank table must be fitted for the sources that are asked, got {sources_name(sources)} where it knows "
                f"{known}: fit it with `treewise fit-tree` on a trace that holds them, or name others with sources="
            )
        return found

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping; `from_json` reads it back."""
        return {
            "schema_version": SCHEMA_VERSION,
            "acceptance": {
                sources_name(bits): np.round(by_rank, 6).tolist() for bits, by_rank in self.acceptance.items()
            },
            "positions": {sources_name(bits): count for bits, count in self.positions.items()},
            "prompts": self.prompts,
            "origin": list(self.origin),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> RankTable:
        """The table that `to_json` wrote. Raises `ParameterError`, and `SchemaVersionError` on another version."""
        names = {"schema_version", "acceptance", "positions", "prompts", "origin"}
        missing, unknown = sorted(names - set(value)), sorted(set(value) - names)
        require("schema_version" in value, "table", "one of acceptance by rank (`treewise fit-tree`)", sorted(value))
        if value["schema_version"] != SCHEMA_VERSION:
            cure = "fit it again with `treewise fit-tree`"
            raise SchemaVersionError("rank table", value["schema_version"], SCHEMA_VERSION, cure)
        require(not missing and not unknown, "table", f"of {', '.join(sorted(names))}", sorted(value))
        acceptance = {bits: _numbers(name, ranks) for name, bits, ranks in _by_sources(value, "acceptance")}
        fitted = _by_sources(value, "positions")
        positions = {bits: _count(f"positions of {name}", count) for name, bits, count in fitted}
        origin = value["origin"]
        texts = isinstance(origin, list) and all(isinstance(text, str) for text in origin)
        require(texts, "origin", "a list of strings", origin)
        return cls(acceptance, positions, _count("prompts", value["prompts"]), tuple(origin))

    @classmethod
    def load(cls, path: str | Path) -> RankTable:
        """The table in a JSON file. Raises `ParameterError` where there is none."""
        return cls.from_json(read_table(path))


def _by_sources(value: dict[str, Any], name: str) -> list[tuple[str, int, Any]]:
    """(names of sources, their bits, what stands there) of the object under `name`."""
    rows = value[name]
    require(isinstance(rows, dict), name, "a JSON object", rows)
    for sources in rows:
        require(sources in SOURCE_SETS, name, f"by sources such as {', '.join(SOURCE_SETS)}", sources)
    return [(sources, SOURCE_SETS[sources], row) for sources, row in rows.items()]


def _numbers(sources: str, ranks: Any) -> tuple[float, ...]:
    """Numbers between 0 and 1, so that none of them is too large to be one."""
    fits = isinstance(ranks, list) and all(type(rank) in (int, float) and 0 <= rank <= 1 for rank in ranks)
    require(fits, f"acceptance of {sources}", "a list of probabilities", ranks)
    return tuple(map(float, ranks))


def _count(name: str, count: Any) -> int:
    require(type(count) is int, name, "a whole number", count)
    return int(count)
