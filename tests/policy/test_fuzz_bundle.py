"""A bundle from anywhere: it loads, or an error of treewise says why not; nothing runs and nothing else is read."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from tests.data.damage import damaged, is_read, strange_json
from tests.policy.models import CURVE, tiny_bundle
from treewise.data.errors import BundleError
from treewise.policy.bundle import INDEX, Bundle
from treewise.policy.features import FEATURES
from treewise.policy.flat_scorer import FlatScorer
from treewise.policy.hook import Float32Array
from treewise.policy.learned import LearnedPolicy
from treewise.policy.scorer import LightGBMScorer, OnnxScorer
from treewise.policy.text_trees import read_trees

TRIES = 120
WORDS = 300


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_bundle().save(tmp_path / "bundle")


def rows() -> Float32Array:
    return np.random.default_rng(0).normal(size=(20, len(FEATURES))).astype(np.float32)


def test_damaged_files_are_told_by_their_hashes(folder: Path) -> None:
    rng = np.random.default_rng(1)
    for path in sorted(folder.iterdir()):
        if path.name == INDEX:
            continue
        whole = path.read_bytes()
        for _ in range(TRIES // 8):
            changed = damaged(whole, rng)
            path.write_bytes(changed)
            assert is_read(lambda: Bundle.load(folder), folder) == (changed == whole)
        path.write_bytes(whole)


def test_a_damaged_index(folder: Path) -> None:
    path = folder / INDEX
    whole, value = path.read_bytes(), json.loads(path.read_text(encoding="utf-8"))
    rng = np.random.default_rng(2)
    for place in range(WORDS):
        path.write_bytes(damaged(whole, rng) if place % 3 == 0 else strange_json(value, rng).encode())
        if is_read(lambda: Bundle.load(folder), folder):
            assert Bundle.load(folder).sha256


def forge(folder: Path, name: str, content: bytes) -> None:
    """Put `content` into the bundle with a hash that fits."""
    (folder / name).write_bytes(content)
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    index["files"][name] = hashlib.sha256(content).hexdigest()
    (folder / INDEX).write_text(json.dumps(index), encoding="utf-8")


@pytest.mark.parametrize("name", ["match.lightgbm.txt", "match.onnx", "growth.lightgbm.txt"])
def test_damaged_models_with_hashes_that_fit(name: str, folder: Path) -> None:
    LearnedPolicy.load(folder)  # machine code is compiled, or read from its cache, once
    rng = np.random.default_rng(3)
    whole = (folder / name).read_bytes()
    read = 0
    for _ in range(TRIES // 4):
        forge(folder, name, damaged(whole, rng))
        read += is_read(lambda: LearnedPolicy.load(folder), folder)
        is_read(lambda: LearnedPolicy.load(folder, "onnx"), folder)
        is_read(lambda: LearnedPolicy.load(folder, "flat", "off"), folder)
    assert read > 0


def test_a_text_that_is_read_can_be_walked() -> None:
    """LightGBM and machine code follow children unchecked: whatever passes the reader must lead to a leaf."""
    text, rng = tiny_bundle().match.text, np.random.default_rng(4)
    end = text.index("end of trees")
    walked = 0
    for _ in range(TRIES * 3):
        changed = damaged(text[:end].encode(), rng).decode("utf-8", "replace") + text[end:]
        try:
            features, trees = read_trees(changed)
        except BundleError:
            continue
        walked += 1
        for tree in trees:
            node, steps = (0 if len(tree.leaf) > 1 else -1), 0
            while node >= 0:
                assert 0 <= tree.feature[node] < features
                node = int(rng.choice([tree.left[node], tree.right[node]]))
                steps += 1
                assert steps < len(tree.leaf)
            assert ~node < len(tree.leaf)
        if features == len(FEATURES):
            try:
                scorers = FlatScorer(changed, CURVE), LightGBMScorer(changed, CURVE)
            except BundleError:
                continue
            assert all(np.isfinite(scorer.score(rows())).all() for scorer in scorers)
    assert walked > 20


BROKEN = {
    "left_child": "left_child=5 5 5 5 5 5",
    "right_child": "right_child=-1 -1 -1 -1 -1 -1",
    "split_feature": "split_feature=999999 0 0 0 0 0",
    "threshold": "threshold=1",
    "leaf_value": "leaf_value=nan 1 1 1 1 1 1",
    "num_leaves": "num_leaves=1000000",
    "decision_type": "decision_type=1 1 1 1 1 99999999999",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_tree_that_leads_elsewhere_is_refused(name: str) -> None:
    lines = tiny_bundle().match.text.split("\n")
    place = next(at for at, line in enumerate(lines) if line.startswith(f"{name}="))
    changed = "\n".join([*lines[:place], BROKEN[name], *lines[place + 1 :]])
    for make in (FlatScorer, LightGBMScorer):
        with pytest.raises(BundleError, match="model must"):
            make(changed, CURVE)


def test_splits_in_a_ring_are_refused() -> None:
    tree = "num_leaves=5\nsplit_feature=0 0 0 0\nthreshold=0 0 0 0\ndecision_type=2 2 2 2\nleaf_value=1 2 3 4 5\n"
    ring = "left_child=-1 2 3 1\nright_child=-2 -3 -4 -5\n"  # splits 1, 2 and 3 hang on each other
    with pytest.raises(BundleError, match="splits that hang on each other"):
        read_trees(f"max_feature_idx=0\nTree=0\n{tree}{ring}")


def test_trees_are_found_whatever_the_text_says_of_their_places() -> None:
    text = tiny_bundle().match.text
    sizes = next(line for line in text.split("\n") if line.startswith("tree_sizes="))
    far = text.replace(sizes, "tree_sizes=" + " ".join(["99999999"] * len(sizes.split())))
    expected = LightGBMScorer(text, CURVE).score(rows())
    assert np.array_equal(LightGBMScorer(far, CURVE).score(rows()), expected)


def test_damaged_graphs(tmp_path: Path) -> None:
    graph, rng = tiny_bundle().match.graph, np.random.default_rng(5)
    read = 0
    for _ in range(TRIES):
        changed = damaged(graph, rng)
        read += is_read(lambda changed=changed: OnnxScorer(changed), tmp_path)  # type: ignore[misc]
    assert read < TRIES


def test_a_graph_that_points_to_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx = pytest.importorskip("onnx")
    (tmp_path / "secret.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    monkeypatch.chdir(tmp_path)
    kind = onnx.TensorProto.FLOAT
    weights = onnx.TensorProto(name="w", data_type=kind, dims=[4, 1], data_location=onnx.TensorProto.EXTERNAL)
    weights.external_data.add(key="location", value="secret.bin")
    node = onnx.helper.make_node("MatMul", ["features", "w"], ["probability"])
    ends = [
        [onnx.helper.make_tensor_value_info(name, kind, ["n", size])]
        for name, size in (("features", 4), ("probability", 1))
    ]
    graph = onnx.helper.make_graph([node], "g", *ends, [weights])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(BundleError, match="model must be an ONNX graph that holds its weights itself"):
        OnnxScorer(model.SerializeToString())


@pytest.mark.parametrize("name", ["match.onnx", INDEX])
def test_a_link_out_of_the_folder_is_refused(name: str, folder: Path, tmp_path: Path) -> None:
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BundleError, match="bundle files must lie in the bundle's folder"):
        Bundle.load(folder)
