"""Traces written for a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.data.traces import manifest, request
from treewise.data.trace_schema import TraceShard, concatenate
from treewise.data.trace_writer import TraceWriter

NAMES = ("a", "bb", "ccc", "dddd", "e")


def write(folder: Path, names: tuple[str, ...] = NAMES, shard_rounds: int = 8, **changes: Any) -> TraceShard:
    """Write one request per name; returns what a reader should find."""
    requests = [request(name) for name in names]
    with TraceWriter(folder, manifest(**changes), shard_rounds) as writer:
        for rounds, nodes in requests:
            writer.add(rounds, nodes)
    return concatenate([TraceShard(*both) for both in requests])
