"""Bundles: round trip, atomic writing, and every way in which one may not fit."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.policy.models import ENVELOPE, PAIR, tiny_bundle
from tests.policy.scripted import example_deployment
from treewise.data.errors import BundleError, SchemaVersionError, TreewiseError
from treewise.policy.bundle import INDEX, Bundle, check_writable
from treewise.policy.features import FEATURES
from treewise.policy.hook import DRAFT
from treewise.policy.planner import PlannerSettings
from treewise.policy.recalibration import Correction

Edit = Callable[[dict[str, Any]], object]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_bundle().save(tmp_path / "bundle")


def rewrite(folder: Path, edit: Edit) -> None:
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    edit(index)
    (folder / INDEX).write_text(json.dumps(index), encoding="utf-8")


@pytest.mark.parametrize("with_growth", [True, False])
def test_round_trip(with_growth: bool, tmp_path: Path) -> None:
    planner = PlannerSettings(growth_scale=0.8, sibling_normalise=False, rate_over_plain=2.0)
    corrections = {DRAFT: Correction(-0.25, 0.9, -0.125)}
    bundle = replace(tiny_bundle(with_growth), planner=planner, corrections=corrections)
    folder = bundle.save(tmp_path / "deep" / "bundle")
    assert Bundle.load(folder) == bundle
    models = {"match"} | ({"growth"} if with_growth else set())
    expected = {INDEX} | {f"{model}.{form}" for model in models for form in ("onnx", "lightgbm.txt")}
    assert {path.name for path in folder.iterdir()} == expected
    assert [path.name for path in folder.parent.iterdir()] == ["bundle"], "no temporary folder stays"


def test_a_bundle_from_before_corrections_has_none(folder: Path) -> None:
    rewrite(folder, lambda index: index.pop("corrections"))
    assert Bundle.load(folder).corrections == {}


def test_a_correction_from_before_the_tilt_has_none(folder: Path) -> None:
    rewrite(folder, lambda index: index.update(corrections={"draft": [0.5, 0.75]}))
    assert Bundle.load(folder).corrections == {DRAFT: Correction(0.5, 0.75, 0.0)}


def test_saving_replaces_a_bundle_whole(folder: Path) -> None:
    smaller = replace(tiny_bundle(False), call_ms=0.07)
    smaller.save(folder)
    assert Bundle.load(folder) == smaller
    assert not (folder / "growth.onnx").exists()
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_failed_save_leaves_the_old_bundle(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError):
        replace(tiny_bundle(), report={"auc": object()}).save(folder)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left .* lost: '.*/bundle/match\.onnx'$"):
        tiny_bundle(False).save(folder)
    assert Bundle.load(folder) == tiny_bundle()
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_bundle_that_cannot_be_moved_in_leaves_the_old_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def blocked(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise OSError("no room")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", blocked)
    with pytest.raises(OSError, match="no room"):
        replace(tiny_bundle(), call_ms=0.07).save(folder)
    assert Bundle.load(folder) == tiny_bundle()
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_the_hash_is_of_what_decides() -> None:
    bundle = tiny_bundle()
    assert replace(bundle, report={"auc": 0.5}, provenance={"command": "x"}).sha256 == bundle.sha256
    assert replace(bundle, call_ms=0.07).sha256 != bundle.sha256


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear", encoding="utf-8")
    with pytest.raises(BundleError, match="folder must be new, empty or a bundle"):
        tiny_bundle().save(tmp_path)
    assert (tmp_path / "letter.txt").read_text(encoding="utf-8") == "dear"


def test_a_bundles_folder_with_something_else_in_it_is_left_alone(folder: Path) -> None:
    (folder / "notes.md").write_text("mine", encoding="utf-8")
    with pytest.raises(BundleError, match=r"folder must hold nothing but a bundle, got \['notes.md'\]"):
        tiny_bundle(False).save(folder)
    assert (folder / "notes.md").read_text(encoding="utf-8") == "mine"
    assert Bundle.load(folder) == tiny_bundle()


def test_a_folder_below_a_file_is_refused_before_anything_is_computed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(BundleError, match="folder must lie in a folder that can be written, got"):
        check_writable(tmp_path / "file" / "deep" / "bundle")
    check_writable(tmp_path / "new" / "deep" / "bundle")
    assert not (tmp_path / "new").exists()


def swap_features(index: dict[str, Any]) -> None:
    index["features"][0], index["features"][1] = index["features"][1], index["features"][0]
    import hashlib

    index["features_sha256"] = hashlib.sha256("\n".join(index["features"]).encode()).hexdigest()


def drop_growth_feature(index: dict[str, Any]) -> None:
    index["growth_features"].pop()


@pytest.mark.parametrize(
    ("edit", "error", "message"),
    [
        (lambda i: i.update(schema_version=7), SchemaVersionError, "schema version 7, this treewise reads 1.*train it"),
        (lambda i: i.pop("schema_version"), SchemaVersionError, "schema version None"),
        (lambda i: i.pop("planner"), BundleError, r"\['planner'\] missing"),
        (lambda i: i.update(extra=1), BundleError, r"\['extra'\] unknown"),
        (swap_features, BundleError, f"number 0 must be {FEATURES[0]}, got {FEATURES[1]}"),
        (drop_growth_feature, BundleError, "growth features .* must be temperature, got nothing"),
        (lambda i: i["features"].append("luck"), BundleError, "features_sha256 must be the hash"),
        (lambda i: i["files"].update({"match.onnx": "0" * 64}), BundleError, "sha256 of match.onnx must be 000"),
        (
            lambda i: i["files"].update({"../match.onnx": "0" * 64}),
            BundleError,
            r"files must be among .* got .*\.\./match",
        ),
        (lambda i: i["files"].update({"/etc/passwd": "0" * 64}), BundleError, "got .*/etc/passwd"),
        (lambda i: i["files"].pop("growth.onnx"), BundleError, "got a part of them"),
        (lambda i: [i["files"].pop(n) for n in list(i["files"])], BundleError, "must hold match.onnx"),
        (lambda i: i["calibration"].pop("match"), BundleError, "a calibration of match"),
        (lambda i: i["calibration"]["match"].update(knots_x=[1.0, 0.0, 2.0]), BundleError, "strictly ascending"),
        (lambda i: i["envelope"].update(max_depth=0), BundleError, "max_depth must be between 1 and 64, got 0"),
        (lambda i: i["planner"].update(growth_scale=-1.0), BundleError, "growth_scale must be finite and at least 0"),
        (lambda i: i["planner"].update(luck=1.0), BundleError, "planner settings must hold the names"),
        (lambda i: i["pair"].pop("target"), BundleError, "pair description must name"),
        (lambda i: i.update(prior_table=["a", "b"]), BundleError, "could not convert"),
        (lambda i: i.update(corrections={"web": [0, 1]}), BundleError, "corrections must be by lookup, draft"),
        (lambda i: i.update(corrections={"draft": [0, 9]}), BundleError, "slope must be between 0.1 and 4, got 9"),
        (lambda i: i.update(corrections={"draft": "12"}), BundleError, r"tilt\] each, got '12'"),
        (lambda i: i.update(corrections={"draft": [0.1]}), BundleError, r"tilt\] each, got \[0.1"),
        (lambda i: i.update(files=[]), BundleError, "files must be a dict in bundle.json, got list"),
        (lambda i: i.update(call_ms=float("nan")), BundleError, "call_ms must be finite"),
    ],
)
def test_an_index_that_does_not_fit(edit: Edit, error: type[TreewiseError], message: str, folder: Path) -> None:
    rewrite(folder, edit)
    with pytest.raises(error, match=message):
        Bundle.load(folder)


def test_changed_or_missing_files(folder: Path) -> None:
    path = folder / "match.lightgbm.txt"
    content = path.read_bytes()
    path.write_bytes(content.replace(b"leaf_value=", b"leaf_value=9", 1))
    with pytest.raises(BundleError, match=r"sha256 of match.lightgbm.txt must be .*changed or cut short"):
        Bundle.load(folder)
    path.unlink()
    with pytest.raises(BundleError, match=r"bundle must hold match.lightgbm.txt"):
        Bundle.load(folder)


def test_links_out_of_the_folder_are_refused(folder: Path, tmp_path: Path) -> None:
    path = folder / "match.onnx"
    outside = tmp_path / "elsewhere.onnx"
    path.rename(outside)
    path.symlink_to(outside)
    with pytest.raises(BundleError, match="must lie in the bundle's folder"):
        Bundle.load(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{", "must be a JSON file"), (b"\xff\xfe", "must be a JSON file"), (b"[]", "one JSON object, got 'list'")],
)
def test_an_index_that_is_no_index(content: bytes, message: str, folder: Path) -> None:
    (folder / INDEX).write_bytes(content)
    with pytest.raises(BundleError, match=message):
        Bundle.load(folder)


def test_no_bundle_there(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"folder with a bundle.json, got '.*nowhere'"):
        Bundle.load(tmp_path / "nowhere")


def test_pairs() -> None:
    bundle = tiny_bundle()
    bundle.check_pair(replace(PAIR, target="the same by another name"))
    with pytest.raises(BundleError, match=r"one of tiny\+tiny-draft: draft_sha256 'ccc.*there"):
        bundle.check_pair(replace(PAIR, draft_sha256="d" * 64))


def test_narrower_deployments_are_covered() -> None:
    tiny_bundle().check_deployment(example_deployment(DRAFT, envelope=replace(ENVELOPE, max_depth=3)))
    wider = example_deployment(DRAFT, envelope=replace(ENVELOPE, min_path_prior=0.001))
    with pytest.raises(BundleError, match=r"must cover the deployment's, got min_path_prior 0.001 < 0.01"):
        tiny_bundle().check_deployment(wider)
