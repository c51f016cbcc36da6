"""Tiny trained models and bundles on the scripted world, made once per test run."""

from __future__ import annotations

from functools import cache

import lightgbm
import numpy as np
from numpy.typing import NDArray

from tests.policy.scripted import TABLE, Played, World, play
from treewise.data.envelope import Envelope
from treewise.data.pair import PairDescription
from treewise.policy.bundle import Bundle, Model
from treewise.policy.everything import EverythingPolicy
from treewise.policy.features import FEATURES, GROWTH_FEATURES, growth_features, node_features
from treewise.policy.hook import DRAFT, LOOKUP, Float32Array, RoundContext
from treewise.policy.progress import Progress, build_context
from treewise.policy.scorer import Calibration
from treewise.training.export import export_onnx
from treewise.training.tree_text import round_thresholds_down

CURVE = Calibration((-2.0, 0.0, 1.5), (-1.6, 0.1, 1.9))
PAIR = PairDescription("tiny", "a" * 64, "b" * 64, 24, "tiny-draft", "c" * 64, 21)
ENVELOPE = Envelope(max_depth=6, draft_width=4)


def plain_context(requests: int = 1) -> RoundContext:
    """A context with known agreement in every request."""
    batch = [Progress(request, 10, 40) for request in range(requests)]
    for progress in batch:
        progress.advance(1, 2, 1, [1, 0], [1, 1], 1.0, 0.5)
    return build_context(batch)


@cache
def played_rounds(seed: int = 0, requests: int = 1, sources: int = DRAFT | LOOKUP) -> tuple[Played, ...]:
    """Rounds of the scripted world with everything grown."""
    rounds: list[Played] = []
    play(EverythingPolicy(), World(seed, sources), tuple(range(requests)), 40, rounds=rounds)
    return tuple(rounds)


def labelled_rows() -> tuple[Float32Array, NDArray[np.int8]]:
    """(features [rows, features], match [rows]) of the rows whose parent was on the path."""
    features, labels = [], []
    for seed in range(6):
        for played in played_rounds(seed):
            nodes = played.tree.forest.view()
            rows = np.flatnonzero((nodes.parent >= 0) & (played.walk.match >= 0))
            features.append(node_features(nodes, rows, plain_context()))
            labels.append(played.walk.match[rows])
    return np.concatenate(features), np.concatenate(labels)


def growth_rows() -> tuple[Float32Array, NDArray[np.int8]]:
    """(features [rows, features], label [rows]) of path rows: the draft alone offered the next token."""
    features, labels = [], []
    for seed in range(6):
        for played in played_rounds(seed):
            nodes = played.tree.forest.view()
            rows = np.flatnonzero(played.walk.on_path & nodes.drafted)
            found = (played.walk.match == 1) & (nodes.sources == DRAFT)
            features.append(growth_features(nodes, rows, plain_context()))
            labels.append(np.isin(rows, nodes.parent[found]).astype(np.int8))
    return np.concatenate(features), np.concatenate(labels)


def train_text(x: Float32Array, label: NDArray[np.int8], trees: int = 12, leaves: int = 7) -> str:
    """A LightGBM text model with float32 thresholds, NaN known to every feature."""
    x = np.concatenate([x, np.full((1, x.shape[1]), np.nan, dtype=np.float32)])
    label = np.concatenate([label, np.zeros(1, dtype=np.int8)])
    parameters = {
        "objective": "binary",
        "num_leaves": leaves,
        "min_data_in_leaf": 5,
        "num_threads": 1,
        "verbosity": -1,
        "seed": 0,
        "feature_pre_filter": False,
    }
    return round_thresholds_down(lightgbm.train(parameters, lightgbm.Dataset(x, label), trees).model_to_string())


def make_model(text: str, features: tuple[str, ...], calibration: Calibration = CURVE) -> Model:
    return Model(export_onnx(text, calibration, features), text, calibration)


@cache
def tiny_bundle(with_growth: bool = True) -> Bundle:
    """A bundle trained on six scripted worlds."""
    match = make_model(train_text(*labelled_rows()), FEATURES)
    growth = make_model(train_text(*growth_rows()), GROWTH_FEATURES) if with_growth else None
    provenance = {"command": "tests", "inputs": {"trace": "0" * 64}}
    return Bundle(match, PAIR, ENVELOPE, TABLE, growth, provenance=provenance, report={"auc": 0.9}, call_ms=0.05)
