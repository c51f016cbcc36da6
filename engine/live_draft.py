"""The draft model, live: one forward pass a growth, catching up in the same pass."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from treewise.engine.draft_head import DraftHead
from treewise.engine.draft_model import DraftModel
from treewise.engine.sampling import Sampling
from treewise.engine.tree_model import BoolMatrix, TreeModel, see_ancestors
from treewise.policy.draft_ranking import PLAIN
from treewise.policy.hook import BoolArray, DraftGuesses, Drawn, Int32Array, Nodes

_PLACES = 64  # drafted rows of a round before the mask's buffer grows


class LiveDraft:
    """One request's draft source.

    Its cache holds committed tokens, and within a round the rows that were drafted; it may lag the committed text, and
    the next growth runs what it has not seen in the same pass.
    """

    def __init__(self, draft: DraftModel, vocab_size: int, width: int) -> None:
        self.head = DraftHead(draft, vocab_size, width)
        self.tree_model = TreeModel(draft.model, draft.num_layers)
        self.draft_seconds = 0.0
        self.num_growths = 0
        self.num_unhealthy = 0  # nodes whose logits were not finite
        self.first_guess: dict[int, int] = {}  # position -> the draft's first token below it, where it ran
        self._text: list[int] = []  # committed tokens, the root last
        self._seen = 0  # committed tokens in the cache
        # Places count the drafted rows of this round, the root's is 0; the root's cache slot comes behind the text's.
        self._place_of: dict[int, int] = {}  # forest row -> place
        self._guesses: list[int] = []  # [places] the draft's first token below each
        self._sees = np.zeros((_PLACES, _PLACES), dtype=np.bool_)  # [places, places] ancestors and itself

    def begin(
        self,
        prompt: Sequence[int],
        capacity: int,
        prefill: bool = True,
        sampling: Sampling | None = None,
        ranking: str = PLAIN,
    ) -> None:
        """Forget the last request.

        `prefill`: run every prompt token but the last now, as replay assumes whatever the policy; else the first growth
        catches up. `sampling` and `ranking`: how candidates are ranked, see `treewise.policy.draft_ranking`.
        """
        self.head.begin(sampling or Sampling(), ranking)
        self.tree_model.reset(capacity)
        self._text = list(prompt)
        self._seen = 0
        self.draft_seconds = 0.0
        self.num_growths = 0
        self.num_unhealthy = 0
        self.first_guess.clear()
        self._forget_round()
        if prefill:
            self.tree_model.prefill(prompt[:-1])
            self._seen = len(prompt) - 1

    @property
    def seen_tokens(self) -> int:
        """Committed tokens that the cache holds."""
        return self._seen

    def in_vocab(self, tokens: Int32Array) -> BoolArray:
        """Which of `tokens` [n] the draft's head can say."""
        return self.head.in_vocab(tokens)

    def grow(self, nodes: Nodes, rows: Int32Array, extra_rows: Int32Array, extra_tokens: Int32Array) -> DraftGuesses:
        """Run forest `rows` (parents first), and before them the committed tokens that the cache lacks."""
        began = time.perf_counter()
        position = len(self._text) - 1
        start = self.tree_model.cache.length
        runs_root = bool(nodes.parent[rows[0]] < 0)
        late = self._text[self._seen : -1] if runs_root else []
        mask = self._mask(nodes, rows, start, len(late))
        tokens = np.concatenate([np.asarray(late, dtype=np.int32), nodes.token[rows]]).astype(np.int32)
        late_positions = np.arange(position - len(late), position, dtype=np.int32)
        positions = np.concatenate([late_positions, position + nodes.depth[rows]]).astype(np.int32)
        hidden = self.tree_model.forward(tokens, positions, mask)
        below = (positions + 1).astype(np.int32)
        guesses = self.head.read(hidden, below, (extra_rows + len(late)).astype(np.int32), extra_tokens)
        for place in range(len(late)):
            self.first_guess[position - len(late) + place] = int(guesses.tokens[place, 0])
        if runs_root:
            self._seen = position  # the root's own slot counts once the round is committed
        here = slice(len(late), None)
        self._guesses.extend(guesses.tokens[here, 0].tolist())
        self.num_growths += 1
        self.num_unhealthy += int(np.isnan(guesses.entropy).sum())
        self.draft_seconds += time.perf_counter() - began
        return replace(
            guesses,
            tokens=guesses.tokens[here],
            probs=guesses.probs[here],
            entropy=guesses.entropy[here],
            margin=guesses.margin[here],
            ranks=None if guesses.ranks is None else guesses.ranks[here],
            drawn=None if guesses.drawn is None else _rows(guesses.drawn, here),
        )

    def commit(self, path_rows: Sequence[int], committed: Sequence[int]) -> None:
        """Keep the drafted part of the committed path (forest rows, root first); the text grows by `committed`."""
        position = len(self._text) - 1
        slots: list[int] = []
        for depth, row in enumerate(path_rows):
            place = self._place_of.get(row)
            if place is None:
                break
            slots.append(self._seen + place)
            self.first_guess[position + depth] = self._guesses[place]
        self.tree_model.cache.keep(self._seen, slots)
        self._seen += len(slots)
        self._text.extend(committed)
        self._forget_round()

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

    def check_integrity(self) -> None:
        """Assert that between rounds the cache holds committed tokens only, at most those before the root."""
        assert self.tree_model.cache.length == self._seen <= len(self._text) - 1
        self.tree_model.cache.check_integrity()


def _rows(drawn: Drawn, rows: slice) -> Drawn:
    return Drawn(drawn.probs[rows], drawn.ranks[rows], drawn.gaps[rows])
