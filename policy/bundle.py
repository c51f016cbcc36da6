"""The bundle: a trained policy as a folder of plain files, each checked by its hash. Nothing is unpickled."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from treewise.data.envelope import Envelope, PriorTable
from treewise.data.errors import BundleError, ParameterError, SchemaVersionError, require
from treewise.data.pair import PairDescription
from treewise.data.stored_json import read_object
from treewise.data.whole_file import naming
from treewise.policy.features import FEATURES, GROWTH_FEATURES
from treewise.policy.hook import Deployment
from treewise.policy.planner import PlannerSettings
from treewise.policy.rank_table import SOURCE_SETS, sources_name
from treewise.policy.recalibration import Correction
from treewise.policy.scorer import Calibration

SCHEMA_VERSION = 1
INDEX = "bundle.json"
ONNX, TEXT = "onnx", "lightgbm.txt"
_MODELS = ("match", "growth")
_FILES = tuple(f"{model}.{form}" for model in _MODELS for form in (ONNX, TEXT))
_NAMES = {
    *("schema_version", "pair", "features", "features_sha256", "growth_features", "envelope", "prior_table"),
    *("planner", "call_ms", "calibration", "corrections", "provenance", "report", "files"),
}
_LATER = {"corrections"}  # names that bundles of this schema may lack: made before there was such a thing
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Model:
    """One model in both of its forms."""

    graph: bytes  # ONNX, calibration included
    text: str  # LightGBM's text, thresholds rounded down to float32
    calibration: Calibration  # of the text model's raw score


@dataclass(frozen=True, slots=True)
class Bundle:
    """A trained policy. `save` writes it, `Bundle.load` reads and checks it."""

    match: Model
    pair: PairDescription
    envelope: Envelope  # of the traces that it was trained on
    prior_table: PriorTable
    growth: Model | None = None  # None: the planner reads growth chances off agreement and priors
    planner: PlannerSettings = field(default_factory=PlannerSettings)
    corrections: dict[int, Correction] = field(default_factory=dict)  # of the match model, by source bits that serve
    call_ms: float = 0.1  # median of one policy call, where it was trained
    features: tuple[str, ...] = FEATURES
    growth_features: tuple[str, ...] = GROWTH_FEATURES
    provenance: dict[str, Any] = field(default_factory=dict)  # command, input hashes, versions, time of making
    report: dict[str, Any] = field(default_factory=dict)  # held-out metrics

    def __post_init__(self) -> None:
        if not 0.0 <= self.call_ms < float("inf"):
            raise BundleError(f"call_ms must be finite and at least 0, got {self.call_ms!r}")

    def save(self, folder: str | Path) -> Path:
        """Write the bundle to `folder`, replacing a bundle that is there; it appears whole or not at all.

        Raises `BundleError` as `check_writable` does.
        """
        target = Path(folder)
        check_writable(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            new = stage / "new"
            new.mkdir()
            contents = self._contents()
            for name, content in contents.items():
                _write(new / name, content, target / name)
            _write(new / INDEX, (json.dumps(self._index(contents), indent=1) + "\n").encode("utf-8"), target / INDEX)
            old = stage / "old"
            if target.exists():
                target.rename(old)
            try:
                new.rename(target)
            except OSError:
                if old.exists():
                    old.rename(target)
                raise
        finally:
            shutil.rmtree(stage)
        return target

    @classmethod
    def load(cls, folder: str | Path) -> Bundle:
        """The bundle in `folder`.

        Raises `BundleError` on missing, foreign or changed files and on other features than this version computes,
        `SchemaVersionError` on another schema version.
        """
        base = Path(folder)
        index = _read_index(base)
        contents = {name: _read_file(base, name, digest) for name, digest in _file_hashes(index["files"]).items()}
        match = _model("match", contents, index["calibration"])
        if match is None:
            raise BundleError(f"bundle must hold match.{ONNX} and match.{TEXT}, got {sorted(contents)}")
        features, growth_features = _strings(index, "features"), _strings(index, "growth_features")
        if _features_hash(features) != index["features_sha256"]:
            raise BundleError("features_sha256 must be the hash of the feature list, got another one")
        check_features("features", features, FEATURES)
        growth = _model("growth", contents, index["calibration"])
        if growth is not None:
            check_features("growth features", growth_features, GROWTH_FEATURES)
        try:
            return cls(
                match=match,
                growth=growth,
                pair=PairDescription.from_json(index["pair"]),
                envelope=Envelope.from_json(index["envelope"]),
                prior_table=PriorTable(tuple(float(value) for value in index["prior_table"])),
                planner=PlannerSettings.from_json(index["planner"]),
                corrections=_corrections(index.get("corrections", {})),
                call_ms=float(index["call_ms"]),
                features=features,
                growth_features=growth_features,
                provenance=dict(index["provenance"]),
                report=dict(index["report"]),
            )
        except (ParameterError, TypeError, ValueError, OverflowError) as error:
            raise BundleError(f"{base / INDEX} must describe a bundle: {error}") from error

    @property
    def sha256(self) -> str:
        """Hash of all that decides its answers, in hex; provenance and report aside."""
        index = self._index(self._contents())
        decides = {name: part for name, part in index.items() if name not in ("provenance", "report")}
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode("utf-8")).hexdigest()

    def check_pair(self, pair: PairDescription) -> None:
        """Raises `BundleError` where `pair` is not the pair that the bundle was trained on, naming what differs."""
        if differences := self.pair.differences(pair):
            raise BundleError(
                f"bundle must be of the pair in use, got one of {self.pair.name}: {'; '.join(differences)}"
            )

    def check_deployment(self, deployment: Deployment) -> None:
        """Raises `BundleError` where the deployment reaches outside what the bundle has learned from."""
        if gaps := self.envelope.covers(deployment.envelope):
            raise BundleError(f"bundle envelope must cover the deployment's, got {'; '.join(gaps)}")
        mine, theirs = self.prior_table.by_match_length, deployment.prior_table.by_match_length
        if mine != theirs:
            raise BundleError(f"prior table must be the bundle's {mine}, got {theirs}")

    def _contents(self) -> dict[str, bytes]:
        models = {"match": self.match} if self.growth is None else {"match": self.match, "growth": self.growth}
        contents: dict[str, bytes] = {}
        for name, model in models.items():
            contents[f"{name}.{ONNX}"] = model.graph
            contents[f"{name}.{TEXT}"] = model.text.encode("utf-8")
        return contents

    def _index(self, contents: dict[str, bytes]) -> dict[str, Any]:
        calibration = {"match": self.match.calibration.to_json()}
        if self.growth is not None:
            calibration["growth"] = self.growth.calibration.to_json()
        return {
            "schema_version": SCHEMA_VERSION,
            "pair": self.pair.to_json(),
            "features": list(self.features),
            "features_sha256": _features_hash(self.features),
            "growth_features": list(self.growth_features),
            "envelope": self.envelope.to_json(),
            "prior_table": list(self.prior_table.by_match_length),
            "planner": self.planner.to_json(),
            "call_ms": self.call_ms,
            "calibration": calibration,
            "corrections": {
                sources_name(bits): [found.intercept, found.slope, found.tilt]
                for bits, found in sorted(self.corrections.items())
            },
            "provenance": self.provenance,
            "report": self.report,
            "files": {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()},
        }


def check_writable(folder: Path) -> None:
    """Raises `BundleError` where `folder` cannot be made, or holds anything but a bundle: saving would replace it."""
    if folder.exists():
        own = folder.is_dir() and (not any(folder.iterdir()) or (folder / INDEX).is_file())
        if not own:
            raise BundleError(f"folder must be new, empty or a bundle, got {str(folder)!r}")
        if foreign := sorted(path.name for path in folder.iterdir() if path.name not in {INDEX, *_FILES}):
            raise BundleError(f"folder must hold nothing but a bundle, got {foreign} in {str(folder)!r}")
    above = next(parent for parent in folder.absolute().parents if parent.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise BundleError(f"folder must lie in a folder that can be written, got {str(folder)!r}")


def check_features(what: str, found: Sequence[str], expected: Sequence[str]) -> None:
    """Raises `BundleError` naming the first difference of two feature lists."""
    for place in range(max(len(found), len(expected))):
        theirs = found[place] if place < len(found) else "nothing"
        ours = expected[place] if place < len(expected) else "nothing"
        if theirs != ours:
            raise BundleError(
                f"bundle {what} must be those of this treewise: number {place} must be {ours}, got {theirs}"
            )


def _features_hash(features: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(features).encode("utf-8")).hexdigest()


def _write(path: Path, content: bytes, place: Path) -> None:
    # `place`: where it is to go
    with naming(place), path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _read_index(base: Path) -> dict[str, Any]:
    path = base / INDEX
    if not path.is_file():
        raise BundleError(f"bundle must be a folder with a {INDEX}, got {str(base)!r}")
    _check_inside(base, INDEX)
    index = read_object(path, "bundle index", BundleError)
    version = index.get("schema_version")
    if version != SCHEMA_VERSION:
        raise SchemaVersionError("bundle", version, SCHEMA_VERSION, "train it again with `treewise train`")
    missing, unknown = sorted(_NAMES - _LATER - set(index)), sorted(set(index) - _NAMES)
    if missing or unknown:
        raise BundleError(f"{path} must hold its {len(_NAMES)} names, got {missing} missing and {unknown} unknown")
    for name in ("pair", "envelope", "planner", "calibration", "provenance", "report", "files"):
        _expect(index, name, dict)
    for name in ("features", "growth_features", "prior_table"):
        _expect(index, name, list)
    return index


def _expect(index: dict[str, Any], name: str, kind: type[T]) -> T:
    value = index[name]
    if not isinstance(value, kind):
        raise BundleError(f"{name} must be a {kind.__name__} in {INDEX}, got {type(value).__name__}")
    return value


def _corrections(value: Any) -> dict[int, Correction]:
    """What `Bundle._index` wrote. Raises `ParameterError`, `TypeError` or `ValueError` where it is not that."""
    is_known = isinstance(value, dict) and set(value) <= set(SOURCE_SETS)
    require(is_known, "corrections", f"by {', '.join(SOURCE_SETS)}", value)
    for found in value.values():
        is_whole = isinstance(found, list) and len(found) in (2, 3)  # bundles made before the tilt have none
        require(is_whole, "corrections", "[intercept, slope, tilt] each", found)
    return {SOURCE_SETS[name]: Correction(*(float(part) for part in found)) for name, found in value.items()}


def _strings(index: dict[str, Any], name: str) -> tuple[str, ...]:
    return tuple(str(value) for value in index[name])


def _file_hashes(files: dict[str, Any]) -> dict[str, str]:
    """The listed files. Names come from a fixed set, so none can lead out of the folder."""
    if foreign := sorted(set(files) - set(_FILES)):
        raise BundleError(f"bundle files must be among {sorted(_FILES)}, got {foreign}")
    return {name: str(digest) for name, digest in files.items()}


def _read_file(base: Path, name: str, digest: str) -> bytes:
    path = base / name
    if not path.is_file():
        raise BundleError(f"bundle must hold {name}, got no such file in {str(base)!r}")
    _check_inside(base, name)
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        raise BundleError(f"sha256 of {name} must be {digest}, got {found}: the file was changed or cut short")
    return content


def _check_inside(base: Path, name: str) -> None:
    """Raises `BundleError` where the file is a link out of the folder."""
    found = (base / name).resolve()
    if found.parent != base.resolve():
        raise BundleError(f"bundle files must lie in the bundle's folder, got {name} at {str(found)!r}")


def _model(name: str, contents: dict[str, bytes], calibrations: dict[str, Any]) -> Model | None:
    graph, text = contents.get(f"{name}.{ONNX}"), contents.get(f"{name}.{TEXT}")
    if graph is None and text is None:
        return None
    if graph is None or text is None or not isinstance(calibrations.get(name), dict):
        raise BundleError(
            f"bundle must hold {name}.{ONNX}, {name}.{TEXT} and a calibration of {name}, got a part of them"
        )
    try:
        return Model(graph, text.decode("utf-8"), Calibration.from_json(calibrations[name]))
    except (ParameterError, TypeError, ValueError, OverflowError) as error:
        raise BundleError(f"{name} must be a model with its calibration: {error}") from error
