"""Traces that were broken off, damaged or are somebody else's."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.stored import write
from tests.data.traces import manifest, request, same
from tests.house.layout import ROOT
from treewise.data.errors import ShardError, TraceError
from treewise.data.trace_manifest import TraceManifest
from treewise.data.trace_reader import TraceReader, read_requests
from treewise.data.trace_schema import TraceShard
from treewise.data.trace_writer import TraceWriter


def test_an_exception_drops_the_open_shard_only(tmp_path: Path) -> None:
    with pytest.raises(KeyError), TraceWriter(tmp_path, manifest(), 4) as writer:
        writer.add(*request("a"))
        writer.add(*request("bb", num_rounds=3))
        raise KeyError
    read = TraceReader(tmp_path)
    assert read.read_all().rounds.prompt_id.tolist() == ["a"] * 4
    assert read.leftovers == 0


def test_an_interrupt_keeps_every_finished_request(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), TraceWriter(tmp_path, manifest(), 100) as writer:
        writer.add(*request("a"))
        writer.add(*request("bb"))
        raise KeyboardInterrupt
    assert len(TraceReader(tmp_path).shard_paths()) == 1
    assert TraceWriter(tmp_path, manifest()).done() == {"a", "bb"}


def test_folders_of_something_else_are_left_alone(tmp_path: Path) -> None:
    letter = tmp_path / "letter.txt"
    letter.write_text("dear", encoding="utf-8")
    for place in (tmp_path, letter):
        with pytest.raises(TraceError, match="folder must be new, empty or a trace, got"):
            TraceWriter(place, manifest())
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_a_file_in_a_shards_place_is_a_bad_shard(tmp_path: Path) -> None:
    write(tmp_path)
    shutil.rmtree(tmp_path / "shards" / "000001")
    (tmp_path / "shards" / "000001").write_text("x", encoding="utf-8")
    with pytest.raises(ShardError, match=r"000001/rounds\.parquet is missing"):
        TraceReader(tmp_path).read_all()


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = TraceWriter(tmp_path, manifest())
    writer.add(*request("a"))

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "Error writing bytes to file")  # in pyarrow's words, which name none

    with monkeypatch.context() as patch:
        patch.setattr(pq, "write_table", full)
        with pytest.raises(OSError, match="nothing that was stored before is lost") as told:
            writer.flush()
    assert told.value.filename == str(tmp_path / "shards" / "000000" / "rounds.parquet")
    assert list((tmp_path / "shards").iterdir()) == []
    writer.close()  # the rows are still there
    assert TraceReader(tmp_path).read_all().num_requests == 1


def rewrite(path: Path, change: Callable[[Any], Any]) -> None:
    table = pq.read_table(path, partitioning=None)
    pq.write_table(change(table).replace_schema_metadata(table.schema.metadata), path)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip(path: Path) -> None:
    path.write_bytes(b"not parquet at all" * 10)


def drop_column(path: Path) -> None:
    rewrite(path, lambda table: table.drop_columns(["request"]))


def add_column(path: Path) -> None:
    rewrite(path, lambda table: table.append_column("colour", pa.nulls(len(table))))


def widen_column(path: Path) -> None:
    rewrite(path, lambda table: table.set_column(0, "request", table.column("request").cast(pa.int64())))


def put_nulls(path: Path) -> None:
    nulls = pa.array([None] * len(pq.read_table(path, partitioning=None)), pa.int32())
    rewrite(path, lambda table: table.set_column(0, "request", nulls))


def drop_row(path: Path) -> None:
    rewrite(path, lambda table: table.slice(1))


def unmark(path: Path) -> None:
    pq.write_table(pq.read_table(path, partitioning=None).replace_schema_metadata({}), path)


@pytest.mark.parametrize("file", ["rounds.parquet", "nodes.parquet"])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut, "is not a readable Parquet file"),
        (flip, "is not a readable Parquet file"),
        (Path.unlink, "is missing"),
        (drop_column, r"must hold the columns of its table, got \['request'\] missing"),
        (add_column, r"got \[\] missing and \['colour'\] unknown"),
        (widen_column, "request must be int32, got int64"),
        (put_nulls, "request must hold no nulls"),
        (drop_row, "must"),
        (unmark, "must belong to the trace .*, got no mark"),
    ],
)
def test_a_bad_shard_is_named_or_skipped(
    tmp_path: Path, file: str, damage: Callable[[Path], None], message: str
) -> None:
    write(tmp_path, shard_rounds=8)
    path = tmp_path / "shards" / "000001" / file
    damage(path)
    with pytest.raises(ShardError, match=message) as caught:
        TraceReader(tmp_path).read_all()
    if damage is not drop_row:  # then either file may be the one that is wrong
        assert str(path) in str(caught.value)
    reader = TraceReader(tmp_path, skip_bad=True)
    read = reader.read_all()
    assert read.rounds.prompt_id.tolist() == ["a"] * 4 + ["bb"] * 4 + ["e"] * 4
    assert read.rounds.request.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    list(reader)
    assert reader.skipped == 1


def test_a_shard_of_another_trace_is_foreign(tmp_path: Path) -> None:
    write(tmp_path / "one", ("a",))
    write(tmp_path / "two", ("bb",), seed=4)
    shutil.copytree(tmp_path / "two" / "shards" / "000000", tmp_path / "one" / "shards" / "000001")
    with pytest.raises(ShardError, match=r"000001/rounds\.parquet must belong to the trace"):
        TraceReader(tmp_path / "one").read_all()


KILLED = """
import os, signal, sys
import pyarrow.parquet as pq
from tests.data.traces import manifest, request
from treewise.data.trace_writer import TraceWriter

writer = TraceWriter(sys.argv[1], manifest(), shard_rounds=4)
writer.add(*request("a"))
write_table = pq.write_table
count = 0

def die(table, path, **settings):
    global count
    write_table(table, path, **settings)
    count += 1
    if count == int(sys.argv[2]):
        with open(path, "r+b") as file:
            file.truncate(100)
        os.kill(os.getpid(), signal.SIGKILL)

pq.write_table = die
writer.add(*request("bb"))
print("not killed")
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
@pytest.mark.parametrize("file", [1, 2])
def test_a_killed_writer_leaves_closed_shards_and_nothing_half_readable(tmp_path: Path, file: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), str(file)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert done.stdout == ""
    reader = TraceReader(tmp_path)
    assert same(reader.read_all(), TraceShard(*request("a")).renumbered(0))
    assert reader.leftovers == 1
    with TraceWriter(tmp_path, manifest()) as writer:
        assert writer.done() == {"a"}
        writer.add(*request("bb"))
    assert TraceReader(tmp_path).read_all().num_requests == 2


FULL = """
import resource, sys
from pathlib import Path
from tests.data.traces import manifest, request
from treewise.data.trace_reader import TraceReader
from treewise.data.trace_writer import TraceWriter

with TraceWriter(sys.argv[1], manifest()) as writer:
    writer.add(*request("a"))
room = max(path.stat().st_size for path in TraceReader(sys.argv[1]).shard_paths()[0].iterdir()) + 2000
resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
try:
    with TraceWriter(sys.argv[1], manifest()) as writer:
        writer.add(*request("bb"))
        writer.flush()
        for number in range(300):
            writer.add(*request(f"prompt {number}", num_rounds=40))
except OSError as error:
    print(type(error).__name__, writer.open_rounds, Path(error.filename).parent)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of a process")
def test_a_disk_that_is_full_leaves_closed_shards_readable(tmp_path: Path) -> None:
    """The system itself refuses to write, in the middle of a file."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"OSError 0 {tmp_path / 'shards' / '000002'}\n"), done.stderr
    reader = TraceReader(tmp_path)
    assert reader.read_all().rounds.prompt_id.tolist() == ["a"] * 4 + ["bb"] * 4
    assert reader.leftovers == 0
    with TraceWriter(tmp_path, manifest()) as writer:  # with room again, it goes on
        assert writer.done() == {"a", "bb"}
        writer.add(*request("ccc"))
    assert TraceReader(tmp_path).read_all().num_requests == 3


def test_a_disk_that_is_full_from_the_start_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: object, path: Path) -> None:
        Path(path).write_text("{", encoding="utf-8")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(TraceManifest, "save", full)
        with pytest.raises(OSError, match=r"No space.* lost: '.*/trace/manifest\.json'"):
            TraceWriter(tmp_path / "trace", manifest())
    assert [path.name for path in (tmp_path / "trace").rglob("*")] == ["shards"]
    with TraceWriter(tmp_path / "trace", manifest()) as writer:
        writer.add(*request("a"))
    assert TraceReader(tmp_path / "trace").read_all().num_requests == 1


def test_a_manifest_that_comes_while_the_folder_is_looked_at_is_no_foreign_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TraceWriter(tmp_path, manifest()).close()
    is_file = Path.is_file
    looks: list[Path] = []

    def not_yet(path: Path) -> bool:
        looks.append(path)
        return len(looks) > 1 and is_file(path)

    monkeypatch.setattr(Path, "is_file", not_yet)
    with TraceWriter(tmp_path, manifest()) as writer:
        writer.add(*request("a"))
    assert looks[0].name == "manifest.json"
    assert TraceReader(tmp_path).read_all().num_requests == 1


def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    def collect(name: str) -> None:
        with TraceWriter(tmp_path, manifest(), shard_rounds=4) as writer:
            for number in range(12):
                writer.add(*request(f"{name}{number}"))

    names = ("a", "bb", "ccc", "dddd")
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(collect, names))
    reader = TraceReader(tmp_path)
    assert [path.name for path in reader.shard_paths()] == [f"{number:06d}" for number in range(48)]
    assert read_requests(tmp_path) == {(f"{name}{number}", 0) for name in names for number in range(12)}
    assert reader.leftovers == 0
