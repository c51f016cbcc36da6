"""The builder over rows at once repeats the builder row by row, to the bit, whatever sources and policies do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.policy.reference_round import ReferenceRoundBuilder, close_upward, update_path_priors
from tests.policy.scripted import TABLE, path_of
from treewise.data.envelope import Envelope
from treewise.policy.draft_ranking import BOTH, PLAIN, RANKINGS
from treewise.policy.everything import EverythingPolicy
from treewise.policy.forest import Forest
from treewise.policy.forest import close_upward as close_rows
from treewise.policy.hook import (
    BoolArray,
    Continuations,
    DraftGuesses,
    Drawn,
    Expansion,
    ForestView,
    Int32Array,
    Level,
    Nodes,
    RoundContext,
)
from treewise.policy.progress import Progress, build_context
from treewise.policy.round import RoundBuilder, RoundTree

VOCAB = 9  # few tokens: the sources often name the same
HEAD = 7
ENVELOPES = (
    Envelope(max_depth=6, draft_width=4),
    Envelope(max_depth=9, draft_width=3, lookup_width=1, min_path_prior=0.0005, min_grow_prior=0.0005),
    Envelope(max_depth=4, draft_width=2, lookup_width=5, min_path_prior=0.003, min_grow_prior=0.2),
    Envelope(max_depth=3, draft_width=0, lookup_width=2),
    Envelope(max_depth=5, draft_width=6, lookup_width=0, min_path_prior=0.001, min_grow_prior=0.05),
)


@dataclass(frozen=True, slots=True)
class Case:
    """One random round."""

    seed: int
    requests: int
    envelope: Envelope
    ranking: str
    whole_chains: bool
    drafted: bool  # a draft model exists
    looked_up: bool  # lookups exist, for most requests


class Lookup:
    """Random continuations, some negative, alternatives beyond any width; a pure function of request and path."""

    def __init__(self, seed: int, request: int) -> None:
        self.seed, self.request = seed, request

    def continuations(self, path: Sequence[int]) -> Continuations:
        rng = np.random.default_rng([1, self.seed, self.request, *path])
        count = int(rng.choice([0, 1, 1, 1, 2, 5]))
        counts = np.sort(rng.integers(1, 9, size=count))[::-1]
        tokens = (rng.permutation(VOCAB + 1)[:count] - 1).tolist()
        shares = [float(np.float32(value / counts.sum())) for value in counts]
        length = int(rng.integers(0, 14)) if count else 0
        return Continuations(length, tokens, counts.tolist(), shares, rng.integers(0, 99, size=count).tolist())


class Draft:
    """Random guesses with holes and repeats, columns in descending order of the ranking's prior."""

    def __init__(self, seed: int, ranking: str, width: int) -> None:
        self.seed, self.ranking, self.width = seed, ranking, width
        self.asked: list[tuple[list[int], list[int], list[int]]] = []
        self.seen: list[bytes] = []

    def grow(self, nodes: Nodes, rows: Int32Array, extra_rows: Int32Array, extra_tokens: Int32Array) -> DraftGuesses:
        assert rows.dtype == extra_rows.dtype == extra_tokens.dtype == np.int32
        self.asked.append((rows.tolist(), extra_rows.tolist(), extra_tokens.tolist()))
        self.seen.append(b"".join(getattr(nodes, field.name).tobytes() for field in fields(nodes)))
        width = self.width * (2 if self.ranking == BOTH else 1)
        shape = (len(rows), width)
        tokens = np.full(shape, -1, dtype=np.int32)
        probs, drawn = np.zeros(shape, dtype=np.float32), np.zeros(shape, dtype=np.float32)
        for place, row in enumerate(rows.tolist()):
            rng = np.random.default_rng([2, self.seed, int(nodes.request[row]), *path_of(nodes, row)])
            tokens[place] = rng.integers(0, HEAD, size=width) if rng.random() < 0.2 else _tokens(rng, width)
            tokens[place, rng.random(width) < 0.05] = -1
            sharp = float(rng.choice([0.5, 2.0, 6.0]))
            probs[place], drawn[place] = _softmax(rng, sharp, width), _softmax(rng, sharp, width)
        rng = np.random.default_rng([3, self.seed, len(extra_tokens), *extra_tokens.tolist()])
        more = _softmax(rng, 2.0, 2 * len(extra_tokens)).reshape(2, -1)
        more[:, extra_tokens >= HEAD] = np.nan
        extra_ranks = np.where(extra_tokens < HEAD, rng.integers(0, 6, size=len(extra_tokens)), np.nan)
        noise = self.ranking != PLAIN
        ranks = np.argsort(np.argsort(-probs, axis=1), axis=1).astype(np.float32)
        return DraftGuesses(
            tokens=tokens,
            probs=probs,
            entropy=probs.sum(axis=1),
            margin=probs[:, :1].sum(axis=1),
            extra_probs=more[0],
            extra_ranks=extra_ranks.astype(np.float32),
            ranks=ranks if noise else None,
            drawn=Drawn(drawn, np.argsort(np.argsort(-drawn, axis=1), axis=1).astype(np.float32), -drawn)
            if noise
            else None,
            extra_drawn=Drawn(more[1], extra_ranks[::-1].astype(np.float32), more[1]) if noise else None,
        )

    def in_vocab(self, tokens: Int32Array) -> BoolArray:
        assert tokens.dtype == np.int32
        return np.asarray(tokens < HEAD)


def _tokens(rng: np.random.Generator, width: int) -> Int32Array:
    return np.resize(rng.permutation(HEAD), width).astype(np.int32)


def _softmax(rng: np.random.Generator, sharp: float, count: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    weight = np.exp(sharp * rng.normal(size=count))
    return np.asarray(np.sort(weight / max(weight.sum(), 1e-9))[::-1], dtype=np.float32)


class Whim(EverythingPolicy):
    """Admits, grows and keeps by coins; bits that may not grow are among them."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng = np.random.default_rng(seed)
        self.seen: list[bytes] = []

    def expand(self, level: Level) -> Expansion:
        self._look(level.forest, level.start)
        self._look(level.candidates, level.start)
        count = len(level.candidates.parent)
        grow = self.rng.integers(0, 4, size=count).astype(np.uint8)
        grow[self.rng.random(count) < (0.05 if level.index == 0 else 0.4)] = 0
        return Expansion((grow > 0) | (self.rng.random(count) < 0.6), grow)

    def select(self, forest: ForestView) -> BoolArray:
        self._look(forest.nodes, 0)
        return np.asarray(self.rng.random(len(forest.nodes.parent)) < 0.4)

    def _look(self, nodes: Nodes, start: int) -> None:
        self.seen.append(bytes([start % 256]) + b"".join(getattr(nodes, f.name).tobytes() for f in fields(nodes)))


def make_context(rng: np.random.Generator, requests: int) -> RoundContext:
    batch = []
    for request in range(requests):
        progress = Progress(request, prompt_tokens=10, max_new_tokens=int(rng.choice([1, 2, 4, 30])))
        progress.draft_seen -= int(rng.integers(0, 5))
        batch.append(progress)
    return build_context(batch)


def build(
    case: Case, builder: RoundBuilder | ReferenceRoundBuilder, round_seed: int
) -> tuple[RoundTree, Whim, Draft | None]:
    rng = np.random.default_rng([case.seed, round_seed])
    context = make_context(rng, case.requests)
    roots = rng.integers(0, VOCAB, size=case.requests).astype(np.int32)
    lookups = [
        Lookup(round_seed, request) if case.looked_up and rng.random() < 0.8 else None
        for request in range(case.requests)
    ]
    draft = Draft(round_seed, case.ranking, max(case.envelope.draft_width, 1)) if case.drafted else None
    policy = Whim(round_seed)
    return builder.build(policy, context, roots, lookups, draft), policy, draft


CASES = st.builds(
    Case,
    seed=st.integers(0, 2**31),
    requests=st.sampled_from([1, 1, 2, 7]),
    envelope=st.sampled_from(ENVELOPES),
    ranking=st.sampled_from(RANKINGS),
    whole_chains=st.booleans(),
    drafted=st.sampled_from([True, True, False]),
    looked_up=st.sampled_from([True, True, False]),
)


@settings(max_examples=60, deadline=None)
@given(CASES)
def test_repeats_the_reference_to_the_bit(case: Case) -> None:
    builder = RoundBuilder(case.envelope, TABLE, case.whole_chains, case.ranking)
    reference = ReferenceRoundBuilder(case.envelope, TABLE, case.whole_chains, case.ranking)
    for round_seed in range(2):  # the second finds what the first has left
        tree, policy, draft = build(case, builder, round_seed)
        expected, told, asked = build(case, reference, round_seed)
        assert policy.seen == told.seen, "a policy sees the same bits at every level"
        if draft is not None and asked is not None:
            assert draft.asked == asked.asked
            assert draft.seen == asked.seen
        assert tree.kept.tobytes() == expected.kept.tobytes()
        assert (tree.growth_tokens, tree.policy_calls) == (expected.growth_tokens, expected.policy_calls)


def test_the_random_rounds_reach_everything() -> None:
    """Merged rows, repeats, left-out continuations, run ancestors, late levels: what the comparison stands on."""
    merged = late = ran = left_out = rows = 0
    for seed in range(160):
        case = Case(seed, 2, ENVELOPES[seed % 3], RANKINGS[seed % 3], True, True, True)
        tree, _, _ = build(case, RoundBuilder(case.envelope, TABLE, True, case.ranking), seed)
        nodes = tree.forest.view()
        rows += len(nodes.parent)
        merged += int((nodes.sources == 3).sum())
        late += int((nodes.level >= 3).sum())
        ran += int((nodes.drafted & (nodes.grown < 2)).sum())
        left_out += int(((nodes.sources == 2) & (nodes.lookup_count > 0)).sum())
    assert min(merged, late, ran, left_out) > 20
    assert rows > 1000


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 40), st.integers(0, 40))
def test_path_priors_and_closure_repeat_the_reference(seed: int, rows: int, start: int) -> None:
    rng = np.random.default_rng(seed)
    parents = np.asarray([-1 if rng.random() < 0.15 else rng.integers(-1, row) for row in range(rows)], dtype=np.int32)
    forests = Forest(), Forest()
    for forest in forests:
        forest.append(rows)
        forest.column("parent")[:] = parents
        for row in range(rows):
            above = parents[row]
            forest.column("depth")[row] = 0 if above < 0 else forest.column("depth")[above] + 1
        forest.column("prior")[:] = np.random.default_rng(seed).random(rows)
        forest.column("path_prior")[:] = np.random.default_rng(seed + 1).random(rows)
    forests[0].update_path_priors(min(start, rows))
    update_path_priors(forests[1], min(start, rows))
    assert forests[0].column("path_prior").tobytes() == forests[1].column("path_prior").tobytes()
    keep = rng.random(rows) < 0.3
    assert (close_rows(keep, parents) == close_upward(keep, parents)).all()


def test_a_large_batch_repeats_the_reference() -> None:
    case = Case(5, 60, ENVELOPES[1], BOTH, True, True, True)
    tree, policy, _ = build(case, RoundBuilder(case.envelope, TABLE, True, BOTH), 5)
    expected, told, _ = build(case, ReferenceRoundBuilder(case.envelope, TABLE, True, BOTH), 5)
    assert tree.forest.num_rows > 256  # columns have widened
    assert policy.seen == told.seen
    assert tree.kept.tobytes() == expected.kept.tobytes()
