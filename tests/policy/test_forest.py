"""The forest of one round: growth, views, closure."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treewise.policy.forest import COLUMNS, Forest, close_upward

PARENTS = [-1, 0, 0, 1, 1, 3]
DEPTHS = [0, 1, 1, 2, 2, 3]


def small(capacity: int = 2) -> Forest:
    forest = Forest(capacity)
    assert forest.append(1) == slice(0, 1)
    assert forest.append(5) == slice(1, 6)
    forest.column("parent")[:] = PARENTS
    forest.column("depth")[:] = DEPTHS
    forest.column("token")[:] = [9, 1, 2, 3, 4, 5]
    forest.column("prior")[:] = [1, 0.5, 0.25, 0.5, 0.5, 0.5]
    forest.column("admitted")[:] = [1, 1, 0, 1, 0, 0]
    return forest


def test_rows_keep_their_values_when_the_columns_widen() -> None:
    forest = small()
    forest.append(50)
    assert forest.num_rows == 56
    assert forest.column("parent")[:6].tolist() == PARENTS
    assert np.isnan(forest.column("draft_prob")[6:]).all()
    assert (forest.column("path_prior")[6:] == 1).all()
    forest.clear()
    assert forest.num_rows == 0
    forest.append(6)
    assert forest.column("parent").tolist() == [-1] * 6  # nothing of the last round is left
    assert not forest.column("admitted").any()


def test_views_are_read_only_slices() -> None:
    forest = small()
    view = forest.view(2, 4)
    assert view.token.tolist() == [2, 3]
    for name in COLUMNS:
        column = getattr(view, name)
        assert len(column) == 2
        with pytest.raises(ValueError, match="read-only"):
            column[:] = 0
    forest.column("token")[2] = 7  # the driver may still write, and the view shows it
    assert view.token[0] == 7


def test_path_priors_are_products() -> None:
    forest = small()
    forest.update_path_priors(1)
    assert forest.column("path_prior").tolist() == [1, 0.5, 0.25, 0.25, 0.25, 0.125]


@given(st.data(), st.integers(1, 30))
def test_closing_upward_adds_ancestors_alone(data: st.DataObject, rows: int) -> None:
    parents = np.asarray([-1, *(data.draw(st.integers(-1, row - 1)) for row in range(1, rows))], dtype=np.int32)
    keep = np.asarray(data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows)))
    before = keep.copy()
    expected = set()
    for row in np.flatnonzero(keep).tolist():
        while row >= 0:
            expected.add(row)
            row = int(parents[row])
    assert set(np.flatnonzero(close_upward(keep, parents)).tolist()) == expected
    assert (keep == before).all()


@pytest.mark.parametrize(
    ("column", "row", "value"),
    [
        ("parent", 3, 5),
        ("depth", 3, 1),
        ("depth", 0, 1),
        ("prior", 2, 1.5),
        ("grown", 2, 1),
        ("admitted", 5, True),
        ("token", 2, 1),
    ],
)
def test_integrity_is_checked(column: str, row: int, value: float) -> None:
    forest = small()
    forest.check_integrity()
    forest.column("admitted")[3] = False
    forest.check_integrity()
    forest.column(column)[row] = value
    with pytest.raises(AssertionError):
        forest.check_integrity()
