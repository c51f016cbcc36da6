"""Traces that are read group by group against the same ones in memory."""

from __future__ import annotations

import gc
import pickle
import shutil
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.training.batch_traces import ENVELOPE, check_same, policy_of
from tests.training.stored_worlds import request_shards, write_world
from tests.training.worlds import COST, World, as_trace, manifest
from treewise.data.errors import ShardError, TraceError
from treewise.data.trace_reader import TraceReader
from treewise.data.trace_schema import TraceShard, concatenate
from treewise.data.trace_writer import TraceWriter
from treewise.training.dataset import DatasetSettings
from treewise.training.dataset_batch import build_dataset_batched
from treewise.training.logged import LoggedRequest
from treewise.training.logged_columns import LoggedColumns
from treewise.training.logged_trace import LoggedTrace, open_trace
from treewise.training.replay import replay
from treewise.training.rows import GrowthRows, MatchRows
from treewise.training.stored_requests import GroupSize

ALONE = GroupSize(nodes=1, requests=1)  # every shard is a group


@pytest.fixture(scope="module")
def shards() -> list[TraceShard]:
    return request_shards(World(seed=4, num_texts=6, answer_tokens=36))


@pytest.fixture(scope="module")
def folder(shards: list[TraceShard], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_world(tmp_path_factory.mktemp("stored") / "world", shards, shard_rounds=52)


@pytest.fixture(scope="module")
def whole(shards: list[TraceShard]) -> LoggedTrace:
    return as_trace(concatenate(shards), manifest("dense", ENVELOPE.widened()))


@pytest.mark.parametrize("spec", ["chain:4", "topn:12x3", "frontier", "learned"])
def test_replay_does_not_depend_on_groups(folder: Path, whole: LoggedTrace, spec: str) -> None:
    expected = replay(policy_of(spec), whole.requests, whole.deployment(COST))
    for size, groups in ((ALONE, 3), (GroupSize(), 1), (GroupSize(requests=4), 2)):
        trace = open_trace(folder, size=size)
        assert len(trace.groups()) == groups
        check_same(replay(policy_of(spec), trace.requests, trace.deployment(COST)), expected)


def test_a_stored_trace_says_what_one_in_memory_does(folder: Path, whole: LoggedTrace) -> None:
    trace = open_trace(folder, "world", ALONE)
    assert (trace.name, trace.sources, trace.envelope) == (whole.name, whole.sources, whole.envelope)
    assert [replace(entry, shard=0) for entry in trace.entries] == list(whole.entries)
    assert len(trace.requests) == len(whole.requests) == 6
    for ours, theirs in zip(trace.requests, whole.requests, strict=True):
        assert (ours.index, ours.prompt_id, ours.task) == (theirs.index, theirs.prompt_id, theirs.task)
        np.testing.assert_array_equal(ours.text, theirs.text)


def test_requests_can_be_chosen_without_reading_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = open_trace(folder, size=ALONE)
    reads: list[list[str]] = []
    read = TraceReader.read

    def counted(self: TraceReader, names: list[str]) -> TraceShard:
        reads.append(list(names))
        return read(self, names)

    monkeypatch.setattr(TraceReader, "read", counted)
    ids = [entry.prompt_id for entry in trace.entries]
    chosen = trace.of_prompts([ids[5], ids[0]])
    assert [entry.prompt_id for entry in chosen.entries] == [ids[0], ids[5]]
    assert {entry.task for entry in trace.of_task("chat").entries} == {"chat"}
    assert [entry.prompt_id for entry in trace.only([1, 2]).entries] == ids[1:3]
    assert reads == []
    assert [request.prompt_id for request in chosen.requests] == [ids[0], ids[5]]
    assert reads == [["000000"], ["000002"]]
    assert trace.requests[-1].prompt_id == ids[5]  # of the group that was read last
    assert [request.prompt_id for request in trace.requests[1:3]] == ids[1:3]
    assert reads[2:] == [["000000"], ["000001"]]
    with pytest.raises(IndexError):
        trace.requests[6]


def test_what_was_cut_out_stands_alone(folder: Path, whole: LoggedTrace) -> None:
    chosen = open_trace(folder, size=ALONE).only([4, 1])
    kept = chosen.in_memory()
    assert not kept.is_stored and kept.in_memory() is kept
    assert len(kept.requests[0].shard.rounds) == sum(entry.num_rounds for entry in chosen.entries)
    assert kept.requests[0].columns is kept.requests[1].columns
    expected = replay(policy_of("frontier"), [whole.requests[1], whole.requests[4]], whole.deployment(COST))
    check_same(replay(policy_of("frontier"), kept.requests, kept.deployment(COST)), expected)


def test_replay_holds_one_group(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = open_trace(folder, size=ALONE)
    alive: weakref.WeakSet[LoggedColumns] = weakref.WeakSet()
    most = []
    begin = LoggedColumns.__init__

    def counted(self: LoggedColumns, *arguments: object) -> None:
        gc.collect()
        most.append(len(alive))
        alive.add(self)
        begin(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(LoggedColumns, "__init__", counted)
    replay(policy_of("topn:8x2"), trace.requests, trace.deployment(COST))
    assert most == [0, 0, 0]


def sorted_rows(rows: MatchRows | GrowthRows) -> NDArray[np.float64]:
    table = np.column_stack([rows.prompt, rows.label, rows.weight, np.nan_to_num(rows.x, nan=-9.0)])
    return np.asarray(table[np.lexsort(table.T)], dtype=np.float64)


def test_training_rows_do_not_depend_on_groups(folder: Path, whole: LoggedTrace) -> None:
    settings = DatasetSettings(stride=2)
    ours = build_dataset_batched([open_trace(folder, size=ALONE)], settings=settings)
    theirs = build_dataset_batched([whole], settings=settings)
    assert (ours.prompts, ours.tasks, ours.positions) == (theirs.prompts, theirs.tasks, theirs.positions)
    for name in ("match", "growth"):
        mine, other = (sorted_rows(getattr(rows, name)) for rows in (ours, theirs))
        np.testing.assert_array_equal(mine, other)


def test_a_prompt_that_two_writers_hold_counts_once(shards: list[TraceShard], tmp_path: Path) -> None:
    write_world(tmp_path, shards[:2])
    write_world(tmp_path, shards[1:3])
    trace = open_trace(tmp_path, size=ALONE)
    assert len(TraceReader(tmp_path).read_all().rounds) == sum(len(shard.rounds) for shard in (*shards[:3], shards[1]))
    assert [request.prompt_id for request in trace.requests] == [str(one.rounds.prompt_id[0]) for one in shards[:3]]


def test_another_process_reads_for_itself(folder: Path) -> None:
    trace = open_trace(folder, size=ALONE)
    first: LoggedRequest = trace.requests[0]
    sent = pickle.dumps(trace)
    assert len(sent) < 20_000
    again = pickle.loads(sent)
    assert again.requests[0] is not first
    np.testing.assert_array_equal(again.requests[0].text, first.text)


def test_a_bad_shard_is_named_when_the_trace_is_opened(folder: Path, tmp_path: Path) -> None:
    place = shutil.copytree(folder, tmp_path / "copy")
    nodes = place / "shards" / "000002" / "nodes.parquet"
    nodes.write_bytes(nodes.read_bytes()[:-50])
    with pytest.raises(ShardError, match=r"000002/nodes\.parquet is not a readable Parquet file"):
        open_trace(place)
    shutil.copy(place / "shards" / "000001" / "nodes.parquet", nodes)
    with pytest.raises(ShardError, match=r"000002: rounds\.num_nodes must add up to the \d+ nodes, got \d+"):
        open_trace(place)
    shutil.rmtree(place / "shards")
    with pytest.raises(TraceError, match="must hold at least one readable shard, got none"):
        open_trace(place)


def test_a_text_with_a_gap_is_refused_when_the_trace_is_opened(shards: list[TraceShard], tmp_path: Path) -> None:
    holed = shards[0].take(np.arange(len(shards[0].rounds)) != 4)
    with TraceWriter(tmp_path, manifest("dense", ENVELOPE.widened())) as writer:
        writer.add(shards[1].rounds, shards[1].nodes)
        writer.add(holed.rounds, holed.nodes)
    with pytest.raises(TraceError, match="prompt prompt-0: rounds must hold its text from the prompt on, without gaps"):
        open_trace(tmp_path)
