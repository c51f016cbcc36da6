"""Rows of a batch of positions are those of one position at a time."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.training.worlds import World, as_trace, dense, dense_trace, manifest
from treewise.data.envelope import Envelope
from treewise.data.errors import ParameterError
from treewise.policy.hook import DRAFT, FREE, Expansion, Level
from treewise.training import dataset_batch
from treewise.training.dataset import DatasetSettings, build_dataset
from treewise.training.dataset_batch import build_dataset_batched
from treewise.training.logged_trace import LoggedTrace
from treewise.training.path_view import PathView
from treewise.training.rows import Dataset, GrowthRows, MatchRows, TreeRows
from treewise.training.views import View

ENVELOPE = Envelope(max_depth=4, draft_width=3, lookup_width=2, min_path_prior=0.03, min_grow_prior=0.08)
Table = MatchRows | GrowthRows | TreeRows


class WholeView(PathView):
    """A view that grows beside the path as well."""

    def expand(self, level: Level) -> Expansion:
        """All that it asks for."""
        super().expand(level)
        may = level.candidates.may_grow
        return Expansion(np.ones(len(may), dtype=np.bool_), self.wanted(level.forest, level.start, level.index) & may)


@pytest.fixture(scope="module")
def world() -> World:
    return World(seed=1, num_texts=4, answer_tokens=40)


@pytest.fixture(scope="module", params=[True, False], ids=["tokens", "no tokens"])
def trace(world: World, request: pytest.FixtureRequest) -> LoggedTrace:
    return dense_trace(world, ENVELOPE, tokens_included=request.param)


def settings(*views: View) -> DatasetSettings:
    return DatasetSettings(views=views, stride=2)


def in_order(table: Table, leave_out: tuple[str, ...] = ()) -> NDArray[np.float64]:
    """The rows of `table`, sorted."""
    parts = [getattr(table, item.name) for item in fields(table) if item.name not in leave_out]
    columns = np.column_stack([part.astype(np.float64) for part in parts])
    return columns[np.lexsort(np.nan_to_num(columns, nan=-7.0).T)]


def assert_same(first: Dataset, second: Dataset) -> None:
    """The same rows, in whatever order."""
    assert (first.prompts, first.tasks) == (second.prompts, second.tasks)
    assert (first.positions, first.uncovered) == (second.positions, second.uncovered)
    assert len(first.match.label) > 100
    for name in ("match", "growth", "trees"):
        one, two = getattr(first, name), getattr(second, name)
        np.testing.assert_array_equal(in_order(one, ("parent",)), in_order(two, ("parent",)))
        for item in fields(one):
            assert getattr(one, item.name).dtype == getattr(two, item.name).dtype


@pytest.mark.parametrize("view", ["everything", "free_only"])
def test_rows_are_those_of_one_position_at_a_time(trace: LoggedTrace, view: View) -> None:
    found, expected = (build([trace], settings=settings(view)) for build in (build_dataset_batched, build_dataset))
    if view != "everything":  # survival is judged on whole trees, whatever the views
        expected = replace(expected, trees=found.trees)
    assert_same(found, expected)


def test_trees_keep_their_shape(trace: LoggedTrace) -> None:
    trees = build_dataset_batched([trace]).trees
    rows = np.arange(len(trees.parent))
    inner = trees.parent >= 0
    assert inner.any()
    assert (trees.parent < rows).all()
    assert (trees.survives[inner] <= trees.survives[trees.parent[inner]]).all()
    assert (trees.path_prior[inner] <= trees.path_prior[trees.parent[inner]]).all()
    assert (trees.prompt[inner] == trees.prompt[trees.parent[inner]]).all()


def test_rows_do_not_depend_on_the_batch(trace: LoggedTrace, monkeypatch: pytest.MonkeyPatch) -> None:
    together = build_dataset_batched([trace], settings=settings("random"))
    monkeypatch.setattr(dataset_batch, "BATCH_POSITIONS", 1)
    assert_same(together, build_dataset_batched([trace], settings=settings("random")))


def test_nothing_that_grows_beside_the_path_shows(trace: LoggedTrace, monkeypatch: pytest.MonkeyPatch) -> None:
    along = build_dataset_batched([trace], settings=settings("random"))
    monkeypatch.setattr(dataset_batch, "PathView", WholeView)
    whole = build_dataset_batched([trace], settings=settings("random"))
    if whole.uncovered == along.uncovered:
        assert_same(along, whole)
    else:  # what grows beside the path can ask for more than the log holds
        assert whole.uncovered > along.uncovered
        assert len(whole.match.label) < len(along.match.label)


def test_random_views_mix_what_was_asked(trace: LoggedTrace) -> None:
    x = build_dataset_batched([trace], settings=settings("random")).match.x
    unknown = np.isnan(x).mean(axis=0)
    assert ((unknown > 0.02) & (unknown < 0.98)).sum() > 8
    again = build_dataset_batched([trace], settings=settings("random")).match.x
    other = build_dataset_batched([trace], settings=DatasetSettings(views=("random",), stride=2, seed=1)).match.x
    np.testing.assert_array_equal(x, again)
    assert x.shape != other.shape or not np.array_equal(x, other, equal_nan=True)


def test_a_source_alone_has_one_view(world: World) -> None:
    shard = dense(world, world.texts[0], ENVELOPE)
    lone = as_trace(shard, manifest("dense", ENVELOPE))
    for sources in (FREE, DRAFT):
        rows = build_dataset_batched([LoggedTrace(lone.name, lone.manifest, lone.requests, sources)])
        assert np.allclose(rows.match.weight, 1 / 3)
    with pytest.raises(ParameterError, match="traces must be at least one"):
        build_dataset_batched([])
