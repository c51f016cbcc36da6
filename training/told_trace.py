"""A trace told again: the same rounds, with what a recogniser says of their prompts as what the policy was told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from treewise.data.errors import TraceError
from treewise.data.trace_reader import TraceReader, read_round_columns
from treewise.data.trace_schema import Rounds
from treewise.data.trace_writer import TraceWriter


def tell_trace(folder: Path, told: Mapping[str, str], out: Path, recogniser_sha256: str, command: str = "") -> int:
    """Copy the dense trace in `folder` to `out`, its requests told the tasks `told` (prompt id -> task).

    Replay on the copy tells policies these tasks in place of the prompts' labels. Returns how many requests it holds.
    Raises `TraceError` on a live trace, whose policy was told what it was told, and on a prompt that `told` lacks.
    """
    reader = TraceReader(folder)
    manifest = reader.manifest
    if manifest.kind != "dense":
        raise TraceError(f"trace {folder} must be dense to be told again, got a {manifest.kind} one")
    for path in reader.shard_paths():  # before anything is written
        columns, _ = read_round_columns(path, manifest.identity(), ["prompt_id", "committed"])
        missing = next((prompt for prompt in columns["prompt_id"].tolist() if prompt not in told), None)
        if missing is not None:
            raise TraceError(f"trace {folder} holds prompt {missing!r}, which the prompts given do not")
    hashes = {**manifest.input_hashes, "recogniser": recogniser_sha256}
    count = 0
    with TraceWriter(out, replace(manifest, input_hashes=hashes, command=command or manifest.command)) as writer:
        for shard in reader:
            for request in np.unique(shard.rounds.request):
                part = shard.take(shard.rounds.request == request)
                rounds = {item.name: getattr(part.rounds, item.name) for item in fields(Rounds)}
                rounds["told_task"] = np.full(len(part.rounds), told[str(part.rounds.prompt_id[0])])
                writer.add(Rounds(**rounds), part.nodes)
                count += 1
    return count
