"""A made-up world whose match law is known: the truth comes from dynamic programming, traces from its texts.

Its texts are so short that all of them can be replayed; any number of prompts is then drawn from those by probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tests.training.worlds import as_trace, manifest
from treewise.data.cost import CostGrid, CostProfile
from treewise.data.envelope import Envelope
from treewise.data.trace_schema import NodeTable, Rounds, TraceShard
from treewise.policy.hook import DRAFT
from treewise.training.logged_trace import LoggedTrace

Float64Array: TypeAlias = NDArray[np.float64]
Text: TypeAlias = tuple[int, ...]

DEPTH, WIDTH = 3, 2
PROMPT_TOKENS = 4
LENGTHS = (2, 5)  # tokens of an answer, each as likely
BURST_COST = CostProfile(
    name="bursts",
    verify=CostGrid((1, 15), (0,), ((10.0, 17.0),)),
    draft=CostGrid((1,), (0,), ((1.0,),)),
    round_ms=0.5,
    verified=False,
)


@dataclass(frozen=True, slots=True)
class BurstWorld:
    """Text comes in easy and hard stretches; the draft's first and second guess hit as often as the stretch has it.

    The draft always guesses token 0, then 1, so that the text's tokens say what matches: 0 the first guess, 1 the
    second, 2 neither. Each token stays in the stretch of the one before it with probability `stay`.
    """

    stay: float = 0.95
    first: tuple[float, float] = (0.98, 0.02)  # in easy and hard stretches
    second: tuple[float, float] = (0.01, 0.3)

    def hits(self, width: int) -> Float64Array:
        """Probability that one of the first `width` guesses is the text's token, by stretch, [2]."""
        return np.asarray(self.first, dtype=np.float64) + (np.asarray(self.second) if width == WIDTH else 0.0)

    def expected_rounds(self, width: int, depth: int) -> float:
        """Rounds that a full tree of `width` and `depth` needs for one answer, by dynamic programming.

        By tokens left and stretch of the last committed token: a round goes on while tokens match, at most `depth`
        of them, and commits one token more, unless the text is over.
        """
        move = np.asarray([[self.stay, 1.0 - self.stay], [1.0 - self.stay, self.stay]])
        hit = self.hits(width)
        rounds = [np.zeros(2)]  # [tokens left] -> [stretch]
        inside: list[list[Float64Array]] = [[np.zeros(2)] * (depth + 1)]  # [tokens left][matched so far] -> [stretch]
        for left in range(1, max(LENGTHS) + 1):
            after = rounds[left - 1]
            going = [move @ (hit * inside[left - 1][k + 1] + (1.0 - hit) * after) for k in range(depth)]
            inside.append([*going, move @ after])
            rounds.append(1.0 + inside[left][0])
        return float(np.mean([rounds[length].mean() for length in LENGTHS]))

    def speedup(self, width: int, depth: int) -> float:
        """True speed of that tree over plain decoding under `BURST_COST`."""
        plain = float(np.mean(LENGTHS)) * BURST_COST.plain_ms()
        return plain / (self.expected_rounds(width, depth) * round_ms(width, depth))

    def probability(self, text: Text) -> float:
        """Of `text` among all texts, by the forward recursion over stretches."""
        first, second = np.asarray(self.first), np.asarray(self.second)
        says = (first, second, 1.0 - first - second)
        move = np.asarray([[self.stay, 1.0 - self.stay], [1.0 - self.stay, self.stay]])
        state = np.full(2, 0.5)
        for token in text:
            state = (state @ move) * says[token]
        return float(state.sum()) / len(LENGTHS)


def round_ms(width: int, depth: int) -> float:
    """Milliseconds of one round that grows and verifies a full tree under `BURST_COST`."""
    nodes = sum(width**level for level in range(1, depth + 1))
    return BURST_COST.round_ms + float(BURST_COST.verify_ms(1 + nodes)) + depth * float(BURST_COST.draft_ms(1))


def all_texts() -> list[Text]:
    """Every text that the world can say."""
    return [text for length in LENGTHS for text in product(range(3), repeat=length)]


def independent_rounds(hit: Float64Array, depth: int) -> Float64Array:
    """Rounds for one answer if tokens matched independently with probability `hit` [n], one after the other. [n]"""
    rounds = [np.zeros_like(hit)]
    inside = [[np.zeros_like(hit)] * (depth + 1)]
    for left in range(1, max(LENGTHS) + 1):
        after = rounds[left - 1]
        inside.append([*(hit * inside[left - 1][k + 1] + (1.0 - hit) * after for k in range(depth)), after])
        rounds.append(1.0 + inside[left][0])
    return np.asarray(np.mean([rounds[length] for length in LENGTHS], axis=0))


def burst_trace(texts: Sequence[Text]) -> LoggedTrace:
    """A dense trace of `texts`, prompts named by their number: the full tree of `WIDTH` and `DEPTH` everywhere."""
    return full_trees([np.asarray(text, dtype=np.int64) for text in texts], WIDTH, DEPTH)


def full_trees(
    answers: Sequence[NDArray[np.int64]],
    width: int,
    depth: int,
    firsts: Sequence[Float64Array] | None = None,
    finish: str = "eos",
) -> LoggedTrace:
    """A dense trace of `answers`, each [tokens], with a full tree of draft guesses 0 .. `width` - 1 everywhere.

    `firsts` are the draft's probabilities of its first guess, each [tokens]; 0.6 where they are left out. An answer
    that finishes by "length" could not have been longer.
    """
    envelope = Envelope(max_depth=depth, draft_width=width)
    paths = _paths(width, depth)
    count = len(paths)
    length = np.asarray([len(answer) for answer in answers])
    request = np.repeat(np.arange(len(answers)), length)
    place = np.concatenate([np.arange(n) for n in length.tolist()])
    text = np.concatenate(answers)
    rounds = Rounds.build(
        request=request,
        prompt_id=[f"p{number:05d}" for number in request.tolist()],
        task=["made-up"] * len(request),
        round=place,
        position=PROMPT_TOKENS - 1 + place,
        generated_tokens=place,
        remaining_tokens=(length[request] if finish == "length" else 64) - place,
        prompt_tokens=np.full(len(request), PROMPT_TOKENS),
        root_token=np.where(place == 0, 0, np.roll(text, 1)),
        committed=text[:, None].tolist(),
        draft_agrees=(text == 0).astype(np.int8)[:, None].tolist(),
        lookup_agrees=[[-1]] * len(request),
        opening=np.full(len(request), DRAFT),
        num_nodes=np.full(len(request), count),
        finish=np.where(place == length[request] - 1, finish, "").tolist(),
    )
    ahead = np.full((len(request), depth), -1)  # the text's next tokens, -1 past its end
    first = np.full((len(request), depth), 0.6)  # probability of the draft's first guess there
    for step in range(depth):
        inside = np.flatnonzero(place + step < length[request])
        ahead[inside, step] = text[inside + step]
        if firsts is not None:
            first[inside, step] = np.concatenate(firsts)[inside + step]
    depths = np.asarray([len(path) for path in paths])
    survives, match = np.zeros((2, len(request), count), dtype=np.int64)
    for node, path in enumerate(paths):
        alive = (ahead[:, : len(path) - 1] == path[:-1]).all(axis=1)
        known = alive & (ahead[:, len(path) - 1] >= 0)
        survives[:, node] = known & (ahead[:, len(path) - 1] == path[-1])
        match[:, node] = np.where(known, survives[:, node], -1)
    parents = [1 + paths.index(path[:-1]) if len(path) > 1 else 0 for path in paths]
    last = np.asarray([path[-1] for path in paths])
    each: dict[str, Any] = {
        "node": np.arange(1, count + 1),
        "parent": parents,
        "depth": depths,
        "level": depths,
        "token": last,
        "sources": np.full(count, DRAFT),
        "draft_rank": last,
        "draft_entropy": np.ones(count),
        "draft_margin": np.full(count, 0.3),
        "grown": np.where(depths < depth, DRAFT, 0),
        "drafted": depths < depth,
    }
    nodes = NodeTable.build(
        request=np.repeat(request, count),
        round=np.repeat(place, count),
        draft_prob=np.where(last == 0, first[:, depths - 1], (1.0 - first[:, depths - 1]) / 2.0).ravel(),
        match=match.ravel(),
        survives=survives.ravel().astype(bool),
        **{name: np.tile(np.asarray(values), len(request)) for name, values in each.items()},
    )
    return as_trace(TraceShard(rounds, nodes), manifest("dense", envelope.widened()))


def _paths(width: int, depth: int) -> list[tuple[int, ...]]:
    """The nodes of the full tree as paths of tokens, parents first, level by level."""
    levels: list[list[tuple[int, ...]]] = [[()]]
    for _ in range(depth):
        levels.append([(*path, token) for path in levels[-1] for token in range(width)])
    return [path for level in levels[1:] for path in level]
