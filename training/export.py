"""Export: trees and calibration as one ONNX graph of standard operators, and its parity with LightGBM.

    features [rows, features] float32 -> TreeEnsembleRegressor -> piecewise-linear curve -> Sigmoid -> Clip
    -> probability [rows] float32

The curve is y0 + sum of slope_i * clip(x - knot_i, 0, knot_(i+1) - knot_i), its first and last piece without an end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lightgbm
import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from treewise.data.errors import BundleError
from treewise.policy.scorer import PROBABILITY_FLOOR, Calibration
from treewise.training.tree_text import Tree, floor32, read_trees

Float32Array = NDArray[np.float32]
FloatArray = NDArray[np.float64]

PARITY = 1e-5  # the largest difference in probability that an export may show
OPSET, ML_OPSET, IR_VERSION = 17, 3, 8  # what onnxruntime 1.20 reads
_FAR = 1e30  # the open ends of the curve


def export_onnx(text: str, calibration: Calibration, features: Sequence[str]) -> bytes:
    """The graph's bytes for a LightGBM model text, its thresholds float32 already, and its calibration."""
    trees = read_trees(text)
    for tree in trees:
        if not np.array_equal(tree.threshold, floor32(tree.threshold)):
            raise BundleError("model thresholds must be rounded down to float32 before export, got others")
    lower, width, slope, start = _pieces(calibration)
    constants = {
        "lower": lower.reshape(1, -1),
        "least": np.where(np.arange(len(width)) == 0, -_FAR, 0.0).reshape(1, -1),
        "width": width.reshape(1, -1),
        "slope": slope.reshape(-1, 1),
        "start": np.asarray([start]),
        "floor": np.asarray(PROBABILITY_FLOOR),
        "ceiling": np.asarray(1.0 - PROBABILITY_FLOOR),
    }
    held = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()]
    held.append(numpy_helper.from_array(np.asarray([-1], dtype=np.int64), "flat"))
    nodes = [
        helper.make_node(
            "TreeEnsembleRegressor", ["features"], ["raw"], domain="ai.onnx.ml", **_tree_attributes(trees)
        ),
        helper.make_node("Sub", ["raw", "lower"], ["offset"]),
        helper.make_node("Max", ["offset", "least"], ["risen"]),
        helper.make_node("Min", ["risen", "width"], ["ramps"]),
        helper.make_node("MatMul", ["ramps", "slope"], ["climb"]),
        helper.make_node("Add", ["climb", "start"], ["score"]),
        helper.make_node("Sigmoid", ["score"], ["open"]),
        helper.make_node("Clip", ["open", "floor", "ceiling"], ["column"]),
        helper.make_node("Reshape", ["column", "flat"], ["probability"]),
    ]
    graph = helper.make_graph(
        nodes,
        "match",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["rows", len(features)])],
        [helper.make_tensor_value_info("probability", TensorProto.FLOAT, ["rows"])],
        held,
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)],
        ir_version=IR_VERSION,
        producer_name="treewise",
    )
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString(deterministic=True))


def _pieces(calibration: Calibration) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """Lower knots, widths and slopes of the curve's pieces [knots - 1], and its height at the first knot."""
    x = np.asarray(calibration.knots_x, dtype=np.float64)
    y = np.asarray(calibration.knots_y, dtype=np.float64)
    width = np.diff(x)
    slope = np.diff(y) / width
    width[-1] = _FAR
    return x[:-1], width, slope, float(y[0])


def _tree_attributes(trees: Sequence[Tree]) -> dict[str, Any]:
    """The attributes of TreeEnsembleRegressor; leaves follow the inner nodes of their tree."""
    names = ("nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_values", "nodes_modes", "nodes_truenodeids",
             "nodes_falsenodeids", "nodes_missing_value_tracks_true")  # fmt: skip
    columns: dict[str, list[object]] = {name: [] for name in names}
    targets: dict[str, list[object]] = {"treeids": [], "nodeids": [], "ids": [], "weights": []}
    for number, tree in enumerate(trees):
        inner, leaves = len(tree.feature), len(tree.leaf)

        def place(child: int, inner: int = inner) -> int:
            return child if child >= 0 else inner + ~child

        for node in range(inner):
            row = (
                number, node, int(tree.feature[node]), float(tree.threshold[node]), "BRANCH_LEQ",
                place(int(tree.left[node])), place(int(tree.right[node])), int(tree.nan_goes_left[node]),
            )  # fmt: skip
            for name, value in zip(names, row, strict=True):
                columns[name].append(value)
        for leaf in range(leaves):
            for name, value in zip(names, (number, inner + leaf, 0, 0.0, "LEAF", 0, 0, 0), strict=True):
                columns[name].append(value)
            for name, value in zip(targets, (number, inner + leaf, 0, float(tree.leaf[leaf])), strict=True):
                targets[name].append(value)
    return {
        **columns,
        **{f"target_{name}": values for name, values in targets.items()},
        "n_targets": 1,
        "aggregate_function": "SUM",
        "post_transform": "NONE",
    }


def parity(onnx_bytes: bytes, text: str, calibration: Calibration, rows: Float32Array) -> float:
    """Largest difference in probability between the graph and LightGBM with the same calibration on `rows`."""
    if not len(rows):
        return 0.0
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(onnx_bytes, options, providers=["CPUExecutionProvider"])
    (graph,) = session.run(["probability"], {"features": rows})
    raw = lightgbm.Booster(model_str=text).predict(rows, raw_score=True, num_threads=1)
    return float(np.abs(graph - calibration.apply(np.asarray(raw, dtype=np.float64))).max())


def trial_rows(text: str, rows: Float32Array, seed: int, count: int = 2000) -> Float32Array:
    """Rows that try an export: natural ones, thresholds and their neighbours, NaN, infinities, zeros. [n, features]."""
    draw = np.random.default_rng(seed)
    width = rows.shape[1]
    natural = rows[draw.permutation(len(rows))[:count]]
    trees = read_trees(text)
    made = (
        natural[draw.integers(len(natural), size=count)].copy()
        if len(natural)
        else np.zeros((count, width), np.float32)
    )
    for column in range(width):
        edges = np.concatenate([tree.threshold[tree.feature == column] for tree in trees] or [np.zeros(0)])
        special = np.asarray([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-35, -1e-35, 1e-38, 3e38], dtype=np.float32)
        edges32 = edges.astype(np.float32)
        with np.errstate(over="ignore"):  # beyond the largest float32 lies infinity, which is wanted
            above = np.nextafter(edges32, np.float32(np.inf))
        pool = np.concatenate([edges32, above, np.nextafter(edges32, np.float32(-np.inf)), special])
        swap = draw.random(count) < 0.5
        made[swap, column] = pool[draw.integers(len(pool), size=int(swap.sum()))]
    return np.ascontiguousarray(np.concatenate([natural, made]))
