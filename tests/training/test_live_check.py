"""A policy replayed on the live trace that it wrote."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.training.worlds import COST, World, as_trace, dense_trace, manifest, simulate
from treewise.data.envelope import Envelope
from treewise.data.errors import TraceError
from treewise.data.trace_schema import TraceShard, concatenate
from treewise.policy.hook import DRAFT
from treewise.policy.registry import parse_policy
from treewise.training.live_check import replay_live
from treewise.training.logged_trace import LoggedTrace

ENVELOPE = Envelope(max_depth=6, draft_width=4)
SPECS = (
    "plain", "chain:4", "topn:12x3", "topn:8x2,sources=lookup", "topn:8x2,sources=recycled", "chain:6,sources=free",
    "entropy", "cumulative", "frontier", "switch", "opt-tree:10x0.2", "feedback:12x4,probe_rounds=3",
)  # fmt: skip


@pytest.fixture(scope="module")
def world() -> World:
    return World(seed=3, num_texts=2, answer_tokens=26)


def shard_of(world: World, spec: str) -> TraceShard:
    """What the engine would have logged."""
    setting = dense_trace(world, ENVELOPE, world.texts[:1]).deployment(COST, ENVELOPE)
    policy = parse_policy(spec)
    policy.bind(setting)
    return concatenate([simulate(world, text, policy, setting)[1] for text in world.texts])


def live(shard: TraceShard, spec: str, tokens_included: bool = True) -> LoggedTrace:
    """It as a trace."""
    return as_trace(shard, manifest("live", ENVELOPE, spec), tokens_included)


@pytest.mark.parametrize("tokens_included", [True, False])
@pytest.mark.parametrize("spec", SPECS)
def test_every_round_is_decided_again(world: World, spec: str, tokens_included: bool) -> None:
    trace = live(shard_of(world, spec), spec, tokens_included)
    check = replay_live(trace, parse_policy(spec), COST)
    assert check.mismatches == ()
    assert check.compared == check.rounds == sum(len(request.rows) for request in trace.requests) > 0


@pytest.mark.parametrize(
    ("name", "message"),
    [("kept", ": True in replay, False live"), ("grown", "grown of candidate 1: ")],
)
def test_a_changed_decision_is_found(world: World, name: str, message: str) -> None:
    shard = shard_of(world, "chain:4")
    values = getattr(shard.nodes, name).copy()
    first = int(np.flatnonzero(shard.nodes.round == 2)[0])
    values[first : first + 1] = 0 if name == "kept" else values[first] ^ DRAFT
    if name == "kept":  # whatever hangs below goes with it
        values[shard.nodes.round == 2] = False
    trace = live(replace(shard, nodes=replace(shard.nodes, **{name: values})), "chain:4")
    found = replay_live(trace, parse_policy("chain:4"), COST).mismatches
    assert found
    assert found[0].reason.startswith(name)
    assert message in found[0].reason


def test_a_changed_length_is_found(world: World) -> None:
    shard = shard_of(world, "chain:4")
    lengths = shard.rounds.accepted_length.copy()
    lengths[1] += 1
    trace = live(replace(shard, rounds=replace(shard.rounds, accepted_length=lengths)), "chain:4")
    (found,) = replay_live(trace, parse_policy("chain:4"), COST).mismatches
    assert found.position == int(shard.rounds.position[1])
    assert found.reason == f"accepted length {lengths[1] - 1} in replay, {lengths[1]} live"


def test_another_policy_does_not_pass(world: World) -> None:
    trace = live(shard_of(world, "topn:12x3"), "topn:12x3")
    assert replay_live(trace, parse_policy("topn:11x3"), COST).mismatches


def test_a_recorded_suspension_is_obeyed(world: World) -> None:
    shard = shard_of(world, "topn:8x2")
    suspended = np.ones_like(shard.rounds.suspended)
    trace = live(replace(shard, rounds=replace(shard.rounds, suspended=suspended)), "chain:4")
    check = replay_live(trace, parse_policy("chain:4"), COST)  # the fallback of a contained policy is topn:8x2
    assert check.mismatches == ()


def test_a_dense_trace_is_refused(world: World) -> None:
    trace = dense_trace(world, ENVELOPE, world.texts[:1])
    with pytest.raises(TraceError, match="trace world must be live to be compared with its replay, got a dense one"):
        replay_live(trace, parse_policy("plain"), COST)
