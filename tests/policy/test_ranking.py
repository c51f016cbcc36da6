"""Ranks of rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treewise.policy.ranking import best_in_group, rank_in_group, rooted


@given(st.lists(st.tuples(st.sampled_from([0.1, 0.5, 0.5, 0.9, float("nan")]), st.integers(0, 3), st.booleans())))
def test_rank_counts_the_better_rows_of_the_group(rows: list[tuple[float, int, bool]]) -> None:
    score = np.array([row[0] for row in rows], dtype=np.float32)
    group = np.array([row[1] for row in rows], dtype=np.int32)
    eligible = np.array([row[2] for row in rows], dtype=np.bool_)
    worth = np.nan_to_num(score, nan=-1.0)
    rank = rank_in_group(score, group, eligible)
    for place in range(len(rows)):
        ahead = [
            other
            for other in range(len(rows))
            if group[other] == group[place]
            and (not eligible[other], -worth[other], other) < (not eligible[place], -worth[place], place)
        ]
        assert rank[place] == len(ahead)
    best = best_in_group(score, group, eligible, 2)
    assert (best == (eligible & (rank < 2))).all()


@pytest.mark.parametrize("groups", [1, 40, 3_000])
def test_many_rows_are_ranked_as_few_are(groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(groups)
    scores = np.concatenate([rng.random(30), [np.nan, -np.inf, np.inf, 0.0, -0.0, -0.25, 1e-40]]).astype(np.float32)
    score, eligible = rng.choice(scores, 5_000), rng.random(5_000) < 0.5
    group = rng.integers(-1, groups, 5_000).astype(np.int32)
    found = [rank_in_group(score, group, chosen) for chosen in (None, eligible)]
    monkeypatch.setattr("treewise.policy.ranking._PACKED", 0)
    for packed, chosen in zip(found, (None, eligible), strict=True):
        np.testing.assert_array_equal(packed, rank_in_group(score, group, chosen))


def test_rooted_drops_rows_below_a_gap() -> None:
    parent = np.array([-1, 0, 1, 2, 0, 4], dtype=np.int32)
    eligible = np.array([False, True, False, True, True, True])
    assert rooted(eligible, parent).tolist() == [True, True, False, False, True, True]
