"""A feedback controller: wide and deep while guesses come true, small while they fail and where the context is long."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treewise.data.errors import require
from treewise.policy.budget import Float64Array
from treewise.policy.hook import (
    DRAFT,
    BoolArray,
    Expansion,
    ForestView,
    Int32Array,
    Level,
    RequestInfo,
    RoundContext,
    RoundOutcome,
    State,
)
from treewise.policy.ranking import top_nodes
from treewise.policy.rule import RulePolicy, SourceChoice
from treewise.policy.topn import beam


@dataclass(frozen=True, slots=True)
class FeedbackSettings(SourceChoice):
    """Settings of `FeedbackPolicy`; node budget, beam and growths are those of the largest tree."""

    nodes: int = 48  # node budget
    depth: int = 6  # draft growths
    beam: int = 8  # nodes of one level that the draft grows below
    headroom: float = 0.7  # growths beyond the recent accepted length
    gain: float = 0.25  # weight of the last round in that length
    context_tokens: int = 0  # of context at which a tree is half as large as without; 0: context does not matter
    probe_rounds: int = 16  # rounds without a growth after which one is made; 0: never

    def __post_init__(self) -> None:
        SourceChoice.__post_init__(self)
        require(1 <= self.nodes <= 1024, "nodes", "between 1 and 1024", self.nodes)
        require(1 <= self.depth <= 64, "depth", "between 1 and 64", self.depth)
        require(1 <= self.beam <= 256, "beam", "between 1 and 256", self.beam)
        require(0.0 <= self.headroom <= 64.0, "headroom", "between 0 and 64", self.headroom)
        require(0.0 < self.gain <= 1.0, "gain", "above 0 and at most 1", self.gain)
        require(0 <= self.context_tokens <= 1_000_000_000, "context_tokens", "at least 0", self.context_tokens)
        require(0 <= self.probe_rounds <= 1_000_000, "probe_rounds", "at least 0", self.probe_rounds)


@dataclass(slots=True)
class _Record:
    """What one request's rounds have come to."""

    size: float  # draft growths that the tree is worth, between 0 and `depth`
    rounds_without_draft: int = 0


class FeedbackPolicy(RulePolicy[FeedbackSettings]):
    """Sets growths, beam and node budget by the accepted lengths of the request's own rounds so far.

    The size of a request's trees is a moving average of its accepted lengths plus `headroom`, at most `depth`: a tree
    that is accepted whole makes the next one larger, one that fails makes it smaller, down to no growth at all. Growths
    are the size, rounded; beam and node budget are the same share of theirs as the size is of `depth`.
    """

    name = "feedback"
    settings_type = FeedbackSettings
    positional = ("nodes", "depth")
    state: State = "request"

    def __init__(self, settings: FeedbackSettings | None = None) -> None:
        super().__init__(settings)
        self._records: dict[int, _Record] = {}

    def begin(self, request: RequestInfo) -> None:
        """Start half way."""
        self._records[request.request_id] = _Record(self.settings.depth / 2)

    def expand(self, level: Level) -> Expansion:
        """Admits everything, looks up everywhere, drafts below the level's beam as often as the size says."""
        admit = np.ones(len(level.candidates.parent), dtype=np.bool_)
        grow = self._grow(level, admit, ~DRAFT)
        request = level.candidates.request
        sizes = self._sizes(level.context)
        width = self._share_of(self.settings.beam, sizes)
        drafts = (level.index < self._growths(level.context, sizes))[request] & beam(level, width[request])
        return Expansion(admit, grow | self._grow(level, drafts, DRAFT))

    def select(self, forest: ForestView) -> BoolArray:
        """The node budget of each request's size, spent by path prior."""
        budget = self._share_of(self.settings.nodes, self._sizes(forest.context))
        return top_nodes(forest.nodes, budget[forest.nodes.request])

    def observe(self, outcome: RoundOutcome) -> None:
        """Move each size towards the accepted length plus the headroom; a round that verified nothing says nothing."""
        settings, nodes = self.settings, outcome.nodes
        verified = np.bincount(nodes.request[outcome.kept], minlength=len(outcome.accepted_length)) - 1
        for place, request in enumerate(outcome.context.request_id.tolist()):
            record = self._records[request]
            if verified[place]:
                wanted = float(outcome.accepted_length[place]) + settings.headroom
                record.size = min(record.size + settings.gain * (wanted - record.size), float(settings.depth))
            record.rounds_without_draft = 0 if nodes.drafted[place] else record.rounds_without_draft + 1

    def finish(self, request_id: int, reason: str) -> None:
        """Forget the request."""
        self._records.pop(request_id, None)

    def _sizes(self, context: RoundContext) -> Float64Array:
        """Size of each request's tree once its context is counted, [requests]."""
        sizes = np.asarray([self._records[request].size for request in context.request_id.tolist()])
        if self.settings.context_tokens:
            sizes /= 1.0 + context.position / self.settings.context_tokens
        return sizes

    def _growths(self, context: RoundContext, sizes: Float64Array) -> Int32Array:
        """Draft growths of each request, [requests]."""
        growths = _rounded(sizes)
        probe = self.settings.probe_rounds
        if probe:
            waited = [self._records[request].rounds_without_draft for request in context.request_id.tolist()]
            growths[(growths == 0) & (np.asarray(waited) >= probe)] = 1
        return growths

    def _share_of(self, most: int, sizes: Float64Array) -> Int32Array:
        """What a bound of `most` is at these sizes, at least 1, [requests]."""
        return np.maximum(_rounded(most * sizes / self.settings.depth), 1)


def _rounded(sizes: Float64Array) -> Int32Array:
    return np.floor(sizes + 0.5).astype(np.int32)
