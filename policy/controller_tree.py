"""What a controller and another loop hand each other: draft calls, trees to verify, accepted steps. Plain arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from treewise.policy.hook import BoolArray, DraftGuesses, Float32Array, Int32Array
from treewise.policy.round import RoundTree


@dataclass(frozen=True, slots=True)
class DraftCall:
    """One forward pass that the loop's draft is asked for.

    `tokens` begins with `catch_up` committed tokens that the draft's cache lacks (only where the root follows them);
    the rows behind them are the root and guessed nodes, parents first. Every row of a round has a *place*: its number
    among all rows that the round's calls handed out, catch-up rows included. A loop that appends to its draft cache in
    this order finds place p at slot (length before the round) + p. A row with parent -1 is a committed token (catch-up
    or the root): it sees the committed text before it. Any other row sees the text up to the root, its ancestors and
    itself.
    """

    request: int
    tokens: Int32Array  # [rows]
    parents: Int32Array  # [rows] place of the parent; -1: a committed token
    positions: Int32Array  # [rows] absolute positions
    catch_up: int  # leading rows that are committed tokens before the root
    first_place: int  # place of row 0; 0 in the first call of a round
    extra_rows: Int32Array  # [extras] row of this call, catch-up counted, below which the lookup offered a token
    extra_tokens: Int32Array  # [extras] that token; a `DraftGuesses` scores it, from probabilities it is read off

    @property
    def num_rows(self) -> int:
        """Rows of the pass."""
        return len(self.tokens)

    def places(self) -> Int32Array:
        """Places of the rows, [rows]."""
        return np.arange(self.first_place, self.first_place + len(self.tokens), dtype=np.int32)


# Softmax at temperature 1, [rows, head size] (or [rows - catch_up, head size]), or the same as guesses.
DraftAnswer: TypeAlias = "Float32Array | NDArray[np.float64] | DraftGuesses"
Draft: TypeAlias = Callable[[DraftCall], DraftAnswer]


@dataclass(frozen=True, slots=True)
class ProposedTree:
    """The rows of one verify pass: the root, then the kept nodes, parents first."""

    request: int
    tokens: Int32Array  # [rows]
    parents: Int32Array  # [rows] row of the parent; -1 for the root and for dead rows
    depths: Int32Array  # [rows] 0 for the root
    positions: Int32Array  # [rows] absolute
    mask: BoolArray  # [rows, rows] True where a row sees a row: its ancestors and itself; all see the text before
    padded_rows: int  # rows that the policy expects the pass to run with, dead ones included; at least the rows

    @property
    def num_rows(self) -> int:
        """Root and kept nodes; in a padded tree dead rows too."""
        return len(self.tokens)

    @property
    def num_nodes(self) -> int:
        """Verified nodes."""
        return int((self.parents >= 0).sum())

    def padded(self) -> ProposedTree:
        """The same with dead rows appended up to `padded_rows`: root tokens at the root's position that see only
        themselves and the text before them, and that nothing sees."""
        dead = self.padded_rows - len(self.tokens)
        mask = np.eye(self.padded_rows, dtype=np.bool_)
        mask[: len(self.tokens), : len(self.tokens)] = self.mask
        return replace(
            self,
            tokens=np.append(self.tokens, np.repeat(self.tokens[:1], dead)),
            parents=np.append(self.parents, np.full(dead, -1, dtype=np.int32)),
            depths=np.append(self.depths, np.zeros(dead, dtype=np.int32)),
            positions=np.append(self.positions, np.repeat(self.positions[:1], dead)),
            mask=mask,
        )


@dataclass(frozen=True, slots=True)
class AcceptedStep:
    """What one round committed."""

    request: int
    tokens: tuple[int, ...]  # committed, in order; at least one
    places: tuple[int, ...]  # rows of the tree whose target KV is kept, root first: as many as tokens
    draft_places: tuple[int, ...]  # places of `DraftCall` rows whose draft KV is kept, catch-up and root first
    accepted_length: int  # depth of the deepest accepted node
    finish: str  # "eos", "length", or "" while the request goes on


def propose_tree(tree: RoundTree, request: int, position: int, padded_rows: int) -> ProposedTree:
    """The kept rows of `tree`, a batch of one whose root stands at `position`, as arrays of a verify pass."""
    rows = np.flatnonzero(tree.kept)
    place = np.full(tree.forest.num_rows, -1, dtype=np.int32)
    place[rows] = np.arange(len(rows), dtype=np.int32)
    parents = tree.forest.column("parent")[rows]
    parents = np.where(parents >= 0, place[parents], -1).astype(np.int32)
    depths = tree.forest.column("depth")[rows].astype(np.int32)
    return ProposedTree(
        request=request,
        tokens=tree.forest.column("token")[rows].astype(np.int32),
        parents=parents,
        depths=depths,
        positions=(position + depths).astype(np.int32),
        mask=ancestor_mask(parents),
        padded_rows=max(padded_rows, len(rows)),
    )


def ancestor_mask(parents: NDArray[np.integer]) -> BoolArray:
    """[rows, rows] True where the column is an ancestor of the row or the row itself; `parents` [rows], -1: none."""
    mask = np.eye(len(parents), dtype=np.bool_)
    for row, above in enumerate(parents.tolist()):
        if above >= 0:
            mask[row] |= mask[above]
    return mask
