"""What a trace holds, request by request, read without its candidates: traces are larger than memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treewise.data.errors import ShardError, TraceError
from treewise.data.trace_reader import TraceReader, count_nodes, read_round_columns

_COLUMNS = [
    *("request", "prompt_id", "task", "seed", "position", "prompt_tokens", "committed", "num_nodes", "opening"),
    *("lookup_match_length", "recycled_order"),
]


@dataclass(frozen=True, slots=True)
class ListedRequest:
    """One request of a trace."""

    prompt_id: str
    task: str
    seed: int
    prompt_tokens: int
    num_tokens: int  # of its completion
    num_rounds: int
    num_nodes: int  # candidates
    shard: int  # place of its shard among the listed ones


@dataclass(frozen=True, slots=True)
class TraceListing:
    """The requests of every shard, in order, and what their rounds say about the sources."""

    shards: tuple[str, ...]  # names of their folders
    requests: tuple[ListedRequest, ...]
    opening: int  # source bits that any round asked at its root
    has_lookup: bool  # whether any round says how long a match the lookup had
    has_recycled: bool  # the same of the recycled guesses


def list_trace(reader: TraceReader) -> TraceListing:
    """The listing of the trace that `reader` has open; about a hundredth of the trace is read.

    Raises `ShardError` on a shard that is corrupted, truncated or of another trace, as far as its rounds and the frame
    of its nodes show it, and `TraceError` where there is no shard, or where a request's text has gaps.
    """
    identity = reader.manifest.identity()
    requests: list[ListedRequest] = []
    opening, has_lookup, has_recycled = 0, False, False
    paths = reader.shard_paths()
    if not paths:
        raise TraceError(f"{reader.folder} must hold at least one readable shard, got none")
    for place, path in enumerate(paths):
        columns, lengths = read_round_columns(path, identity, _COLUMNS)
        nodes, promised = count_nodes(path, identity), int(columns["num_nodes"].sum(dtype=np.int64))
        if nodes != promised:
            raise ShardError(f"{path}: rounds.num_nodes must add up to the {nodes} nodes, got {promised}")
        opening |= int(np.bitwise_or.reduce(columns["opening"], initial=0))
        has_lookup |= not np.isnan(columns["lookup_match_length"]).all()
        has_recycled |= not np.isnan(columns["recycled_order"]).all()
        starts = np.flatnonzero(np.diff(columns["request"], prepend=-1) != 0)
        ends = columns["position"].astype(np.int64) + lengths
        expected = np.concatenate([[0], ends[:-1]])
        expected[starts] = columns["prompt_tokens"][starts] - 1
        if (gaps := np.flatnonzero(columns["position"] != expected)).size:
            prompt = columns["prompt_id"][gaps[0]]
            raise TraceError(f"prompt {prompt}: rounds must hold its text from the prompt on, without gaps")
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(lengths)], strict=True):
            requests.append(
                ListedRequest(
                    prompt_id=str(columns["prompt_id"][start]),
                    task=str(columns["task"][start]),
                    seed=int(columns["seed"][start]),
                    prompt_tokens=int(columns["prompt_tokens"][start]),
                    num_tokens=int(lengths[start:stop].sum()),
                    num_rounds=stop - start,
                    num_nodes=int(columns["num_nodes"][start:stop].sum(dtype=np.int64)),
                    shard=place,
                )
            )
    return TraceListing(tuple(path.name for path in paths), tuple(requests), opening, has_lookup, has_recycled)
