"""The table: cells that hold their rates, shrunk to coarser ones, in the same form as a forest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from treewise.data.errors import ParameterError
from treewise.policy.flat_scorer import FlatScorer
from treewise.training.calibrate import log_odds, sigmoid
from treewise.training.cross_fit import FitRows
from treewise.training.export import PARITY, export_onnx, parity
from treewise.training.match_model import ForestSettings
from treewise.training.report import figures
from treewise.training.table_model import SIGNALS, TableModel, TableSettings, shrunken
from treewise.training.tree_text import Tree, read_trees

NAMES = (*SIGNALS, "noise")


@pytest.fixture(scope="module")
def rows() -> FitRows:
    """Rows whose rate is one of nine, by two of the signals."""
    draw = np.random.default_rng(4)
    x = draw.normal(size=(9000, len(NAMES))).astype(np.float32)
    x[:, 0] = draw.integers(0, 3, len(x))
    x[:, 1] = draw.integers(0, 3, len(x))
    x[draw.random(len(x)) < 0.1, 2] = np.nan
    label = (draw.random(len(x)) < rate(x)).astype(np.int8)
    fold = (np.arange(len(x)) // 100 % 5).astype(np.int64)
    return FitRows(x, label, np.ones(len(x), dtype=np.float32), fold, NAMES)


def rate(x: NDArray[Any]) -> NDArray[Any]:
    """The law."""
    return np.asarray(np.where(x[:, 0] >= x[:, 1], 0.8, 0.05 + 0.1 * x[:, 1]))


def test_cells_find_the_law(rows: FitRows) -> None:
    fitted = TableModel().fit(rows)
    label, weight = rows.label.astype(np.float64), rows.weight.astype(np.float64)
    ours, best = (figures(label, p, weight) for p in (fitted.held_out_probability, rate(rows.x)))
    assert ours.log_loss < best.log_loss + 0.01
    assert ours.ece < 0.03
    assert fitted.trees == 1
    assert fitted.gains[NAMES.index("noise")] == 0.0  # no signal of the table's


def test_every_copy_of_the_table_says_the_same(rows: FitRows) -> None:
    fitted = TableModel().fit(rows)
    graph = export_onnx(fitted.text, fitted.calibration, fitted.features)
    assert parity(graph, fitted.text, fitted.calibration, rows.x[:500]) <= PARITY
    flat = FlatScorer(fitted.text, fitted.calibration).score(rows.x[:500])
    (tree,) = read_trees(fitted.text)
    assert len(np.unique(flat)) <= len(tree.leaf) <= 64
    assert TableModel().fit(rows).text == fitted.text


def test_cells_are_drawn_towards_the_cell_that_they_were_cut_from() -> None:
    """Two cuts: {0} against the rest, then {1} against {2}."""
    tree = Tree(
        feature=np.asarray([0, 0], dtype=np.int32),
        threshold=np.asarray([0.5, 1.5]),
        nan_goes_left=np.asarray([True, True]),
        left=np.asarray([-1, -2], dtype=np.int32),
        right=np.asarray([1, -3], dtype=np.int32),
        leaf=np.zeros(3),
    )
    mass, hits = np.asarray([1000.0, 10.0, 0.0]), np.asarray([100.0, 9.0, 0.0])
    raw = shrunken(tree, mass, hits, 1e-9)
    np.testing.assert_allclose(raw[:2], [0.1, 0.9], atol=1e-6)
    assert raw[2] == pytest.approx(0.9, abs=1e-6)  # nothing is known but the coarser cell
    whole = (109 + 0.5) / 1011
    coarse = (9 + 10 * whole) / 20
    np.testing.assert_allclose(
        shrunken(tree, mass, hits, 10), [(100 + 10 * whole) / 1010, (9 + 10 * coarse) / 20, coarse]
    )
    np.testing.assert_allclose(shrunken(tree, mass, hits, 1e12), whole, rtol=1e-6)
    np.testing.assert_allclose(sigmoid(log_odds(raw)), raw, atol=1e-6)


def test_few_rows_are_shrunk_more(rows: FitRows) -> None:
    """With labels that are noise, the best guess is the whole's rate, and small cells are held near it."""
    noise = np.random.default_rng(1).integers(0, 2, len(rows.x)).astype(np.int8)
    part = slice(0, 600)
    few = FitRows(rows.x[part], noise[part], rows.weight[part], rows.fold[part], NAMES)
    fitted = TableModel(TableSettings(forest=ForestSettings(min_leaf_rows=5))).fit(few)
    found = figures(few.label.astype(np.float64), fitted.held_out_probability, few.weight.astype(np.float64))
    assert found.log_loss < 0.72


def test_settings_that_cannot_be_used_are_refused(rows: FitRows) -> None:
    with pytest.raises(ParameterError, match="cells must be between 2 and 64"):
        TableSettings(cells=65)
    with pytest.raises(ParameterError, match="signals must be at least one"):
        TableSettings(signals=())
    lone = TableModel(TableSettings(signals=("noise",))).fit(replace(rows, label=np.zeros_like(rows.label)))
    assert float(lone.held_out_probability.max()) < 0.02
