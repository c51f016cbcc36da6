"""The battery that every policy passes: `@pytest.mark.parametrize("check", CHECKS)`, then `assert check(make) > 0`.

A check raises where the policy fails it, and returns how many rounds it held the policy to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.policy.scripted import Decision, World, example_cost, example_deployment, play
from treewise.policy.contain import checked_expansion, checked_selection
from treewise.policy.hook import (
    DRAFT,
    FREE,
    LOOKUP,
    RECYCLED,
    SOURCES,
    BoolArray,
    Deployment,
    Expansion,
    ForestView,
    Level,
    Nodes,
    Reach,
    RequestInfo,
    RoundContext,
    RoundOutcome,
    State,
    TreePolicy,
)
from treewise.policy.registry import parse_policy

MakePolicy = Callable[[], TreePolicy]
Check = Callable[[MakePolicy], int]
WORLDS = [World(0, DRAFT), World(1, LOOKUP), World(2, DRAFT | LOOKUP), World(4, FREE), World(6, DRAFT | FREE)]


class Wrapped:
    """A policy behind a look at everything that goes in and out."""

    def __init__(self, policy: TreePolicy) -> None:
        self.policy = policy

    @property
    def state(self) -> State:
        return self.policy.state

    @property
    def reach(self) -> Reach:
        return self.policy.reach

    def bind(self, deployment: Deployment) -> None:
        self.policy.bind(deployment)

    def begin(self, request: RequestInfo) -> None:
        self.policy.begin(request)

    def expand(self, level: Level) -> Expansion:
        return self.policy.expand(level)

    def select(self, forest: ForestView) -> BoolArray:
        return self.policy.select(forest)

    def observe(self, outcome: RoundOutcome) -> None:
        self.policy.observe(outcome)

    def finish(self, request_id: int, reason: str) -> None:
        self.policy.finish(request_id, reason)


class Watched(Wrapped):
    """Checks shapes, types, reach, admission and that nothing handed over was changed."""

    def expand(self, level: Level) -> Expansion:
        before = [array.copy() for array in arrays_of(level.forest, level.context)]
        answer = checked_expansion(self.policy.expand(level), len(level.candidates.parent))
        for old, new in zip(before, arrays_of(level.forest, level.context), strict=True):
            np.testing.assert_array_equal(old, new)
        nodes, reach = level.candidates, self.policy.reach
        taken = answer.admit | (answer.grow > 0)
        assert (nodes.depth[taken] <= reach.depth).all()
        drafted_only = taken & (nodes.sources == DRAFT)
        assert (nodes.draft_rank[drafted_only] < reach.draft_width).all()
        if reach.draft_width == 0:
            assert not (answer.grow & DRAFT).any()
        return answer

    def select(self, forest: ForestView) -> BoolArray:
        before = [array.copy() for array in arrays_of(forest.nodes, forest.context)]
        answer = checked_selection(self.policy.select(forest), len(forest.nodes.parent))
        for old, new in zip(before, arrays_of(forest.nodes, forest.context), strict=True):
            np.testing.assert_array_equal(old, new)
        assert not (answer & ~forest.nodes.admitted).any()
        inner = forest.nodes.parent >= 0
        assert answer[forest.nodes.parent[inner & answer]].all(), "the selection should be closed under parents"
        return answer


class Blinded(Wrapped):
    """Hides every signal of every source, and every average of the context."""

    def expand(self, level: Level) -> Expansion:
        forest, context = blind_nodes(level.forest), blind_context(level.context)
        return self.policy.expand(Level(level.index, level.start, blind_nodes(level.candidates), forest, context))

    def select(self, forest: ForestView) -> BoolArray:
        return self.policy.select(ForestView(blind_nodes(forest.nodes), blind_context(forest.context)))


def arrays_of(*parts: Nodes | RoundContext) -> Iterator[NDArray[np.generic]]:
    for part in parts:
        for field in fields(part):
            value = getattr(part, field.name)
            if isinstance(value, np.ndarray):
                yield value


def blind_nodes(nodes: Nodes) -> Nodes:
    names = [name for source in SOURCES for name in source.signals if name != "in_draft_vocab"]
    blank: dict[str, Any] = dict.fromkeys(names, np.full(len(nodes.parent), np.nan, dtype=np.float32))
    return replace(nodes, **blank)


def blind_context(context: RoundContext) -> RoundContext:
    names = [f.name for f in fields(context) if f.name not in ("batch_size", "temperature")]
    names = [name for name in names if getattr(context, name).dtype == np.float32]
    blank: dict[str, Any] = dict.fromkeys(names, np.full(len(context.request_id), np.nan, dtype=np.float32))
    return replace(context, **blank)


def check_answers(make: MakePolicy) -> int:
    """Shapes, types, reach, closure and untouched inputs, with every mix of sources, one request and three."""
    rounds = 0
    for world in WORLDS:
        for requests, temperature in (((0,), 1.0), ((0, 1, 2), 0.0)):
            decisions = play(Watched(make()), world, requests, temperature=temperature)
            assert all(decisions[request] for request in requests)
            rounds += rounds_of(decisions)
    return rounds


def check_edges(make: MakePolicy) -> int:
    """Nothing on offer, and one token left: a round keeps nothing but its root."""
    rounds = 0
    for sources in (DRAFT, LOOKUP, RECYCLED, DRAFT | FREE):
        for world, tokens in ((World(3, sources, empty=True), 4), (World(3, sources), 1), (World(3, 0), 4)):
            decisions = play(Watched(make()), world, (0, 1), max_new_tokens=tokens)
            assert all(decision.kept == {()} for decision in decisions[0] + decisions[1])
            rounds += rounds_of(decisions)
    return rounds


def check_determinism(make: MakePolicy) -> int:
    """The same requests after `begin` give the same decisions, from a new object and from a used one."""
    world = WORLDS[2]
    policy = make()
    first = play(policy, world)
    assert play(make(), world) == first
    if policy.state != "session":
        play(policy, World(9), (5, 6))
        assert play(policy, world) == first
    return rounds_of(first)


def check_batch_independence(make: MakePolicy) -> int:
    """Batch mates do not change a request's decisions; their number may."""
    rounds = 0
    for world in WORLDS:
        together = play(make(), world, (0, 1, 2), batch_size=3)
        alone = {request: play(make(), world, (request,), batch_size=3)[request] for request in (0, 1, 2)}
        assert together == alone
        rounds += rounds_of(together)
    return rounds


def check_statelessness(make: MakePolicy) -> int:
    """A policy of state "none" answers without having observed anything; another one says for how long it remembers."""
    if make().state != "none":
        assert make().state in ("request", "session")
        return 1

    class Forgetful(Wrapped):
        def observe(self, outcome: RoundOutcome) -> None:
            """Keep it to yourself."""

        def begin(self, request: RequestInfo) -> None:
            """Not even this."""

    rounds = 0
    for world in WORLDS:
        decisions = play(make(), world)
        assert play(Forgetful(make()), world) == decisions
        rounds += rounds_of(decisions)
    return rounds


def check_blind(make: MakePolicy) -> int:
    """Every signal NaN: answers stay valid."""
    found = [play(Watched(Blinded(make())), world) for world in WORLDS]
    assert all(decisions[0] for decisions in found)
    return sum(rounds_of(decisions) for decisions in found)


def check_prices(make: MakePolicy) -> int:
    """Dear drafts, free drafts and padded rows are all served."""
    rounds = 0
    for draft_ms in (0.0, 500.0):
        bound = example_deployment(DRAFT | LOOKUP, example_cost(draft_ms))
        decisions = play(Watched(make()), WORLDS[2], deployment=replace(bound, row_buckets=(1, 4, 16, 64)))
        assert decisions[0]
        rounds += rounds_of(decisions)
    return rounds


def check_spec(make: MakePolicy) -> int:
    """The spec string makes the same policy again."""
    spec = spec_of(make())
    again = parse_policy(spec)
    assert type(again) is type(make())
    assert spec_of(again) == spec
    decisions = play(make(), WORLDS[2])
    assert play(again, WORLDS[2]) == decisions
    return rounds_of(decisions)


def rounds_of(decisions: Mapping[int, Sequence[Decision]]) -> int:
    """Rounds over all requests."""
    return sum(len(rounds) for rounds in decisions.values())


def spec_of(policy: TreePolicy) -> str:
    spec = getattr(policy, "spec", None)
    assert isinstance(spec, str), f"{type(policy).__name__} has no spec"
    return spec


def sizes(decisions: list[Decision]) -> list[int]:
    """Verified nodes of each round."""
    return [len(decision.kept) - 1 for decision in decisions]


CHECKS: list[Check] = [
    check_answers,
    check_edges,
    check_determinism,
    check_batch_independence,
    check_statelessness,
    check_blind,
    check_prices,
    check_spec,
]
