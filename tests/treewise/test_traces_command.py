"""`treewise traces summary`."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.traces import manifest, request
from tests.house.layout import ROOT
from treewise import cli
from treewise.data.trace_reader import TraceReader
from treewise.data.trace_summary import SOURCE_BITS, summarize
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
        own = whole.nodes.sources == sum(SOURCE_BITS[name] for name in row["source"].split(" + "))
        known = own & (whole.nodes.match >= 0)
        assert row["known"] == known.sum()
        assert row["match_rate"] == (whole.nodes.match[known] == 1).mean()
        assert (row["verified"], row["accepted"]) == (whole.nodes.kept[own].sum(), whole.nodes.on_path[own].sum())
    assert sum(row["candidates"] for row in printed["sources"]) == len(whole.nodes)
    in_chat = np.isin(whole.round_rows(), np.flatnonzero(whole.rounds.task == "chat"))
    drafts = in_chat & ((whole.nodes.sources & 2) > 0) & (whole.nodes.match >= 0)
    assert chat["draft_match_rate"] == (whole.nodes.match[drafts] == 1).mean()


def test_three_sources_are_told_apart_and_entropy_is_counted_by_place(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = ROOT / "data" / "assets" / "traces-smollm2-135m" / "judge"
    printed = json.loads(run(["traces", "summary", str(trace), "--json"], capsys))
    assert fits(printed, SCHEMA)
    assert len(printed["sources"]) == 7 and printed["sources"][-1]["source"] == "lookup + draft + recycled"
    assert all(task[f"{name}_match_rate"] > 0 for task in printed["tasks"] for name in SOURCE_BITS)
    nodes = (whole := TraceReader(trace).read_all()).nodes
    drafted = (nodes.match >= 0) & ~np.isnan(nodes.draft_entropy)
    places = set(zip(whole.round_rows()[drafted].tolist(), nodes.parent[drafted].tolist(), strict=True))
    assert sum(row["places"] for row in printed["entropy"]) == len(places)
    first = drafted & (nodes.draft_rank == 0) & (nodes.draft_entropy >= 6.0)
    assert printed["entropy"][-1]["high_bits"] is None
    matched = (nodes.match[first] == 1).sum()
    assert printed["entropy"][-1]["first_match_rate"] == pytest.approx(matched / printed["entropy"][-1]["places"])
    assert all(row["first_match_rate"] <= row["match_rate"] <= 1.0 for row in printed["entropy"])
    monkeypatch.setenv("COLUMNS", "200")
    tables = run(["traces", "summary", str(trace)], capsys)
    assert max(len(line) for line in tables.splitlines()) <= 100 and "lookup + draft + recycled" in tables
    assert f"entropy,6-,places,{printed['entropy'][-1]['places']}" in run(
        ["traces", "summary", str(trace), "--csv", "-"], capsys
    )


def test_every_figure_goes_to_a_file_or_to_the_screen(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = json.loads(run(["traces", "summary", str(folder), "--json", "--csv", str(tmp_path / "out.csv")], capsys))
    printed = run(["traces", "summary", str(folder), "--csv", "-"], capsys)
    assert printed == (tmp_path / "out.csv").read_text(encoding="utf-8")
    found = {(row["table"], row["row"], row["measure"]): row["value"] for row in csv.DictReader(io.StringIO(printed))}
    assert found["trace", "", "rounds"] == str(whole["rounds"])
    assert found["task", "chat", "tokens_per_round"] == str(whole["tasks"][0]["tokens_per_round"])
    assert found["source", whole["sources"][0]["source"], "candidates"] == str(whole["sources"][0]["candidates"])
    assert found["envelope", "", "max_depth"] == "10"
    assert whole["entropy"] == []  # made-up requests know no entropy
    assert cli.main(["traces", "summary", str(folder), "--csv", str(tmp_path)]) == 2
    assert "csv must be a file, got the folder" in capsys.readouterr().err
    assert cli.main(["traces", "summary", str(folder), "--csv", "-", "--json"]) == 2
    assert "output must be --json or --csv -, got both" in capsys.readouterr().err


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
