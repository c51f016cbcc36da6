"""`treewise tasks`: train, test, recognise, fit, show, tell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.house.layout import ROOT
from tests.treewise.test_traces_command import fits, run
from tests.treewise.tiny import leave
from treewise.data.cost import CostProfile
from treewise.data.prompt_set import read_prompts
from treewise.data.trace_reader import TraceReader
from treewise.engine.collect import CollectSettings, collect_live
from treewise.engine.pair import Pair
from treewise.policy.registry import parse_policy
from treewise.policy.task_recogniser import TaskRecogniser
from treewise.policy.task_table import TaskTable
from treewise.training.live_check import replay_live
from treewise.training.logged_trace import open_trace

COST = CostProfile.load("example-a100-70b")

SCHEMAS = {
    name: json.loads((ROOT / "treewise" / "schemas" / f"tasks_{name}.json").read_text(encoding="utf-8"))
    for name in ("test", "recognise", "fit")
}


@pytest.fixture(scope="module")
def recogniser(prompts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("recogniser") / "r.json"
    assert leave(["tasks", "train", str(prompts), "-o", str(file), "--terms", "200"]) == 0
    return file


def test_a_recogniser_is_trained_and_tested(
    recogniser: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = json.loads(run(["tasks", "test", str(recogniser), "--prompts", str(prompts), "--json"], capsys))
    assert fits(printed, SCHEMAS["test"])
    assert sum(row["prompts"] for row in printed["confusion"]) == printed["whole"]["prompts"]
    assert printed["whole"]["prompts"] == sum(part["prompts"] for part in printed["by_task"]) > 0
    table = run(["tasks", "test", str(recogniser), "--prompts", str(prompts)], capsys)
    assert "answers by label" in table
    assert "ECE" in table


def test_one_prompt_is_recognised(recogniser: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["tasks", "recognise", "what is the time", "--recogniser", str(recogniser)]
    printed = json.loads(run([*arguments, "--json"], capsys))
    assert fits(printed, SCHEMAS["recognise"])
    assert sum(row["probability"] for row in printed["probabilities"]) == pytest.approx(1.0)
    assert printed["task"] in run(arguments, capsys)


def test_a_table_is_fitted_shown_and_obeyed(
    recogniser: Path, prompts: Path, traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "tables" / "t.json"
    arguments = [
        *("tasks", "fit", str(traces), "--cost", "example-a100-70b", "-o", str(out), "--family", "chain"),
        *("--recogniser", str(recogniser), "--judge", str(traces), "--prompts", str(prompts)),
    ]
    printed = json.loads(run([*arguments, "--json"], capsys))
    assert fits(printed, SCHEMAS["fit"])
    assert [row["task"] for row in printed["settings"]][-1] == "unknown"
    assert [part["name"] for part in printed["gains"]][1:] == [
        "judged, told by label",
        "judged, told by the recogniser",
    ]
    shown = run(["tasks", "show", str(out)], capsys)
    assert "unknown" in shown
    assert "chain:" in shown
    assert "by-task:" in run(arguments, capsys)
    arguments = ["ab", str(traces), "--cost", "example-a100-70b", "--policy", "plain", "--policy", f"by-task:{out}"]
    compared = json.loads(run([*arguments, "--json"], capsys))
    assert f"by-task:{out}" in [row["policy"] for row in compared["rows"]]
    assert leave(["tasks", "fit", str(traces), "--cost", "example-a100-70b", "-o", str(out), "--family", "chain",
                  "--recogniser", str(recogniser), "--judge", str(traces)]) == 2  # fmt: skip
    assert "prompts must hold the text of every judged prompt" in capsys.readouterr().err


def test_a_trace_is_told_again(
    recogniser: Path, prompts: Path, traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["tasks", "tell", str(traces), "--recogniser", str(recogniser), "--prompts", str(prompts)]
    run([*arguments, "-o", str(tmp_path / "told")], capsys)
    rounds = TraceReader(tmp_path / "told").read_all().rounds
    assert len(rounds) == len(TraceReader(traces).read_all().rounds)
    assert "" not in rounds.told_task


def test_live_requests_are_told_by_the_recogniser(recogniser: Path, pair: Pair, prompts: Path, tmp_path: Path) -> None:
    table = TaskTable({"copy": "static:2x2", "chat": "chain:2", "unknown": "plain"}, str(recogniser))
    table.save(tmp_path / "t.json")
    spec, asked = f"by-task:{tmp_path / 't.json'}", read_prompts(prompts)
    collect_live(pair, spec, COST, asked, tmp_path / "live", CollectSettings(max_new_tokens=8))
    rounds = TraceReader(tmp_path / "live").read_all().rounds
    said = {prompt.id: TaskRecogniser.load(recogniser).recognise(prompt.text).task for prompt in asked}
    assert dict(zip(rounds.prompt_id.tolist(), rounds.told_task.tolist(), strict=True)) == said
    check = replay_live(open_trace(tmp_path / "live"), parse_policy(spec), COST)
    assert check.mismatches == ()
    assert check.compared == len(rounds) > len(asked)


@pytest.mark.parametrize("command", [["train", "none.jsonl"], ["fit", "no trace", "--cost", "no profile"]])
def test_a_place_for_the_file_is_looked_for_first(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert leave(["tasks", *command, "-o", str(tmp_path)]) == 2
    assert "out must be a file, got the folder" in capsys.readouterr().err


def test_a_split_must_exist(recogniser: Path, prompts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert leave(["tasks", "test", str(recogniser), "--prompts", str(prompts), "--split", "none"]) == 2
    assert "split must be one of" in capsys.readouterr().err
