"""The cache folder: whole or not at all, checked on every read."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
from pathlib import Path

import pytest

from treewise.data.errors import ChecksumError, SchemaVersionError
from treewise.engine import hub
from treewise.engine.hub import (
    MANIFEST_NAME,
    atomic_folder,
    cache_home,
    read_manifest,
    write_atomically,
    write_manifest,
)


def test_the_cache_folder_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREEWISE_HOME", str(tmp_path / "mine"))
    assert cache_home() == tmp_path / "mine"
    monkeypatch.delenv("TREEWISE_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_home() == tmp_path / "treewise"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_home().name in ("treewise", "Cache")


def test_a_folder_appears_whole(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "target"
    with atomic_folder(target) as building:
        (building / "a").write_text("1")
        assert not target.exists()
    assert (target / "a").read_text() == "1"
    assert [path.name for path in target.parent.iterdir()] == ["target"]


def test_a_failed_build_leaves_nothing_and_keeps_the_old(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with atomic_folder(target) as building:
        (building / "a").write_text("old")
    with pytest.raises(RuntimeError, match="stop"), atomic_folder(target) as building:
        (building / "a").write_text("new")
        raise RuntimeError("stop")
    with pytest.raises(OSError, match="nothing that was stored before is lost") as told, atomic_folder(target):
        raise OSError(errno.ENOSPC, "while a temporary file was written")
    assert told.value.filename == str(target)
    assert (target / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_a_full_folder_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "target"
    for text in ("old", "new"):
        with atomic_folder(target) as building:
            (building / text).write_text(text)
    assert [path.name for path in target.iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def publish(target: Path, number: int) -> None:
    for _ in range(20):
        with atomic_folder(target) as building:
            for name in ("a", "b"):
                (building / name).write_text(str(number))


def test_two_processes_never_mix_their_folders(tmp_path: Path) -> None:
    target = tmp_path / "target"
    spawning = multiprocessing.get_context("spawn")
    processes = [spawning.Process(target=publish, args=(target, number)) for number in (1, 2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert (target / "a").read_text() == (target / "b").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_a_file_is_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(descriptor: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    (tmp_path / "small").write_bytes(b"12345")
    (tmp_path / "large").write_bytes(bytes(hub.SMALL_FILE_BYTES + 1))
    write_manifest(tmp_path, {"name": "x"})
    return tmp_path


def test_a_sound_folder_gives_its_manifest(kept: Path) -> None:
    for full in (False, True):
        assert read_manifest(kept, full=full)["name"] == "x"


@pytest.mark.parametrize("content", [b"1234", b"1234x"])
def test_small_files_are_checked_on_every_read(kept: Path, content: bytes) -> None:
    (kept / "small").write_bytes(content)
    with pytest.raises(ChecksumError, match=r"small must (be 5 bytes, got 4|have sha256)"):
        read_manifest(kept)


def test_large_files_are_hashed_when_asked(kept: Path) -> None:
    (kept / "large").write_bytes(b"x" + bytes(hub.SMALL_FILE_BYTES))
    read_manifest(kept)
    with pytest.raises(ChecksumError, match="large must have sha256"):
        read_manifest(kept, full=True)


def test_a_missing_file_is_named(kept: Path) -> None:
    (kept / "large").unlink()
    with pytest.raises(ChecksumError, match=r"large must be .* bytes, got None"):
        read_manifest(kept)


def test_foreign_manifests_are_refused(kept: Path) -> None:
    path = kept / MANIFEST_NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 9}))
    with pytest.raises(SchemaVersionError, match="has schema version 9, this treewise reads 1"):
        read_manifest(kept)
    path.write_text("{")
    with pytest.raises(ChecksumError, match="cannot be read"):
        read_manifest(kept)
