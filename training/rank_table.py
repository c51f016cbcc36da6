"""Fitting a rank table: how often the child of each rank was the target's token, over the positions of dense traces."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from treewise.data.cost import CostGrid, CostProfile
from treewise.data.errors import TraceError, require
from treewise.policy.everything import EverythingPolicy
from treewise.policy.hook import DRAFT, Expansion, Level, RequestInfo, RoundOutcome
from treewise.policy.rank_table import MAX_RANKS, RankTable
from treewise.policy.ranking import rank_in_group
from treewise.policy.rule import SOURCE_BITS
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay import replay

CountArray = NDArray[np.int64]
_FREE_OF_CHARGE = CostProfile("none", CostGrid((1,), (0,), ((0.0,),)), CostGrid((1,), (0,), ((0.0,),)))


class RankWatch(EverythingPolicy):
    """Grows all that some sources offer, and counts the ranks of the children that were the target's token.

    Rounds follow each other through the text, so every position is counted once, seen from the round that it fell in.
    """

    def __init__(self, sources: int) -> None:
        super().__init__()
        self._sources = np.uint8(sources)
        self._counting: dict[int, CountArray] = {}
        self._counts: dict[int, CountArray] = {}

    @property
    def counts(self) -> CountArray:
        """[ranks + 1] positions whose token was the child of each rank; last, positions where it was none of them."""
        return sum(self._counts.values(), np.zeros(MAX_RANKS + 1, dtype=np.int64))

    def begin(self, request: RequestInfo) -> None:
        """Count the request from nothing."""
        self._counting[request.request_id] = np.zeros(MAX_RANKS + 1, dtype=np.int64)

    def expand(self, level: Level) -> Expansion:
        """Admit every candidate and ask the sources below it."""
        answer = super().expand(level)
        return Expansion(answer.admit, answer.grow & self._sources)

    def observe(self, outcome: RoundOutcome) -> None:
        """Count the round's path nodes below which every source was asked and the text goes on."""
        nodes = outcome.nodes
        rank = rank_in_group(nodes.prior, nodes.parent)
        asked = outcome.on_path & (nodes.depth < outcome.committed_tokens[nodes.request])
        if self._sources & DRAFT:
            asked &= nodes.drafted
        matched = np.flatnonzero(outcome.match == 1)
        found = np.full(len(rank), MAX_RANKS, dtype=np.int64)  # rank of each row's child that is the target's token
        found[nodes.parent[matched]] = np.minimum(rank[matched], MAX_RANKS)
        for place, request in enumerate(outcome.context.request_id.tolist()):
            mine = asked & (nodes.request == place)
            self._counting[request] += np.bincount(found[mine], minlength=MAX_RANKS + 1)

    def finish(self, request_id: int, reason: str) -> None:
        """Take the request's counts; a request that is driven again, to check a batch, counts once."""
        self._counts.setdefault(request_id, self._counting.pop(request_id))


def fit_rank_table(
    traces: Sequence[LoggedTrace], advance: Callable[[], None] | None = None, origin: tuple[str, ...] = ()
) -> RankTable:
    """Acceptance by rank for every choice of the sources that all `traces` hold, which must be dense.

    Positions below which the envelope forbids the draft are left out. `advance` is called after each request, once for
    every one of `choices_of(traces)`. Raises `TraceError` where a trace is not dense or holds no text.
    """
    choices = choices_of(traces)
    acceptance, positions = {}, {}
    for sources in choices:
        counts = np.zeros(MAX_RANKS + 1, dtype=np.int64)
        for part in (part for trace in traces for part in trace.groups()):
            watch = RankWatch(sources)  # one a part: the next counts its requests from 0 again
            replay(watch, part.requests, part.deployment(_FREE_OF_CHARGE), advance)
            counts += watch.counts
        if not counts.sum():
            raise TraceError("traces must hold at least one position below which the sources were asked, got none")
        known = np.flatnonzero(counts[:-1])
        ranks = int(known[-1]) + 1 if known.size else 1
        acceptance[sources] = tuple((counts[:ranks] / counts.sum()).tolist())
        positions[sources] = int(counts.sum())
    prompts = {entry.prompt_id for trace in traces for entry in trace.entries}
    return RankTable(acceptance, positions, len(prompts), origin)


def choices_of(traces: Sequence[LoggedTrace]) -> tuple[int, ...]:
    """Source bits that a rule may ask and that all `traces` hold. Raises `TraceError` where a trace is not dense."""
    require(len(traces) > 0, "traces", "at least one", len(traces))
    for trace in traces:
        if trace.manifest.kind != "dense":
            raise TraceError(f"trace {trace.name} must be dense to fit a rank table, got {trace.manifest.kind!r}")
    held = int(np.bitwise_and.reduce([trace.sources for trace in traces]))
    return tuple(sorted({held & bits for bits in SOURCE_BITS.values()} - {0}))
