"""Export: the graph repeats LightGBM on any float32 input."""

from __future__ import annotations

import re
from dataclasses import dataclass

import lightgbm
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from treewise.data.errors import BundleError, ParameterError
from treewise.policy.flat_scorer import FlatScorer
from treewise.policy.scorer import Calibration, OnnxScorer
from treewise.training.calibrate import fit_calibration
from treewise.training.export import PARITY, export_onnx, parity, trial_rows
from treewise.training.tree_text import ZERO, floor32, read_trees, round_thresholds_down

NAMES = ("a", "b", "c")
CURVE = Calibration((-2.0, -0.5, 0.25, 1.5), (-3.0, -1.0, 0.0, 4.0))


@dataclass(frozen=True, slots=True)
class Exported:
    """A small ensemble with every kind of split, and its graph."""

    raw_text: str  # as LightGBM wrote it
    text: str
    x: NDArray[np.float32]
    graph: bytes


def fit(use_missing: bool, seed: int = 0, trees: int = 30) -> tuple[str, NDArray[np.float32]]:
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(3000, 3)).astype(np.float32)
    x[:, 1] = np.round(x[:, 1])  # ties, and zeros of both signs
    if use_missing:
        x[draw.random(x.shape) < 0.2] = np.nan
    odds = np.nan_to_num(x[:, 0]) - np.nan_to_num(x[:, 1]) + np.isnan(x[:, 2])
    label = draw.random(len(x)) < 1 / (1 + np.exp(-odds))
    parameters = {"objective": "binary", "num_leaves": 15, "verbosity": -1, "num_threads": 1, "deterministic": True}
    booster = lightgbm.train(parameters, lightgbm.Dataset(x, label), num_boost_round=trees)
    return booster.model_to_string(), x


@pytest.fixture(scope="module", params=[True, False], ids=["missing", "complete"])
def exported(request: pytest.FixtureRequest) -> Exported:
    raw, x = fit(request.param)
    text = round_thresholds_down(raw)
    return Exported(raw, text, x, export_onnx(text, CURVE, NAMES))


def test_parity_on_natural_and_hostile_rows(exported: Exported) -> None:
    rows = trial_rows(exported.text, exported.x, seed=0)
    assert len(rows) == 4000
    assert np.isnan(rows).any()
    assert np.isinf(rows).any()
    assert parity(exported.graph, exported.text, CURVE, rows) <= PARITY


@given(st.lists(st.lists(st.floats(width=32), min_size=3, max_size=3), min_size=1, max_size=20))
def test_parity_on_any_float32(exported: Exported, rows: list[list[float]]) -> None:
    assert parity(exported.graph, exported.text, CURVE, np.asarray(rows, dtype=np.float32)) <= PARITY


def test_the_policy_scorers_agree_with_the_graph(exported: Exported) -> None:
    rows = trial_rows(exported.text, exported.x, seed=1)
    graph = OnnxScorer(exported.graph).score(rows)
    assert graph == pytest.approx(FlatScorer(exported.text, CURVE).score(rows), abs=PARITY)
    assert graph.shape == (len(rows),)
    assert graph.std() > 0.1


def test_rounding_down_changes_no_answer(exported: Exported) -> None:
    """Rows on a threshold's float32 neighbour above go right in LightGBM; rounding must not send them left."""
    ups = []
    for tree in read_trees(exported.raw_text):
        up = tree.threshold.astype(np.float32)
        ups += [(int(f), u) for f, u, t in zip(tree.feature, up, tree.threshold, strict=True) if u > t]
    assert ups
    rows = np.tile(exported.x[:1], (len(ups), 1))
    for place, (feature, value) in enumerate(ups):
        rows[place, feature] = value
    before = lightgbm.Booster(model_str=exported.raw_text).predict(rows, raw_score=True)
    after = lightgbm.Booster(model_str=exported.text).predict(rows, raw_score=True)
    assert np.array_equal(before, after)
    with pytest.raises(BundleError, match="rounded down"):
        export_onnx(exported.raw_text, CURVE, NAMES)


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(width=32, allow_nan=False))
def test_a_rounded_threshold_parts_float32_values_alike(threshold: float, value: float) -> None:
    value = 0.0 if abs(np.float32(value)) <= ZERO else value  # as LightGBM reads it
    rounded = float(floor32(np.asarray([threshold]))[0])
    assert rounded == np.float32(rounded)
    assert (value <= threshold) == (value <= rounded)


def test_zero_goes_one_way_however_small() -> None:
    draw = np.random.default_rng(0)
    x = np.concatenate([np.zeros((500, 1)), draw.normal(size=(1000, 1))]).astype(np.float32)
    label = np.abs(x[:, 0]) > 0  # both edges of LightGBM's zero become thresholds
    booster = lightgbm.train({"objective": "binary", "verbosity": -1, "num_threads": 1}, lightgbm.Dataset(x, label), 5)
    text = round_thresholds_down(booster.model_to_string())
    tiny = np.asarray([0.0, -0.0, 1e-35, -1e-35, 1.1e-35, -1.1e-35, 1e-40, -1e-40], dtype=np.float32)[:, None]
    assert any(abs(value) < 2e-35 for tree in read_trees(text) for value in tree.threshold)
    assert parity(export_onnx(text, CURVE, ("a",)), text, CURVE, tiny) <= PARITY


def test_a_tree_of_one_leaf_is_a_constant() -> None:
    x = np.zeros((60, 1), dtype=np.float32)
    data = lightgbm.Dataset(x, np.arange(60) % 4 == 0, params={"verbosity": -1})
    text = round_thresholds_down(lightgbm.train({"objective": "binary", "verbosity": -1}, data, 3).model_to_string())
    curve = Calibration((0.0, 1.0), (0.0, 1.0))
    scores = OnnxScorer(export_onnx(text, curve, ("a",))).score(np.asarray([[0.0], [np.nan]], dtype=np.float32))
    assert scores == pytest.approx([0.25, 0.25], abs=1e-5)


def test_the_graph_is_standard_and_the_same_every_time(exported: Exported) -> None:
    model = onnx.load_from_string(exported.graph)
    assert {node.domain for node in model.graph.node} == {"", "ai.onnx.ml"}
    assert exported.graph == export_onnx(exported.text, CURVE, NAMES)
    assert [value.name for value in model.graph.input] == ["features"]
    assert [value.name for value in model.graph.output] == ["probability"]


def test_a_fitted_curve_is_part_of_the_graph(exported: Exported) -> None:
    raw = lightgbm.Booster(model_str=exported.text).predict(exported.x, raw_score=True)
    curve = fit_calibration(np.asarray(raw), np.random.default_rng(0).random(len(exported.x)) < 0.2)
    graph = export_onnx(exported.text, curve, NAMES)
    assert parity(graph, exported.text, curve, exported.x) <= PARITY
    assert parity(exported.graph, exported.text, curve, exported.x) > 0.05


@pytest.mark.parametrize(("kind", "words"), [(1, "categorical"), (4, "zeros as missing")])
def test_splits_that_others_cannot_repeat_are_refused(exported: Exported, kind: int, words: str) -> None:
    text = re.sub(r"decision_type=\S+", f"decision_type={kind}", exported.text)
    text = text.replace("num_cat=0", "num_cat=1") if kind == 1 else text
    with pytest.raises(ParameterError, match=words):
        read_trees(text)
