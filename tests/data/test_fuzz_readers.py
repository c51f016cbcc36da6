"""Readers of stored files meet anything: what comes out is the stored thing or an error of treewise, and no more."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.data.damage import damaged, is_read, strange_json
from tests.data.stored import write
from treewise.data.cost import CostProfile
from treewise.data.prompt_set import read_prompts
from treewise.data.recycled import CORPUS_NAME, RecycledCorpus, pack
from treewise.data.trace_manifest import MANIFEST_NAME, NODES_NAME, ROUNDS_NAME, SHARDS_NAME, TraceManifest
from treewise.data.trace_reader import TraceReader, read_requests

TRIES = 120
WORDS = 400  # of JSON


def stored(folder: Path) -> Path:
    write(folder, ("a", "bb"))
    return folder


@pytest.mark.parametrize("name", [ROUNDS_NAME, NODES_NAME])
def test_damaged_shards(name: str, tmp_path: Path) -> None:
    folder = stored(tmp_path / "trace")
    path = folder / SHARDS_NAME / "000000" / name
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    bad = 0
    for _ in range(TRIES):
        path.write_bytes(damaged(whole, rng))
        bad += not is_read(lambda: TraceReader(folder).read_all(), folder)
        is_read(lambda: read_requests(folder), folder)
        assert is_read(lambda: list(TraceReader(folder, skip_bad=True)), folder)
    assert bad > TRIES // 2


def test_damaged_manifests(tmp_path: Path) -> None:
    folder = stored(tmp_path / "trace")
    path = folder / MANIFEST_NAME
    whole, value = path.read_bytes(), json.loads(path.read_text(encoding="utf-8"))
    rng = np.random.default_rng(2)
    for place in range(WORDS):
        path.write_bytes(damaged(whole, rng) if place % 3 == 0 else strange_json(value, rng).encode())
        if is_read(lambda: TraceManifest.load(folder), folder):
            manifest = TraceManifest.load(folder)
            assert TraceManifest.from_json(manifest.to_json()).identity() == manifest.identity()
            is_read(lambda: TraceReader(folder).content_hash(), folder)


def test_damaged_profiles(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    value = CostProfile.load("example-a100-70b").to_json()
    whole = json.dumps(value, indent=1).encode()
    rng = np.random.default_rng(3)
    read = 0
    for place in range(WORDS):
        path.write_bytes(damaged(whole, rng) if place % 3 == 0 else strange_json(value, rng).encode())
        if is_read(lambda: CostProfile.load(path), tmp_path):
            read += 1
            profile = CostProfile.load(path)
            rows = profile.verify_ms(np.arange(0, 200, 7), 77)
            assert np.isfinite(rows).all() and (rows >= 0).all()
            assert np.isfinite(profile.plain_ms(10)) and profile.sha256
            assert CostProfile.from_json(json.loads(json.dumps(profile.to_json()))) == profile
    assert read


def corpus(folder: Path) -> RecycledCorpus:
    entries = {pack((one, two)): (2, (one, 3), (0.5, 0.25)) for one in range(6) for two in range(4)}
    built = RecycledCorpus.build(entries, 24, "ab" * 32, {"command": "made up"})
    built.save(folder)
    return built


def test_damaged_corpora(tmp_path: Path) -> None:
    built = corpus(tmp_path)
    path = tmp_path / CORPUS_NAME
    whole = path.read_bytes()
    rng = np.random.default_rng(4)
    bad = 0
    for _ in range(TRIES):
        path.write_bytes(damaged(whole, rng))
        if is_read(lambda: RecycledCorpus.load(tmp_path), tmp_path):
            loaded = RecycledCorpus.load(tmp_path)
            assert all(loaded.entry(packed) is None or loaded.sha256 for packed in built.contexts.tolist())
        else:
            bad += 1
    assert bad > TRIES // 3


def test_damaged_prompts(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    value = {"id": "a", "task": "chat", "prompt": "Say it.", "split": ""}
    rng = np.random.default_rng(5)
    read = 0
    for place in range(WORDS):
        line = strange_json(value, rng).encode()
        path.write_bytes(damaged(line, rng) if place % 3 == 0 else line)
        read += is_read(lambda: read_prompts(path), tmp_path)
    assert 0 < read < WORDS


DEEP = "[" * 200_000
LONG = "1" * 5_000  # more digits than Python turns into a number


@pytest.mark.parametrize("text", [DEEP, LONG, '{"schema_version": ' + LONG + "}", "\x00", "", "null", '"x"', "{}"])
def test_json_that_is_none_of_ours(text: str, tmp_path: Path) -> None:
    (tmp_path / MANIFEST_NAME).write_text(text, encoding="utf-8")
    (tmp_path / "profile.json").write_text(text, encoding="utf-8")
    assert not is_read(lambda: TraceManifest.load(tmp_path), tmp_path)
    assert not is_read(lambda: CostProfile.load(tmp_path / "profile.json"), tmp_path)


def test_a_folder_in_a_files_place(tmp_path: Path) -> None:
    folder = stored(tmp_path / "trace")
    part = folder / SHARDS_NAME / "000000" / NODES_NAME
    part.unlink()
    part.mkdir()
    assert not is_read(lambda: TraceReader(folder).read_all(), folder)
    (folder / MANIFEST_NAME).unlink()
    (folder / MANIFEST_NAME).mkdir()
    (folder / CORPUS_NAME).mkdir()
    assert not is_read(lambda: TraceManifest.load(folder), folder)
    assert not is_read(lambda: RecycledCorpus.load(folder), folder)
    assert not is_read(lambda: CostProfile.load(folder), folder)
