"""`treewise demo`, on the tiny pair."""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path

import pytest

from tests.house.layout import ROOT
from tests.treewise.test_traces_command import fits, run
from tests.treewise.tiny import DRAFT, leave
from treewise.cli import demo as command
from treewise.data.errors import TraceError
from treewise.demo import GRIDS, DemoSettings, demo_prompts
from treewise.policy.bundle import Bundle
from treewise.policy.registry import parse_policy
from treewise.shipped import shipped_traces
from treewise.texts import Divergence
from treewise.training.statistics import Interval

SCHEMAS = {
    name: json.loads((ROOT / "treewise" / "schemas" / f"{name}.json").read_text(encoding="utf-8"))
    for name in ("demo", "ab", "train")
}
NAMES = ["learned", "entropy rule", "tuned top-N", "tuned frontier", "tuned chain", "plain"]


def arguments(tiny: Path, traces: Path, out: Path, *more: str) -> list[str]:
    sizes = ("--prompts", "1", "--max-new-tokens", "6", "--threads", "1")
    return ["demo", "--target", str(tiny), "--draft", DRAFT, "--traces", str(traces), "-o", str(out), *sizes, *more]


@pytest.mark.usefixtures("home", "quickly")
def test_the_whole_run(tiny: Path, traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = json.loads(run(arguments(tiny, traces, tmp_path / "out", "--json"), capsys))
    assert fits(printed, SCHEMAS["demo"])
    assert not fits({**printed, "threads": "two"}, SCHEMAS["demo"])
    assert fits(printed["training"], SCHEMAS["train"])
    assert printed["identical"] is True
    assert [row["name"] for row in printed["live"]] == NAMES
    assert all(row["identical"] and row["fallbacks"] == 0 for row in printed["live"])
    assert (printed["train_prompts"], printed["held_out_prompts"]) == (8, 2)
    machine, example = printed["ab"]
    for part in (machine, example):
        assert fits(part["report"], SCHEMAS["ab"])
        assert [policy["name"] for policy in part["policies"]] == NAMES
        assert {row["prompts"] for row in part["report"]["rows"] if row["task"] == ""} == {2}
        assert len([row for row in part["report"]["depth_oracles"] if row["task"] == ""]) == len(NAMES)
    assert [profile["verified"] for profile in example["report"]["profiles"]] == [False]
    assert [profile["verified"] for profile in machine["report"]["profiles"]] == [True]
    assert json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8")) == printed
    assert Bundle.load(tmp_path / "out" / "policy").provenance["command"] == "treewise demo"
    assert printed["page"] == str(tmp_path / "out" / "report.html")
    page = Path(printed["page"]).read_text(encoding="utf-8")
    for name in (*NAMES, "under example-a100-70b", "Feature importances of learned"):
        assert name in page


@pytest.mark.usefixtures("home", "quickly")
def test_tables_fit_and_a_differing_text_fails(
    tiny: Path, traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("treewise.live.first_divergence", lambda *_: Divergence(4, 1, 2, 0.25))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert leave(arguments(tiny, traces, tmp_path / "out")) == command.EXIT_DIFFERS
    printed = capsys.readouterr()
    assert "learned differs on own/knowledge" in printed.err
    assert "token 4: 2 instead of 1" in printed.err
    assert "no report page: " in printed.err
    assert "report.html" not in printed.out
    # Paths may be longer than a table; tables are not.
    drawn = [line for line in printed.out.splitlines() if line.startswith(("│", "┏", "┡", "└"))]
    assert drawn
    assert max(len(line) for line in drawn) <= 100
    for word in (
        *NAMES,
        "oracle (bound)",
        "depth oracle",
        "faster by",
        "example-a100-70b, unverified",
        "acceptance from trace",
    ):
        assert word in printed.out


def test_an_install_without_traces_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treewise.shipped.TRACES", "traces-of-nothing")
    with pytest.raises(TraceError, match="got an install without them; name a folder of traces"):
        shipped_traces()


def test_live_prompts_are_spread_over_tasks() -> None:
    assert len({prompt.task for prompt in demo_prompts(6)}) == 6
    assert [prompt.id for prompt in demo_prompts(99)] == [prompt.id for prompt in demo_prompts(9)]


def test_the_grids_hold_policies_of_their_family() -> None:
    for family, specs in GRIDS.items():
        assert len(set(specs)) == len(specs)
        assert {spec.partition(":")[0] for spec in specs} == {family}
        for spec in specs:
            assert parse_policy(spec).reach.depth >= 1


def test_a_ratio_turns_around_with_its_interval() -> None:
    assert command.inverse(Interval(0.5, 0.4, 0.8)) == "2.000 [1.250, 2.500]"


def test_the_commands_defaults_are_the_settings() -> None:
    defaults = {name: value.default for name, value in inspect.signature(command.demo).parameters.items()}
    settings = DemoSettings()
    assert defaults["out"] == settings.folder
    for name in ("prompts", "max_new_tokens", "target", "draft", "traces", "threads"):
        assert defaults[name] == getattr(settings, name)
