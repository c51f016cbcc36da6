"""Scorers: feature rows in, calibrated match probabilities out. Three ways to run the same trees.

All of them agree within 1e-5 on any float32 input: thresholds are float32 values (rounded down at export) in every
copy, and each copy ends in the same calibration curve.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from treewise.data.errors import BundleError, MissingExtraError, ParameterError, require
from treewise.data.stored_json import check_names
from treewise.policy.hook import Float32Array
from treewise.policy.text_trees import read_trees, without_offsets

Float64Array = NDArray[np.float64]

OUTSIDE_MARK = b"location"  # key under which ONNX keeps the path of a tensor's external data
_RUNTIME_ERRORS = (
    *("Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NotImplemented", "RuntimeException"),
    *("NoSuchFile", "NoModel", "EngineError", "EPFail", "ModelLoaded"),
)
PROBABILITY_FLOOR = 1e-6  # calibrated probabilities stay this far from 0 and 1


@dataclass(frozen=True, slots=True)
class Calibration:
    """A strictly increasing piecewise-linear curve from raw to calibrated log-odds; its end pieces go on for ever."""

    knots_x: tuple[float, ...]  # raw log-odds, ascending
    knots_y: tuple[float, ...]  # calibrated log-odds, ascending
    _x: Float64Array = field(init=False, repr=False, compare=False)  # [knots] the same as arrays
    _y: Float64Array = field(init=False, repr=False, compare=False)
    _ends: tuple[float, float] = field(init=False, repr=False, compare=False)  # slopes of the first and last piece

    def __post_init__(self) -> None:
        require(len(self.knots_x) >= 2, "knots_x", "at least two knots", self.knots_x)
        require(len(self.knots_y) == len(self.knots_x), "knots_y", "as many as knots_x", self.knots_y)
        for name in ("knots_x", "knots_y"):
            knots = np.asarray(getattr(self, name), dtype=np.float64)
            rises = bool(np.isfinite(knots).all() and (np.diff(knots) > 0).all())
            require(rises, name, "finite and strictly ascending", getattr(self, name))
        x, y = np.asarray(self.knots_x, dtype=np.float64), np.asarray(self.knots_y, dtype=np.float64)
        slope = np.diff(y) / np.diff(x)
        object.__setattr__(self, "_x", x)
        object.__setattr__(self, "_y", y)
        object.__setattr__(self, "_ends", (float(slope[0]), float(slope[-1])))

    def apply(self, score: NDArray[Any]) -> Float64Array:
        """Probabilities [n] of raw log-odds `score` [n]."""
        raw = np.asarray(score, dtype=np.float64)
        first, last = self._ends
        odds = np.interp(raw, self._x, self._y)
        odds += first * np.minimum(raw - self._x[0], 0.0) + last * np.maximum(raw - self._x[-1], 0.0)
        probability = 0.5 + 0.5 * np.tanh(0.5 * odds)
        return np.asarray(np.minimum(np.maximum(probability, PROBABILITY_FLOOR), 1.0 - PROBABILITY_FLOOR))

    def to_json(self) -> dict[str, list[float]]:
        """A JSON-ready mapping; `from_json` reads it back."""
        return {"knots_x": list(self.knots_x), "knots_y": list(self.knots_y)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Calibration:
        """The curve that `to_json` wrote. Raises `ParameterError` where it is not one."""
        check_names(value, ("knots_x", "knots_y"), "calibration", ParameterError)
        return cls(tuple(float(x) for x in value["knots_x"]), tuple(float(y) for y in value["knots_y"]))


IDENTITY = Calibration((0.0, 1.0), (0.0, 1.0))


class Scorer(Protocol):
    """A match or growth model, ready to run."""

    def score(self, features: Float32Array) -> Float32Array:
        """Probabilities [n] of feature rows [n, features]; any float32, NaN and infinities included."""


class OnnxScorer:
    """The exported graph under onnxruntime, one thread."""

    def __init__(self, graph: bytes) -> None:
        """`graph` maps `features` [n, features] float32 to `probability` [n] or [n, 1].

        Raises `MissingExtraError` without onnxruntime, `BundleError` where it cannot read the graph.
        """
        try:
            import onnxruntime
        except ImportError as error:
            raise MissingExtraError("onnxruntime", "onnx") from error
        from onnxruntime.capi import onnxruntime_pybind11_state as runtime

        # The runtime would read weights from wherever a tensor says they lie; a bundle's graph holds its own.
        if OUTSIDE_MARK in graph:
            raise BundleError("model must be an ONNX graph that holds its weights itself, got one that points to files")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = 4
        try:
            session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        except tuple(getattr(runtime, name) for name in _RUNTIME_ERRORS) as error:
            raise BundleError(f"model must be an ONNX graph that onnxruntime reads: {error}") from error
        inputs, outputs = [i.name for i in session.get_inputs()], [o.name for o in session.get_outputs()]
        if inputs != ["features"] or "probability" not in outputs:
            raise BundleError(f"model must map `features` to `probability`, got {inputs} and {outputs}")
        self._session = session

    def score(self, features: Float32Array) -> Float32Array:
        """Probabilities [n]."""
        if not len(features):
            return np.zeros(0, dtype=np.float32)
        (probability,) = self._session.run(["probability"], {"features": features})
        return np.asarray(probability, dtype=np.float32).reshape(-1)


class LightGBMScorer:
    """The text model under LightGBM, one thread, calibrated here."""

    def __init__(self, text: str, calibration: Calibration) -> None:
        """Raises `MissingExtraError` without lightgbm, `BundleError` where it cannot read the text."""
        try:
            import lightgbm
        except ImportError as error:
            raise MissingExtraError("lightgbm", "lightgbm") from error
        read_trees(text)  # LightGBM follows a text's indices unchecked
        try:
            self._booster = lightgbm.Booster(model_str=without_offsets(text))
        except lightgbm.basic.LightGBMError as error:
            raise BundleError(f"model must be a LightGBM text model: {error}") from error
        self._calibration = calibration

    def score(self, features: Float32Array) -> Float32Array:
        """Probabilities [n]."""
        if not len(features):
            return np.zeros(0, dtype=np.float32)
        raw = self._booster.predict(features, raw_score=True, num_threads=1)
        return self._calibration.apply(np.asarray(raw)).astype(np.float32)
