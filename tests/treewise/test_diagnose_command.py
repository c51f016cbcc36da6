"""`treewise diagnose`: from a trace, from a short run, and what a script reads off its exit status."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.training.judged import EXAMPLE
from tests.training.test_diagnose import FEW, SERIAL
from tests.treewise.tiny import DRAFT, leave
from tests.treewise.trace_commands import checked, run
from treewise.cli.diagnose import EXIT_PLAIN
from treewise.data.errors import ParameterError
from treewise.engine.decode import Completion
from treewise.engine.pair import Pair
from treewise.live import PLAIN
from treewise.short_run import ShortRunSettings, diagnose_pair, shares


@pytest.fixture(scope="module", autouse=True)
def few_settings() -> Iterator[None]:
    """A smaller grid."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("treewise.training.diagnose.SMALL_GRID", FEW)
        yield


def test_from_a_trace_where_trees_pay(traces: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["diagnose", "--trace", str(traces), "--cost", EXAMPLE.name, "--json"]
    value = checked("diagnose", run(arguments, capsys))
    assert value["worth_it"]
    assert value["advised"] in FEW
    assert value["live"] is None
    assert not value["profile"]["verified"]
    assert [row["speedup"] for row in value["tried"]] == sorted(
        (row["speedup"] for row in value["tried"]), reverse=True
    )
    assert {finding["name"]: finding["status"] for finding in value["findings"]}["texts that differ"] == "unknown"
    assert {cell["task"] for cell in value["attribution"]["quadrants"]} == {"", "chat", "copy"}


def test_status_3_where_plain_decoding_is_as_fast(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    SERIAL.save(tmp_path / "serial.json")
    arguments = ["diagnose", "--trace", str(traces), "--cost", str(tmp_path / "serial.json")]
    value = checked("diagnose", run([*arguments, "--json"], capsys, status=3))
    assert not value["worth_it"]
    printed = run(arguments, capsys, status=3)
    assert "serial verification: rows are verified one at a time" in " ".join(printed.split())


def test_tables_fit_a_hundred_columns(
    traces: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    printed = run(["diagnose", "--trace", str(traces), "--cost", EXAMPLE.name, "--policy", "topn:8x1"], capsys)
    lines = printed.splitlines()
    assert lines[0].startswith("worth it: ")
    assert max(len(line) for line in lines if line[:1] in "│┃┏┡└") <= 100
    for words in (
        "ceiling",
        "--policy '",
        "sure, differ",
        "not known: fallbacks, texts that differ, model of time: needs",
    ):
        assert words in printed
    assert "unverified" in printed


@pytest.mark.usefixtures("home", "quickly")
@pytest.mark.parametrize("options", [[], ["--temperature", "0.8", "--policy", "static:2x2"]])
def test_from_a_short_run(
    tiny: Path, prompts: Path, tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "dense"
    arguments = ["diagnose", "--target", str(tiny), "--draft", DRAFT, "--corpus", "none", "--prompts", str(prompts)]
    arguments += ["--limit", "3", "--max-new-tokens", "12", "--threads", "1", "-o", str(place), "--json", *options]
    status = leave(arguments)  # three prompts of twelve tokens may not tell
    value = checked("diagnose", capsys.readouterr().out)
    assert status in (0, EXIT_PLAIN)
    assert value["worth_it"] == (status == 0)
    assert value["live"]["policy"] == value["policy"]
    if options:
        assert value["policy"] == "static:2x2"
    elif value["advised"] == "plain":
        assert value["live"]["advised_speedup"] == 1.0
    else:
        assert value["live"]["advised_speedup"] == value["live"]["speedup"]
    assert value["live"]["prompts"] == value["prompts"] == 3
    assert value["live"]["differing"] == 0
    assert value["tokens"] == value["live"]["tokens"]  # seeds are those of the trace
    assert 0.0 < value["live"]["outside_share"] < 1.0
    assert (place / "manifest.json").is_file()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--cost", ""], "cost must be named with --trace"),
        (["--cost", EXAMPLE.name, "--prompts", "own:demo"], "prompts must be left out with --trace"),
        (["--cost", EXAMPLE.name, "--limit", "4"], "limit must be left out with --trace, which settles it, got 4"),
        (["--cost", EXAMPLE.name, "-o", "new"], "out must be left out with --trace, which is kept already, got 'new'"),
        (["--cost", EXAMPLE.name, "--policy", "nonsense"], "nonsense"),
    ],
)
def test_what_does_not_go_together_is_status_2(
    traces: Path, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from treewise import cli

    assert cli.main(["diagnose", "--trace", str(traces), *options]) == 2
    assert words in capsys.readouterr().err


def test_one_prompt_is_too_few(pair: Pair) -> None:
    with pytest.raises(ParameterError, match="prompts must be at least 2"):
        diagnose_pair(pair, EXAMPLE, [])
    with pytest.raises(ParameterError, match="max_new_tokens must be >= 1"):
        ShortRunSettings(max_new_tokens=0)


def answer(tokens: tuple[int, ...], rounds: int, seconds: float) -> Completion:
    """One request: a quarter of its time in the draft, a half in verification, a tenth in the policy."""
    return Completion(
        tokens, "length", (0,) * rounds, (2,) * rounds, rounds, 3 * rounds, 1, 0, 0.0, seconds,
        seconds / 4, seconds / 2, seconds / 10,
    )  # fmt: skip


def test_live_shares_by_hand() -> None:
    tokens = tuple(range(8))
    answers = {
        "chain:2": [answer(tokens, 4, 2.0), answer(tokens, 4, 2.0)],
        PLAIN: [answer(tokens, 8, 3.0), answer((*tokens[:-1], 99), 8, 3.0)],
    }
    answers["topn:8x1"] = [answer(tokens, 4, 1.0), answer(tokens, 4, 1.0)]
    found = shares(("chain:2", "topn:8x1"), answers, {"chain:2": 3.0, "topn:8x1": 1.0, PLAIN: 5.0})
    assert (found.prompts, found.tokens, found.tokens_per_round, found.differing) == (2, 16, 2.0, 1)
    assert found.speedup == pytest.approx(1.5)
    assert found.advised_speedup == pytest.approx(3.0)
    assert found.draft_share == pytest.approx(0.25)
    assert found.policy_share == pytest.approx(0.1)
    assert found.outside_share == pytest.approx(0.25)
    assert found.fallback_share == pytest.approx(2 / 8)
    assert json.loads(json.dumps(found.to_json()))["speedup"] == 1.5
