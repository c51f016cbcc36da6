"""`treewise distill`."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

from tests.engine.disk_pairs import write_model
from tests.house.layout import ROOT
from tests.treewise.test_traces_command import fits, run
from treewise import cli
from treewise.cli.distill import distill
from treewise.engine.answers import AnswerSettings
from treewise.engine.distill import DistillSettings
from treewise.engine.pair import load_pair

SCHEMA = json.loads((ROOT / "treewise" / "schemas" / "distill.json").read_text(encoding="utf-8"))
ANSWERS_SCHEMA = json.loads((ROOT / "treewise" / "schemas" / "distill_answers.json").read_text(encoding="utf-8"))


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
    assert len(kept) == 9  # two rounds of two batches, answers and states, and whose they are
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
    assert (shown["layers"], shown["head_size"]) == (len(training.from_layers), training.head_size)
    assert (shown["loss"], shown["batch_tokens"]) == (training.loss, training.batch_tokens)
    assert (shown["epochs"], shown["learning_rate"]) == (training.epochs, training.learning_rate)


def test_answers_first_and_a_training_on_what_is_ready(
    target: Path, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps({"id": "q", "task": "c", "prompt": "say more"}) + "\n")
    asked = arguments(target, prompts, tmp_path, "--json")
    at = asked.index("-o")
    without_out = [*asked[:at], *asked[at + 2 :]]
    made = json.loads(run([*without_out, "--answers-only", "--limit", "4"], capsys))
    assert fits(made, ANSWERS_SCHEMA)
    assert made["answers"] == 8
    exam = tmp_path / "exam.jsonl"
    exam.write_text(json.dumps({"id": "x", "task": "d", "prompt": "answer this", "split": "test"}) + "\n")
    sitting = (
        "--exam",
        str(exam),
        "--exam-split",
        "test",
        "--from-layers",
        "1",
        "--examine-every",
        "30",
        "--batch-tokens",
        "16",
    )
    ready = json.loads(run([*asked, "--ready-only", "--prompts", str(other), *sitting], capsys))
    assert fits(ready, SCHEMA)
    assert [row["task"] for row in ready["exam"]][:2] == ["all", "d"]
    assert ready["draft"]["provenance"]["training"]["from_layers"] == [1]
    assert len(ready["draft"]["provenance"]["curve"]) > 2
    assert ready["draft"]["provenance"]["lessons"] == 6  # two of the eight are held out
    assert len(list((tmp_path / "kept").glob("ready-*.json"))) == 0
    both = json.loads(run([*without_out, "--answers-only", "--prompts", str(other)], capsys))
    assert both["answers"] == 14


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--prompts", "own:distill"), "prompts must have ids of their own, got 'own/"),
        (("--exam", "own:distill"), "exam must have prompts that are not trained on, got "),
        (("--from-layers", "0,9"), "from_layers must be of the target's 2, from 0, got (0, 9)"),
        (("--answers-only",), "out must be left out with --answers-only, got 'draft'"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    more: tuple[str, ...], message: str, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("distill", "--target", str(target), "--prompts", "own:distill", "-o", "draft", "--threads", "1")
    assert cli.main([*asked, *more]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
