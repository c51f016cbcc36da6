"""What replay costs: rounds a second and memory, on made-up traces and on copies of the shipped one.

Processor time of one core is measured, which what else the machine does touches least; the figure for two workers is
twice that, and the clock of two is shown beside it. `TREEWISE_BENCH_REPLAY_CANDIDATES=50000000` sets the size of the
large trace; without it five million.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.bench.test_training_scale import write_copies
from tests.policy.models import tiny_bundle
from tests.training.worlds import COST, World, as_trace, dense, manifest
from treewise.data.envelope import Envelope
from treewise.data.trace_schema import concatenate
from treewise.policy.hook import TreePolicy
from treewise.policy.learned import LearnedPolicy
from treewise.policy.registry import parse_policy
from treewise.training.contest import Contender, contest
from treewise.training.logged_trace import LoggedTrace, open_trace
from treewise.training.replay import BATCH_REQUESTS, replay
from treewise.training.replay_result import ReplayResult

pytestmark = pytest.mark.bench

ENVELOPE = Envelope(max_depth=6, draft_width=4)
COPIES = 40  # of every text: rounds do not know of each other
FEW_REQUESTS = 12  # for the slow way
SPECS = ("plain", "chain:4", "topn:12x3", "entropy", "cumulative", "frontier", "switch", "learned")
REPEATS = 3  # of which the fastest counts
SCORED_NODES = 30  # a round, at most: what the aims are for
AIMS = {"learned": 3_000}  # rounds a second by two workers; rules: 20,000
RULES_AIM = 20_000
LARGE = int(os.environ.get("TREEWISE_BENCH_REPLAY_CANDIDATES", "5000000"))
GIB = 1024.0**2  # of the kilobytes that the system counts in


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


def rounds_a_second(run: Callable[[], ReplayResult], repeats: int = REPEATS) -> tuple[float, ReplayResult]:
    """By the process's own time on one core, the fastest of `repeats`."""
    best = 0.0
    for _ in range(repeats):
        started = time.process_time()
        result = run()
        best = max(best, len(result) / (time.process_time() - started))
    return best, result


@pytest.mark.parametrize("spec", SPECS)
def test_rounds_a_second(trace: LoggedTrace, spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    setting, few = trace.deployment(COST), trace.requests[:FEW_REQUESTS]
    replay(make(spec), trace.requests, setting)  # the columns of the log are made once for all policies
    together, result = rounds_a_second(lambda: replay(make(spec), trace.requests, setting))
    alone, reference = rounds_a_second(lambda: replay(make(spec), few, setting, batch_requests=1), 1)
    np.testing.assert_array_equal(result.digest[: len(reference)], reference.digest)
    nodes, aim = float(result.verified_nodes.mean()), AIMS.get(spec, RULES_AIM)
    with capsys.disabled():
        print(
            f"\n{spec:>12}: {together:8,.0f} rounds/s on one core in batches of {BATCH_REQUESTS}, two of them "
            f"{2 * together:8,.0f} (aim {aim:,}), {alone:6,.0f} one at a time ({together / alone:.1f} x), "
            f"{nodes:.1f} nodes a round"
        )
    assert nodes <= SCORED_NODES
    assert together > 2.0 * alone


def test_two_workers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What starting processes and reading the trace in each of them leaves of twice the speed."""
    write_copies(tmp_path, 1_000_000)
    log, contenders = open_trace(tmp_path), [Contender.of(spec) for spec in ("topn:12x3", "frontier", "chain:4")]
    seconds, tallies = {}, {}
    for workers in (1, 2):
        started = time.perf_counter()
        tallies[workers] = contest(log, [COST], contenders, workers=workers)
        seconds[workers] = time.perf_counter() - started
    rounds = sum(int(tally.columns["rounds"].sum()) for tally in tallies[1].values())
    for key, tally in tallies[1].items():
        np.testing.assert_array_equal(tally.columns["ms"], tallies[2][key].columns["ms"])
    with capsys.disabled():
        for workers, spent in seconds.items():
            print(
                f"\n{workers} workers: {rounds / spent:8,.0f} rounds/s by the clock, start and reading included", end=""
            )
        print()


def test_memory_does_not_grow_with_the_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`treewise ab` on traces of two sizes, each in a process of its own: the most memory it held."""
    peaks = []
    for share in (0.25, 1.0):
        folder = tmp_path / f"{share}"
        candidates = write_copies(folder, int(share * LARGE))
        words = ["ab", str(folder), "--cost", "example-a100-70b", "--policies", "topn:12x3 plain", "--workers", "1"]
        program = (
            "import atexit, resource, sys; from treewise.cli import main; "
            "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; "
            "atexit.register(lambda: print('peak', peak(), file=sys.stderr)); sys.exit(main())"
        )
        started = os.times()
        done = subprocess.run(
            [sys.executable, "-c", program, *words, "--csv"], capture_output=True, text=True, check=False
        )
        ended = os.times()
        assert done.returncode == 0, done.stderr
        found = re.search(r"peak (\d+)", done.stderr)
        assert found is not None
        peaks.append(int(found[1]) / GIB)
        busy = ended.children_user + ended.children_system - started.children_user - started.children_system
        with capsys.disabled():
            print(f"\n{candidates:12,} candidates: {peaks[-1]:.2f} GiB at most, {busy:.0f} CPU seconds", end="")
    with capsys.disabled():
        print()
    assert max(peaks) < 2.0
    assert peaks[1] < 1.5 * peaks[0] + 0.1
