"""`treewise collect --texts`: answers that somebody else logged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.house.layout import ROOT
from tests.treewise.test_traces_command import fits, run
from tests.treewise.tiny import DRAFT, leave
from treewise.data.prompt_set import read_prompts
from treewise.data.trace_reader import TraceReader
from treewise.engine.collect import CollectSettings, texts
from treewise.engine.pair import Pair

SCHEMA = json.loads((ROOT / "treewise" / "schemas" / "collect.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def logged(pair: Pair, prompts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pair's own answers to three prompts: the first two as ids, the third in words."""
    path = tmp_path_factory.mktemp("texts") / "logged.jsonl"
    asked = {prompt.id: prompt for prompt in read_prompts(prompts)[:3]}
    said = {text.prompt_id: text for text in texts(pair, list(asked.values()), CollectSettings(max_new_tokens=6))}
    lines = [
        {"id": key, "task": asked[key].task, "prompt": asked[key].text, "completion_ids": list(said[key].completion)}
        for key in asked
    ]
    last = lines[-1]
    lines[-1] = {**last, "completion": pair.tokenizer.decode(last["completion_ids"])}
    del lines[-1]["completion_ids"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def arguments(tiny: Path, file: Path, out: Path, *more: str) -> list[str]:
    pair = ("--target", str(tiny), "--draft", DRAFT, "--threads", "1", "--max-new-tokens", "6")
    return ["collect", "--texts", str(file), "-o", str(out), *pair, *more]


def test_logged_answers_become_a_dense_trace(
    tiny: Path, logged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(run(arguments(tiny, logged, tmp_path / "t", "--json"), capsys))
    assert fits(found, SCHEMA)
    assert (found["prompts"], found["collected"], found["already_there"], found["own_share"]) == (3, 3, 0, 1.0)
    reader = TraceReader(tmp_path / "t")
    assert reader.manifest.kind == "dense"
    assert sorted(set(reader.read_all().rounds.prompt_id.tolist())) == ["tiny/0", "tiny/1", "tiny/2"]
    printed = run(arguments(tiny, logged, tmp_path / "u", "--task", "chat"), capsys)
    assert "1 collected" in printed and "100.0 % of the completions' tokens" in printed


def test_foreign_answers_are_refused(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "foreign.jsonl"
    line = {"id": "x", "prompt": "red green 1", "completion": "zq!xj7"}
    file.write_text(json.dumps(line) + "\n", encoding="utf-8")
    assert leave(arguments(tiny, file, tmp_path / "t")) == 2
    assert "completions must be what the target says" in capsys.readouterr().err
    assert not (tmp_path / "t").exists()
    found = json.loads(run(arguments(tiny, file, tmp_path / "t", "--accept-foreign", "--json"), capsys))
    assert found["collected"] == 1 and found["own_share"] < 0.98


def test_noise_needs_its_seed(tiny: Path, logged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert leave(arguments(tiny, logged, tmp_path / "t", "--temperature", "0.8")) == 2
    assert "pass `--ranking plain`, or give each text the seed" in capsys.readouterr().err
    found = json.loads(
        run(arguments(tiny, logged, tmp_path / "t", "--temperature", "0.8", "--ranking", "plain", "--json"), capsys)
    )
    assert (found["collected"], found["own_share"]) == (3, None)


def test_texts_go_alone_and_dense(
    tiny: Path, logged: Path, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert leave(arguments(tiny, logged, tmp_path / "t", "--prompts", str(prompts))) == 2
    assert "prompts must be given with --prompts or, as --texts, with answers" in capsys.readouterr().err
    assert leave(["collect", "-o", str(tmp_path / "t")]) == 2
    assert "prompts must be given with --prompts" in capsys.readouterr().err
    assert leave(arguments(tiny, logged, tmp_path / "t", "--kind", "live", "--policy", "chain")) == 2
    assert "texts must go with --kind dense" in capsys.readouterr().err
    assert leave(arguments(tiny, logged, tmp_path / "t", "--task", "poems")) == 2
    assert "task must be one of chat, copy, got 'poems'" in capsys.readouterr().err
