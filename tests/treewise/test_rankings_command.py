"""`treewise rankings`, on the tiny pair."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.house.layout import ROOT
from tests.treewise.test_traces_command import fits, run
from tests.treewise.tiny import DRAFT
from treewise.cli import main

SCHEMA = json.loads((ROOT / "treewise" / "schemas" / "rankings.json").read_text(encoding="utf-8"))


def asked(tiny: Path, prompts: Path, *more: str) -> list[str]:
    sizes = ("--max-new-tokens", "6", "--threads", "1", "--limit", "3", "--widths", "1,2", "--depth", "2")
    pair = ("--target", str(tiny), "--draft", DRAFT)
    return ["rankings", *pair, "--prompts", str(prompts), "--temperatures", "0,1", *sizes, *more]


def test_every_cell_is_replayed_and_decoded(
    tiny: Path, prompts: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(run(asked(tiny, prompts, "--json"), capsys))
    assert fits(found, SCHEMA)
    cells = {(cell["temperature"], cell["ranking"], cell["width"]): cell for cell in found["cells"]}
    assert list(cells) == [(0, "plain", 1), (0, "plain", 2)] + [
        (1, ranking, width) for ranking in ("plain", "coupled", "both") for width in (1, 2)
    ]
    assert found["identical"] is True
    for cell in cells.values():
        assert cell["identical"] == 3
        # the same static tree on the same text: live and replayed rounds are the same
        assert cell["live_tokens_per_round"] == pytest.approx(cell["tokens_per_round"]["value"])
        assert 0 <= cell["coverage"] <= 1
        assert cell["law_tokens_per_round"] == pytest.approx(1 + cell["coverage"] + cell["coverage"] ** 2, abs=1e-5)
    for heat in (0, 1):
        assert cells[heat, "plain", 2]["coverage"] >= cells[heat, "plain", 1]["coverage"]
        assert cells[heat, "plain", 2]["coverage"] <= cells[heat, "plain", 2]["ceiling"] + 1e-6
    assert any(home.rglob("texts.jsonl"))
    printed = run(asked(tiny, prompts), capsys)
    assert "tokens per round by ranking" in printed
    assert max(len(line) for line in printed.splitlines()) <= 100


def test_replay_alone_decodes_nothing(
    tiny: Path, prompts: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(run(asked(tiny, prompts, "--json", "--replay-only"), capsys))
    assert {cell["live_tokens_per_round"] for cell in found["cells"]} == {None}
    assert found["identical"] is True


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--widths", "1,x"), "widths must be numbers joined by commas, got '1,x'"),
        (("--widths", "0"), "widths must be at least one, each >= 1, got (0,)"),
        (("--draft", "none"), "pair must be one with a draft"),
        (("--temperatures", "-1"), "temperatures must be finite and >= 0, got (-1.0,)"),
        (("--depth", "100"), "max_depth must be between 1 and 64, got 100"),
    ],
)
def test_bad_settings_are_refused(
    option: tuple[str, str], message: str, tiny: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*asked(tiny, prompts), *option]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
