"""Rounds of a batch, logged request by request, replay as they were decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.test_replay_equals_live import LIMIT, manifest, prompts_of, write_dense
from tests.engine.test_batch import LEARNED, batch_of
from tests.engine.tiny import DRAFTS, Draft, end_token, example_cost, tiny_pair
from treewise.data.errors import CoverageError, TraceError
from treewise.data.trace_reader import TraceReader
from treewise.data.trace_writer import TraceWriter
from treewise.engine.batch import BatchEngine, BatchRequest
from treewise.engine.completion import Completion
from treewise.engine.dense import KnownText
from treewise.engine.pair import Pair
from treewise.engine.record import LiveRecorder
from treewise.engine.sampling import Sampling
from treewise.policy.hook import TreePolicy
from treewise.policy.registry import parse_policy
from treewise.training.contest import Contender, contest
from treewise.training.live_check import replay_live
from treewise.training.logged_trace import open_trace
from treewise.training.served_replay import replay_served

PROMPTS = [*prompts_of(7), *prompts_of(8), [4, 4, 4, 4]]


def policy_like(engine: BatchEngine) -> TreePolicy:
    """The engine's policy, made again."""
    policy = engine.policy.policy
    if hasattr(policy, "bundle"):
        return type(policy)(policy.bundle, "flat", compiled="off")  # type: ignore[call-arg]
    return parse_policy(policy.spec)  # type: ignore[attr-defined]


def record(
    engine: BatchEngine, pair: Pair, sampling: Sampling, folder: Path, prompts: Sequence[Sequence[int]] = PROMPTS
) -> list[Completion]:
    """Decode `prompts` in a batch, each round of each request logged; requests are written in order."""
    recorders = {}
    for number, prompt in enumerate(prompts):
        own = engine.submit(BatchRequest(prompt, LIMIT, sampling))
        recorders[own] = LiveRecorder(f"p{number}", "chat", len(prompt), sampling.temperature, sampling.seed)
    while engine.num_waiting or engine.in_flight:
        for made in engine.step():
            recorders[int(made.context.request_id[made.place])].add(made)
    with TraceWriter(folder, manifest(pair, "live", sampling)) as writer:
        for recorder in recorders.values():
            recorder.finish(writer)
    return [engine.take(number) for number in recorders]


@pytest.mark.parametrize("spec", ["topn:10x3", "frontier", "entropy", "learned"])
@pytest.mark.parametrize("draft", ["none", "other", "cut"])
def test_each_request_of_a_batch_replays_alone(spec: str, draft: Draft, tmp_path: Path) -> None:
    pair = tiny_pair(draft, seed=DRAFTS.index(draft))
    sampling = Sampling(0.7, seed=11) if len(spec) % 2 else Sampling()
    engine = batch_of(pair, spec)
    record(engine, pair, sampling, tmp_path)
    rounds = TraceReader(tmp_path).read_all().rounds
    sizes = set(rounds.batch_size.tolist())
    assert max(sizes) == 3 and len(sizes) > 1
    trace = open_trace(tmp_path)
    check = replay_live(trace, policy_like(engine), example_cost())
    assert (check.mismatches, check.compared) == ((), len(rounds))


def test_a_policy_that_prices_batches_is_told_their_size_again(tmp_path: Path) -> None:
    pair = tiny_pair("other", seed=2)
    engine = batch_of(pair, "learned")
    record(engine, pair, Sampling(), tmp_path)
    trace = open_trace(tmp_path)
    assert replay_live(trace, policy_like(engine), example_cost()).mismatches == ()
    request = trace.requests[0]
    assert request.was_batched
    sizes = [request.batch_size(position) for position in request.rows]
    assert max(sizes) == 3 and request.batch_size(10**6) == 1


@pytest.mark.parametrize("spec", ["topn:3x2,budget=batch", "topn:10x3", *LEARNED])
@pytest.mark.parametrize("ends", [False, True])
def test_a_dense_trace_replays_a_batch_as_it_was_served(spec: str, ends: bool, tmp_path: Path) -> None:
    pair = tiny_pair("other", seed=3)
    stop = [int(batch_of(pair, "plain").generate_many([BatchRequest(PROMPTS[0], LIMIT)])[0].tokens[6])] if ends else []
    with end_token(pair, *stop):
        engine = batch_of(pair, spec)
        done = record(engine, pair, Sampling(), tmp_path / "live")
        texts = [
            KnownText(f"p{number}", "chat", tuple(prompt), each.tokens, LIMIT, each.finish, 0.0, 0)
            for number, (prompt, each) in enumerate(zip(PROMPTS, done, strict=True))
        ]
        trace = write_dense(pair, texts, Sampling(), tmp_path / "dense")
    setting = replace(trace.deployment(example_cost()), envelope=engine.settings.envelope)
    found = replay_served(policy_like(engine), trace.requests, setting, engine.max_batch)
    for number, each in enumerate(done):
        mine = found.result.request == number
        assert tuple(found.result.accepted_length[mine].tolist()) == each.accepted_lengths
        assert tuple(found.result.verified_nodes[mine].tolist()) == each.verified_nodes
        assert int(found.result.growths[mine].sum()) == each.growths
    live = TraceReader(tmp_path / "live").read_all().rounds
    assert int(found.rounds.requests.sum()) == len(live)
    np.testing.assert_array_equal(np.unique(found.rounds.requests), np.unique(live.batch_size))
    assert len({int(size) for size in found.rounds.requests}) > 1


def test_a_log_of_a_batch_is_not_served_again(tmp_path: Path) -> None:
    pair = tiny_pair("other", seed=3)
    engine = batch_of(pair, "topn:3x2")
    record(engine, pair, Sampling(), tmp_path)
    trace = open_trace(tmp_path)
    with pytest.raises(CoverageError, match="prompt p0: the log holds too little"):
        replay_served(policy_like(engine), trace.requests, trace.deployment(example_cost()), 3)


def test_a_log_of_a_batch_has_no_price_of_its_own(tmp_path: Path) -> None:
    pair = tiny_pair("other", seed=3)
    engine = batch_of(pair, "topn:3x2")
    record(engine, pair, Sampling(), tmp_path)
    with pytest.raises(TraceError, match="must be of requests decoded alone to be priced, got prompt p0"):
        contest(open_trace(tmp_path), [example_cost()], [Contender.of("topn:3x2")])
