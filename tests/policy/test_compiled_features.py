"""Features as machine code: numpy's bits."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.policy.random_forests import random_context, random_forest
from treewise.policy.features import FEATURES, GROWTH_FEATURES, growth_features, node_features

pytest.importorskip("numba")
compiled = pytest.importorskip("treewise.policy.compiled_features")


def test_every_column_is_written_once() -> None:
    assert sorted(compiled.LOGS + compiled.LOGS_PLUS_ONE + compiled.OTHERS) == sorted(FEATURES)
    below = compiled.BELOW_LOGS + compiled.BELOW_OTHERS
    assert sorted(below) == sorted(name for name in GROWTH_FEATURES if name.startswith("below_"))
    assert GROWTH_FEATURES[-3:] == compiled.CONTEXT


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([1, 1, 2, 5]))
def test_bits_are_those_of_numpy(seed: int, requests: int) -> None:
    rng = np.random.default_rng(seed)
    forest, context = random_forest(rng, requests), random_context(rng, requests)
    rows = rng.permutation(len(forest.parent))[: int(rng.integers(0, 70))]
    inner = rows[forest.parent[rows] >= 0]
    found = compiled.node_features(forest, inner, context)
    expected = node_features(forest, inner, context)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(
        compiled.growth_features(forest, rows, context), growth_features(forest, rows, context)
    )
    np.testing.assert_array_equal(
        compiled.growth_features(forest, inner, context, found), growth_features(forest, inner, context, expected)
    )


def test_described_rows_may_be_the_last_of_more() -> None:
    rng = np.random.default_rng(5)
    forest, context = random_forest(rng, 2, 80), random_context(rng, 2)
    rows = len(forest.parent)
    described = node_features(forest, np.arange(2, rows), context)
    wanted = np.asarray([rows - 9, rows - 2, rows - 4])
    np.testing.assert_array_equal(
        compiled.growth_features(forest, wanted, context, described),
        growth_features(forest, wanted, context, described[wanted - 2]),
    )


def test_columns_that_may_be_written_and_columns_of_blind_rows_are_read() -> None:
    """A driver's views are read-only; a test's or another engine's arrays need not be."""
    rng = np.random.default_rng(1)
    forest, context = random_forest(rng), random_context(rng)
    own = replace(forest, **{field.name: getattr(forest, field.name).copy() for field in fields(forest)})
    rows = np.arange(1, len(forest.parent))
    np.testing.assert_array_equal(compiled.node_features(own, rows, context), node_features(forest, rows, context))
