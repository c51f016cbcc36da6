"""One request of a trace, as the sources that a round is grown from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from treewise.data.errors import CoverageError, TraceError
from treewise.data.trace_schema import Int64Array, NodeTable, Rounds, TraceShard
from treewise.policy.hook import DRAFT, LOOKUP, Continuations, DraftGuesses, Int8Array, Int32Array, Nodes

_PATH = ("parent", "token", "sources", "grown", "drafted", "match")
_LOOKUP = ("lookup_match_length", "lookup_count", "lookup_share", "lookup_age", "lookup_rank")
_NOTHING = Continuations(0, (), (), (), ())
_DRAFT = ("draft_prob", "draft_rank", "draft_entropy", "draft_margin", "in_draft_vocab")


class LoggedTree:
    """The tree that the log holds at one root position. Node 0 is the root; read-only.

    Where token ids are withheld, a node's own number stands in for its token.
    """

    def __init__(self, rounds: Rounds, row: int, nodes: NodeTable, rows: slice, tokens_included: bool) -> None:
        self.place = f"prompt {rounds.prompt_id[row]!s}, round {int(rounds.round[row])}"
        self.root_token = int(rounds.root_token[row]) if tokens_included else 0
        self.num_nodes = rows.stop - rows.start
        self._rounds, self._row = rounds, row
        self._columns: dict[str, list[Any]] = {
            name: getattr(nodes, name)[rows].tolist() for name in (*_PATH, *_LOOKUP, *_DRAFT)
        }
        if not tokens_included:
            self._columns["token"] = list(range(1, self.num_nodes + 1))
        self._opening = int(rounds.opening[row])
        self.children: list[dict[int, int]] = [{} for _ in range(self.num_nodes + 1)]
        for child, (parent, token) in enumerate(zip(self._columns["parent"], self._columns["token"], strict=True), 1):
            self.children[parent][token] = child
        self._known: dict[int, Continuations] = {}

    def matching(self, node: int) -> int:
        """The child of `node` that is the target's token, -1 where the log has none."""
        match = self._columns["match"]
        return next((child for child in self.children[node].values() if match[child - 1] == 1), -1)

    def follow(self, path: Sequence[int]) -> int:
        """The node at the end of the tokens `path`. Raises `CoverageError` where the log does not hold it."""
        node = 0
        for depth, token in enumerate(path, 1):
            below = self.children[node].get(token)
            if below is None:
                raise CoverageError(f"{self.place}: the log holds no such candidate at path depth {depth}")
            node = below
        return node

    def is_drafted(self, node: int) -> bool:
        """Whether the draft ran on `node`."""
        columns = self._columns
        if node:
            return bool(columns["drafted"][node - 1])
        return bool(self._opening & DRAFT) or any(
            not math.isnan(columns["draft_prob"][child - 1])
            or not math.isnan(columns["draft_entropy"][child - 1])
            or columns["drafted"][child - 1]
            for child in self.children[0].values()
        )

    def is_looked_up(self, node: int) -> bool:
        """Whether the lookup's continuations below `node` are in the log: it was asked, or proposed the node itself."""
        if not node:
            return bool(self._opening & LOOKUP)
        return bool((self._columns["sources"][node - 1] | self._columns["grown"][node - 1]) & LOOKUP)

    def continuations(self, node: int) -> Continuations:
        """What the lookup said below `node`. A rank that was not logged has token -1, count and share 0.

        At the root, the first continuation's signals are known even where its candidate was not offered.
        """
        known = self._known.get(node)
        if known is None:
            known = self._known[node] = self._continuations(node)
        return known

    def _continuations(self, node: int) -> Continuations:
        if node and not self.children[node]:
            return _NOTHING  # nothing of what followed was offered, so nobody can see how long the match was
        matches, counts, shares, ages, ranks = (self._columns[name] for name in _LOOKUP)
        match_length = 0
        found: dict[int, tuple[int, int, float, int]] = {}
        for token, child in self.children[node].items():
            at = child - 1
            if not math.isnan(matches[at]):
                match_length = int(matches[at])
            if not math.isnan(ranks[at]):
                found[int(ranks[at])] = (token, int(counts[at]), shares[at], int(ages[at]))
        if not node:
            rounds, row = self._rounds, self._row
            first = float(rounds.lookup_match_length[row])
            match_length = match_length if math.isnan(first) else int(first)
            count = float(rounds.lookup_count[row])
            if count > 0 and 0 not in found:
                age = float(rounds.lookup_age[row])
                found[0] = (-1, int(count), float(rounds.lookup_share[row]), 0 if math.isnan(age) else int(age))
        if not found:
            return Continuations(match_length, (), (), (), ())
        entries = [found.get(rank, (-1, 0, 0.0, 0)) for rank in range(max(found) + 1)]
        return Continuations(match_length, *(tuple(part) for part in zip(*entries, strict=True)))

    def guesses(self, node: int, width: int, tokens: Int32Array, probs: np.ndarray[Any, Any]) -> tuple[float, float]:
        """Fill `tokens` and `probs` [width] with the draft's choices below `node`; return its entropy and margin."""
        columns = self._columns
        entropy = margin = math.nan
        for token, child in self.children[node].items():
            at = child - 1
            rank = columns["draft_rank"][at]
            if rank < width:  # NaN is not
                tokens[int(rank)] = token
                probs[int(rank)] = columns["draft_prob"][at]
            if not math.isnan(columns["draft_entropy"][at]):
                entropy, margin = columns["draft_entropy"][at], columns["draft_margin"][at]
        return entropy, margin

    def draft_score(self, node: int, token: int) -> tuple[float, float]:
        """The draft's probability and rank of `token` below `node`; NaN outside its head."""
        child = self.children[node][token] - 1
        return self._columns["draft_prob"][child], self._columns["draft_rank"][child]

    def draft_vocabulary(self) -> dict[int, bool]:
        """Whether the draft's head can say each token of the tree."""
        return dict(zip(self._columns["token"], self._columns["in_draft_vocab"], strict=True))


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


class LoggedDraft:
    """`DraftSource` at one root position of the log, for a batch of one request."""

    def __init__(self, tree: LoggedTree, width: int) -> None:
        self._tree = tree
        self._width = width  # draft candidates that the log was offered below one node
        self._vocabulary: dict[int, bool] | None = None
        self._nodes: dict[int, int] = {0: 0}  # forest row -> logged node

    def grow(self, nodes: Nodes, rows: Int32Array, extra_rows: Int32Array, extra_tokens: Int32Array) -> DraftGuesses:
        """What the draft said in the log. Raises `CoverageError` where it did not run."""
        tree, width = self._tree, self._width
        parents, tokens = nodes.parent.tolist(), nodes.token.tolist()
        count = len(rows)
        found = np.full((count, width), -1, dtype=np.int32)
        probs = np.zeros((count, width), dtype=np.float32)
        entropy = np.empty(count, dtype=np.float32)
        margin = np.empty(count, dtype=np.float32)
        logged = []
        for place, row in enumerate(rows.tolist()):
            node = self._locate(row, parents, tokens)
            if not tree.is_drafted(node):
                raise CoverageError(f"{tree.place}: the log did not draft at path depth {int(nodes.depth[row])}")
            logged.append(node)
            entropy[place], margin[place] = tree.guesses(node, width, found[place], probs[place])
        scores = [
            tree.draft_score(logged[place], token)
            for place, token in zip(extra_rows.tolist(), extra_tokens.tolist(), strict=True)
        ]
        extras = np.asarray(scores, dtype=np.float32).reshape(len(scores), 2)
        return DraftGuesses(found, probs, entropy, margin, extras[:, 0], extras[:, 1])

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


class LoggedRequest:
    """One request of a trace: its text, what each source said about it, and a logged tree per root position.

    Series are by position p of the guess, entry p - `first_position`: whether the guess was the token at p + 1.
    """

    def __init__(
        self, shard: TraceShard, rows: slice, node_offsets: Int64Array, draft_width: int, tokens_included: bool = True
    ) -> None:
        rounds, first = shard.rounds, rows.start
        self.index = int(rounds.request[first])
        self.prompt_id = str(rounds.prompt_id[first])
        self.task = str(rounds.task[first])
        self.seed = int(rounds.seed[first])
        self.temperature = float(rounds.temperature[first])
        self.prompt_tokens = int(rounds.prompt_tokens[first])
        self.max_new_tokens = int(rounds.generated_tokens[first] + rounds.remaining_tokens[first])
        self.finish = str(rounds.finish[rows.stop - 1]) or "length"
        self.draft_width = draft_width
        self.tokens_included = tokens_included
        self.rows: dict[int, int] = {
            int(position): first + at for at, position in enumerate(rounds.position[rows].tolist())
        }
        self.shard = shard
        self._rounds, self._offsets = rounds, node_offsets
        self._trees: dict[int, LoggedTree] = {}
        flat = slice(int(rounds.committed_offsets[first]), int(rounds.committed_offsets[rows.stop]))
        lengths = np.diff(rounds.committed_offsets[first : rows.stop + 1])
        ends = rounds.position[rows].astype(np.int64) + lengths
        if rounds.position[first] != self.first_position or (rounds.position[rows][1:] != ends[:-1]).any():
            raise TraceError(f"prompt {self.prompt_id}: rounds must hold its text from the prompt on, without gaps")
        self.text: Int32Array = rounds.committed[flat]  # [tokens] completion; -1 without ids
        self.draft_agrees: Int8Array = rounds.draft_agrees[flat]  # [tokens] 1, 0, or -1 where unknown
        self.lookup_agrees: Int8Array = rounds.lookup_agrees[flat]  # [tokens] 1, 0, or -1 where unknown
        # Replay reads single entries by the thousand: Python's lists are quicker at that than arrays.
        self._text: list[int] = self.text.tolist()
        self._draft_agrees: list[int] = self.draft_agrees.tolist()
        self._lookup_agrees: list[int] = self.lookup_agrees.tolist()

    @property
    def num_tokens(self) -> int:
        """Completion tokens of the text."""
        return len(self._text)

    @property
    def first_position(self) -> int:
        """Position of the first root: the prompt's last token."""
        return self.prompt_tokens - 1

    @property
    def end_position(self) -> int:
        """Position behind the text's last token."""
        return self.prompt_tokens + len(self._text)

    def row_at(self, position: int) -> int:
        """Row of the root at `position` in the table of rounds. Raises `CoverageError` where it was not logged."""
        row = self.rows.get(position)
        if row is None:
            raise CoverageError(f"prompt {self.prompt_id}: the log holds no round at position {position}")
        return row

    def node_rows(self, row: int) -> slice:
        """Rows of the table of nodes that belong to `row` of the table of rounds."""
        return slice(int(self._offsets[row]), int(self._offsets[row + 1]))

    def tree(self, position: int) -> LoggedTree:
        """The logged tree of the root at `position`; kept until `release`."""
        tree = self._trees.get(position)
        if tree is None:
            row = self.row_at(position)
            nodes = self.node_rows(row)
            tree = self._trees[position] = LoggedTree(self._rounds, row, self.shard.nodes, nodes, self.tokens_included)
        return tree

    def release(self) -> None:
        """Forget the trees that were built; they are built again when asked for."""
        self._trees.clear()

    def token_after(self, tree: LoggedTree, position: int, depth: int, token: int) -> int:
        """The text's token below a path row of `tree`, the tree at `position`; -1 where the text is over.

        `depth` and `token` are the path row's own. Without ids it is the number of the matching node, or of no node.
        """
        place = position + depth + 1
        if place >= self.end_position:
            return -1
        if self.tokens_included:
            return self._text[place - self.prompt_tokens]
        child = tree.matching(token if depth else 0)
        return child if child > 0 else tree.num_nodes + 1

    def draft_agreement(self, start: int, stop: int) -> list[int]:
        """Series entries of the draft's guesses at positions `start` to `stop`, as far as the text goes."""
        return self._draft_agrees[start - self.first_position : stop - self.first_position]

    def lookup_agreement(self, start: int, stop: int) -> list[int]:
        """Series entries of the lookup's guesses at positions `start` to `stop`, as far as the text goes."""
        return self._lookup_agrees[start - self.first_position : stop - self.first_position]

    def is_suspended(self, position: int) -> bool:
        """Whether the live policy was suspended in the round at `position`; False where the log holds none."""
        row = self.rows.get(position)
        return row is not None and bool(self._rounds.suspended[row])

    def target_state(self, position: int) -> tuple[float, float]:
        """Entropy (bits) and margin of the distribution that drew the root at `position`; NaN past the end."""
        if position >= self.end_position - 1 and position not in self.rows:
            return math.nan, math.nan
        row = self.row_at(position)
        return float(self._rounds.target_entropy[row]), float(self._rounds.target_margin[row])


def logged_requests(shard: TraceShard, draft_width: int, tokens_included: bool = True) -> Iterator[LoggedRequest]:
    """The requests of `shard`, in order. `draft_width` is that of the envelope that the trace was grown to."""
    offsets = shard.node_offsets
    starts = np.flatnonzero(np.diff(shard.rounds.request, prepend=-1) != 0).tolist()
    for start, stop in zip(starts, [*starts[1:], len(shard.rounds)], strict=True):
        yield LoggedRequest(shard, slice(start, stop), offsets, draft_width, tokens_included)
