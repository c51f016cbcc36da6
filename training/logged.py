"""One request of a trace: its text, what each source said about it, and a logged tree per root position."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from treewise.data.errors import CoverageError, TraceError
from treewise.data.trace_manifest import TraceManifest
from treewise.data.trace_schema import Int64Array, TraceShard
from treewise.policy.draft_ranking import PLAIN
from treewise.policy.hook import Int8Array, Int32Array
from treewise.training.logged_columns import LoggedColumns
from treewise.training.logged_tree import LoggedTree


class LoggedRequest:
    """One request of a trace: its text, what each source said about it, and a logged tree per root position.

    Series are by position p of the guess, entry p - `first_position`: whether the guess was the token at p + 1.
    """

    def __init__(
        self,
        shard: TraceShard,
        rows: slice,
        node_offsets: Int64Array,
        draft_width: int,
        tokens_included: bool = True,
        ranking: str = PLAIN,
        columns: LoggedColumns | None = None,
    ) -> None:
        """`columns` are those of the whole shard, shared by its requests; without them the request has its own."""
        rounds, first = shard.rounds, rows.start
        self.index = int(rounds.request[first])
        self.prompt_id = str(rounds.prompt_id[first])
        self.task = str(rounds.task[first])
        self.told_task = str(rounds.told_task[first])  # what replay tells policies
        self.explorer = str(rounds.explorer[first])  # who decided it in place of the manifest's policy; empty: nobody
        self.propensity = float(rounds.propensity[first])
        self.seed = int(rounds.seed[first])
        self.temperature = float(rounds.temperature[first])
        self.prompt_tokens = int(rounds.prompt_tokens[first])
        self.max_new_tokens = int(rounds.generated_tokens[first] + rounds.remaining_tokens[first])
        self.finish = str(rounds.finish[rows.stop - 1]) or "length"
        self.draft_width = draft_width
        self.ranking = ranking
        self.tokens_included = tokens_included
        self.rows: dict[int, int] = {
            int(position): first + at for at, position in enumerate(rounds.position[rows].tolist())
        }
        self.shard = shard
        if columns is None:
            columns = LoggedColumns(shard, draft_width, tokens_included, ranking)
        self.columns = columns
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

    @property
    def was_suspended(self) -> bool:
        """Whether the live policy was suspended in any round of the request."""
        return any(self._rounds.suspended[row] for row in self.rows.values())

    def is_suspended(self, position: int) -> bool:
        """Whether the live policy was suspended in the round at `position`; False where the log holds none."""
        row = self.rows.get(position)
        return row is not None and bool(self._rounds.suspended[row])

    @property
    def was_batched(self) -> bool:
        """Whether any round of the request was taken together with others."""
        return any(self._rounds.batch_size[row] > 1 for row in self.rows.values())

    def batch_size(self, position: int) -> int:
        """Requests that took the round at `position` together; 1 where the log holds none."""
        row = self.rows.get(position)
        return 1 if row is None else int(self._rounds.batch_size[row])

    def fell_back(self, position: int) -> bool:
        """Whether the live policy's fallback finished the round at `position`; False where the log holds none."""
        row = self.rows.get(position)
        return row is not None and bool(self._rounds.fallback[row])

    def target_state(self, position: int) -> tuple[float, float]:
        """Entropy (bits) and margin of the distribution that drew the root at `position`; NaN past the end."""
        if position >= self.end_position - 1 and position not in self.rows:
            return math.nan, math.nan
        row = self.row_at(position)
        return float(self._rounds.target_entropy[row]), float(self._rounds.target_margin[row])


def logged_requests(
    shard: TraceShard, draft_width: int, tokens_included: bool = True, ranking: str = PLAIN
) -> Iterator[LoggedRequest]:
    """The requests of `shard`, in order. `draft_width` is that of the envelope that the trace was grown to."""
    offsets = shard.node_offsets
    columns = LoggedColumns(shard, draft_width, tokens_included, ranking)
    starts = np.flatnonzero(np.diff(shard.rounds.request, prepend=-1) != 0).tolist()
    for start, stop in zip(starts, [*starts[1:], len(shard.rounds)], strict=True):
        yield LoggedRequest(shard, slice(start, stop), offsets, draft_width, tokens_included, ranking, columns)


def requests_of(shard: TraceShard, manifest: TraceManifest) -> Iterator[LoggedRequest]:
    """The requests of `shard`, which is of the trace of `manifest`, in order."""
    envelope = manifest.envelope
    for request in logged_requests(shard, envelope.draft_width, manifest.tokens_included, manifest.ranking):
        if manifest.kind == "dense":  # no policy was told anything: the prompt's own label stands in
            request.told_task = request.told_task or request.task
        yield request
