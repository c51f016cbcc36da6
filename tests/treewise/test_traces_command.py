"""`treewise traces summary`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.data.traces import manifest, request
from tests.house.layout import ROOT
from treewise import cli
from treewise.data.trace_reader import TraceReader
from treewise.data.trace_summary import summarize
from treewise.data.trace_writer import TraceWriter

SCHEMA = json.loads((ROOT / "treewise" / "schemas" / "traces_summary.json").read_text(encoding="utf-8"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A trace of five requests in two tasks."""
    with TraceWriter(tmp_path / "trace", manifest(), shard_rounds=8) as writer:
        for index, task in enumerate(("chat", "chat", "reasoning", "chat", "reasoning")):
            writer.add(*request(f"p{index}", task=task))
    return tmp_path / "trace"


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Standard output of a command that succeeds, however Typer leaves."""
    try:
        status: object = cli.main(arguments)
    except SystemExit as leaving:
        status = leaving.code
    assert status in (0, None)
    return capsys.readouterr().out


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """Whether `value` fits the part of JSON Schema that our schemas use."""
    kinds: dict[str, Any] = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "null": type(None),
        "boolean": bool,
    }
    if "const" in schema:
        return bool(value == schema["const"])
    if "enum" in schema:
        return value in schema["enum"]
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    # Python counts True as a number; JSON does not.
    if not any(isinstance(value, kinds[name]) and isinstance(value, bool) == (name == "boolean") for name in names):
        return False
    if "properties" in schema and isinstance(value, dict):
        parts = schema["properties"]
        return set(value) == set(schema["required"]) == set(parts) and all(fits(value[k], parts[k]) for k in parts)
    return all(fits(item, schema["items"]) for item in value) if isinstance(value, list) else True


def test_json_follows_its_schema_and_counts_right(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = json.loads(run(["traces", "summary", str(folder), "--json"], capsys))
    assert fits(printed, SCHEMA)
    assert not fits({**printed, "rounds": "many"}, SCHEMA)
    whole = TraceReader(folder).read_all()
    assert printed["rounds"] == len(whole.rounds) == 20
    assert printed["nodes"] == len(whole.nodes)
    assert (printed["requests"], printed["prompts"], printed["shards"]) == (5, 5, 3)
    chat, reasoning = printed["tasks"]
    assert (chat["task"], chat["prompts"], chat["rounds"]) == ("chat", 3, 12)
    rows = whole.rounds.task == "reasoning"
    assert reasoning["accepted_length"] == whole.rounds.accepted_length[rows].mean()
    assert reasoning["tokens_per_round"] == 1 + reasoning["accepted_length"]
    assert (chat["draft_agreement"], chat["lookup_agreement"]) == (1.0, 0.0)
    for row in printed["sources"]:
        bits = {"lookup": 1, "draft": 2, "both": 3}[row["source"]]
        known = (whole.nodes.sources == bits) & (whole.nodes.match >= 0)
        assert row["known"] == known.sum()
        assert row["match_rate"] == (whole.nodes.match[known] == 1).mean()
    assert sum(row["candidates"] for row in printed["sources"]) == len(whole.nodes)


def test_tables_fit_a_hundred_columns(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    printed = run(["traces", "summary", str(folder)], capsys)
    assert max(len(line) for line in printed.splitlines()) <= 100
    for word in ("live, policy chain:3", "20", "5 of 5 prompts in 2 tasks", "max_depth 10", "reasoning", "match rate"):
        assert word in printed


def test_a_dense_trace_shows_what_is_reachable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rounds, nodes = request("a", num_rounds=8)
    accepted = rounds.accepted_length.copy()
    rounds.accepted_length[:] = -1
    with TraceWriter(tmp_path, manifest(kind="dense", policy=None)) as writer:
        writer.add(rounds, nodes)
    assert summarize(TraceReader(tmp_path)).tasks[0].accepted_length == accepted.mean()
    assert "reachable" in run(["traces", "summary", str(tmp_path)], capsys)


def test_bad_shards_stop_or_are_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "shards" / "000001" / "nodes.parquet").write_bytes(b"")
    assert cli.main(["traces", "summary", str(folder)]) == 2
    assert "000001/nodes.parquet is not a readable Parquet file" in capsys.readouterr().err
    printed = json.loads(run(["traces", "summary", str(folder), "--json", "--skip-bad"], capsys))
    assert (printed["shards"], printed["skipped_shards"], printed["requests"]) == (2, 1, 3)
    assert "2, 1 skipped" in run(["traces", "summary", str(folder), "--skip-bad"], capsys)


def test_a_folder_without_a_trace_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["traces", "summary", str(tmp_path)]) == 2
    assert "trace must be a folder with a manifest.json" in capsys.readouterr().err
