"""The traces that a small made-up world leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.training.world_law import HEAD as HEAD
from tests.training.world_law import VOCAB as VOCAB
from tests.training.world_law import Text as Text
from tests.training.world_law import World as World
from tests.training.world_law import WorldDraft as WorldDraft
from tests.training.world_tables import node_columns, round_columns, shard_of, target_state
from treewise.data.cost import CostGrid, CostProfile
from treewise.data.envelope import Envelope, PriorTable
from treewise.data.trace_manifest import TraceManifest
from treewise.data.trace_schema import TraceShard, concatenate
from treewise.policy.everything import EverythingPolicy
from treewise.policy.hook import (
    DRAFT,
    FREE,
    LOOKUP,
    RECYCLED,
    BoolArray,
    Deployment,
    Expansion,
    ForestView,
    Int32Array,
    Level,
    Reach,
    RequestInfo,
    RoundOutcome,
    State,
    TreePolicy,
)
from treewise.policy.outcome import build_outcome, walk
from treewise.policy.progress import Progress, build_context
from treewise.policy.round import RoundBuilder
from treewise.training.logged_trace import LoggedTrace, logged_trace

ALL = FREE | DRAFT
COST = CostProfile(
    name="world",
    verify=CostGrid((1, 8, 32), (16, 64), ((10.0, 11.0, 16.0), (12.0, 13.5, 20.0))),
    draft=CostGrid((1, 8), (16, 64), ((1.0, 1.5), (1.2, 1.9))),
    policy_ms=0.05,
    round_ms=0.5,
    verified=False,
)


class GrowAll:
    """Grows whatever the envelope allows, and keeps it."""

    state: State = "none"

    @property
    def reach(self) -> Reach:
        """Everything."""
        return Reach(64, 64)

    def bind(self, deployment: Deployment) -> None:
        """Nothing to take."""

    def begin(self, request: RequestInfo) -> None:
        """Nothing to prepare."""

    def expand(self, level: Level) -> Expansion:
        """All of it."""
        return Expansion(np.ones(len(level.candidates.parent), dtype=np.bool_), level.candidates.may_grow.copy())

    def select(self, forest: ForestView) -> BoolArray:
        """All of it."""
        return np.ones(len(forest.nodes.parent), dtype=np.bool_)

    def observe(self, outcome: RoundOutcome) -> None:
        """Nothing to learn."""

    def finish(self, request_id: int, reason: str) -> None:
        """Nothing to forget."""


def deployment(envelope: Envelope, cost: CostProfile = COST, sources: int = ALL) -> Deployment:
    """A deployment in the world."""
    return Deployment(cost, envelope, PriorTable(), sources, VOCAB)


@dataclass(frozen=True, slots=True)
class LiveRound:
    """One round as it happened."""

    position: int
    progress: Progress  # as it stood when the round opened
    accepted_length: int
    committed: tuple[int, ...]
    kept: int
    growth_tokens: tuple[int, ...]
    policy_calls: int


def simulate(world: World, text: Text, policy: TreePolicy, setting: Deployment) -> tuple[list[LiveRound], TraceShard]:
    """Decode `text` with the bound `policy` as a live engine would, sources computed on the spot."""
    policy.begin(RequestInfo(0, len(text.prompt), text.max_new_tokens, 0.0))
    state = Progress(0, len(text.prompt), text.max_new_tokens)
    builder = RoundBuilder(setting.envelope, setting.prior_table)
    draft_width = setting.envelope.draft_width
    done: list[LiveRound] = []
    rounds: list[dict[str, Any]] = []
    nodes: list[dict[str, Any]] = []
    tokens = text.tokens
    drafted_at: set[int] = set()
    while state.position < len(tokens) - 1:
        position = state.position
        tree = builder.build(
            policy,
            context := build_context([state]),
            np.asarray([tokens[position]], dtype=np.int32),
            [world.lookup(text, position) if setting.sources & LOOKUP else None],
            WorldDraft(world, tokens[: position + 1], draft_width) if setting.sources & DRAFT else None,
            [world.memory(text, position) if setting.sources & RECYCLED else None],
        )
        depth = tree.forest.column("depth")

        def truth(_: int, row: int, at: int = position, depths: Int32Array = depth) -> int:
            place = at + int(depths[row]) + 1
            return tokens[place] if place < len(tokens) else -1

        result = walk(tree, 1, truth)
        policy.observe(build_outcome(tree, context, result))
        committed, accepted = result.tokens[0], int(result.accepted_length[0])
        done.append(
            LiveRound(
                position, replace_progress(state), accepted, committed, tree.num_nodes, tree.growth_tokens,
                tree.policy_calls,
            )
        )  # fmt: skip
        rounds.append(round_columns(world, text, state, tree, accepted, committed, len(rounds)))
        nodes.append(node_columns(text, position, tree, result, len(rounds) - 1))
        drafted = int(result.drafted_path[0])
        seen = range(state.draft_seen, position + drafted) if drafted else range(0)
        checked = [p for p in seen if p + 1 < len(tokens)]
        drafted_at.update(checked)
        after = position + len(committed)
        state.advance(
            accepted,
            len(committed),
            drafted,
            [world.draft_agrees(text, p) for p in checked],
            [world.lookup_agrees(text, p) for p in range(position, after)],
            *target_state(after),
        )
    policy.finish(0, text.finish)
    rounds[-1]["finish"] = text.finish
    for row in rounds:
        row["draft_agrees"] = [
            world.draft_agrees(text, p) if p in drafted_at else -1
            for p in range(row["position"], row["position"] + len(row["committed"]))
        ]
    return done, shard_of(rounds, nodes)


def dense(world: World, text: Text, envelope: Envelope, sources: int = ALL) -> TraceShard:
    """The superset tree of `sources` at every position of `text`."""
    builder = RoundBuilder(envelope, PriorTable(), whole_chains=False)
    rounds, nodes = [], []
    tokens = text.tokens
    for number, position in enumerate(range(len(text.prompt) - 1, len(tokens) - 1)):
        state = Progress(0, len(text.prompt), text.max_new_tokens)
        state.position, state.generated_tokens = position, number
        tree = builder.build(
            EverythingPolicy(),
            build_context([state]),
            np.asarray([tokens[position]], dtype=np.int32),
            [world.lookup(text, position) if sources & LOOKUP else None],
            WorldDraft(world, tokens[: position + 1], envelope.draft_width) if sources & DRAFT else None,
            [world.memory(text, position) if sources & RECYCLED else None],
        )
        row = round_columns(world, text, state, tree, -1, (tokens[position + 1],), number)
        row["opening"] = sources
        rounds.append(row)
        nodes.append(node_columns(text, position, tree, None, number))
    rounds[-1]["finish"] = text.finish
    return shard_of(rounds, nodes)


def dense_trace(
    world: World,
    envelope: Envelope,
    texts: Sequence[Text] | None = None,
    tokens_included: bool = True,
    sources: int = ALL,
) -> LoggedTrace:
    """A dense trace of the world, grown a little wider than `envelope` and ready for replay at it."""
    shards = [dense(world, text, envelope.widened(), sources) for text in (world.texts if texts is None else texts)]
    return as_trace(concatenate(shards), manifest("dense", envelope.widened()), tokens_included)


def as_trace(shard: TraceShard, conditions: TraceManifest, tokens_included: bool = True) -> LoggedTrace:
    """`shard` ready for replay; without token ids every id reads -1, as the writer has it."""
    if not tokens_included:
        conditions = replace(conditions, tokens_included=False)
        shard = TraceShard(
            replace(
                shard.rounds,
                root_token=np.full_like(shard.rounds.root_token, -1),
                committed=np.full_like(shard.rounds.committed, -1),
            ),
            replace(shard.nodes, token=np.full_like(shard.nodes.token, -1)),
        )
    shard.check()
    return logged_trace("world", conditions, shard)


def manifest(kind: Any, envelope: Envelope, policy: str | None = None) -> TraceManifest:
    """Conditions of a trace of the world."""
    return TraceManifest(
        kind=kind,
        pair={"target": "world", "draft": "law"},
        tokenizer_hash="0",
        envelope=envelope,
        prior_table=PriorTable(),
        vocab_size=VOCAB,
        max_new_tokens=64,
        policy=policy,
    )


def replace_progress(state: Progress) -> Progress:
    """A copy of `state` as it stands."""
    copy = Progress(state.request_id, state.prompt_tokens, state.max_new_tokens, state.temperature)
    for name in ("position", "generated_tokens", "draft_seen", "last_accepted", "target_entropy", "target_margin"):
        setattr(copy, name, getattr(state, name))
    return copy
