"""Ranks of rows."""

import numpy as np
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


def test_rooted_drops_rows_below_a_gap() -> None:
    parent = np.array([-1, 0, 1, 2, 0, 4], dtype=np.int32)
    eligible = np.array([False, True, False, True, True, True])
    assert rooted(eligible, parent).tolist() == [True, True, False, False, True, True]
