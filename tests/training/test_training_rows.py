"""Rows that a policy is trained on: weights by where rounds open, and sources left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.training.judged import judged_trace
from tests.training.worlds import COST
from treewise.policy.features import FEATURES
from treewise.policy.hook import DRAFT, FREE, LOOKUP, RECYCLED
from treewise.policy.registry import parse_policy
from treewise.training.dataset import DatasetSettings
from treewise.training.dataset_batch import UNVISITED_WEIGHT, build_dataset_batched
from treewise.training.fixed_policy import choose_fixed
from treewise.training.logged_trace import LoggedTrace
from treewise.training.planner_fit import PlannerFitSettings
from treewise.training.rows import Dataset
from treewise.training.training_rows import build_training_rows, count_requests, source_subsets
from treewise.training.visited_roots import visited_roots

SETTINGS = DatasetSettings()


@pytest.fixture(scope="module")
def trace() -> LoggedTrace:
    return judged_trace()


@pytest.fixture(scope="module")
def rows(trace: LoggedTrace) -> Dataset:
    return build_training_rows([trace], COST, None, SETTINGS)


def test_rounds_open_where_replay_says(trace: LoggedTrace) -> None:
    opened = visited_roots(trace, COST)
    assert sorted(opened) == sorted((entry.prompt_id, entry.seed) for entry in trace.entries)
    for request in trace.requests:
        positions = opened[request.prompt_id, request.seed]
        assert request.first_position in positions
        assert positions <= set(request.rows)
    everywhere = sum(len(request.rows) for request in trace.requests)
    assert 0.2 * everywhere < sum(map(len, opened.values())) < 0.9 * everywhere


def test_roots_that_no_round_opens_at_count_little(trace: LoggedTrace, rows: Dataset) -> None:
    assert rows.whole_rows is not None
    plain = build_dataset_batched([trace], settings=SETTINGS)
    assert (rows.positions, rows.uncovered, rows.whole_rows) == (plain.positions, plain.uncovered, len(plain.match.x))
    np.testing.assert_array_equal(rows.match.x[: rows.whole_rows], plain.match.x)
    np.testing.assert_array_equal(rows.trees.x, plain.trees.x)
    share = rows.match.weight[: rows.whole_rows] / plain.match.weight
    np.testing.assert_allclose(np.unique(share), [UNVISITED_WEIGHT, 1.0], rtol=1e-6)
    assert 0.2 < float((share == 1.0).mean()) < 0.9
    # At roots where rounds open, the first guess fails more often.
    label = plain.match.label
    first = (plain.match.prior > 0.2) & (plain.match.x[:, FEATURES.index("depth")] == 1)
    assert label[first & (share == 1.0)].mean() < label[first & (share < 1.0)].mean()


def test_sources_are_left_out_of_some_rows(trace: LoggedTrace, rows: Dataset) -> None:
    parts = source_subsets(trace)
    assert [part.sources for part in parts] == [LOOKUP, DRAFT, FREE]
    assert count_requests([trace]) == 4 * len(trace.requests)
    for sources in (FREE, LOOKUP | DRAFT, LOOKUP):
        left = {part.sources for part in source_subsets(replace(trace, sources=sources))}
        assert left == {kept for kept in (FREE & sources, DRAFT & sources, LOOKUP) if kept} - {sources}
    assert rows.whole_rows is not None
    more = rows.match.x[rows.whole_rows :]
    assert 0.05 < len(more) / rows.whole_rows < 0.8
    recycled = np.isnan(more[:, FEATURES.index("recycled_order")])
    drafted = ~np.isnan(more[:, FEATURES.index("draft_log_prob")])
    assert (recycled & drafted).any(), "some know the draft alone"
    assert (~recycled & ~drafted).any(), "some know the free sources alone"
    assert not (~recycled & drafted).any(), "none knows both"


def test_the_fixed_tree_is_the_fastest_of_those_tried(trace: LoggedTrace) -> None:
    few = PlannerFitSettings(requests=2)
    spec = choose_fixed([trace], COST, few)
    assert parse_policy(spec).state != "session"
    assert spec.startswith(("topn:", "frontier"))
    dear = replace(COST, draft=replace(COST.draft, ms=tuple(tuple(500.0 for _ in row) for row in COST.draft.ms)))
    assert "sources=free" in choose_fixed([trace], dear, few)
    free = replace(trace, sources=FREE)
    assert "draft" not in choose_fixed([free], COST, few)
    assert RECYCLED & free.sources
