"""`treewise distill`."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

from tests.engine.disk_pairs import write_model
from tests.house.layout import ROOT
from tests.treewise.test_traces_command import fits, run
from treewise.cli.distill import distill
from treewise.engine.answers import AnswerSettings
from treewise.engine.distill import DistillSettings
from treewise.engine.pair import load_pair

SCHEMA = json.loads((ROOT / "treewise" / "schemas" / "distill.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("target"), seed=6, num_layers=2)


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    rows = [{"id": f"p{i}", "task": "ab"[i % 2], "prompt": f"say {i * i}"} for i in range(6)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def arguments(target: Path, prompts: Path, folder: Path, *more: str) -> list[str]:
    size = ("--samples", "2", "--max-new-tokens", "6", "--batch-rows", "3", "--layers", "1", "--head-size", "40")
    where = ("--target", str(target), "--prompts", str(prompts), "-o", str(folder / "draft"))
    return ["distill", *where, *size, "--work", str(folder / "kept"), "--threads", "1", *more]


def test_a_draft_comes_out_and_a_second_run_makes_nothing_anew(
    target: Path, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = arguments(target, prompts, tmp_path, "--json")
    first = json.loads(run(asked, capsys))
    assert fits(first, SCHEMA)
    assert not fits({**first, "out": 3}, SCHEMA)
    assert first["agreement"][0]["task"] == "all"
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "kept" / "answers").iterdir()}
    assert len(kept) == 8  # two rounds of two batches, answers and states
    again = json.loads(run(asked, capsys))
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "kept" / "answers").iterdir()} == kept
    assert again["draft"]["weights_sha256"] == first["draft"]["weights_sha256"]
    loaded = load_pair(str(target), str(tmp_path / "draft"))
    assert loaded.description.draft_head_size == 40


@pytest.mark.slow
def test_two_worker_processes_and_a_table(
    target: Path, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = run(arguments(target, prompts, tmp_path, "--workers", "2", "--epochs", "1"), capsys)
    assert "positions" in printed and "top-8" in printed and "all" in printed
    assert len(list((tmp_path / "kept" / "answers").glob("answers-*"))) == 4


def test_defaults_are_those_of_the_settings() -> None:
    shown = {name: parameter.default for name, parameter in inspect.signature(distill).parameters.items()}
    answers, training = AnswerSettings(), DistillSettings()
    assert (shown["samples"], shown["max_new_tokens"]) == (answers.num_samples, answers.max_new_tokens)
    assert (shown["batch_rows"], shown["seed"]) == (answers.batch_rows, answers.seed)
    assert (shown["layers"], shown["head_size"]) == (training.num_layers, training.head_size)
    assert (shown["epochs"], shown["learning_rate"]) == (training.epochs, training.learning_rate)
