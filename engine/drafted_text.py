"""What a draft's cache holds of one request: committed tokens, and within a round the rows that were drafted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from treewise.engine.slot_rows import SlotRows
from treewise.engine.tree_model import BoolMatrix, see_ancestors
from treewise.policy.hook import DraftGuesses, Drawn, Int32Array, Nodes

_PLACES = 64  # drafted rows of a round before the mask's buffer grows


@dataclass(frozen=True, slots=True)
class DraftRows(SlotRows):
    """One request's part of a growth: committed tokens that the cache lacked, then forest rows."""

    num_late: int  # committed tokens among the rows, the first ones


class DraftedText:
    """The committed text of a request and what the draft has seen of it; may lag, and a growth catches up."""

    def __init__(self, prompt: Sequence[int] = (), seen: int = 0) -> None:
        self.first_guess: dict[int, int] = {}  # position -> the draft's first token below it, where it ran
        self._sees = np.zeros((_PLACES, _PLACES), dtype=np.bool_)  # [places, places] ancestors and itself
        # Places count the drafted rows of this round, the root's is 0; the root's cache slot comes behind the text's.
        self._place_of: dict[int, int] = {}  # forest row -> place
        self._guesses: list[int] = []  # [places] the draft's first token below each
        self.begin(prompt, seen)

    def begin(self, prompt: Sequence[int], seen: int) -> None:
        """Forget the last request; the cache holds the first `seen` tokens of this one's `prompt`."""
        self.text = list(prompt)  # committed tokens, the root last
        self.seen = seen  # committed tokens in the cache
        self.first_guess.clear()
        self._forget_round()

    @property
    def length(self) -> int:
        """Cache slots written, those of this round's rows included."""
        return self.seen + len(self._place_of)

    def plan(self, nodes: Nodes, rows: Int32Array) -> DraftRows:
        """What a growth on this request's forest `rows` (parents first) runs; they count as drafted from here on."""
        position = len(self.text) - 1
        start = self.length
        runs_root = bool(nodes.parent[rows[0]] < 0)
        late = self.text[self.seen : -1] if runs_root else []
        mask = self._mask(nodes, rows, start, len(late))
        if runs_root:
            self.seen = position  # the root's own slot counts once the round is committed
        tokens = np.concatenate([np.asarray(late, dtype=np.int32), nodes.token[rows]]).astype(np.int32)
        late_positions = np.arange(position - len(late), position, dtype=np.int32)
        positions = np.concatenate([late_positions, position + nodes.depth[rows]]).astype(np.int32)
        return DraftRows(tokens, positions, mask, start, len(late))

    def note(self, rows: DraftRows, first: Sequence[int]) -> None:
        """Remember the draft's `first` token below each of the `rows` that it ran."""
        self.first_guess.update(zip(rows.positions[: rows.num_late].tolist(), first, strict=False))
        self._guesses.extend(first[rows.num_late :])

    def commit(self, path_rows: Sequence[int], committed: Sequence[int]) -> tuple[int, list[int]]:
        """Take `committed` tokens, whose path is forest `path_rows`, root first.

        Returns (committed tokens that the cache held before the round, slots of the path's drafted part): the latter
        are to follow the former, and everything else of the round goes.
        """
        position, base = len(self.text) - 1, self.seen
        slots: list[int] = []
        for depth, row in enumerate(path_rows):
            place = self._place_of.get(row)
            if place is None:
                break
            slots.append(base + place)
            self.first_guess[position + depth] = self._guesses[place]
        self.seen += len(slots)
        self.text.extend(committed)
        self._forget_round()
        return base, slots

    def _mask(self, nodes: Nodes, rows: Int32Array, start: int, num_late: int) -> BoolMatrix:
        """Slots that a growth's rows see, behind `start` slots: late committed tokens first, then forest `rows`."""
        first, end = len(self._place_of), len(self._place_of) + len(rows)
        self._place_of.update(zip(rows.tolist(), range(first, end), strict=True))
        if end > len(self._sees):
            wider = np.zeros((2 * end, 2 * end), dtype=np.bool_)
            wider[:first, :first] = self._sees[:first, :first]
            self._sees = wider
        places = np.arange(first, end)
        self._sees[places, :end] = False
        self._sees[places, places] = True
        inner = nodes.parent[rows] >= 0
        above = np.asarray([self._place_of[row] for row in nodes.parent[rows[inner]].tolist()], dtype=np.intp)
        see_ancestors(self._sees, places[inner], above, nodes.depth[rows[inner]])
        text = start + num_late - first  # slots before the root's
        mask = np.zeros((num_late + len(rows), start + num_late + len(rows)), dtype=np.bool_)
        mask[:num_late, : start + num_late] = np.tri(num_late, start + num_late, start, dtype=np.bool_)
        mask[num_late:, :text] = True
        mask[num_late:, text:] = self._sees[first:end, :end]
        return mask

    def _forget_round(self) -> None:
        self._place_of.clear()
        self._guesses.clear()


def pick(guesses: DraftGuesses, rows: slice | Int32Array) -> DraftGuesses:
    """The guesses below some `rows` of a pass; the extras stay."""
    drawn = guesses.drawn
    return replace(
        guesses,
        tokens=guesses.tokens[rows],
        probs=guesses.probs[rows],
        entropy=guesses.entropy[rows],
        margin=guesses.margin[rows],
        ranks=None if guesses.ranks is None else guesses.ranks[rows],
        drawn=None if drawn is None else Drawn(drawn.probs[rows], drawn.ranks[rows], drawn.gaps[rows]),
    )
