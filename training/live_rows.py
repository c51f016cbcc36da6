"""Rounds of a live trace as forests: the candidates that were offered, with the signals they ended with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from treewise.data.envelope import PriorTable
from treewise.data.trace_schema import NodeTable, Rounds
from treewise.policy.draft_ranking import PLAIN, draft_prior
from treewise.policy.forest import Forest
from treewise.policy.hook import DRAFT, Float32Array, Int8Array, Nodes, RoundContext
from treewise.policy.progress import Progress, build_context
from treewise.policy.record import NODE_SIGNALS, ROOT_SIGNALS
from treewise.training.logged import LoggedRequest

_COPIED = ("depth", "token", "level", "sources", *NODE_SIGNALS, "admitted", "grown", "drafted")


@dataclass(frozen=True, slots=True)
class LiveRound:
    """One logged round of a live trace."""

    nodes: Nodes  # [rows] root first
    match: Int8Array  # [rows] 1, 0, or -1 where it is not known; the root reads -1
    context: RoundContext


def live_rounds(request: LoggedRequest, prior_table: PriorTable) -> Iterator[LiveRound]:
    """The rounds of one request of a live trace, their contexts as the engine's were."""
    shard = request.shard
    rounds = shard.rounds
    progress = Progress(request.index, request.prompt_tokens, request.max_new_tokens, request.temperature)
    for position in sorted(request.rows):
        row = request.row_at(position)
        nodes = shard.nodes.take(np.arange(len(shard.nodes))[request.node_rows(row)])
        forest = rebuild_forest(rounds, row, nodes, prior_table, request.ranking)
        match = np.concatenate([np.full(1, -1, dtype=np.int8), nodes.match])
        yield LiveRound(forest.view(), match, build_context([progress]))
        drafted = _drafted_path(bool(rounds.opening[row] & DRAFT), nodes)
        committed = len(rounds.committed_of(row))
        checkable = (progress.draft_seen, position + drafted) if drafted else (position, position)
        progress.advance(
            max(int(rounds.accepted_length[row]), 0),
            committed,
            drafted,
            request.draft_agreement(*checkable),
            request.lookup_agreement(position, position + committed),
            float("nan"),  # features do not read the target's distribution
            float("nan"),
        )


def rebuild_forest(rounds: Rounds, row: int, nodes: NodeTable, prior_table: PriorTable, ranking: str = PLAIN) -> Forest:
    """The forest of the logged round `row` whose candidates are `nodes`; priors are computed anew."""
    forest = Forest(len(nodes) + 1)
    forest.append(len(nodes) + 1)
    for name in ROOT_SIGNALS:
        forest.column(name)[0] = getattr(rounds, name)[row]
    forest.column("admitted")[0] = True
    forest.column("grown")[0] = rounds.opening[row]
    for name in _COPIED:
        forest.column(name)[1:] = getattr(nodes, name)
    forest.column("parent")[1:] = nodes.parent
    forest.column("prior")[1:] = logged_priors(nodes, prior_table, ranking)
    forest.update_path_priors(1)
    return forest


def logged_priors(nodes: NodeTable, prior_table: PriorTable, ranking: str = PLAIN) -> Float32Array:
    """The prior of each of `nodes`, computed anew from its signals, [nodes]."""
    table = np.asarray(prior_table.by_match_length, dtype=np.float64)
    known = ~np.isnan(nodes.lookup_match_length)
    length = np.where(known, nodes.lookup_match_length, 0).astype(np.int64)
    lookup = np.where(known, table[np.minimum(length, len(table) - 1)] * nodes.lookup_share, np.nan)
    free = np.fmax(lookup.astype(np.float32), nodes.recycled_prob)
    prior = np.fmax(free, draft_prior(ranking, nodes.draft_prob, nodes.draft_drawn_prob))
    return np.asarray(np.clip(np.nan_to_num(prior), 0.0, 1.0), dtype=np.float32)


def _drafted_path(root_drafted: bool, nodes: NodeTable) -> int:
    """Rows of the committed path, root first, that the draft ran on without a gap."""
    path = np.flatnonzero(nodes.on_path)
    if not (root_drafted or nodes.drafted.any()):  # a drafted node had its ancestors drafted
        return 0
    order = path[np.argsort(nodes.depth[path])]
    return 1 + int(np.cumprod(nodes.drafted[order]).sum())
