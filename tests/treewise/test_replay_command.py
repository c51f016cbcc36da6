"""`treewise replay`: a live trace against its own replay."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from tests.treewise.trace_commands import checked, run, write_live
from treewise import cli
from treewise.data.trace_schema import TraceShard


def test_replay_of_an_own_trace_finds_nothing(
    live_shards: list[TraceShard], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_live(tmp_path / "live", live_shards)
    value = checked("replay", run(["replay", str(folder), "--json"], capsys))
    (trace,) = value["traces"]
    assert (trace["policy"], trace["mismatches"]) == ("chain:3", [])
    assert trace["rounds"] == trace["compared"] == sum(len(shard.rounds) for shard in live_shards)


def test_replay_of_a_dense_trace_is_refused(dense_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["replay", str(dense_folder)]) == 2
    assert "must be live to be compared with its replay, got a dense one" in capsys.readouterr().err
    assert cli.main(["replay", str(dense_folder), "--row-buckets", "8," + "9" * 5000]) == 2
    assert "row_buckets must be whole numbers of rows joined by commas" in capsys.readouterr().err


def test_replay_of_a_changed_trace_fails(
    live_shards: list[TraceShard], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = live_shards[0]
    kept = np.zeros_like(first.nodes.kept)
    columns = {item.name: getattr(first.nodes, item.name) for item in fields(first.nodes)}
    broken = replace(first, nodes=type(first.nodes)(**{**columns, "kept": kept}))
    folder = write_live(tmp_path / "live", [broken, *live_shards[1:]])
    value = checked("replay", run(["replay", str(folder), "--json"], capsys, status=1))
    assert {found["prompt_id"] for found in value["traces"][0]["mismatches"]} == {"prompt-0"}
    output = run(["replay", str(folder)], capsys, status=1)
    assert "prompt-0, position" in output and "kept of candidate" in output
