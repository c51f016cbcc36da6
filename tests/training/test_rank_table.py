"""Fitting a rank table."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tests.training.worlds import ALL, COST, World, as_trace, dense_trace, manifest
from treewise.data.envelope import Envelope
from treewise.data.errors import ParameterError, TraceError
from treewise.data.trace_schema import concatenate
from treewise.policy.everything import EverythingPolicy
from treewise.policy.hook import DRAFT, FREE, LOOKUP, RECYCLED, Expansion, Level
from treewise.policy.outcome import Walk
from treewise.policy.round import RoundTree
from treewise.policy.sequoia import offline_tree
from treewise.training.logged import LoggedRequest
from treewise.training.logged_trace import LoggedTrace
from treewise.training.rank_table import choices_of, fit_rank_table
from treewise.training.replay import Replayer

ENVELOPE = Envelope(max_depth=5, draft_width=4)
NONE = -1  # in place of a rank: no child was the target's token


@cache
def trace(sources: int = ALL) -> LoggedTrace:
    return dense_trace(World(seed=5, num_texts=4, answer_tokens=24), ENVELOPE, sources=sources)


class Some(EverythingPolicy):
    """Everything that some sources hold."""

    def __init__(self, sources: int) -> None:
        super().__init__()
        self.sources = np.uint8(sources)

    def expand(self, level: Level) -> Expansion:
        answer = super().expand(level)
        return Expansion(answer.admit, answer.grow & self.sources)


def by_hand(log: LoggedTrace, sources: int) -> Counter[int]:
    """How often each rank was the target's token, walking down every round's path one node at a time."""
    ranks: Counter[int] = Counter()

    def watch(request: LoggedRequest, position: int, tree: RoundTree, walk: Walk) -> None:
        nodes, row = tree.forest.view(), 0
        for depth in range(len(walk.tokens[0])):
            children = np.flatnonzero(nodes.parent == row).tolist()
            order = sorted(children, key=lambda child: (-float(nodes.prior[child]), child))
            matching = [rank for rank, child in enumerate(order) if walk.match[child] == 1]
            assert position + depth + 1 < request.end_position
            if nodes.drafted[row] or not sources & DRAFT:
                ranks[matching[0] if matching else NONE] += 1
            if matching:
                row = order[matching[0]]

    replayer = Replayer(Some(sources), log.deployment(COST), watch)
    for request in log.requests:
        replayer.run(request)
    return ranks


@pytest.mark.parametrize("sources", [DRAFT, LOOKUP, FREE, ALL])
def test_every_position_counts_once_by_the_rank_that_was_right(sources: int) -> None:
    ranks = by_hand(trace(), sources)
    table = fit_rank_table([trace()])
    assert table.positions[sources] == sum(ranks.values())
    if not sources & DRAFT:
        assert table.positions[sources] == sum(request.num_tokens for request in trace().requests)
    found = table.of(sources)
    assert found == pytest.approx([ranks[rank] / sum(ranks.values()) for rank in range(len(found))])
    assert max(ranks) == len(found) - 1 > 0
    assert found[0] > 0.1


def test_choices_are_those_that_all_traces_hold() -> None:
    assert choices_of([trace()]) == (LOOKUP, DRAFT, LOOKUP | DRAFT, RECYCLED, FREE, ALL)
    assert choices_of([trace(), trace(LOOKUP | DRAFT)]) == (LOOKUP, DRAFT, LOOKUP | DRAFT)
    assert set(fit_rank_table([trace(DRAFT)]).acceptance) == {DRAFT}


def test_traces_and_shards_are_counted_together() -> None:
    shard = trace().requests[0].shard
    two = as_trace(concatenate([shard, shard]), manifest("dense", ENVELOPE.widened()))
    one, twice, joint = (fit_rank_table(traces) for traces in ([trace()], [trace(), trace()], [two]))
    assert twice.positions == {sources: 2 * count for sources, count in one.positions.items()}
    for sources in one.acceptance:
        assert twice.of(sources) == pytest.approx(one.of(sources))
        assert joint.of(sources) == one.of(sources)  # a prompt counts once in a trace
    assert (one.prompts, twice.prompts) == (4, 4)


def test_every_request_and_choice_advances_once() -> None:
    steps: list[int] = []
    table = fit_rank_table([trace()], lambda: steps.append(1), ("here",))
    assert len(steps) == len(choices_of([trace()])) * len(trace().requests)
    assert table.origin == ("here",)


def test_the_tree_of_a_trace_has_more_tokens_with_more_sources() -> None:
    table, bound = fit_rank_table([trace()]), trace().deployment(COST)
    tokens = [offline_tree(table, sources, bound, nodes=12, depth=3).tokens for sources in (DRAFT, ALL)]
    assert tokens[1] > tokens[0] > 1.0


def test_traces_that_are_not_dense_are_refused() -> None:
    live = replace(trace(), manifest=manifest("live", ENVELOPE, "chain:3"))
    with pytest.raises(TraceError, match="trace world must be dense to fit a rank table, got 'live'"):
        fit_rank_table([live])
    with pytest.raises(ParameterError, match="traces must be at least one, got 0"):
        fit_rank_table([])
