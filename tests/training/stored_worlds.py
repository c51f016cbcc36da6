"""Traces of made-up worlds on disk, in several shards."""

from __future__ import annotations

from pathlib import Path

from tests.training.batch_traces import ENVELOPE
from tests.training.worlds import World, dense, manifest
from treewise.data.trace_schema import TraceShard
from treewise.data.trace_writer import TraceWriter


def request_shards(world: World) -> list[TraceShard]:
    """A dense shard for every text."""
    return [dense(world, text, ENVELOPE.widened()) for text in world.texts]


def write_world(folder: Path, shards: list[TraceShard], shard_rounds: int = 60) -> Path:
    """`shards`, each one request, in shards of about `shard_rounds` rounds."""
    with TraceWriter(folder, manifest("dense", ENVELOPE.widened()), shard_rounds) as writer:
        for shard in shards:
            writer.add(shard.rounds, shard.nodes)
    return folder
