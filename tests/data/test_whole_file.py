"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from treewise.data.errors import ParameterError
from treewise.data.whole_file import check_place, write_whole


def test_what_was_there_stays_until_the_new_text_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "table.json"
    assert write_whole(path, "old") == path

    def break_off(self: Path, text: str, encoding: str) -> int:
        with self.open("w", encoding=encoding) as file:
            file.write(text[:1])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_text", break_off)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, "text")
    assert path.read_text(encoding="utf-8") == "old"
    assert list(path.parent.iterdir()) == [path]


def test_a_full_disk_names_the_file_and_not_what_is_written_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_whole(tmp_path / "report.html", "old")

    def fail(self: Path, text: str, encoding: str) -> int:
        self.touch()
        raise OSError(*reasons)

    reasons: tuple[object, ...] = (errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(OSError, match=r"No space left on device; nothing that was stored before is lost: .*t\.html'$"):
        write_whole(path, "new")
    assert (path.read_text(encoding="utf-8"), list(tmp_path.iterdir())) == ("old", [path])
    reasons = (errno.EACCES, "Permission denied", "elsewhere")
    with pytest.raises(PermissionError, match=r"denied: 'elsewhere'$"):  # not the disk's fault
        write_whole(path, "new")


def test_links_and_pipes_stay_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "file").write_text("old", encoding="utf-8")
    write_whole(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text(encoding="utf-8") == "new"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_whole(tmp_path / "pipe", "said")
    assert os.read(reader, 10) == b"said"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()


def test_a_place_is_checked_and_nothing_is_made_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_place(tmp_path / "a" / "b" / "c.json")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ParameterError, match="csv must be a file, got the folder"):
        check_place(tmp_path, "csv")
    (tmp_path / "file").touch()
    check_place(tmp_path / "file")
    with pytest.raises(ParameterError, match=r"out must be in a folder, got .* below the file .*file'"):
        check_place(tmp_path / "file" / "a" / "b.json")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ParameterError, match=r"out must be where this user may write, got .*new\.json"):
        check_place(tmp_path / "new.json")
