"""Training on millions of candidates, from file to bundle: seconds and memory.

`TREEWISE_BENCH_CANDIDATES=10000000` sets the size; without it the shipped training trace is taken once.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.house.layout import ROOT
from treewise.data.trace_reader import TraceReader
from treewise.data.trace_writer import TraceWriter

pytestmark = pytest.mark.bench

SHIPPED = ROOT / "data" / "assets" / "traces-smollm2-135m" / "train"
CANDIDATES = int(os.environ.get("TREEWISE_BENCH_CANDIDATES", "1"))


def write_copies(folder: Path, candidates: int) -> int:
    """The shipped training trace as often as it takes, every copy with prompts of its own; its candidates."""
    reader = TraceReader(SHIPPED)
    shards = list(reader)
    written, copy = 0, 0
    with TraceWriter(folder, reader.manifest) as writer:
        while written < candidates:
            for shard in shards:
                for request in np.unique(shard.rounds.request):
                    part = shard.take(shard.rounds.request == request)
                    prompts = np.char.add(part.rounds.prompt_id, f"-{copy}")
                    writer.add(replace(part.rounds, prompt_id=prompts), part.nodes)
                    written += len(part.nodes)
            copy += 1
    return written


def test_file_to_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    candidates = write_copies(tmp_path / "trace", CANDIDATES)
    words = ["train", str(tmp_path / "trace"), "--cost", "example-a100-70b", "-o", str(tmp_path / "bundle"), "--json"]
    started, before = time.perf_counter(), os.times()
    done = subprocess.run([sys.executable, "-m", "treewise", *words], capture_output=True, text=True, check=False)
    seconds, after = time.perf_counter() - started, os.times()
    assert done.returncode == 0, done.stderr
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024**2  # GiB
    busy = after.children_user + after.children_system - before.children_user - before.children_system
    report = json.loads(done.stdout)
    rows = f"{report['positions']:,} root positions, {report['match_rows']:,} match rows"
    with capsys.disabled():
        print(f"\n{candidates:,} candidates, {rows}: {seconds:.0f} s, {busy:.0f} CPU seconds, {peak:.1f} GiB")
    assert peak < 8.0
    assert busy < 600.0 * max(candidates / 10e6, 0.2)  # five minutes of two cores for ten million
