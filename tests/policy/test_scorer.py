"""Scorers: the same trees under onnxruntime, LightGBM, numpy and as machine code, on any float32 input."""

from __future__ import annotations

import builtins
import sys
from functools import cache

import lightgbm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.policy.models import CURVE, labelled_rows, make_model, train_text
from treewise.data.errors import BundleError, MissingExtraError, ParameterError
from treewise.policy.bundle import Model
from treewise.policy.compiled_scorer import CompiledScorer
from treewise.policy.features import FEATURES
from treewise.policy.flat_scorer import FlatScorer, FlatTrees
from treewise.policy.hook import Float32Array
from treewise.policy.learned import make_scorer
from treewise.policy.scorer import IDENTITY, PROBABILITY_FLOOR, Calibration, LightGBMScorer, OnnxScorer, Scorer

SPECIAL = (0.0, -0.0, 1e-35, -1e-35, 2e-35, 1e-38, 1.0, -1.0, 3e38, -3e38, np.inf, -np.inf, np.nan)


def noise(rows: int = 3000) -> tuple[Float32Array, NDArray[np.int8]]:
    """(features with holes [rows, features], labels [rows])"""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(rows, len(FEATURES))).astype(np.float32)
    label = (x[:, 0] + x[:, 1] * x[:, 2] + draw.normal(size=rows) > 0).astype(np.int8)
    x[draw.random(x.shape) < 0.2] = np.nan
    return x, label


@cache
def model(leaves: int = 7) -> Model:
    rows = labelled_rows() if leaves == 7 else noise()
    return make_model(train_text(*rows, trees=20, leaves=leaves), FEATURES)


@cache
def scorers(leaves: int = 7) -> tuple[Scorer, ...]:
    of = model(leaves)
    return OnnxScorer(of.graph), LightGBMScorer(of.text, CURVE), FlatScorer(of.text, CURVE), compiled_scorer(leaves)


@cache
def compiled_scorer(leaves: int = 7) -> CompiledScorer:
    return CompiledScorer(model(leaves).text, CURVE)


def assert_parity(rows: Float32Array, leaves: int = 7) -> None:
    first, *others = (scorer.score(rows) for scorer in scorers(leaves))
    assert first.shape == (len(rows),)
    assert first.dtype == np.float32
    for other in others:
        assert other.shape == first.shape
        assert other.dtype == np.float32
        np.testing.assert_allclose(other, first, rtol=0, atol=1e-5)


@cache
def edges() -> Float32Array:
    """Every threshold, its two neighbours, and the special values."""
    thresholds = FlatTrees.parse(model().text).threshold[:, 0]
    infinity = np.float32(np.inf)
    near = [thresholds, np.nextafter(thresholds, infinity), np.nextafter(thresholds, -infinity)]
    return np.concatenate([*near, np.asarray(SPECIAL, dtype=np.float32)])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_parity_on_thresholds_and_special_values(seed: int, rows: int) -> None:
    draw = np.random.default_rng(seed)
    assert_parity(draw.choice(edges(), size=(rows, len(FEATURES))))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(width=32), min_size=len(FEATURES), max_size=len(FEATURES)))
def test_parity_on_any_float32(values: list[float]) -> None:
    assert_parity(np.asarray([values], dtype=np.float32))


@pytest.mark.parametrize("leaves", [2, 3, 16, 17, 31, 64])
def test_parity_for_trees_of_any_size(leaves: int) -> None:
    assert FlatTrees.parse(model(leaves).text).leaf.shape[1] == leaves
    assert_parity(noise()[0], leaves)


def test_no_rows_have_no_scores() -> None:
    for scorer in scorers():
        assert scorer.score(np.zeros((0, len(FEATURES)), dtype=np.float32)).shape == (0,)


@pytest.mark.parametrize("leaves", [2, 16, 64])
def test_machine_code_sums_as_lightgbm_does_whatever_the_batch(leaves: int) -> None:
    """The same float64 bits, in one batch, in small ones and alone."""
    scorer = compiled_scorer(leaves)
    rows = np.concatenate([noise(200)[0], np.random.default_rng(3).choice(edges(), size=(200, len(FEATURES)))])
    together = scorer.log_odds(rows)
    booster = lightgbm.Booster(model_str=model(leaves).text)
    np.testing.assert_array_equal(together, booster.predict(rows, raw_score=True, num_threads=1))
    np.testing.assert_array_equal(together, np.concatenate([scorer.log_odds(rows[at : at + 1]) for at in range(400)]))
    np.testing.assert_array_equal(together, np.concatenate([scorer.log_odds(part) for part in np.split(rows, 16)]))
    np.testing.assert_array_equal(scorer.score(rows), scorer.score(np.asfortranarray(rows)))


def test_machine_code_refuses_another_number_of_features() -> None:
    with pytest.raises(ParameterError, match=rf"features must be \[n, {len(FEATURES)}\], got \(3, 2\)"):
        compiled_scorer().score(np.zeros((3, 2), dtype=np.float32))


def test_a_tree_of_one_leaf() -> None:
    x = np.zeros((50, 2), dtype=np.float32)
    text = train_text(x, (np.arange(50) % 3 == 0).astype(np.int8), trees=1)
    rows = np.asarray([[0, 1], [np.nan, np.inf]], dtype=np.float32)
    flat = FlatScorer(text, IDENTITY).score(rows)
    np.testing.assert_allclose(flat, LightGBMScorer(text, IDENTITY).score(rows), atol=1e-6)
    assert flat[0] == flat[1]
    np.testing.assert_allclose(CompiledScorer(text, IDENTITY).score(rows), flat, atol=1e-6)


def test_calibration_by_hand() -> None:
    curve = Calibration((-1.0, 0.0, 2.0), (-3.0, 0.0, 1.0))

    def odds(probability: float) -> float:
        return float(np.log(probability / (1 - probability)))

    given_scores = np.asarray([-2.0, -1.0, -0.5, 0.0, 1.0, 2.0, 4.0])
    expected = [-6.0, -3.0, -1.5, 0.0, 0.5, 1.0, 2.0]
    assert [odds(p) for p in curve.apply(given_scores)] == pytest.approx(expected)
    assert curve.apply(np.asarray([-1e9, 1e9])).tolist() == [PROBABILITY_FLOOR, 1 - PROBABILITY_FLOOR]


@given(st.lists(st.tuples(st.floats(0.01, 3), st.floats(0.01, 3)), min_size=1, max_size=8), st.floats(-4, 4))
def test_calibration_keeps_the_order(steps: list[tuple[float, float]], start: float) -> None:
    x, y = np.cumsum([(start, -start), *steps], axis=0).T
    curve = Calibration(tuple(x.tolist()), tuple(y.tolist()))
    inside = curve.apply(np.linspace(-4, 4, 60))
    free = (inside > PROBABILITY_FLOOR) & (inside < 1 - PROBABILITY_FLOOR)
    assert (np.diff(inside[free]) > 0).all()
    assert (np.diff(inside) >= 0).all()
    assert Calibration.from_json(curve.to_json()) == curve


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ((0.0,), (0.0,), "knots_x must be at least two knots"),
        ((0.0, 1.0), (0.0,), "knots_y must be as many as knots_x"),
        ((0.0, 0.0), (0.0, 1.0), "knots_x must be finite and strictly ascending"),
        ((0.0, 1.0), (1.0, 1.0), "knots_y must be finite and strictly ascending"),
        ((0.0, float("inf")), (0.0, 1.0), "knots_x must be finite"),
    ],
)
def test_bad_calibrations(x: tuple[float, ...], y: tuple[float, ...], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Calibration(x, y)


@pytest.mark.parametrize("name", ["onnxruntime", "lightgbm"])
def test_a_missing_extra_names_its_cure(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def refuse(module: str, *rest: object, **more: object) -> object:
        if module.split(".")[0] == name:
            raise ImportError(name)
        return imported(module, *rest, **more)  # type: ignore[arg-type]

    of = model()
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", refuse)
    extra = "onnx" if name == "onnxruntime" else name
    with pytest.raises(MissingExtraError, match=rf"pip install treewise\[{extra}\]"):
        make_scorer(of, "onnx" if name == "onnxruntime" else "lightgbm")
    expected = FlatScorer if name == "onnxruntime" else OnnxScorer
    assert isinstance(make_scorer(of, "auto", compiled="off"), expected)


def test_numba_is_used_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    of = model()
    assert isinstance(make_scorer(of), CompiledScorer)
    assert isinstance(make_scorer(of, compiled="on"), CompiledScorer)
    assert isinstance(make_scorer(of, "onnx", compiled="on"), OnnxScorer)
    with pytest.raises(ParameterError, match="compiled must be one of auto, on, off, got 'yes'"):
        make_scorer(of, compiled="yes")  # type: ignore[arg-type]
    monkeypatch.setattr("treewise.policy.learned.find_spec", lambda name: None)
    assert isinstance(make_scorer(of), OnnxScorer)
    for name, compiled in (("compiled", "auto"), ("auto", "on")):
        with pytest.raises(MissingExtraError, match=r"numba is not installed.*pip install treewise\[fast\]"):
            make_scorer(of, name, compiled)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "at least one tree"),
        ("tree\nmax_feature_idx=1\n\nTree=0\nnum_leaves=2\n", "breaks off at 'leaf_value'"),
        (
            "tree\nmax_feature_idx=0\n\nTree=0\nnum_cat=1\nleaf_value=1 2\n",
            "without categorical splits",
        ),
        (
            "tree\nmax_feature_idx=0\n\nTree=0\nleaf_value=1 2\nsplit_feature=3\nthreshold=1\ndecision_type=2\n"
            "left_child=-1\nright_child=-2\n",
            "features below 1, got 3",
        ),
        (
            "tree\nmax_feature_idx=0\n\nTree=0\nleaf_value=1 2\nsplit_feature=0\nthreshold=1\ndecision_type=4\n"
            "left_child=-1\nright_child=-2\n",
            "zeros as missing",
        ),
        (
            "tree\nmax_feature_idx=0\n\nTree=0\nleaf_value=1 2\nsplit_feature=0\nthreshold=1\ndecision_type=2\n"
            "left_child=0\nright_child=-2\n",
            "two parents",
        ),
    ],
)
def test_flat_scorer_refuses_what_it_cannot_repeat(text: str, message: str) -> None:
    with pytest.raises(BundleError, match=message):
        FlatScorer(text, IDENTITY)


def test_flat_scorer_refuses_wide_trees() -> None:
    text = train_text(*noise(), trees=1, leaves=80)
    with pytest.raises(BundleError, match="at most 64 leaves"):
        FlatScorer(text, IDENTITY)
    wide = make_model(text, FEATURES)
    assert isinstance(make_scorer(wide), OnnxScorer)
    with pytest.raises(BundleError, match="at most 64 leaves"):
        make_scorer(wide, "compiled")


def test_broken_models_are_bundle_errors() -> None:
    with pytest.raises(BundleError, match="ONNX graph"):
        OnnxScorer(b"not a graph")
    with pytest.raises(BundleError, match="LightGBM text model"):
        LightGBMScorer("not a model", IDENTITY)
