"""A table of match probabilities by hand-made bins: what the sources say of a candidate, and what came of it before."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.errors import ParameterError, require
from treewise.policy.hook import Nodes
from treewise.policy.table_file import read_table

SCHEMA_VERSION = 1
Float64Array = NDArray[np.float64]
IndexArray = NDArray[np.intp]
_ANY = 1e-9  # the least probability or share that is not 0


@dataclass(frozen=True, slots=True)
class TableBins:
    """Lower edges of the bins of each signal; below the first edge is a bin too.

    The draft's probability and the recycled one have one more bin, the first, for a source that was not asked.
    """

    draft: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 0.95)
    match: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)  # tokens; below 1: the lookup knows nothing, or was not asked
    recycled: tuple[float, ...] = (_ANY, 0.03, 0.1, 0.3, 0.6)
    agreement: tuple[float, ...] = (_ANY, 0.3, 0.6, 0.9)  # of the match's continuations, the share that is this token

    def __post_init__(self) -> None:
        for name in ("draft", "match", "recycled", "agreement"):
            edges = getattr(self, name)
            rises = all(low < high for low, high in pairwise(edges))
            require(len(edges) > 0 and rises and edges[0] > 0.0, name, "ascending edges above 0", edges)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Bins of the draft's probability, the match length, the recycled probability and the agreement."""
        return (len(self.draft) + 2, len(self.match) + 1, len(self.recycled) + 2, len(self.agreement) + 1)

    def places(
        self, draft_prob: NDArray[Any], match_length: NDArray[Any], recycled_prob: NDArray[Any], share: NDArray[Any]
    ) -> IndexArray:
        """Flat place in a table of `shape` of candidates with these signals, each [n], NaN where unknown. [n]."""
        draft = np.where(np.isnan(draft_prob), 0, 1 + np.searchsorted(self.draft, draft_prob, side="right"))
        recycled = np.where(np.isnan(recycled_prob), 0, 1 + np.searchsorted(self.recycled, recycled_prob, side="right"))
        match = np.searchsorted(self.match, np.nan_to_num(match_length), side="right")
        agreement = np.searchsorted(self.agreement, np.nan_to_num(share), side="right")
        agreement = np.where(match > 0, agreement, 0)
        return np.ravel_multi_index((draft, match, recycled, agreement), self.shape)


@dataclass(frozen=True, slots=True)
class HandTable:
    """Probability that a candidate is the target's token there, by bin."""

    match: Float64Array  # [draft bins, match bins, recycled bins, agreement bins]
    bins: TableBins = field(default_factory=TableBins)
    prompts: int = 0  # that it was fitted on
    rows: int = 0
    origin: tuple[str, ...] = ()  # names and content hashes of the traces it was fitted on

    def __post_init__(self) -> None:
        require(self.match.shape == self.bins.shape, "match", f"of shape {self.bins.shape}", self.match.shape)
        fits = bool(np.isfinite(self.match).all() and (self.match >= 0.0).all() and (self.match <= 1.0).all())
        require(fits, "match", "probabilities", "others")

    def probabilities(self, nodes: Nodes) -> Float64Array:
        """Match probability of every row, [rows]; 1 for roots."""
        places = self.bins.places(nodes.draft_prob, nodes.lookup_match_length, nodes.recycled_prob, nodes.lookup_share)
        return np.where(nodes.parent < 0, 1.0, self.match.reshape(-1)[places])

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping; `from_json` reads it back."""
        return {
            "schema_version": SCHEMA_VERSION,
            "bins": asdict(self.bins),
            "match": np.round(self.match, 6).reshape(-1).tolist(),
            "prompts": self.prompts,
            "rows": self.rows,
            "origin": list(self.origin),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> HandTable:
        """The table that `to_json` wrote. Raises `ParameterError` on anything else."""
        try:
            if value["schema_version"] != SCHEMA_VERSION:
                raise ParameterError(f"schema_version must be {SCHEMA_VERSION}, got {value['schema_version']!r}")
            bins = TableBins(**{name: tuple(float(edge) for edge in edges) for name, edges in value["bins"].items()})
            match = np.asarray(value["match"], dtype=np.float64).reshape(bins.shape)
            return cls(match, bins, int(value["prompts"]), int(value["rows"]), tuple(map(str, value["origin"])))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ParameterError(f"table must be a hand table of match probabilities: {error}") from error

    @classmethod
    def load(cls, path: str | Path) -> HandTable:
        """The table in a JSON file. Raises `ParameterError` where there is none."""
        return cls.from_json(read_table(path))
