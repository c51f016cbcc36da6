"""`treewise quality`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.house.layout import ROOT
from tests.treewise.test_traces_command import fits, run
from tests.treewise.tiny import DRAFT, leave
from treewise import quality
from treewise.code_checks import OUTCOMES
from treewise.data.prompt_set import Prompt
from treewise.engine.decode import Engine
from treewise.engine.pair import Pair
from treewise.stages import silent
from treewise.training.quality import NAMES

SCHEMA = json.loads((ROOT / "treewise" / "schemas" / "quality.json").read_text(encoding="utf-8"))
LOSSY = "relaxed-top-n:8"


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four prompts of two tasks, of which one asks for JSON and one brings tests."""
    lines: list[dict[str, Any]] = [
        {"id": "a", "task": "structured", "prompt": "A JSON object, a JSON object."},
        {"id": "b", "task": "chat", "prompt": "red green red green"},
        {"id": "c", "task": "structured", "prompt": "x = 1, x = ", "tests": ["assert x == 1"]},
        {"id": "d", "task": "chat", "prompt": "blue round blue round"},
    ]
    path = tmp_path_factory.mktemp("asked") / "asked.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def arguments(tiny: Path, asked: Path, *more: str) -> list[str]:
    pair = ("--target", str(tiny), "--draft", DRAFT, "--cost", "example-a100-70b", "--threads", "1")
    return ["quality", *pair, "--policy", "topn:8x3", "--prompts", str(asked), "--max-new-tokens", "12", *more]


def test_json_follows_its_schema(
    tiny: Path, asked: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treewise.training.text_quality.python_of", lambda text: "x = 1")
    rules = ("--verification", LOSSY, "--verification", "threshold:0.1", "--run-tests", "--json")
    printed = json.loads(run(arguments(tiny, asked, *rules), capsys))
    assert fits(printed, SCHEMA)
    assert not fits({**printed, "exact_identical": "yes"}, SCHEMA)
    plain, exact, lossy, _ = printed["rules"]
    assert [rule["verification"] for rule in printed["rules"]] == ["plain", "exact", LOSSY, "threshold:0.1"]
    assert printed["exact_identical"] is exact["identical"] is True
    assert lossy["identical"] is False
    assert lossy["differing"] == sum(not answer["texts"][2]["identical"] for answer in printed["answers"])
    assert plain["rounds"] == plain["tokens"] == exact["tokens"] >= exact["rounds"]
    assert exact["tests"] == {"right": 1, "of": 1, "lost": 0, "gained": 0}
    assert exact["json"]["of"] == 1
    assert [task["task"] for task in printed["tasks"]] == ["", "structured", "chat"]
    for answer in printed["answers"]:
        first, second, third, _ = answer["texts"]
        assert first["text"] == second["text"]
        assert (second["divergence"], second["rouge_l"]) == (None, 1.0)
        assert (third["divergence"] is None) == third["identical"]
        assert third["shared_tokens"] == (len(third["tokens"]) if third["identical"] else third["divergence"]["place"])
        assert (third["is_json"] is None) == (not answer["asks_for_json"])
        assert (third["code"] is None) == (not answer["brings_tests"])


def test_the_schema_names_every_figure_and_outcome() -> None:
    rows = SCHEMA["properties"]["tasks"]["items"]["properties"]["rows"]["items"]["properties"]
    assert list(rows) == ["verification", *NAMES]
    texts = SCHEMA["properties"]["answers"]["items"]["properties"]["texts"]["items"]["properties"]
    assert texts["code"]["properties"]["outcome"]["enum"] == list(OUTCOMES)


def test_tables_fit_a_hundred_columns(
    tiny: Path, asked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    page = tmp_path / "quality.html"
    printed = run(arguments(tiny, asked, "--verification", LOSSY, "--html", str(page)), capsys)
    assert max(len(line) for line in printed.splitlines()) <= 100
    for words in (
        "exact: identical: each of 4 texts was found to be plain decoding's, token by token",
        f"{LOSSY}: ",
        "of 4 texts differ",
        "ROUGE-L",
        "over exact",
        "1 prompt brought tests that were not run: see --run-tests",
        "of 4 plain texts cut off at 12 tokens; JSON and code that are cut off count as wrong",
        "by task, rules under which a text differs",
    ):
        assert words in printed
    html = page.read_text(encoding="utf-8")
    assert "identical: each of 4 texts" in html
    assert "Output quality by verification rule" in html
    assert not [word for word in ("fetch(", "XMLHttpRequest", "@import", "http://", "https://") if word in html]


def test_a_sampled_text_is_compared_with_plain_decoding_of_the_same_seed(
    tiny: Path, asked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sampled = ("--temperature", "0.9", "--seed", "5", "--verification", "exact", "--json", "--task", "chat")
    printed = json.loads(run(arguments(tiny, asked, *sampled), capsys))
    assert fits(printed, SCHEMA)
    assert [rule["verification"] for rule in printed["rules"]] == ["plain", "exact"]
    assert printed["exact_identical"] is True
    assert [task["task"] for task in printed["tasks"]] == [""]


def test_identical_is_not_said_where_it_is_not_so(
    tiny: Path, asked: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    build = quality._engines

    def broken(pair: Pair, cost: Any, policy: str, rules: Sequence[str]) -> dict[str, Engine]:
        engines = build(pair, cost, policy, [*rules, LOSSY])
        return {"plain": engines["plain"], "exact": engines[LOSSY]}

    monkeypatch.setattr("treewise.quality._engines", broken)
    assert leave(arguments(tiny, asked)) == 1
    printed = capsys.readouterr()
    assert "identical" not in printed.out
    assert "of 4 texts differ" in printed.out
    assert "warning: exact on b differs from plain decoding at token" in printed.err


def test_the_same_code_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    monkeypatch.setattr("treewise.quality.run_tests", lambda *job: ran.append(job))
    prompts = [Prompt("a", "code", "x", tests="assert f"), Prompt("b", "chat", "y")]
    texts = {"plain": ["f = 1", "f = 1"], "exact": ["f = 1", "f = 1"], "threshold:0.2": ["f = 2", "f = 1"]}
    settings = quality.QualitySettings(run_tests=True)
    quality._codes(prompts, texts, settings, silent)
    assert [job[0] for job in ran] == ["f = 1", "f = 2"]


def test_a_system_without_limits_is_told_before_decoding(
    tiny: Path, asked: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treewise.code_checks.find_spec", lambda name: None)
    monkeypatch.setattr(Engine, "generate", None)
    assert leave(arguments(tiny, asked, "--run-tests")) == 2
    assert "system must be a POSIX system" in capsys.readouterr().err


def test_rules_are_each_there_once_and_exact_is_first() -> None:
    given = ["threshold:0.2", "exact", "relaxed-top-n:2", "threshold:0.20"]
    assert quality.rules_of(given) == ("exact", "threshold:0.2", "relaxed-top-n:2")
    assert quality.rules_of([]) == ("exact",)
    assert quality.rules_of(quality.DEFAULT_RULES) == quality.DEFAULT_RULES


def test_without_the_package_the_cure_is_named(
    tiny: Path, asked: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    assert leave(arguments(tiny, asked)) == 2
    assert "install it with `pip install treewise[quality]`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--verification", "0.4"), "verification must be exact, relaxed-top-n:N or threshold:P, got '0.4'"),
        (("--policy", "magic"), "policy must be one of"),
        (("--task", "poem"), "task must be one of chat, structured, got 'poem'"),
        (("--html", "/"), "html must be a file, got '/'"),
    ],
)
def test_errors_are_one_line(
    tiny: Path, asked: Path, more: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert leave(arguments(tiny, asked, *more)) == 2
    assert message in capsys.readouterr().err
