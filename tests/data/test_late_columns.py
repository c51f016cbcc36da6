"""Columns that traces from before them lack: read as unknown; any other column that lacks is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.data.stored import write
from treewise.data.errors import ShardError
from treewise.data.trace_columns import LATE, ROUND_COLUMNS
from treewise.data.trace_reader import TraceReader
from treewise.data.trace_schema import Rounds


def without(folder: Path, names: list[str]) -> None:
    """Write the rounds of every shard again, without the columns `names`; what the manifest left in them stays."""
    for path in folder.glob("shards/*/rounds.parquet"):
        pq.write_table(pq.read_table(path).drop_columns(names), path)


def test_old_traces_read_as_if_nothing_was_known(tmp_path: Path) -> None:
    expected = write(tmp_path)
    hashes = TraceReader(tmp_path).content_hash()
    without(tmp_path, list(LATE))
    rounds = TraceReader(tmp_path).read_all().rounds
    assert TraceReader(tmp_path).content_hash() != hashes  # of the bytes as they are
    assert "told_task" in LATE
    for column in ROUND_COLUMNS:
        if column.name in LATE:
            assert set(getattr(rounds, column.name).tolist()) == {LATE[column.name]}
    np.testing.assert_array_equal(rounds.position, expected.rounds.position)
    assert isinstance(rounds, Rounds)


def test_other_columns_must_be_there(tmp_path: Path) -> None:
    write(tmp_path)
    without(tmp_path, ["task"])
    with pytest.raises(ShardError, match=r"must hold the columns of its table, got \['task'\] missing"):
        TraceReader(tmp_path).read_all()
