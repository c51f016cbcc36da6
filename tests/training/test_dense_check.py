"""Live rounds against a dense trace of the same texts: no difference, or one that says what flipped it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.training.worlds import COST, World, as_trace, dense_trace, manifest, simulate
from treewise.data.envelope import Envelope
from treewise.data.errors import TraceError
from treewise.data.trace_schema import concatenate
from treewise.policy.registry import parse_policy
from treewise.training.dense_check import DenseCheck, replay_dense
from treewise.training.logged_trace import LoggedTrace

ENVELOPE = Envelope(max_depth=6, draft_width=4)
SPECS = ("plain", "chain:4", "topn:12x3", "entropy", "frontier", "topn:8x2,sources=free")


@pytest.fixture(scope="module")
def world() -> World:
    return World(seed=3, num_texts=2, answer_tokens=26)


def live(world: World, spec: str) -> LoggedTrace:
    """What the engine would have logged."""
    setting = dense_trace(world, ENVELOPE, world.texts[:1]).deployment(COST, ENVELOPE)
    policy = parse_policy(spec)
    policy.bind(setting)
    shard = concatenate([simulate(world, text, policy, setting)[1] for text in world.texts])
    return as_trace(shard, manifest("live", ENVELOPE, spec))


def check(live_trace: LoggedTrace, dense: LoggedTrace, spec: str) -> DenseCheck:
    return replay_dense(live_trace, dense, parse_policy(spec), COST)


@pytest.mark.parametrize("spec", SPECS)
def test_the_same_signals_bring_the_same_rounds(world: World, spec: str) -> None:
    logged = live(world, spec)
    found = check(logged, dense_trace(world, ENVELOPE, world.texts), spec)
    assert (found.differing, found.flips, found.share) == (0, (), 0.0)
    assert found.rounds == len(found.result) == sum(len(request.rows) for request in logged.requests) > 0


def nudged(dense: LoggedTrace, position: int, factor: float) -> LoggedTrace:
    """The trace with the draft's first guess at one root of its first text less probable by `factor`."""
    request = dense.requests[0]
    shard = request.shard
    rows = request.node_rows(request.row_at(position))
    probs = shard.nodes.draft_prob.copy()
    chosen = np.flatnonzero((shard.nodes.depth[rows] == 1) & (shard.nodes.draft_rank[rows] == 0)) + rows.start
    assert chosen.size == 1
    probs[chosen] *= np.float32(factor)
    return as_trace(replace(shard, nodes=replace(shard.nodes, draft_prob=probs)), dense.manifest)


def test_a_moved_signal_is_named_with_how_far_it_moved(world: World) -> None:
    logged = live(world, "topn:12x3,sources=draft")
    dense = dense_trace(world, ENVELOPE, world.texts)
    position = sorted(logged.requests[0].rows)[3]
    found = check(logged, nudged(dense, position, 1e-4), "topn:12x3,sources=draft")
    first = found.flips[0]
    assert (first.prompt_id, first.position) == (world.texts[0].prompt_id, position)
    assert first.reason
    assert found.differing == sum(1 + flip.follows for flip in found.flips) >= 1
    assert found.share == found.differing / found.rounds
    assert first.distance >= 0 or math.isnan(first.distance)
    assert f"{first.prompt_id} at {position}: {first.reason}" in str(first)


def test_a_small_move_that_flips_an_order_is_bounded_by_its_size(world: World) -> None:
    spec = "topn:1x1,sources=draft"
    logged = live(world, spec)
    dense = dense_trace(world, ENVELOPE, world.texts)
    for position in sorted(logged.requests[0].rows):
        request = dense.requests[0]
        rows = request.node_rows(request.row_at(position))
        nodes = request.shard.nodes
        top = np.flatnonzero((nodes.depth[rows] == 1) & (nodes.draft_rank[rows] < 2)) + rows.start
        if len(top) != 2:
            continue
        ranked = top[np.argsort(nodes.draft_rank[top])]
        first, second = nodes.draft_prob[ranked]
        if second < 0.02 or first - second < 0.01:
            continue
        found = check(logged, nudged(dense, position, 0.9 * second / first), spec)
        flip = found.flips[0]
        assert flip.position == position
        assert flip.signal == "path_prior"
        assert flip.distance == pytest.approx(first - 0.9 * second, rel=1e-5)
        assert flip.to_json()["distance"] == flip.distance
        return
    raise AssertionError("no round had two candidates to swap")


def test_other_texts_are_refused(world: World) -> None:
    logged = live(world, "chain:4")
    with pytest.raises(TraceError, match=f"got none of {world.texts[1].prompt_id}"):
        check(logged, dense_trace(world, ENVELOPE, world.texts[:1]), "chain:4")
    other = replace(world.texts[1], answer=(*world.texts[1].answer[:-1], (world.texts[1].answer[-1] + 1) % 20))
    with pytest.raises(TraceError, match=f"got another one of {other.prompt_id}"):
        check(logged, dense_trace(world, ENVELOPE, [world.texts[0], other]), "chain:4")
