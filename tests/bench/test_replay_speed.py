"""Rounds a second of batched replay beside one request at a time, on a made-up trace."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.policy.models import tiny_bundle
from tests.training.worlds import COST, World, as_trace, dense, manifest
from treewise.data.envelope import Envelope
from treewise.data.trace_schema import concatenate
from treewise.policy.hook import TreePolicy
from treewise.policy.learned import LearnedPolicy
from treewise.policy.registry import parse_policy
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay import BATCH_REQUESTS, replay
from treewise.training.replay_result import ReplayResult

pytestmark = pytest.mark.bench

ENVELOPE = Envelope(max_depth=6, draft_width=4)
COPIES = 40  # of every text: rounds do not know of each other
FEW_REQUESTS = 12  # for the slow way
SPECS = ("plain", "chain:4", "topn:12x3", "entropy", "cumulative", "frontier", "switch", "learned")


@pytest.fixture(scope="module")
def trace() -> LoggedTrace:
    worlds = [World(seed=seed, num_texts=3, answer_tokens=70) for seed in range(3)]
    shards = [dense(world, text, ENVELOPE.widened()) for world in worlds for text in world.texts]
    copies = [
        replace(shard, rounds=replace(shard.rounds, prompt_id=np.full(len(shard.rounds), f"prompt-{place}-{copy}")))
        for copy in range(COPIES)
        for place, shard in enumerate(shards)
    ]
    return as_trace(concatenate(copies), manifest("dense", ENVELOPE.widened()))


def make(spec: str) -> TreePolicy:
    return LearnedPolicy(tiny_bundle()) if spec == "learned" else parse_policy(spec)


def rounds_a_second(run: Callable[[], ReplayResult]) -> tuple[float, ReplayResult]:
    """By the process's own time on one core, so that what else the machine does counts little."""
    started = time.process_time()
    result = run()
    return len(result) / (time.process_time() - started), result


@pytest.mark.parametrize("spec", SPECS)
def test_rounds_a_second(trace: LoggedTrace, spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    setting, few = trace.deployment(COST), trace.requests[:FEW_REQUESTS]
    replay(make(spec), trace.requests, setting)  # the columns of the log are made once for all policies
    together, result = rounds_a_second(lambda: replay(make(spec), trace.requests, setting))
    alone, reference = rounds_a_second(lambda: replay(make(spec), few, setting, batch_requests=1))
    np.testing.assert_array_equal(result.digest[: len(reference)], reference.digest)
    nodes = float(result.verified_nodes.mean())
    with capsys.disabled():
        print(
            f"\n{spec:>12}: {together:8,.0f} rounds/s on one core in batches of {BATCH_REQUESTS}, "
            f"{alone:6,.0f} one at a time ({together / alone:.1f} x), {nodes:.1f} nodes a round"
        )
    assert together > 2.0 * alone
