"""`treewise self-prompts`."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

from tests.house.layout import ROOT
from tests.treewise.test_traces_command import fits, run
from tests.treewise.tiny import make_pair
from treewise.cli.self_prompts import self_prompts
from treewise.data.prompt_set import read_prompts
from treewise.engine.self_prompts import SelfPromptSettings

SCHEMA = json.loads((ROOT / "treewise" / "schemas" / "self_prompts.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pair(tmp_path_factory.mktemp("target"), seed=1)


def arguments(target: Path, out: Path, count: int, *more: str) -> list[str]:
    size = ("--count", str(count), "--max-new-tokens", "60", "--batch-rows", "18", "--threads", "1")
    return ["self-prompts", "-o", str(out), "--target", str(target), *size, *more]


def test_a_file_comes_out_and_is_continued(target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, at_once = tmp_path / "prompts.jsonl", tmp_path / "at-once.jsonl"
    told = json.loads(run(arguments(target, out, 3, "--json"), capsys))
    assert fits(told, SCHEMA) and not fits({**told, "prompts": "3"}, SCHEMA)
    assert told["prompts"] == len(read_prompts(out)) == 3
    printed = run(arguments(target, out, 5), capsys)
    assert "5 in" in printed and "dropped now" in printed
    run(arguments(target, at_once, 5), capsys)
    assert out.read_text(encoding="utf-8") == at_once.read_text(encoding="utf-8")
    others = json.loads(run(arguments(target, tmp_path / "more.jsonl", 2, "--without", str(out), "--json"), capsys))
    assert others["dropped"]["known"] >= 2


def test_defaults_are_those_of_the_settings() -> None:
    shown = {name: parameter.default for name, parameter in inspect.signature(self_prompts).parameters.items()}
    settings = SelfPromptSettings()
    assert (shown["temperature"], shown["max_new_tokens"]) == (settings.temperature, settings.max_new_tokens)
    assert (shown["batch_rows"], shown["seed"]) == (settings.batch_rows, settings.seed)
