"""Arrays of the shapes that EAGLE's beam loop leaves behind, and its last step written a second time, by the paper."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Recorded:
    """One round's lists."""

    scores: list[NDArray[np.float32]]  # [1, k], then [k, k] each
    tokens: list[NDArray[np.int64]]
    parents: list[NDArray[np.int64]]  # [1], then [k] each
    root: NDArray[np.int64]  # [1]

    def until(self, entries: int) -> Recorded:
        """The lists as they stood after so many draft passes."""
        return Recorded(self.scores[:entries], self.tokens[:entries], self.parents[:entries], self.root)

    @property
    def arguments(self) -> tuple[list[NDArray[np.float32]], list[NDArray[np.int64]], list[NDArray[np.int64]], object]:
        """In the order that the adapter takes them."""
        return self.scores, self.tokens, self.parents, self.root


def record(seed: int, top_k: int = 4, depth: int = 3, vocab_size: int = 50, sharpness: float = 2.0) -> Recorded:
    """A beam of `top_k` nodes over a made-up draft whose distributions are drawn anew below every node."""
    draw = np.random.default_rng(seed)

    def below(nodes: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        logits = draw.normal(size=(nodes, vocab_size)) * sharpness
        log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        order = np.argsort(-log_probs, axis=1)[:, :top_k]
        return np.take_along_axis(log_probs, order, axis=1).astype(np.float32), order.astype(np.int64)

    scores, tokens = below(1)
    lists = Recorded([scores], [tokens], [np.zeros(1, dtype=np.int64)], np.asarray([int(draw.integers(vocab_size))]))
    beam_scores, beam = scores[0], np.arange(top_k)
    first = 0  # number of the first candidate of the entry that the beam lies in
    for _ in range(depth):
        lists.parents.append(first + beam + 1)
        first += lists.scores[-1].size
        more, words = below(top_k)
        cumulative = (more + beam_scores[:, None]).astype(np.float32)
        lists.scores.append(cumulative)
        lists.tokens.append(words)
        beam = np.argsort(-cumulative.reshape(-1), kind="stable")[:top_k]
        beam_scores = cumulative.reshape(-1)[beam]
    return lists


def own_rule(
    lists: Recorded, count: int, sample: bool = False
) -> tuple[list[int], list[list[int]], list[list[int]], list[int]]:
    """EAGLE's four outputs as plain lists: the `count` best paths of all candidates, node by node."""
    nodes = []  # number, score, token, number of the parent
    number = 0
    for scores, tokens, parents in zip(lists.scores, lists.tokens, lists.parents, strict=True):
        for row in range(len(scores)):
            for column in range(scores.shape[1]):
                nodes.append((number, float(scores[row, column]), int(tokens[row, column]), int(parents[row]) - 1))
                number += 1
    chosen = sorted(sorted(nodes, key=lambda node: (-node[1], node[0]))[:count])
    row_of = {-1: 0} | {node[0]: row for row, node in enumerate(chosen, start=1)}
    above = {row_of[node[0]]: row_of[node[3]] for node in chosen}

    def path(row: int) -> list[int]:
        return [0] if row == 0 else [*path(above[row]), row]

    paths = [path(row) for row in range(len(chosen) + 1)]
    longest = max(len(line) for line in paths)
    leaves = [paths[row] for row in range(len(paths)) if row not in above.values()]
    if sample:
        leaves.sort(key=lambda line: line + [len(paths) + 5] * (longest - len(line)))
    padded = [line + [-1] * (longest - len(line)) for line in leaves]
    mask = [[int(other in line) for other in range(len(paths))] for line in paths]
    return [int(lists.root[0]), *(node[2] for node in chosen)], padded, mask, [len(line) - 1 for line in paths]
