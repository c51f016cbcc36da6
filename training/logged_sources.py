"""The sources that a logged tree stands for: replay grows its rounds from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treewise.data.errors import CoverageError
from treewise.policy.draft_ranking import BOTH, PLAIN
from treewise.policy.hook import Continuations, DraftGuesses, Drawn, Int32Array, Nodes, Recycled
from treewise.training.logged_tree import SCORES, LoggedTree


class LoggedLookup:
    """`LookupSource` at one root position of the log."""

    def __init__(self, tree: LoggedTree) -> None:
        self._tree = tree
        self._is_open = False

    def continuations(self, path: Sequence[int]) -> Continuations:
        """What the log says followed `path`. Raises `CoverageError` where the lookup was not asked there."""
        node = self._tree.follow(path)
        # The opening level shows the root's first continuation whether or not the policy asks for the rest.
        if not node and not self._is_open:
            self._is_open = True
        elif not self._tree.is_looked_up(node):
            raise CoverageError(f"{self._tree.place}: the log did not ask the lookup at path depth {len(path)}")
        return self._tree.continuations(node)


class LoggedRecycled:
    """`RecycledSource` at one root position of the log."""

    def __init__(self, tree: LoggedTree) -> None:
        self._tree = tree
        self._is_open = False

    def recycled(self, path: Sequence[int]) -> Recycled:
        """What the log says was remembered behind `path`. Raises `CoverageError` where that was not asked there."""
        node = self._tree.follow(path)
        # As the lookup's first continuation, the first guess is shown before the policy asks for any.
        if not node and not self._is_open:
            self._is_open = True
        elif not self._tree.is_recycled(node):
            raise CoverageError(
                f"{self._tree.place}: the log did not ask for recycled guesses at path depth {len(path)}"
            )
        return self._tree.recycled(node)


class LoggedDraft:
    """`DraftSource` at one root position of the log, for a batch of one request."""

    def __init__(self, tree: LoggedTree, width: int, ranking: str = PLAIN) -> None:
        self._tree = tree
        self._width = width  # draft candidates that the log was offered below one node, in each ranking
        self._ranking = ranking
        self._vocabulary: dict[int, bool] | None = None
        self._nodes: dict[int, int] = {0: 0}  # forest row -> logged node

    def grow(self, nodes: Nodes, rows: Int32Array, extra_rows: Int32Array, extra_tokens: Int32Array) -> DraftGuesses:
        """What the draft said in the log. Raises `CoverageError` where it did not run."""
        tree = self._tree
        parents, tokens = nodes.parent.tolist(), nodes.token.tolist()
        logged = [self._locate(row, parents, tokens) for row in rows.tolist()]
        for node, row in zip(logged, rows.tolist(), strict=True):
            if not tree.is_drafted(node):
                raise CoverageError(f"{tree.place}: the log did not draft at path depth {int(nodes.depth[row])}")
        found = np.full((len(rows), self._width * (2 if self._ranking == BOTH else 1)), -1, dtype=np.int32)
        scores = np.full((*found.shape, len(SCORES)), np.nan, dtype=np.float32)
        for place, node in enumerate(logged):
            for column, at in enumerate(tree.proposals(node, self._ranking, self._width)):
                found[place, column] = tree.token(at)
                scores[place, column] = tree.scores(at)
        states = np.asarray([tree.state(node) for node in logged], dtype=np.float32)
        extras = np.asarray(
            [
                tree.scores(tree.children[logged[place]][token] - 1)
                for place, token in zip(extra_rows.tolist(), extra_tokens.tolist(), strict=True)
            ],
            dtype=np.float32,
        ).reshape(-1, len(SCORES))
        is_drawn = self._ranking != PLAIN
        return DraftGuesses(
            tokens=found,
            probs=np.where(found < 0, np.float32(0.0), scores[..., 0]),
            entropy=states[:, 0],
            margin=states[:, 1],
            extra_probs=extras[:, 0],
            extra_ranks=extras[:, 1],
            ranks=scores[..., 1] if is_drawn else None,
            drawn=Drawn(scores[..., 2], scores[..., 3], scores[..., 4]) if is_drawn else None,
            extra_drawn=Drawn(extras[:, 2], extras[:, 3], extras[:, 4]) if is_drawn else None,
        )

    def in_vocab(self, tokens: Int32Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which of `tokens` [n], all of them in the tree, the draft's head can say."""
        if self._vocabulary is None:
            self._vocabulary = self._tree.draft_vocabulary()
        return np.asarray([self._vocabulary[token] for token in tokens.tolist()], dtype=np.bool_)

    def _locate(self, row: int, parents: list[int], tokens: list[int]) -> int:
        node = self._nodes.get(row)
        if node is None:
            above = self._locate(parents[row], parents, tokens)
            node = self._nodes[row] = self._tree.children[above][tokens[row]]
        return node
