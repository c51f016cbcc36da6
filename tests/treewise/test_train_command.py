"""`treewise train`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.house.layout import ROOT
from tests.training.worlds import COST, HEAD, VOCAB, World, dense_trace
from tests.treewise.test_traces_command import fits, run
from treewise import cli
from treewise.cli import train as command
from treewise.data.envelope import Envelope
from treewise.data.pair import PairDescription
from treewise.data.trace_writer import TraceWriter
from treewise.policy.bundle import Bundle
from treewise.training.match_model import ForestSettings

SCHEMA = json.loads((ROOT / "treewise" / "schemas" / "train.json").read_text(encoding="utf-8"))
PAIR = PairDescription("world", "a" * 64, "b" * 64, VOCAB, "law", "c" * 64, HEAD)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dense trace and a cost profile."""
    folder = tmp_path_factory.mktemp("train")
    envelope = Envelope(max_depth=3, draft_width=2, lookup_width=2, min_path_prior=0.05, min_grow_prior=0.1)
    trace = dense_trace(World(seed=3, num_texts=4, answer_tokens=40), envelope)
    with TraceWriter(folder / "dense", replace(trace.manifest, pair=PAIR.to_json())) as writer:
        for request in trace.requests:
            part = request.shard.take(sorted(request.rows.values()))  # type: ignore[arg-type]
            writer.add(part.rounds, part.nodes)
    COST.save(folder / "cost.json")
    return folder


def arguments(base: Path, out: Path, *more: str) -> list[str]:
    return ["train", str(base / "dense"), "--cost", str(base / "cost.json"), "-o", str(out), *more]


def test_json_follows_its_schema(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = json.loads(run(arguments(base, tmp_path / "b", "--json", "--tune", "--trees", "12"), capsys))
    assert fits(printed, SCHEMA)
    assert not fits({**printed, "prompts": "four"}, SCHEMA)
    assert printed["prompts"] == 4
    assert printed["match_trees"] <= 12
    assert [item["name"] for item in printed["tuning"]] == ["prune_scale", "growth_scale", "opening_scale"]
    bundle = Bundle.load(tmp_path / "b")
    assert bundle.provenance["command"].startswith("treewise train ")
    assert bundle.provenance["settings"]["match"]["trees"] == 12


def test_tables_fit_a_hundred_columns(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    printed = run(arguments(base, tmp_path / "b", "--no-tune", "--stride", "2", "--seed", "5"), capsys)
    assert max(len(line) for line in printed.splitlines()) <= 100
    for word in ("held-out prompts", "free only", "survival", "share of gain", "times plain decoding", "Scorer"):
        assert word in printed
    assert "scales tried" not in printed


def test_a_table_may_be_the_match_model(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = json.loads(run(arguments(base, tmp_path / "b", "--json", "--no-tune", "--match-model", "table"), capsys))
    assert fits(printed, SCHEMA)
    assert (printed["match_model"], printed["match_trees"], printed["choices"]) == ("table", 1, [])
    words = run(arguments(base, tmp_path / "c", "--no-tune", "--match-model", "auto"), capsys)
    assert "match models by replay" in words
    assert max(len(line) for line in words.splitlines()) <= 100
    assert cli.main(arguments(base, tmp_path / "d", "--match-model", "net")) == 2
    assert "match_model must be one of forest, table, auto, got 'net'" in capsys.readouterr().err


def test_studies_print_and_write_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    envelope = Envelope(max_depth=3, draft_width=2, lookup_width=2, min_path_prior=0.05, min_grow_prior=0.1)
    trace = dense_trace(World(seed=3, num_texts=9, answer_tokens=70), envelope)
    with TraceWriter(tmp_path / "nine", replace(trace.manifest, pair=PAIR.to_json())) as writer:
        for request in trace.requests:
            part = request.shard.take(sorted(request.rows.values()))  # type: ignore[arg-type]
            writer.add(part.rounds, part.nodes)
    words = ["train", str(tmp_path / "nine"), "--trees", "6", "--stride", "3", "--curve", "--ablate"]
    found = json.loads(run([*words, "--json"], capsys))
    schema = json.loads((ROOT / "treewise" / "schemas" / "train_study.json").read_text(encoding="utf-8"))
    assert fits(found, schema)
    assert [point["share"] for point in found["curves"][0]["points"]] == [0.125, 0.25, 0.5, 1.0]
    monkeypatch.setenv("COLUMNS", "200")
    printed = run(words, capsys)
    assert max(len(line) for line in printed.splitlines()) <= 100
    for expected in ("none: the prior", "above the last", "token identity", "growth model", "left out", "free only"):
        assert expected in printed
    assert [path.name for path in tmp_path.iterdir()] == ["nine"]
    assert cli.main(["train", str(tmp_path / "nine")]) == 2
    assert "--cost must be given" in capsys.readouterr().err


def test_what_cannot_be_read_is_one_line(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", str(tmp_path), "--cost", str(base / "cost.json"), "-o", str(tmp_path / "b")]) == 2
    assert "trace must be a folder with a manifest.json" in capsys.readouterr().err
    assert cli.main(["train", str(base / "dense"), "--cost", "nothing", "-o", str(tmp_path / "b")]) == 2
    assert "cost must be a profile file or one of" in capsys.readouterr().err
    assert not (tmp_path / "b").exists()


def test_the_default_number_of_trees_is_the_trainers() -> None:
    assert ForestSettings().trees == command.TREES
