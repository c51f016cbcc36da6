"""`treewise models`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.house.layout import ROOT
from tests.treewise.test_traces_command import fits, run
from treewise import cli
from treewise.engine import smollm2
from treewise.engine.hub import write_manifest


def schema(name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((ROOT / "treewise" / "schemas" / f"{name}.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture(autouse=True)
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache folder in which nothing was pulled, and a conversion that costs nothing."""
    monkeypatch.setenv("TREEWISE_HOME", str(tmp_path))

    def convert(gguf: Path, building: Path) -> None:
        (building / "model").write_text("weights")
        write_manifest(building, {"name": smollm2.NAME})

    monkeypatch.setattr(smollm2, "_obtain_gguf", lambda scratch, report: scratch / "x.gguf")
    monkeypatch.setattr(smollm2, "_dequantise", convert)


def test_pulling_shows_in_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    before = json.loads(run(["models", "list", "--json"], capsys))
    assert fits(before, schema("models_list"))
    assert [(row["name"], row["pulled"]) for row in before["models"]] == [("smollm2-135m", False)]
    pulled = json.loads(run(["models", "pull", "smollm2-135m", "--json"], capsys))
    assert fits(pulled, schema("models_pull"))
    assert pulled["was_there"] is False
    assert json.loads(run(["models", "pull", "--verify", "--json"], capsys))["was_there"] is True
    assert json.loads(run(["models", "list", "--json"], capsys))["models"][0]["pulled"] is True


def test_words_without_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "smollm2-135m: 0 MB in" in run(["models", "pull"], capsys)
    listed = run(["models", "list"], capsys)
    assert "smollm2-135m" in listed and "Apache-2.0" in listed


def test_an_unknown_pair_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["models", "pull", "gpt-9"]) == cli.EXIT_ERROR
    assert capsys.readouterr().err == "error: name must be 'smollm2-135m', got 'gpt-9'\n"
