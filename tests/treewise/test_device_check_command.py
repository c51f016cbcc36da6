"""`treewise device-check`, dry: every part runs, on tiny shapes, on the CPU."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import pytest
import torch

from tests.house.layout import ROOT
from tests.policy.models import tiny_bundle
from tests.treewise.test_traces_command import fits
from tests.treewise.tiny import leave
from treewise.data.cost import CostProfile
from treewise.data.errors import ParameterError
from treewise.device_check import DeviceCheck, DeviceCheckSettings, Target, missed
from treewise.device_check_run import DeviceRun, Watch, check_device
from treewise.engine.scripted_speed import ScriptedSpeed
from treewise.engine.shapes import random_pair, random_prompts
from treewise.engine.verify_curve import CurveCell
from treewise.policy.registry import parse_policy

SCHEMA = json.loads((ROOT / "treewise" / "schemas" / "device_check.json").read_text(encoding="utf-8"))


def test_a_dry_run_goes_through_every_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("lightgbm", "numba", "onnxruntime"):
        if package == "lightgbm":
            tiny_bundle()  # trained before it is taken away
        monkeypatch.setitem(sys.modules, package, None)
    bundle, out = tmp_path / "bundle", tmp_path / "check.json"
    tiny_bundle().save(bundle)
    assert leave(["device-check", "--dry-run", "--bundle", str(bundle), "-o", str(out)]) == 0
    printed = capsys.readouterr()
    assert max(len(line) for line in printed.out.splitlines()) <= 100
    for words in ("texts against plain decoding's", "verify, ms by rows", "tokens per second", "promises"):
        assert words in printed.out
    found = json.loads(out.read_text(encoding="utf-8"))
    assert fits(found, SCHEMA)
    assert not fits({**found, "texts": [{}]}, SCHEMA)
    assert found["failed"] == found["skipped"] == found["warnings"] == [] and found["dry_run"]
    assert {row["way"] for row in found["texts"]} >= {"eager sdpa", "eager split", "static sdpa", "static split", "CPU"}
    assert {row["way"] for row in found["texts"]} >= {"static split, batch of 2", "eager sdpa, batch of 2"}
    assert all(row["differing"] == 0 for row in found["texts"])
    assert max(row["tokens_per_round"] for row in found["texts"]) > 1.5
    assert len(found["curve"]) == 4 * 2 * 4 and all(cell["ms"] > 0 for cell in found["curve"])
    assert {row["batch"] for row in found["speed"]} == {0, 1, 2}
    assert {row["policy"] for row in found["speed"]} == {"plain", "topn", "learned"}
    assert all(row["is_true_text"] and row["tokens"] == 8 * max(row["batch"], 1) for row in found["speed"])
    assert set(found["seconds"]) == {"texts", "curve", "speed"}
    assert all(target["value"] is not None for target in found["targets"])


def test_what_would_pass_the_limit_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert leave(["device-check", "--dry-run", "--limit", "1", "--json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert fits(found, SCHEMA)
    assert found["texts"] == found["curve"] == found["speed"] == []
    late = "left out, the time limit of 1 s would be passed"
    assert found["skipped"] == [f"texts: {late}", f"curve: {late}", f"speed: {late}"]
    assert "tokens per second" not in printed.out
    assert all(target["value"] is None and target["met"] is None for target in found["targets"])


def test_a_step_takes_as_long_as_the_last_of_its_kind() -> None:
    told: list[str] = []
    run = DeviceRun(DeviceCheck(DeviceCheckSettings().dry()), Watch(5.0), told.append, None)
    done: list[str] = []
    run.step("slow", "first", 6.0, lambda: done.append("first"))
    run.step("slow", "second", 1.0, lambda: done.append("second"))
    run.step("slow", "third", 6.0, lambda: done.append("third"))  # the second took no time
    assert done == ["second", "third"] and len(run.found.skipped) == 1
    assert told == [run.found.skipped[0], "second", "third"] and told[0].startswith("first: left out")
    run.watch.took("slow", 100.0)
    assert not run.watch.fits("slow", 0.1) and run.watch.fits("quick", 0.1)


def test_without_a_bundle_nothing_learned_is_measured() -> None:
    run = DeviceRun(DeviceCheck(DeviceCheckSettings().dry()), Watch(5.0), lambda line: None, None)
    assert set(run.policies(random_pair("tiny"))) == {"plain", "topn"}
    assert run.found.skipped == ["learned: left out, no bundle was named"]


def test_a_step_that_fails_does_not_cost_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(ScriptedSpeed, "batch", fail)
    kept: list[int] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = check_device(DeviceCheckSettings().dry(), keep=lambda so_far: kept.append(len(so_far.speed)))
    assert len(found.failed) == 4 and found.failed[0].startswith("plain, hit 0.8, batch of 1, ")
    assert all(line.endswith(": RuntimeError: out of memory") for line in found.failed)
    assert len(found.speed) == 4 and kept == [0, 0, 4]


def test_batches_run_in_the_passes_that_were_fastest() -> None:
    run = DeviceRun(DeviceCheck(DeviceCheckSettings()), Watch(5.0), lambda line: None, None)
    run.on_gpu = True
    assert run._fastest_way() == ("captured", "sdpa")  # without a curve
    middle = run.settings.rows[len(run.settings.rows) // 2]
    for passes, attention, rows, ms in (
        ("eager", "sdpa", middle, 5.0),
        ("captured", "split", middle, 4.0),
        ("captured", "sdpa", middle, 4.5),
        ("captured", "sdpa", 1, 1.0),
    ):
        run.found.curve.append(CurveCell(passes, attention, 512, rows, ms, 0.0, passes))
    assert run._fastest_way() == ("captured", "split")
    run.found.curve.append(CurveCell("eager", "split", 512, middle, 3.0, 0.0, "eager"))
    assert run._fastest_way() == ("eager", "split") and run._best_way() == ("captured", "split")
    assert run.settings.limit_s < 8 * 60 and run.settings.batches == (1, 8, 32)


@pytest.mark.parametrize("passes", ["eager", "static"])
def test_batches_of_one_way_share_what_they_hold(passes: str) -> None:
    pair = random_pair("tiny", "tiny-draft", dtype=torch.float32)
    bench = ScriptedSpeed(pair, CostProfile.load("example-a100-70b"), random_prompts(pair, 2, 12), 6)
    for name in ("plain", "topn"):
        row = bench.batch(name, parse_policy(name), 0.8, 2, passes, "split")
        assert row.is_true_text and (row.passes, row.attention, row.batch, row.tokens) == (passes, "split", 2, 12)
        engine = bench._shared[2, passes, "split"]
        if name == "plain":
            first = engine
    assert engine is not first and engine._target is first._target
    bench.batch("plain", parse_policy("plain"), 0.8, 1, passes, "split")
    assert list(bench._shared) == [(1, passes, "split")]
    bench.forget()
    assert not bench._shared


def test_promises_compare_with_the_best_unmasked_token() -> None:
    def cell(passes: str, rows: int, ms: float, capacity: int = 512) -> CurveCell:
        return CurveCell(passes, "sdpa", capacity, rows, ms, 0.0, passes)

    nothing, found = DeviceCheck(DeviceCheckSettings()), DeviceCheck(DeviceCheckSettings())
    assert nothing.base_ms is None and nothing.ratio(16) is None
    found.floor_ms[512] = 4.0
    found.curve = [cell("eager", 1, 5.0), cell("captured", 1, 3.0), cell("captured", 16, 4.4), cell("eager", 16, 9.0)]
    found.curve += [cell("captured", 36, 4.8), cell("captured", 36, 1.0, capacity=8192)]
    assert found.base_ms == 4.0  # a masked row is no floor
    assert found.ratio(16) == pytest.approx(1.1) and found.ratio(36) == pytest.approx(1.2)
    assert missed(found.targets) == ["36 rows over one unmasked token: 1.2 times, at most 1.15 were promised"]
    assert Target("x", 1.0, 1.0, "ms").is_met and Target("x", 1.0, None, "ms").is_met is None


def test_a_gpu_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert leave(["device-check"]) == 2
    assert "device must be one that is there, got 'cuda' without a GPU" in capsys.readouterr().err
    with pytest.raises(ParameterError, match="repeats must be >= 3, got 1"):
        DeviceCheckSettings(repeats=1)
