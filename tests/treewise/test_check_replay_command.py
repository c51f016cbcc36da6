"""`treewise check-replay`, on the tiny pair. Its speeds are those of a busy machine, so none is asserted."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.house.layout import ROOT
from tests.treewise.test_traces_command import fits
from tests.treewise.tiny import DRAFT, HASTY, leave
from treewise.cli.check_replay import CHECKED as SHOWN_CHECKED
from treewise.cli.check_replay import check_replay as command
from treewise.data.cost import CostProfile
from treewise.data.errors import ParameterError
from treewise.engine.pair import Pair
from treewise.replay_check import CHECKED, ReplayCheckSettings, check_replay, meter_settings
from treewise.shipped import split_trace, train_part
from treewise.training.live_check import Mismatch
from treewise.training.replay_check_report import ReplayCheckReport
from treewise.training.statistics import Totals

SCHEMA = json.loads((ROOT / "treewise" / "schemas" / "check_replay.json").read_text(encoding="utf-8"))
COST = CostProfile.load("example-a100-70b")


@pytest.fixture(autouse=True)
def own_prompts(prompts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ten short prompts in place of the project's own."""
    monkeypatch.setenv("TREEWISE_PROMPTS", str(prompts.parent))


def test_json_follows_its_schema_and_decisions_repeat(
    tiny: Path, traces: Path, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train_part(split_trace(traces), COST, tmp_path / "policy", HASTY)
    sizes = ("--max-new-tokens", "8", "--prompts", "4", "--repeats", "1", "--threads", "1", "--tolerance", "1000")
    asked = ["check-replay", "--target", str(tiny), "--draft", DRAFT, "--bundle", str(tmp_path / "policy"), *sizes]
    asked += ["--cost", "example-a100-70b", "--policy", "plain", "--policy", "topn:6x2", "--policy", "learned"]
    status = leave([*asked, "-o", str(tmp_path / "kept"), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert fits(found, SCHEMA)
    assert not fits({**found, "passes": None}, SCHEMA)
    assert found["own_exact"] is found["dense_close"] is found["speed_close"] is True
    assert found["dense_differing"] == 0.0
    assert status == (0 if found["ordered"] else 1)
    assert [row["policy"] for row in found["policies"]] == ["plain", "topn:6x2", "learned"]
    for row in found["policies"]:
        assert row["own"]["rounds"] == row["own"]["compared"] == row["dense"]["rounds"] > 0
        assert row["live_tokens_per_second"]["value"] > 0 and row["modelled_tokens_per_second"] > 0
    assert found["policies"][0]["tokens_per_round"] == 1.0
    assert found["prices"]["name"] == "measured in turns with live decoding"
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {
        "dense",
        "live-plain",
        "live-topn-6x2",
        "live-learned",
    }
    leave([*asked, "--prices", "example-a100-70b", "--tolerance", "0.0001"])
    printed = capsys.readouterr().out
    assert max(len(line.rstrip()) for line in printed.splitlines()) <= 100
    for word in ("own trace", "modelled", "tokens/s", "example-a100-70b", "replay does not equal live"):
        assert word in printed


@pytest.fixture(scope="module")
def report(pair: Pair, tmp_path_factory: pytest.TempPathFactory, prompts: Path) -> ReplayCheckReport:
    settings = ReplayCheckSettings(3, 6, 1, 0.8, ("plain", "chain:2"), tolerance=1e6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREEWISE_PROMPTS", str(prompts.parent))
        return check_replay(pair, COST, tmp_path_factory.mktemp("check"), settings, prices=COST)


def test_above_temperature_0_decisions_repeat_as_well(report: ReplayCheckReport) -> None:
    assert report.is_own_exact and report.is_dense_close and report.is_speed_close
    assert report.differing == 0.0


def timed(report: ReplayCheckReport, live: tuple[float, float], modelled: tuple[float, float]) -> ReplayCheckReport:
    """The report with the two policies taking so many milliseconds a token."""
    noise = np.asarray([1.0, 1.01, 0.99])
    checks = [
        replace(check, live=Totals(np.ones(3), noise * mine), modelled=Totals(np.ones(3), noise * theirs))
        for check, mine, theirs in zip(report.policies, live, modelled, strict=True)
    ]
    return replace(report, policies=tuple(checks), tolerance=0.05)


def test_speeds_and_orders_are_judged(report: ReplayCheckReport) -> None:
    same = timed(report, (2.0, 1.0), (2.04, 1.02))
    assert same.is_speed_close and same.is_ordered and same.passes
    (order,) = same.orders
    assert (order.faster, order.slower, order.agrees) == ("chain:2", "plain", True)
    assert order.live.value == pytest.approx(2.0)
    off = timed(report, (2.0, 1.0), (2.2, 1.0))
    assert not off.is_speed_close and off.is_ordered and not off.passes
    assert off.policies[0].error.value == pytest.approx(2.0 / 2.2 - 1.0)
    crossed = timed(report, (1.01, 1.04), (1.02, 1.01))
    assert crossed.is_speed_close and not crossed.is_ordered and not crossed.passes


def test_a_round_decided_otherwise_fails(report: ReplayCheckReport) -> None:
    good = timed(report, (2.0, 1.0), (2.0, 1.0))
    assert good.passes
    first = good.policies[0]
    own = replace(first, own=replace(first.own, mismatches=(Mismatch("tiny/0", 9, "kept"),)))
    assert not replace(good, policies=(own, good.policies[1])).passes
    dense = replace(first, dense=replace(first.dense, differing=1))
    assert not replace(good, policies=(dense, good.policies[1])).is_dense_close


def test_defaults_are_the_settings() -> None:
    defaults = {name: value.default for name, value in inspect.signature(command).parameters.items()}
    settings = ReplayCheckSettings()
    for name in ("prompts", "max_new_tokens", "repeats", "temperature", "tolerance"):
        assert defaults[name] == getattr(settings, name)
    assert SHOWN_CHECKED == CHECKED == settings.policies
    quick = settings.quick()
    assert (quick.prompts, quick.repeats) == (3, 1)
    found = meter_settings({"a": [1] * 10, "b": [1] * 30}, 20)
    assert found.capacities == (9, 50)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompts": 0}, "prompts must be >= 1, got 0"),
        ({"policies": ()}, "policies must be at least one"),
        ({"policies": ("plain", "plain")}, "policies must be each named once"),
        ({"tolerance": 0.0}, "tolerance must be above 0, got 0.0"),
    ],
)
def test_settings_out_of_range(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        ReplayCheckSettings(**changes)  # type: ignore[arg-type]
