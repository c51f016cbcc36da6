"""Every position of dense texts: what the target and the draft said there, and how far guesses would have gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.errors import TraceError, require
from treewise.policy.hook import DRAFT
from treewise.training.logged import LoggedRequest
from treewise.training.logged_columns import LoggedColumns
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay_result import Float64Array, Int64Array, TextArray


@dataclass(frozen=True, slots=True)
class Positions:
    """Root positions of dense texts. What the draft said is NaN where it was not asked."""

    prompt_id: TextArray  # [positions]
    task: TextArray  # [positions]
    place: Int64Array  # [positions] completion tokens before the next one
    text_tokens: Int64Array  # [positions] completion tokens of the request
    context_tokens: Int64Array  # [positions] position of the root
    entropy_bits: Float64Array  # [positions] of the target's distribution of the next token; NaN where not logged
    first: Float64Array  # [positions] 1: the draft's first guess, as it ranks them, is the next token
    width: Float64Array  # [positions] 1: one of the draft's logged guesses is
    any_source: Float64Array  # [positions] 1: some source's logged guess is
    run: Float64Array  # [positions] tokens that a tree of the draft's logged guesses would get accepted
    any_run: Float64Array  # [positions] the same for all sources
    stated: Float64Array  # [positions] highest probability in the draft's distribution
    right: Float64Array  # [positions] 1: the token of that probability is the next one
    draft_entropy_bits: Float64Array  # [positions] of the draft's distribution

    def __len__(self) -> int:
        return len(self.prompt_id)


def positions_of(traces: Sequence[LoggedTrace]) -> Positions:
    """The positions of `traces`, request by request. Raises `TraceError` on a live trace."""
    require(len(traces) > 0, "traces", "at least one", len(traces))
    parts: list[tuple[NDArray[Any], ...]] = []
    for trace in traces:
        if trace.manifest.kind != "dense":
            raise TraceError(f"trace {trace.name} must be dense, got a {trace.manifest.kind} one")
        columns: LoggedColumns | None = None
        table = np.zeros((0, 0))
        for request in trace.requests:
            if request.columns is not columns:
                columns, table = request.columns, _table(request)
            parts.append(_of_request(request, table))
    return Positions(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _table(request: LoggedRequest) -> Float64Array:
    """[7, rounds of the request's shard]: the columns of `Positions` from `width` on."""
    shard = request.shard
    nodes, rows = shard.nodes, shard.round_rows()
    on_path = np.flatnonzero(nodes.survives)  # one node a depth, as the text is one path
    row, depth = rows[on_path], nodes.depth[on_path].astype(np.int64)
    any_run = np.zeros(len(shard.rounds), dtype=np.int64)
    np.maximum.at(any_run, row, depth)
    broken = any_run + 1  # depth of the first node on the path that the draft did not propose
    foreign = (nodes.sources[on_path] & DRAFT) == 0
    np.minimum.at(broken, row[foreign], depth[foreign])
    run = broken - 1
    drafted = np.full((3, len(shard.rounds)), np.nan)
    top = np.flatnonzero((nodes.depth == 1) & (nodes.draft_rank == 0) & (nodes.match >= 0))
    drafted[:, rows[top]] = nodes.draft_prob[top], nodes.match[top] == 1, nodes.draft_entropy[top]
    asked = (shard.rounds.opening & DRAFT) > 0
    width, draft_run = (np.where(asked, values, np.nan) for values in (run > 0, run))
    return np.stack([width, any_run > 0, draft_run, any_run, *drafted]).astype(np.float64)


def _of_request(request: LoggedRequest, table: Float64Array) -> tuple[NDArray[Any], ...]:
    """The columns of `Positions`. The last token's entropy was never logged: no root stands on it."""
    places = np.arange(request.first_position, request.end_position - 1)
    rows = np.asarray([request.row_at(place) for place in places.tolist()])
    count = len(rows)
    entropy = np.append(request.shard.rounds.target_entropy[rows[1:]], np.nan).astype(np.float64)
    first = request.draft_agrees[:count].astype(np.float64)
    return (
        np.full(count, request.prompt_id),
        np.full(count, request.task),
        np.arange(count),
        np.full(count, request.num_tokens),
        places,
        entropy,
        np.where(first < 0, np.nan, first),
        *table[:, rows],
    )
