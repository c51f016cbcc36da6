"""Many logged trees at once: where a batch's rows stand in them, and what `LoggedDraft` says there, by column."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from treewise.data.errors import CoverageError
from treewise.policy.forest import Forest
from treewise.policy.hook import BoolArray, DraftGuesses, Drawn, Float32Array, Int32Array, Nodes
from treewise.training.logged_columns import LoggedColumns
from treewise.training.logged_tree import SCORES


class BatchPlaces:
    """Where the rows of a batch's forest stand in the log."""

    def __init__(self, columns: LoggedColumns, forest: Forest) -> None:
        self.columns = columns
        self.forest = forest
        self.roots: Int32Array = np.zeros(0, dtype=np.int32)  # [requests] places of the roots
        self._known: Int32Array = np.full(256, -1, dtype=np.int32)  # [at least the forest's rows] -1: not yet found

    def open(self, roots: Int32Array) -> None:
        """Start a round at the places `roots` [requests]."""
        self.roots = roots
        self._known[:] = -1
        self._reserve(len(roots))
        self._known[: len(roots)] = roots

    @property
    def known(self) -> Int32Array:
        """[forest's rows] places; -1: not yet found."""
        self._reserve(self.forest.num_rows)
        return self._known[: self.forest.num_rows]

    def note(self, rows: slice | NDArray[np.integer], places: Int32Array) -> None:
        """The forest's `rows` stand at `places`."""
        self._reserve(self.forest.num_rows)
        self._known[rows] = places

    def of(self, rows: NDArray[np.integer]) -> Int32Array:
        """Places of forest `rows` [n]. Raises `CoverageError` where the log does not hold one of them."""
        self._reserve(self.forest.num_rows)
        known: Int32Array = self._known
        places = known[rows]
        if (places >= 0).all():
            return np.asarray(places)
        parent, token = self.forest.column("parent"), self.forest.column("token")
        line, unknown = rows, []
        while (line := line[known[line] < 0]).size:
            unknown.append(line)
            line = parent[line]
        for line in reversed(unknown):
            found = self.columns.children(known[parent[line]], token[line])
            if (found < 0).any():
                raise CoverageError("the log holds no such candidate")
            known[line] = self.columns.node_place[found]
        return np.asarray(known[rows])

    def _reserve(self, rows: int) -> None:
        missing = rows - len(self._known)
        if missing > 0:
            self._known = np.concatenate([self._known, np.full(missing + rows, -1, dtype=np.int32)])


class BatchDraft:
    """`DraftSource` at the root positions of a batch.

    Counts the tokens of each growth by request, since the driver's own count is of the whole batch.
    """

    def __init__(self, places: BatchPlaces, catch_up: Int32Array) -> None:
        self.growths: list[
            NDArray[np.intp]
        ] = []  # of every growth, the tokens that it ran for each request, [requests]
        self._places, self._columns, self._catch_up = places, places.columns, catch_up
        nodes, names = self._columns.shard.nodes, SCORES if self._columns.is_drawn else SCORES[:2]
        self._scores: tuple[Float32Array, ...] = tuple(getattr(nodes, name) for name in names)

    def grow(self, nodes: Nodes, rows: Int32Array, extra_rows: Int32Array, extra_tokens: Int32Array) -> DraftGuesses:
        """What the draft said in the log. Raises `CoverageError` where it did not run."""
        columns, drafted = self._columns, self._columns.drafted
        self._count(nodes, rows)
        places = self._places.of(rows)
        if not drafted.ran[places].all():
            raise CoverageError("the log did not draft there")
        among = drafted.starts[places][:, None] + np.arange(columns.proposals)
        inside = among < drafted.starts[places + 1][:, None]
        proposed = drafted.nodes[np.where(inside, among, 0)]
        scores = [np.where(inside, score[proposed], np.float32(np.nan)) for score in self._scores]
        extras = columns.children(places[extra_rows], extra_tokens)
        if (extras < 0).any():
            raise CoverageError("the log holds no such candidate of a free source")
        extra = [score[extras] for score in self._scores]
        return DraftGuesses(
            tokens=np.where(inside, columns.token[proposed], np.int32(-1)),
            probs=np.where(inside, scores[0], np.float32(0.0)),
            entropy=drafted.entropy[places],
            margin=drafted.margin[places],
            extra_probs=extra[0],
            extra_ranks=extra[1],
            ranks=scores[1] if columns.is_drawn else None,
            drawn=Drawn(*scores[2:]) if columns.is_drawn else None,
            extra_drawn=Drawn(*extra[2:]) if columns.is_drawn else None,
        )

    def in_vocab(self, tokens: Int32Array) -> BoolArray:
        """Which of `tokens` [n], those of the forest's last rows, the draft's head can say."""
        count = self._places.forest.num_rows
        places = self._places.of(np.arange(count - len(tokens), count))
        in_vocab: BoolArray = self._columns.shard.nodes.in_draft_vocab[self._columns.place_node[places]]
        return in_vocab

    def _count(self, nodes: Nodes, rows: Int32Array) -> None:
        """Tokens of one growth, catch-up included."""
        roots = len(self._catch_up)
        counts = np.bincount(nodes.request[rows], minlength=roots)
        own = rows[rows < roots]
        counts[own] += self._catch_up[own]
        self.growths.append(counts)
