"""Traces on disk: round trips, atomic shards, damage."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.traces import manifest, request, same
from tests.house.layout import ROOT
from treewise.data.errors import ParameterError, ShardError, TraceError
from treewise.data.trace_reader import TraceReader
from treewise.data.trace_schema import TraceShard, concatenate
from treewise.data.trace_writer import RequestKey, TraceWriter

NAMES = ("a", "bb", "ccc", "dddd", "e")


def write(folder: Path, names: tuple[str, ...] = NAMES, shard_rounds: int = 8, **changes: Any) -> TraceShard:
    """Write one request per name; returns what a reader should find."""
    requests = [request(name) for name in names]
    with TraceWriter(folder, manifest(**changes), shard_rounds) as writer:
        for rounds, nodes in requests:
            writer.add(rounds, nodes)
    return concatenate([TraceShard(*both) for both in requests])


@pytest.mark.parametrize("shard_rounds", [1, 4, 5, 8, 1000])
def test_what_is_written_is_read(tmp_path: Path, shard_rounds: int) -> None:
    expected = write(tmp_path, shard_rounds=shard_rounds)
    reader = TraceReader(tmp_path)
    assert same(reader.read_all(), expected)
    assert reader.manifest == manifest()
    assert (reader.skipped, reader.leftovers) == (0, 0)


def test_requests_are_never_split_and_numbered_on(tmp_path: Path) -> None:
    write(tmp_path, shard_rounds=5)
    shards = list(TraceReader(tmp_path))
    assert [shard.rounds.request.tolist() for shard in shards] == [
        [0, 0, 0, 0, 1, 1, 1, 1],
        [2, 2, 2, 2, 3, 3, 3, 3],
        [4, 4, 4, 4],
    ]
    assert [path.name for path in TraceReader(tmp_path).shard_paths()] == ["000000", "000001", "000002"]


def test_nan_and_float_bits_survive(tmp_path: Path) -> None:
    rounds, nodes = request("a", num_rounds=6)
    nodes.draft_prob[0] = np.nextafter(np.float32(0.1), np.float32(1))
    nodes.draft_prob[1] = np.nan
    with TraceWriter(tmp_path, manifest()) as writer:
        writer.add(rounds, nodes)
    read = TraceReader(tmp_path).read_all().nodes.draft_prob
    assert np.array_equal(read.view(np.int32), nodes.draft_prob.view(np.int32))


def test_a_name_that_parquet_cannot_hold_does_not_take_the_shard_with_it(tmp_path: Path) -> None:
    shard = write(tmp_path / "whole")
    bad = {"prompt_id": np.full(len(shard.rounds), "\ud800")}
    with TraceWriter(tmp_path / "t", manifest()) as writer:
        first = shard.take(shard.rounds.request == 0)
        writer.add(first.rounds, first.nodes)
        stray = replace(first.rounds, prompt_id=bad["prompt_id"][: len(first.rounds)])
        with pytest.raises(ParameterError, match="prompt_id must be text that UTF-8 can hold"):
            writer.add(stray, first.nodes)
    assert len(TraceReader(tmp_path / "t").read_all().rounds) == len(first.rounds)


def test_a_second_writer_goes_on_and_knows_what_is_done(tmp_path: Path) -> None:
    write(tmp_path, ("a", "bb"))
    with TraceWriter(tmp_path, manifest(created="later", command="again")) as writer:
        assert writer.done() == {"a", "bb"}
        assert writer.done_requests() == {RequestKey("a", 0), RequestKey("bb", 0)}
        writer.add(*request("ccc"))
        assert writer.done() == {"a", "bb"}  # not yet on disk
    assert TraceReader(tmp_path).read_all().rounds.prompt_id.tolist() == ["a"] * 4 + ["bb"] * 4 + ["ccc"] * 4
    assert TraceReader(tmp_path).manifest.created == manifest().created


def test_two_open_writers_do_not_overwrite_each_other(tmp_path: Path) -> None:
    first, second = TraceWriter(tmp_path, manifest(), 4), TraceWriter(tmp_path, manifest(), 4)
    for index in range(4):
        first.add(*request(f"first-{index}"))
        second.add(*request(f"second-{index}"))
    first.close()
    second.close()
    read = TraceReader(tmp_path).read_all()
    assert read.num_requests == 8
    assert len(set(read.rounds.prompt_id.tolist())) == 8


def test_a_taken_number_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, ("a",))
    rename = Path.rename

    def late(source: Path, place: Path) -> Path:
        # Another writer takes the number between the look and the rename.
        if place.name == "000001" and not place.exists():
            shutil.copytree(tmp_path / "shards" / "000000", place)
        return rename(source, place)

    monkeypatch.setattr(Path, "rename", late)
    write(tmp_path, ("bb",))
    assert [shard.rounds.prompt_id[0] for shard in TraceReader(tmp_path)] == ["a", "a", "bb"]


def test_other_conditions_are_refused(tmp_path: Path) -> None:
    write(tmp_path, ("a",))
    with pytest.raises(TraceError, match=r"manifest\.json must equal the new manifest, got seed 0 != 5"):
        TraceWriter(tmp_path, manifest(seed=5))


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
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(pq, "write_table", full)
        with pytest.raises(OSError, match="no space"):
            writer.flush()
    assert list((tmp_path / "shards").iterdir()) == []
    writer.close()  # the rows are still there
    assert TraceReader(tmp_path).read_all().num_requests == 1


def test_token_ids_can_be_left_out(tmp_path: Path) -> None:
    expected = write(tmp_path, tokens_included=False)
    read = TraceReader(tmp_path).read_all()
    for array in (read.rounds.root_token, read.rounds.committed, read.nodes.token):
        assert len(array) > 0
        assert (array == -1).all()
    assert same(read, expected, but=("root_token", "committed", "token"))


def test_the_writer_refuses_what_breaks_the_rules(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, manifest())
    rounds, nodes = request("a")
    nodes.parent[0] = 5
    with pytest.raises(TraceError, match=r"nodes\.parent must be an earlier row"):
        writer.add(rounds, nodes)
    two = concatenate([TraceShard(*request(name)) for name in "ab"])
    with pytest.raises(ParameterError, match=r"rounds must be those of one request, got requests \[0, 1\]"):
        writer.add(two.rounds, two.nodes)
    writer.close()
    with pytest.raises(ParameterError, match="writer must be open, got 'a closed one'"):
        writer.add(*request("a"))
    with pytest.raises(ParameterError, match="shard_rounds must be >= 1, got 0"):
        TraceWriter(tmp_path, manifest(), 0)


def test_an_empty_trace_has_nothing_to_read(tmp_path: Path) -> None:
    TraceWriter(tmp_path, manifest()).close()
    assert list(TraceReader(tmp_path)) == []
    with pytest.raises(TraceError, match="must hold at least one readable shard, got none"):
        TraceReader(tmp_path).read_all()


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


def test_content_hash_follows_content(tmp_path: Path) -> None:
    for name, changes in (("one", {}), ("two", {"created": "later"}), ("three", {"seed": 1})):
        write(tmp_path / name, **changes)
    one, two, three = (TraceReader(tmp_path / name).content_hash() for name in ("one", "two", "three"))
    assert one == two != three
    write(tmp_path / "two", ("more",))
    assert TraceReader(tmp_path / "two").content_hash() != one


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


@pytest.mark.parametrize("package", ["treewise", "pandas", "duckdb", "polars"])
def test_the_documented_queries_run(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(package)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "traces.md").read_text(encoding="utf-8"), re.DOTALL)
    (block,) = [block for block in blocks if re.search(rf"^(import|from) {package}\b", block, re.MULTILINE)]
    write(tmp_path / "my-trace")
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "docs/traces.md", "exec"), {})
    assert re.search(r"\d", capsys.readouterr().out)
