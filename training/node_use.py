"""What a policy's nodes were used for: replayed rounds counted by accepted length, depth, rank and source."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treewise.data.cost import CostProfile
from treewise.data.envelope import Envelope
from treewise.data.errors import require
from treewise.policy.contain import ContainedPolicy
from treewise.policy.hook import DRAFT, FREE, LOOKUP, RECYCLED
from treewise.policy.outcome import Walk
from treewise.policy.round import RoundTree
from treewise.training.contest import Contender
from treewise.training.explain import ScoringPolicy, survival_of
from treewise.training.logged import LoggedRequest
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay import Replayer
from treewise.training.replay_result import Float64Array, Int64Array

# Who proposed a node, in the order of `by_source`; free are the lookup and the recycled guesses.
SOURCE_NAMES = ("lookup", "recycled", "both free", "draft", "draft + free")
_CLASS_OF = {LOOKUP: 0, RECYCLED: 1, FREE: 2, DRAFT: 3}  # by source bits
BINS = 10  # of a calibration curve


@dataclass(frozen=True, slots=True)
class Use:
    """Verified nodes in classes, and how many of them were accepted."""

    kept: Int64Array  # [classes]
    accepted: Int64Array  # [classes]


@dataclass(frozen=True, slots=True)
class Reliability:
    """Stated probabilities beside what happened, in bins of equal count."""

    stated: Float64Array  # [bins] mean probability
    happened: Float64Array  # [bins] share that matched
    count: Int64Array  # [bins] candidates


@dataclass(frozen=True, slots=True)
class NodeUse:
    """Counts over all replayed rounds of one policy."""

    policy: str
    rounds: int
    accepted_length: Int64Array  # [max depth + 1] rounds by accepted length
    verified_rows: Int64Array  # [most rows + 1] rounds by rows of the verify pass, root included
    by_depth: Use  # classes are depths, from 0: nothing there
    by_rank: Use  # classes are ranks: the draft's where it proposed the node, else the lookup's,
    # else that of the recycled guesses
    by_source: Use  # classes are `SOURCE_NAMES`
    prior: Reliability  # of the candidates below accepted nodes, as the sources have it
    model: Reliability | None  # as the policy has it; None where it has no model


def node_use(
    traces: Sequence[LoggedTrace],
    cost: CostProfile,
    policy: Contender,
    name: str = "",
    envelope: Envelope | None = None,
) -> NodeUse:
    """Replay `policy` on every request of `traces` and count; `name` is what the counts call it, its own by default.

    Raises `CoverageError` where the policy asks for what the log does not hold.
    """
    require(len(traces) > 0, "traces", "at least one", len(traces))
    counter = _Counter()
    for trace in traces:
        counter.policy = ContainedPolicy(policy.make(), time_limit_ms=math.inf)
        replayer = Replayer(counter.policy, trace.deployment(cost, envelope), counter.watch)
        for request in trace.requests:
            replayer.run(request)
            request.release()
    depth = max((envelope or trace.envelope).max_depth for trace in traces)
    return counter.summed(name or policy.name, depth)


class _Counter:
    """Collects columns of every round."""

    def __init__(self) -> None:
        self.policy: ContainedPolicy | None = None  # the one that is replayed
        self._accepted: list[int] = []
        self._rows: list[int] = []
        self._kept: list[NDArray[np.int64]] = []  # each [4, nodes]: depth, rank, source class, on path
        self._known: list[Float64Array] = []  # each [3, candidates]: prior, the policy's probability, match
        self._is_scoring = False

    def watch(self, request: LoggedRequest, position: int, tree: RoundTree, walk: Walk) -> None:
        """One round."""
        assert self.policy is not None
        column = tree.forest.column
        self._is_scoring |= isinstance(self.policy.policy, ScoringPolicy)
        self._accepted.append(int(walk.accepted_length[0]))
        self._rows.append(1 + tree.num_nodes)
        kept = np.flatnonzero(tree.kept)[1:]
        sources = column("sources")[kept]
        free_rank = np.where(sources & LOOKUP, column("lookup_rank")[kept], column("recycled_rank")[kept])
        rank = np.where(sources & DRAFT, column("draft_rank")[kept], free_rank)
        kind = [_CLASS_OF.get(bits, len(SOURCE_NAMES) - 1) for bits in sources.tolist()]
        parts = (column("depth")[kept], np.nan_to_num(rank), kind, walk.on_path[kept])
        self._kept.append(np.stack([np.asarray(part, dtype=np.int64) for part in parts]))
        known = np.flatnonzero(walk.match >= 0)
        survival = survival_of(self.policy, tree, request.is_suspended(position))
        above = survival[column("parent")[known]]
        own = np.divide(survival[known], above, out=np.zeros(len(known)), where=above > 0.0)
        self._known.append(np.stack([column("prior")[known], own, walk.match[known]]).astype(np.float64))

    def summed(self, policy: str, max_depth: int) -> NodeUse:
        """The counts of all rounds."""
        depth, rank, kind, hit = np.concatenate(self._kept, axis=1)
        prior, own, match = np.concatenate(self._known, axis=1)
        return NodeUse(
            policy=policy,
            rounds=len(self._accepted),
            accepted_length=np.bincount(self._accepted, minlength=max_depth + 1).astype(np.int64),
            verified_rows=np.bincount(self._rows).astype(np.int64),
            by_depth=_use(depth, hit, max_depth + 1),
            by_rank=_use(rank, hit, 1),
            by_source=_use(kind, hit, len(SOURCE_NAMES)),
            prior=reliability(prior, match),
            model=reliability(own, match) if self._is_scoring else None,
        )


def _use(kind: Int64Array, hit: Int64Array, classes: int) -> Use:
    kept = np.bincount(kind, minlength=classes)
    accepted = np.bincount(kind[hit > 0], minlength=len(kept))
    return Use(kept.astype(np.int64), accepted.astype(np.int64))


def reliability(stated: Float64Array, match: Float64Array, bins: int = BINS) -> Reliability:
    """Curve of `stated` [n] probabilities against `match` [n] in {0, 1}, in at most `bins` bins of equal count."""
    order = np.argsort(stated, kind="stable")
    parts = [part for part in np.array_split(order, min(bins, max(len(order), 1))) if part.size]
    return Reliability(
        np.asarray([stated[part].mean() for part in parts], dtype=np.float64),
        np.asarray([match[part].mean() for part in parts], dtype=np.float64),
        np.asarray([part.size for part in parts], dtype=np.int64),
    )
