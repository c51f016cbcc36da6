"""A part of a round's requests, as if the round were theirs alone, and rounds that are answered in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.policy.hook import BoolArray, Expansion, ForestView, Level, Nodes, RoundContext, RoundOutcome


@dataclass(frozen=True, slots=True)
class RequestPart:
    """The `chosen` requests [requests] of a round with a forest, their rows renumbered; order stays."""

    chosen: BoolArray  # [requests]
    forest: Nodes  # [rows of the whole round]

    @property
    def rows(self) -> NDArray[np.intp]:
        """Rows of the whole forest that belong to the part."""
        return np.flatnonzero(self.chosen[self.forest.request])

    @property
    def rest(self) -> RequestPart:
        """The other requests."""
        return RequestPart(~self.chosen, self.forest)

    def level(self, level: Level) -> Level:
        """What `level`, whose forest this part is of, asks of the part."""
        rows = self.rows
        start = int(np.searchsorted(rows, level.start))
        candidates = self._nodes(level.candidates, rows[start:] - level.start, rows)
        return Level(level.index, start, candidates, self._nodes(self.forest, rows, rows), self._context(level.context))

    def view(self, context: RoundContext) -> ForestView:
        """The part's own forest after the last growth."""
        rows = self.rows
        return ForestView(self._nodes(self.forest, rows, rows), self._context(context))

    def outcome(self, outcome: RoundOutcome) -> RoundOutcome:
        """What the round, whose forest this part is of, brought the part."""
        rows = self.rows
        return RoundOutcome(
            nodes=self._nodes(self.forest, rows, rows),
            context=self._context(outcome.context),
            kept=outcome.kept[rows],
            on_path=outcome.on_path[rows],
            match=outcome.match[rows],
            accepted_length=outcome.accepted_length[self.chosen],
            committed_tokens=outcome.committed_tokens[self.chosen],
        )

    def _nodes(self, nodes: Nodes, own: NDArray[np.intp], rows: NDArray[np.intp]) -> Nodes:
        columns: dict[str, Any] = {item.name: getattr(nodes, item.name)[own] for item in fields(Nodes)}
        number = np.cumsum(self.chosen) - 1
        columns["request"] = number[columns["request"]].astype(np.int32)
        parent = columns["parent"]
        columns["parent"] = np.where(parent < 0, -1, np.searchsorted(rows, parent)).astype(np.int32)
        for column in columns.values():
            column.flags.writeable = False
        return Nodes(**columns)

    def _context(self, context: RoundContext) -> RoundContext:
        values: dict[str, Any] = {item.name: getattr(context, item.name) for item in fields(RoundContext)}
        arrays = {name: part[self.chosen] for name, part in values.items() if isinstance(part, np.ndarray)}
        return RoundContext(**{**values, **arrays})


def expand_in_parts(parts: Iterable[tuple[Callable[[Level], Expansion], RequestPart]], level: Level) -> Expansion:
    """Each part's candidates as its own function answers for them; one without candidates is not asked."""
    count = len(level.candidates.parent)
    admit, grow = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.uint8)
    for expand, part in parts:
        own = part.chosen[level.candidates.request]
        if own.any():
            answer = expand(part.level(level))
            admit[own], grow[own] = answer.admit, answer.grow
    return Expansion(admit, grow)


def select_in_parts(
    parts: Iterable[tuple[Callable[[ForestView], BoolArray], RequestPart]], view: ForestView
) -> BoolArray:
    """Each part's rows as its own function selects among them."""
    kept = np.zeros(len(view.nodes.parent), dtype=np.bool_)
    for select, part in parts:
        kept[part.rows] = select(part.view(view.context))
    return kept
