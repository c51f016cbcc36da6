"""`treewise agreement`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.engine.disk_pairs import write_model
from tests.house.layout import ROOT
from tests.treewise.test_traces_command import fits, run
from treewise import cli
from treewise.draft_exam import exam_groups
from treewise.engine.teacher import Lesson

SCHEMA = json.loads((ROOT / "treewise" / "schemas" / "agreement.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("target"), seed=7, num_layers=3, initializer_range=0.6)


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    rows = [
        {"id": f"p{i}", "task": "ab"[i % 2], "prompt": f"say {i}", "split": "test" if i < 4 else ""} for i in range(6)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_drafts_sit_the_same_exam_and_the_target_knows_its_own_answers(
    target: Path, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--target", str(target), "--prompts", str(prompts), "--work", str(tmp_path), "--threads", "1")
    asked = ["agreement", *where, "--draft", f"{target},prune:1-1", "--split", "test", "--max-new-tokens", "12"]
    found = json.loads(run([*asked, "--json"], capsys))
    assert fits(found, SCHEMA)
    assert found["prompts"] == 4
    itself, pruned = found["drafts"]
    assert pruned["draft"] == "prune:1-1"
    rows = {row["task"]: row for row in itself["agreement"]}
    assert list(rows) == ["all", *sorted(set(rows) - {"all"})]
    assert {"all", "a", "b"} <= set(rows)
    assert rows["all"]["positions"] == rows["a"]["positions"] + rows["b"]["positions"]
    assert rows["all"]["top_1"] > 0.99 > pruned["agreement"][0]["top_1"]
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "exam").iterdir()}
    printed = run(asked, capsys)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "exam").iterdir()} == made
    assert "prune:1-1" in printed and "top-8" in printed


@pytest.mark.parametrize("drafts", ["none", ",", "default,none"])
def test_a_draft_must_be_named(drafts: str, prompts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["agreement", "--prompts", str(prompts), "--draft", drafts]) == 2
    assert f"draft must name a draft, or several joined by commas, got {drafts!r}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "groups"),
    [
        (list(range(20)), ("a", "non-degenerate", "strict")),
        ([*range(12), *range(12)], ("a", "non-degenerate")),  # 5 of 17 repeat
        ([1] * 20, ("a",)),
    ],
)
def test_texts_are_told_apart_by_how_much_they_repeat(answer: list[int], groups: tuple[str, ...]) -> None:
    ids = torch.tensor([1, 1, 1, 1, 1, 1, 1, 1, 1, 1, *answer])  # the prompt's repeats do not count
    lesson = Lesson("key", "p", "a", 0.0, 0, ids, torch.empty(0), 10)
    assert exam_groups(lesson) == groups
