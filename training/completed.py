"""The sources of a pruned log, completed: what the log says wherever it says it, and lent answers where it does not.

A draft that reads the prefix alone says the same below a token however the round came there. So a log answers not only
at its own roots: the tree below a committed token stands in the round that committed it, whichever root that had.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from treewise.policy.draft_ranking import PLAIN
from treewise.policy.hook import (
    BoolArray,
    Continuations,
    DraftGuesses,
    Drawn,
    Float32Array,
    Int32Array,
    Nodes,
    Recycled,
)
from treewise.training.donors import DraftAnswer, DraftDonors, Scores
from treewise.training.logged import LoggedRequest
from treewise.training.logged_tree import SCORES, LoggedTree

_NOTHING = Continuations(0, (), (), (), ())
_NOT_REMEMBERED = Recycled(0, 0.0, (), ())
_UNKNOWN: Scores = (float("nan"),) * len(SCORES)


class CompletedRequest:
    """One request of a log of pruned trees, answering at every position of its text."""

    def __init__(self, request: LoggedRequest, donors: DraftDonors, vocab_size: int) -> None:
        """Tokens from `vocab_size` on stand for lent guesses that are not the target's."""
        self.request, self.donors, self.vocab_size = request, donors, vocab_size
        self.text: list[int] = request.text.tolist()
        self.vocabulary: dict[int, bool] = {}  # whether the draft's head can say a token that was met
        self._trees: set[int] = set()  # positions whose vocabulary is known
        nodes = request.shard.nodes
        self._anchors: dict[int, tuple[int, int]] = {}  # position -> (root's position, node) that stand there
        for root, row in request.rows.items():
            rows = request.node_rows(row)
            path = np.flatnonzero(nodes.on_path[rows])
            for node, depth in zip((path + 1).tolist(), nodes.depth[rows][path].tolist(), strict=True):
                self._anchors[root + depth] = (root, node)
        self._anchors |= {root: (root, 0) for root in request.rows}

    def token_at(self, position: int) -> int:
        """The text's token at `position`, the prompt's last one included; -1 past its end."""
        request = self.request
        if position == request.first_position:
            return request.tree(position).root_token
        return self.text[position - request.prompt_tokens] if position < request.end_position else -1

    def anchor(self, position: int) -> tuple[int, int] | None:
        """(position of a logged root, node of its tree) of the committed token at `position`."""
        return self._anchors.get(position)

    def tree(self, root: int) -> LoggedTree:
        """The logged tree of the root at position `root`."""
        tree = self.request.tree(root)
        if root not in self._trees:
            self._trees.add(root)
            self.vocabulary |= tree.draft_vocabulary()
        return tree


class CompletedRound:
    """All three sources at one root position: `LookupSource`, `RecycledSource` and `DraftSource`."""

    def __init__(self, completed: CompletedRequest, position: int) -> None:
        # On the text an answer was lent, or a free source is taken to know nothing; elsewhere that moves only costs.
        self.is_imputed = False
        self.is_lent = False  # an answer was lent, wherever
        self._completed, self._position = completed, position
        self._request = completed.request
        self._answers: dict[tuple[int, ...], DraftAnswer] = {}
        self._opened = {"lookup": False, "recycled": False}

    def continuations(self, path: Sequence[int]) -> Continuations:
        """What the log says followed `path`; nothing where no round of the log asked."""
        opening = self._is_opening("lookup", path)
        for tree, node in self._located(tuple(path)):
            if tree.is_looked_up(node) or (opening and not node):
                return tree.continuations(node)
        self.is_imputed |= not opening and self._on_text(tuple(path)) == len(path)
        return _NOTHING

    def recycled(self, path: Sequence[int]) -> Recycled:
        """What the log says was remembered behind `path`; nothing where no round of the log asked."""
        opening = self._is_opening("recycled", path)
        for tree, node in self._located(tuple(path)):
            if tree.is_recycled(node) or (opening and not node):
                return tree.recycled(node)
        self.is_imputed |= not opening and self._on_text(tuple(path)) == len(path)
        return _NOT_REMEMBERED

    def grow(self, nodes: Nodes, rows: Int32Array, extra_rows: Int32Array, extra_tokens: Int32Array) -> DraftGuesses:
        """What the draft said there in some round of the log, else what a donor lends."""
        paths = [self._path(nodes, row) for row in rows.tolist()]
        answers = [
            self._answer(path, float(nodes.path_prior[row])) for path, row in zip(paths, rows.tolist(), strict=True)
        ]
        width = max((len(answer.tokens) for answer in answers), default=0)
        tokens = np.full((len(rows), max(width, 1)), -1, dtype=np.int32)
        scores = np.full((*tokens.shape, len(SCORES)), np.nan, dtype=np.float32)
        for place, answer in enumerate(answers):
            if answer.tokens:
                tokens[place, : len(answer.tokens)] = answer.tokens
                scores[place, : len(answer.tokens)] = answer.scores
        extras = np.asarray(
            [
                self._extra(paths[place], answers[place], token)
                for place, token in zip(extra_rows.tolist(), extra_tokens.tolist(), strict=True)
            ],
            dtype=np.float32,
        ).reshape(-1, len(SCORES))
        is_drawn = self._request.ranking != PLAIN
        return DraftGuesses(
            tokens=tokens,
            probs=np.where(tokens < 0, np.float32(0.0), scores[..., 0]),
            entropy=np.asarray([answer.entropy for answer in answers], dtype=np.float32),
            margin=np.asarray([answer.margin for answer in answers], dtype=np.float32),
            extra_probs=extras[:, 0],
            extra_ranks=extras[:, 1],
            ranks=scores[..., 1],
            drawn=_drawn(scores) if is_drawn else None,
            extra_drawn=_drawn(extras) if is_drawn else None,
        )

    def in_vocab(self, tokens: Int32Array) -> BoolArray:
        """Which of `tokens` [n] the draft's head can say; a token that no tree of the log holds is taken to be one."""
        known = self._completed.vocabulary
        return np.asarray([known.get(token, True) for token in tokens.tolist()], dtype=np.bool_)

    def _is_opening(self, source: str, path: Sequence[int]) -> bool:
        """Whether this is the opening level's question: the first guess is shown before the policy asks for any."""
        if path or self._opened[source]:
            return False
        self._opened[source] = True
        return True

    def _located(self, path: tuple[int, ...]) -> Iterator[tuple[LoggedTree, int]]:
        """Every place of the log that stands for the row at the end of `path`, the earliest root's first."""
        for skipped in range(self._on_text(path) + 1):
            anchor = self._completed.anchor(self._position + skipped)
            if anchor is None:
                continue
            tree, node = self._completed.tree(anchor[0]), anchor[1]
            for token in path[skipped:]:
                node = tree.children[node].get(token, -1)
                if node < 0:
                    break
            if node >= 0:
                yield tree, node

    def _on_text(self, path: tuple[int, ...]) -> int:
        """How many of the first tokens of `path` are the text's."""
        for place, token in enumerate(path):
            if token != self._completed.token_at(self._position + 1 + place):
                return place
        return len(path)

    def _answer(self, path: tuple[int, ...], path_prior: float) -> DraftAnswer:
        """The draft's answer at the end of `path`."""
        answer = self._answers.get(path)
        if answer is None:
            answer = self._answers[path] = self._logged(path) or self._lent(path, path_prior)
        return answer

    def _logged(self, path: tuple[int, ...]) -> DraftAnswer | None:
        request = self._request
        for tree, node in self._located(path):
            if tree.is_drafted(node):
                proposed = tree.proposals(node, request.ranking, request.draft_width)
                tokens = tuple(tree.token(at) for at in proposed)
                return DraftAnswer(tokens, tuple(tuple(tree.scores(at)) for at in proposed), *tree.state(node), -1)
        return None

    def _lent(self, path: tuple[int, ...], path_prior: float) -> DraftAnswer:
        """A donor's answer, its tokens replaced: by the text's where the donor's was the target's, else by none."""
        completed, donors = self._completed, self._completed.donors
        place = self._position + len(path)
        is_on_text = self._on_text(path) == len(path)
        self.is_imputed |= is_on_text
        self.is_lent = True
        anchor = completed.anchor(place) if is_on_text else None
        if anchor is not None:  # what it is like in the tree that it was left out of, which no policy's root changes
            path_prior = donors.path_prior(self._request, *anchor)
        is_root = anchor[1] == 0 if anchor is not None else not path
        key = (self._request.index, place, *(() if is_on_text else path))
        lent = donors.pick(is_root, path_prior, key)
        tokens = list(range(completed.vocab_size, completed.vocab_size + len(lent.tokens)))
        truth = completed.token_at(place + 1) if is_on_text else -1
        if lent.match >= 0 and truth >= 0:
            tokens[lent.match] = truth
        return DraftAnswer(tuple(tokens), lent.scores, lent.entropy, lent.margin, lent.match)

    def _extra(self, path: tuple[int, ...], answer: DraftAnswer, token: int) -> Scores:
        """The draft's scores of a free source's `token` below `path`; NaN where the log does not tell."""
        if token in answer.tokens:
            return answer.scores[answer.tokens.index(token)]
        for tree, node in self._located(path):
            child = tree.children[node].get(token)
            if tree.is_drafted(node) and child is not None:
                return tuple(tree.scores(child - 1))
        return _UNKNOWN

    @staticmethod
    def _path(nodes: Nodes, row: int) -> tuple[int, ...]:
        path: list[int] = []
        while nodes.parent[row] >= 0:
            path.append(int(nodes.token[row]))
            row = int(nodes.parent[row])
        return tuple(reversed(path))


def _drawn(scores: Float32Array) -> Drawn:
    return Drawn(scores[..., 2], scores[..., 3], scores[..., 4])
