"""A small made-up world with a known draft law and known texts, and the traces that it leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.training.world_tables import node_columns, round_columns, shard_of, target_state
from treewise.data.cost import CostGrid, CostProfile
from treewise.data.envelope import Envelope, PriorTable
from treewise.data.recycled import RecycledCorpus, RecycledIndex, pack
from treewise.data.suffix import SuffixIndex
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
    DraftGuesses,
    Expansion,
    ForestView,
    Int32Array,
    Level,
    Nodes,
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

VOCAB = 24
HEAD = 20  # the draft cannot say the last tokens
EOS = 19
TASKS = ("copy", "chat")
ALL = FREE | DRAFT
REMEMBERED = 6  # guesses of the target behind one context
COST = CostProfile(
    name="world",
    verify=CostGrid((1, 8, 32), (16, 64), ((10.0, 11.0, 16.0), (12.0, 13.5, 20.0))),
    draft=CostGrid((1, 8), (16, 64), ((1.0, 1.5), (1.2, 1.9))),
    policy_ms=0.05,
    round_ms=0.5,
    verified=False,
)


@dataclass(frozen=True, slots=True)
class Text:
    """One prompt and the target's answer to it."""

    prompt_id: str
    task: str
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    max_new_tokens: int

    @property
    def tokens(self) -> tuple[int, ...]:
        """All of it."""
        return (*self.prompt, *self.answer)

    @property
    def finish(self) -> str:
        """Why it ends."""
        return "eos" if self.answer[-1] == EOS else "length"


class World:
    """Draft law by the last two tokens; texts that follow the draft, and themselves, most of the time."""

    def __init__(self, seed: int = 0, num_texts: int = 4, answer_tokens: int = 40) -> None:
        self.rng = np.random.default_rng(seed)
        self.logits = 2.0 * self.rng.standard_normal((VOCAB, VOCAB, HEAD))
        self.logits[:, :, EOS] -= 4.0
        self._laws: dict[tuple[int, int], np.ndarray[Any, Any]] = {}
        self._indices: dict[tuple[str, int], SuffixIndex] = {}
        self._memories: dict[tuple[str, int], RecycledIndex] = {}
        self.texts = tuple(self._text(number, answer_tokens) for number in range(num_texts))
        self.corpus = self._corpus()

    def probs(self, context: Sequence[int]) -> np.ndarray[Any, Any]:
        """The draft's distribution behind `context`, [HEAD] float32."""
        state = (context[-2], context[-1])
        if state not in self._laws:
            weights = np.exp(self.logits[state] - self.logits[state].max())
            self._laws[state] = np.asarray(weights / weights.sum(), dtype=np.float32)
        return self._laws[state]

    def lookup(self, text: Text, position: int) -> SuffixIndex:
        """The suffix lookup over `text` up to and with `position`."""
        key = (text.prompt_id, position)
        if key not in self._indices:
            self._indices[key] = SuffixIndex(text.tokens[: position + 1])
        return self._indices[key]

    def memory(self, text: Text, position: int) -> RecycledIndex:
        """What the target gave in `text` up to and with `position`, behind the world's corpus."""
        key = (text.prompt_id, position)
        if key not in self._memories:
            tokens, first = text.tokens, len(text.prompt) - 1
            memory = RecycledIndex(self.corpus, tokens[:first])
            for at in range(first, position + 1):
                memory.append(tokens[at])
                self._memories[text.prompt_id, at] = memory.copy()
                law = 0.5 * np.append(self.probs(tokens[: at + 1]), np.zeros(VOCAB - HEAD))
                if at + 1 < len(tokens):
                    law[tokens[at + 1]] += 0.5
                best = np.argsort(-law, kind="stable")[:REMEMBERED]
                memory.remember(best.tolist(), law[best].tolist())
        return self._memories[key]

    def draft_agrees(self, text: Text, position: int) -> int:
        """Whether the draft's first guess at `position` is the next token."""
        return int(int(np.argmax(self.probs(text.tokens[: position + 1]))) == text.tokens[position + 1])

    def lookup_agrees(self, text: Text, position: int) -> int:
        """The same for the lookup's first continuation; -1 where it has none."""
        first = self.lookup(text, position).predict()
        return -1 if first < 0 else int(first == text.tokens[position + 1])

    def _corpus(self) -> RecycledCorpus:
        """The draft's law behind some pairs of tokens, and its mean behind most tokens."""
        entries: dict[int, tuple[int, list[int], list[float]]] = {}
        for last in range(0, VOCAB, 2):
            laws = [self.probs((before, last)) for before in range(VOCAB)]
            contexts = {pack((before, last)): law for before, law in enumerate(laws) if (before + last) % 3 == 0}
            contexts[pack((last,))] = np.mean(laws, axis=0)
            for place, (context, law) in enumerate(contexts.items()):
                best = np.argsort(-law, kind="stable")[:REMEMBERED]
                entries[context] = (1 + place, best.tolist(), law[best].tolist())
        return RecycledCorpus.build(entries, VOCAB, "0" * 64)

    def _text(self, number: int, answer_tokens: int) -> Text:
        prompt = tuple(self.rng.integers(0, EOS, size=6 + number).tolist())
        tokens = list(prompt)
        ends_early = number % 2 == 1
        for place in range(answer_tokens - 7 * number):
            draw = self.rng.random()
            if draw < 0.35 and len(tokens) > 6:
                start = int(self.rng.integers(0, len(tokens) - 3))
                tokens.append(tokens[start] if tokens[start] != EOS else 0)
            elif draw < 0.75:
                tokens.append(int(np.argmax(self.probs(tokens))))
            else:
                tokens.append(int(self.rng.integers(0, VOCAB)))
            if tokens[-1] == EOS:
                tokens[-1] = 1
            if place % 11 == 10:
                tokens.extend(tokens[-9:-4])
        answer = tokens[len(prompt) :]
        if ends_early:
            answer[-1] = EOS
        limit = len(answer) + 5 if ends_early else len(answer)
        return Text(f"prompt-{number}", TASKS[number % 2], prompt, tuple(answer), limit)


class WorldDraft:
    """`DraftSource` that computes the world's law."""

    def __init__(self, world: World, context: Sequence[int], width: int) -> None:
        self.world, self.context, self.width = world, tuple(context), width

    def grow(self, nodes: Nodes, rows: Int32Array, extra_rows: Int32Array, extra_tokens: Int32Array) -> DraftGuesses:
        """Straight from the law."""
        laws = [self.world.probs((*self.context, *self._path(nodes, row))) for row in rows.tolist()]
        orders = [np.argsort(-law, kind="stable") for law in laws]
        extra_probs, extra_ranks = [], []
        for place, token in zip(extra_rows.tolist(), extra_tokens.tolist(), strict=True):
            known = token < HEAD
            extra_probs.append(laws[place][token] if known else np.nan)
            extra_ranks.append(int(np.flatnonzero(orders[place] == token)[0]) if known else np.nan)
        top = [order[: self.width] for order in orders]
        return DraftGuesses(
            tokens=np.asarray(top, dtype=np.int32),
            probs=np.asarray([law[first] for law, first in zip(laws, top, strict=True)], dtype=np.float32),
            entropy=np.asarray([-(law * np.log2(law)).sum() for law in laws], dtype=np.float32),
            margin=np.asarray(
                [law[order[0]] - law[order[1]] for law, order in zip(laws, orders, strict=True)], dtype=np.float32
            ),
            extra_probs=np.asarray(extra_probs, dtype=np.float32),
            extra_ranks=np.asarray(extra_ranks, dtype=np.float32),
        )

    def in_vocab(self, tokens: Int32Array) -> BoolArray:
        """What the head can say."""
        return np.asarray(tokens < HEAD, dtype=np.bool_)

    @staticmethod
    def _path(nodes: Nodes, row: int) -> tuple[int, ...]:
        path: list[int] = []
        while nodes.parent[row] >= 0:
            path.append(int(nodes.token[row]))
            row = int(nodes.parent[row])
        return tuple(reversed(path))


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
