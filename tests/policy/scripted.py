"""A scripted world: draft, lookup and target whose answers are a seeded function of request, position and path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from treewise.data.cost import CostGrid, CostProfile
from treewise.data.envelope import Envelope, PriorTable
from treewise.policy.hook import (
    DRAFT,
    LOOKUP,
    RECYCLED,
    BoolArray,
    Continuations,
    Deployment,
    DraftGuesses,
    Int32Array,
    Nodes,
    Recycled,
    RequestInfo,
    TreePolicy,
)
from treewise.policy.outcome import Walk, build_outcome, walk
from treewise.policy.progress import Progress, build_context
from treewise.policy.round import RoundBuilder, RoundTree

VOCAB = 24
OUTSIDE_HEAD = 3  # the draft's head cannot say the last tokens
TABLE = PriorTable()
NOTHING = Continuations(0, (), (), (), ())
FORGOTTEN = Recycled(0, 0.0, (), ())
Path = tuple[int, ...]
Probs = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class World:
    """What every source says, by request, root position and path; no state."""

    seed: int = 0
    sources: int = LOOKUP | DRAFT
    empty: bool = False  # sources that exist and offer nothing

    def draft_probs(self, request: int, position: int, path: Path) -> Probs:
        """[VOCAB - OUTSIDE_HEAD], sharp at some nodes and flat at others."""
        return _draft_probs(self.seed, request, position, path)

    def looked_up(self, request: int, position: int, path: Path) -> Continuations:
        return NOTHING if self.empty else _looked_up(self.seed, request, position, path)

    def remembered(self, request: int, position: int, path: Path) -> Recycled:
        return FORGOTTEN if self.empty else _remembered(self.seed, request, position, path)

    def truth(self, request: int, position: int, path: Path) -> int:
        """The target's token: often the draft's first or the lookup's first."""
        return _truth(self.seed, request, position, path)


def _rng(salt: int, seed: int, request: int, position: int, path: Path) -> np.random.Generator:
    return np.random.default_rng([salt, seed, request, position, *path])


@cache
def _draft_probs(seed: int, request: int, position: int, path: Path) -> Probs:
    rng = _rng(1, seed, request, position, path)
    logits = rng.normal(size=VOCAB - OUTSIDE_HEAD) * rng.choice([0.3, 2.0, 5.0])
    probs = np.exp(logits - logits.max())
    return np.asarray(probs / probs.sum(), dtype=np.float32)


@cache
def _looked_up(seed: int, request: int, position: int, path: Path) -> Continuations:
    rng = _rng(2, seed, request, position, path)
    if rng.random() < 0.2:
        return NOTHING
    counts = sorted(rng.integers(1, 6, size=rng.integers(1, 4)).tolist(), reverse=True)
    first = int(_draft_probs(seed, request, position, path).argmax())
    others = [t for t in rng.permutation(VOCAB).tolist() if t != first]
    tokens = [first, *others] if rng.random() < 0.5 else others
    shares = [float(np.float32(c / sum(counts))) for c in counts]
    ages = rng.integers(1, 90, size=len(counts)).tolist()
    return Continuations(int(rng.integers(1, 12)), tokens[: len(counts)], counts, shares, ages)


@cache
def _remembered(seed: int, request: int, position: int, path: Path) -> Recycled:
    rng = _rng(4, seed, request, position, path)
    if rng.random() < 0.3:
        return FORGOTTEN
    count = int(rng.integers(1, 7))
    probs = np.sort(rng.dirichlet(np.full(count + 1, 0.5))[:count])[::-1].astype(np.float32)
    first = int(_draft_probs(seed, request, position, path).argmax())
    others = [t for t in rng.permutation(VOCAB).tolist() if t != first]
    tokens = [first, *others] if rng.random() < 0.5 else others
    return Recycled(int(rng.integers(1, 4)), float(rng.integers(1, 50)), tokens[:count], probs.tolist())


@cache
def _truth(seed: int, request: int, position: int, path: Path) -> int:
    rng = _rng(3, seed, request, position, path)
    pick = rng.random()
    known = _looked_up(seed, request, position, path)
    if pick < 0.4 and known.tokens:
        return int(known.tokens[0])
    if pick < 0.8:
        return int(_draft_probs(seed, request, position, path).argmax())
    return int(rng.integers(VOCAB))


class ScriptedLookup:
    """The world's lookup for one request at one root."""

    def __init__(self, world: World, request: int, position: int) -> None:
        self.world, self.request, self.position = world, request, position

    def continuations(self, path: Sequence[int]) -> Continuations:
        return self.world.looked_up(self.request, self.position, tuple(path))


class ScriptedMemory:
    """The world's recycled guesses for one request at one root."""

    def __init__(self, world: World, request: int, position: int) -> None:
        self.world, self.request, self.position = world, request, position

    def recycled(self, path: Sequence[int]) -> Recycled:
        return self.world.remembered(self.request, self.position, tuple(path))


class ScriptedDraft:
    """The world's draft for one round."""

    def __init__(self, world: World, requests: Sequence[int], positions: Sequence[int]) -> None:
        self.world, self.requests, self.positions = world, requests, positions

    def grow(self, nodes: Nodes, rows: Int32Array, extra_rows: Int32Array, extra_tokens: Int32Array) -> DraftGuesses:
        every = []
        for row in rows.tolist():
            place = int(nodes.request[row])
            path = path_of(nodes, row)
            every.append(self.world.draft_probs(self.requests[place], self.positions[place], path))
        probs = np.stack(every)
        order = np.argsort(-probs, axis=1, kind="stable")
        ranked = np.take_along_axis(probs, order, axis=1)
        inside = extra_tokens < probs.shape[1]
        column = np.where(inside, extra_tokens, 0)
        ranks = np.argsort(order, axis=1)[extra_rows, column].astype(np.float32)
        tokens = np.full_like(order, -1) if self.world.empty else order
        return DraftGuesses(
            tokens=tokens.astype(np.int32),
            probs=ranked,
            entropy=(-(probs * np.log2(np.maximum(probs, 1e-30))).sum(axis=1)).astype(np.float32),
            margin=ranked[:, 0] - ranked[:, 1],
            extra_probs=np.where(inside, probs[extra_rows, column], np.nan).astype(np.float32),
            extra_ranks=np.where(inside, ranks, np.nan).astype(np.float32),
        )

    def in_vocab(self, tokens: Int32Array) -> BoolArray:
        return np.asarray(tokens < VOCAB - OUTSIDE_HEAD)


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy decided about one request in one round, independent of row numbers."""

    kept: frozenset[Path]
    grown: frozenset[tuple[Path, int]]
    accepted_length: int


@dataclass(frozen=True, slots=True)
class Played:
    """A round as the drivers see it."""

    tree: RoundTree
    walk: Walk


def example_cost(draft_ms: float = 1.0) -> CostProfile:
    """A staircase: flat to 8 rows, then dear."""
    verify = CostGrid((1, 8, 9, 32, 64), (0,), ((20.0, 21.0, 24.0, 28.0, 45.0),))
    return CostProfile("scripted", verify, CostGrid((1, 32), (0,), ((draft_ms, 2 * draft_ms),)), policy_ms=0.05)


def example_deployment(sources: int, cost: CostProfile | None = None, envelope: Envelope | None = None) -> Deployment:
    return Deployment(cost or example_cost(), envelope or Envelope(max_depth=6, draft_width=4), TABLE, sources, VOCAB)


def play(
    policy: TreePolicy,
    world: World,
    requests: Sequence[int] = (0,),
    max_new_tokens: int = 12,
    temperature: float = 0.0,
    deployment: Deployment | None = None,
    rounds: list[Played] | None = None,
    batch_size: int | None = None,
) -> dict[int, list[Decision]]:
    """Decode the requests as one batch. Returns the decisions of each request, and the trees in `rounds` if given.

    `batch_size`: what the policy is told of it; the requests still under way where None.
    """
    bound = deployment or example_deployment(world.sources)
    policy.bind(bound)
    batch = [
        Progress(r, prompt_tokens=10 + r, max_new_tokens=max_new_tokens, temperature=temperature) for r in requests
    ]
    for progress in batch:
        policy.begin(RequestInfo(progress.request_id, progress.prompt_tokens, max_new_tokens, temperature))
    decisions: dict[int, list[Decision]] = {r: [] for r in requests}
    while batch:
        played = _play_round(policy, world, batch, bound, decisions, batch_size or len(batch))
        if rounds is not None:
            rounds.append(played)
        for progress in [p for p in batch if p.remaining_tokens <= 0]:
            policy.finish(progress.request_id, "length")
        batch = [p for p in batch if p.remaining_tokens > 0]
    return decisions


def _play_round(
    policy: TreePolicy,
    world: World,
    batch: list[Progress],
    deployment: Deployment,
    decisions: dict[int, list[Decision]],
    batch_size: int,
) -> Played:
    ids, positions = [p.request_id for p in batch], [p.position for p in batch]
    lookups = [
        ScriptedLookup(world, r, p) if world.sources & LOOKUP else None for r, p in zip(ids, positions, strict=True)
    ]
    draft = ScriptedDraft(world, ids, positions) if world.sources & DRAFT else None
    memories = (
        [ScriptedMemory(world, r, p) for r, p in zip(ids, positions, strict=True)] if world.sources & RECYCLED else []
    )
    context = replace(build_context(batch), batch_size=batch_size)
    builder = RoundBuilder(deployment.envelope, deployment.prior_table)
    roots = np.asarray([p % VOCAB for p in positions], dtype=np.int32)
    tree = builder.build(policy, context, roots, lookups, draft, memories)
    tree.forest.check_integrity()
    nodes = tree.forest.view()

    def next_token(request: int, row: int) -> int:
        return world.truth(ids[request], positions[request], path_of(nodes, row))

    result = walk(tree, len(batch), next_token)
    policy.observe(build_outcome(tree, context, result))
    for place, progress in enumerate(batch):
        decisions[progress.request_id].append(_decision(tree, nodes, place, int(result.accepted_length[place])))
        truth = next_token(place, place)
        probs = world.draft_probs(progress.request_id, progress.position, ())
        agrees = int(int(probs.argmax()) == truth) if draft is not None else -1
        committed = min(len(result.tokens[place]), progress.remaining_tokens)
        drafted = int(result.drafted_path[place])
        progress.advance(int(result.accepted_length[place]), committed, drafted, [agrees], [-1], 1.0, 0.5)
    return Played(tree, result)


def _decision(tree: RoundTree, nodes: Nodes, place: int, accepted_length: int) -> Decision:
    mine = np.flatnonzero(nodes.request == place).tolist()
    kept = frozenset(path_of(nodes, row) for row in mine if tree.kept[row])
    grown = frozenset((path_of(nodes, row), int(nodes.grown[row])) for row in mine if nodes.grown[row])
    return Decision(kept, grown, accepted_length)


def path_of(nodes: Nodes, row: int) -> Path:
    """Tokens from below the root to `row`."""
    path: list[int] = []
    while nodes.parent[row] >= 0:
        path.append(int(nodes.token[row]))
        row = int(nodes.parent[row])
    return tuple(reversed(path))
