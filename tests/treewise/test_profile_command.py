"""`treewise profile`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.house.layout import ROOT
from tests.treewise.test_traces_command import fits, run
from tests.treewise.tiny import DRAFT, leave
from treewise.data.cost import CostProfile
from treewise.engine.pair import Pair
from treewise.profiles import stored_path

SCHEMA = json.loads((ROOT / "treewise" / "schemas" / "profile.json").read_text(encoding="utf-8"))


def arguments(tiny: Path, *more: str) -> list[str]:
    return ["profile", "--target", str(tiny), "--draft", DRAFT, "--threads", "1", "--quick", *more]


@pytest.mark.usefixtures("home", "quickly")
def test_json_follows_its_schema_and_is_stored(tiny: Path, pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    printed = json.loads(run(arguments(tiny, "--json", "--repeats", "4"), capsys))
    assert fits(printed, SCHEMA)
    assert not fits({**printed, "profile": {}}, SCHEMA)
    assert printed["path"] == str(stored_path(pair))
    stored = CostProfile.load(printed["path"])
    assert stored == CostProfile.from_json(printed["profile"])
    assert stored.origin.endswith("median of 4")
    assert stored.pair == pair.name


@pytest.mark.usefixtures("quickly")
def test_tables_fit_and_another_devices_profile_is_told(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    out = tmp_path / "cost.json"
    replace(CostProfile.load("example-a100-70b"), device="another machine").save(out)
    assert leave(arguments(tiny, "-o", str(out), "--name", "mine")) == 0
    printed = capsys.readouterr()
    assert max(len(line) for line in printed.out.splitlines()) <= 100
    for word in ("mine", "verify, ms by rows", "draft growth, ms by tokens", "rest of a round"):
        assert word in printed.out
    assert "measured on another machine, this is" in printed.err
    assert CostProfile.load(out).name == "mine"


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("content", ["{", '{"schema_version": 0}'])
def test_a_profile_that_cannot_be_read_is_replaced(
    content: str, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "cost.json"
    out.write_text(content, encoding="utf-8")
    assert leave(arguments(tiny, "-o", str(out))) == 0
    assert f"{out} is replaced" in capsys.readouterr().err
    assert CostProfile.load(out).verify.counts


@pytest.mark.usefixtures("home", "quickly")
def test_a_shape_is_measured_without_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "cost.json"
    command = ["profile", "--shape", "tiny", "--threads", "1", "--quick", "--rows", "1,3,9", "--capacities", "16,48"]
    more = ["--dtype", "bf16", "--attention", "split", "--passes", "static", "-o", str(out), "--json"]
    assert fits(json.loads(run([*command, *more], capsys)), SCHEMA)
    found = CostProfile.load(out)
    assert (found.pair, found.dtype, found.attention) == (
        "random:tiny+none",
        "bfloat16",
        "treewise_split, static passes",
    )
    assert (found.verify.counts, found.verify.capacities) == ((1, 3, 9), (16, 48))
    assert found.origin.endswith("random weights") and float(found.draft_ms(3)) == 0.0
    drafted = json.loads(run([*command, "--draft-shape", "tiny-draft", "--json"], capsys))
    assert "profiles" in drafted["path"]  # in the user's cache
    assert drafted["profile"]["pair"] == "random:tiny+random:tiny-draft"
    assert min(drafted["profile"]["draft"]["ms"][0]) > 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--shape", "huge"], "shape must be one of llama-8b"),
        (["--shape", "tiny", "--dtype", "int4"], "dtype must be one of bf16, fp16, fp32"),
        (["--shape", "tiny", "--rows", "1,x"], "rows must be numbers joined by commas, got '1,x'"),
        (["--shape", "tiny", "--attention", "flash"], "attention must be one of sdpa, split, got 'flash'"),
        (["--shape", "tiny", "--passes", "fast"], "passes must be one of eager, static, captured, got 'fast'"),
        (["--draft-shape", "tiny"], "draft-shape must be given with --shape, got 'tiny'"),
    ],
)
def test_what_cannot_be_measured_is_refused(more: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert leave(["profile", "--quick", *more]) == 2
    assert message in capsys.readouterr().err
