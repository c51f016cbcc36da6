"""Traces on disk: round trips, atomic shards, damage."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.data.stored import write
from tests.data.traces import manifest, request, same
from tests.house.layout import ROOT
from treewise.data.errors import ParameterError, TraceError
from treewise.data.trace_reader import TraceReader
from treewise.data.trace_schema import TraceShard, concatenate
from treewise.data.trace_writer import RequestKey, TraceWriter


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


def test_content_hash_follows_content(tmp_path: Path) -> None:
    for name, changes in (("one", {}), ("two", {"created": "later"}), ("three", {"seed": 1})):
        write(tmp_path / name, **changes)
    one, two, three = (TraceReader(tmp_path / name).content_hash() for name in ("one", "two", "three"))
    assert one == two != three
    write(tmp_path / "two", ("more",))
    assert TraceReader(tmp_path / "two").content_hash() != one


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
