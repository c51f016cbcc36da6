"""The views of `views.py` for a batch of root positions, grown along the committed path alone.

A candidate gives a row where its parent is on the path, and what it shows does not depend on what grows beside the
path: so nothing is grown there. One exception: a draft growth beside the path first runs ancestors without draft KV,
and those may be on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treewise.data.noise import mix_steps, opening_word
from treewise.policy.everything import EverythingPolicy
from treewise.policy.features import growth_features
from treewise.policy.hook import DRAFT, FREE, BoolArray, Expansion, Float32Array, Int32Array, Level, Nodes, UInt8Array
from treewise.training.logged_batch import BatchPlaces
from treewise.training.views import DRAFT_SHARES, OPENING_SHARES, OPENINGS, View

IndexArray = NDArray[np.intp]
Int64Array = NDArray[np.int64]
UInt32Array = NDArray[np.uint32]

_SHARE, _OPENING, _ROW = 0, 1, 2  # what a draw is for
_PER_DEPTH, _PER_TOKEN, _PER_PARENT = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35), np.uint32(0x27D4EB2F)


@dataclass(frozen=True, slots=True)
class Roots:
    """The root positions of a batch and the text behind them."""

    text: Int32Array  # completion tokens of the whole shard; -1 without ids
    start: Int64Array  # [roots] place in `text` of the token behind each root
    left: Int64Array  # [roots] tokens of the request's text from there on
    key: UInt32Array  # [roots] of the draws: the same wherever the position stands in a batch

    def take(self, chosen: slice | IndexArray) -> Roots:
        """Some of them."""
        return Roots(self.text, self.start[chosen], self.left[chosen], self.key[chosen])


def uniforms(seed: int, purpose: int, key: UInt32Array) -> NDArray[np.float64]:
    """Draws [n] in the open interval: a function of seed, purpose and key [n], so that no order of asking matters."""
    return (mix_steps(opening_word(seed, purpose), key).astype(np.float64) + 0.5) * 2.0**-32


class PathView(EverythingPolicy):
    """One view of every root position of a batch.

    After a round, `on_path` and `truth` [rows] say which rows the text follows and which token follows them (-1: none
    or not on the path); `seen` holds, per level, the path rows that the draft could have been asked at and their growth
    features as they were then. Call `open` before each round.
    """

    def __init__(self, view: View, seed: int) -> None:
        super().__init__()
        self.view = view
        self.seen: list[tuple[IndexArray, Float32Array]] = []
        self.on_path: BoolArray = np.zeros(0, dtype=np.bool_)
        self.truth: Int32Array = np.zeros(0, dtype=np.int32)
        self._seed = seed
        self._distance: Int32Array = np.zeros(0, dtype=np.int32)  # [rows] steps up to the path

    def open(self, roots: Roots, places: BatchPlaces) -> None:
        """Start a round at `roots`, whose rows stand at `places` in the log."""
        self.seen = []
        self._roots, self._places = roots, places
        count = len(roots.key)
        self.on_path, self.truth = np.zeros(0, dtype=np.bool_), np.zeros(0, dtype=np.int32)
        self._distance = np.zeros(0, dtype=np.int32)
        self._tip: IndexArray = np.full(count, -1)
        share, opening = (uniforms(self._seed, purpose, roots.key) for purpose in (_SHARE, _OPENING))
        self._shares = np.asarray(DRAFT_SHARES)[(share * len(DRAFT_SHARES)).astype(np.intp)]  # [roots]
        which = np.cumsum(OPENING_SHARES)[:-1].searchsorted(opening)
        self._openings = np.asarray(OPENINGS, dtype=np.uint8)[which]  # [roots]

    def expand(self, level: Level) -> Expansion:
        """Admit every candidate; ask the sources of the view below those that matter."""
        forest, start, may = level.forest, level.start, level.candidates.may_grow
        self.follow(forest, start)
        drafts = start + np.flatnonzero(self.on_path[start:] & (may & DRAFT).astype(np.bool_))
        if drafts.size:
            self.seen.append((drafts, growth_features(forest, drafts, level.context)))
        # Beside the path a growth matters where it runs the draft on an ancestor that is on the path.
        reaches_path = level.candidates.draft_missing >= self._distance[start:]
        matters = np.where(self.on_path[start:], 0xFF, np.where(reaches_path, DRAFT, 0)).astype(np.uint8)
        return Expansion(np.ones(len(may), dtype=np.bool_), self.wanted(forest, start, level.index) & may & matters)

    def wanted(self, forest: Nodes, start: int, index: int) -> UInt8Array:
        """Sources that the view asks below the rows from `start` on."""
        request = forest.request[start:]
        if self.view != "random":
            bits = DRAFT | FREE if self.view == "everything" else FREE
            return np.full(len(request), bits, dtype=np.uint8)
        if not index:
            return self._openings
        drafts = uniforms(self._seed, _ROW, self._keys(forest, start)) < self._shares[request]
        return np.asarray(drafts * np.uint8(DRAFT) | self._openings[request] & FREE, dtype=np.uint8)

    def follow(self, forest: Nodes, start: int) -> None:
        """Find the path among the rows from `start` on."""
        count = len(forest.parent) - start
        self.on_path = np.concatenate([self.on_path, np.zeros(count, dtype=np.bool_)])
        self.truth = np.concatenate([self.truth, np.full(count, -1, dtype=np.int32)])
        self._distance = np.concatenate([self._distance, np.zeros(count, dtype=np.int32)])
        rows = np.arange(start, len(forest.parent))
        if not start:
            roots = len(self._roots.key)
            self._step(forest, rows[:roots])
            rows = rows[roots:]
        if not rows.size:
            return
        request, parent, token = forest.request[rows], forest.parent[rows], forest.token[rows]
        while True:
            tip = self._tip[request]
            found = rows[(parent == tip) & (token == self.truth[tip])]
            if not found.size:
                break
            self._step(forest, found)
        depth = forest.depth[rows]
        for deeper in range(int(depth.min()), int(depth.max()) + 1):
            here = rows[(depth == deeper) & ~self.on_path[rows]]
            self._distance[here] = self._distance[forest.parent[here]] + 1

    def _step(self, forest: Nodes, found: IndexArray) -> None:
        """The paths go on to the rows `found`, at most one of a request."""
        request, roots = forest.request[found], self._roots
        self.on_path[found] = True
        self._tip[request] = found
        depth = forest.depth[found]
        goes_on = depth < roots.left[request]
        if self._places.columns.tokens_included:
            truth = roots.text[np.where(goes_on, roots.start[request] + depth, 0)]
        else:
            truth = self._places.columns.matching[self._places.of(found)]
        self.truth[found] = np.where(goes_on, truth, np.int32(-1))

    def _keys(self, forest: Nodes, start: int) -> UInt32Array:
        """Of the draw below each row from `start` on."""
        parent = forest.parent[start:]
        above = np.where(parent < 0, 0, forest.token[parent])
        parts = (forest.depth[start:], forest.token[start:], above)
        key = self._roots.key[forest.request[start:]]
        for part, factor in zip(parts, (_PER_DEPTH, _PER_TOKEN, _PER_PARENT), strict=True):
            key = key + (part.astype(np.uint32) + np.uint32(1)) * factor
        return key
