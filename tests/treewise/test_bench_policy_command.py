"""`treewise bench-policy`, on traces of a small world in place of those that ship."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.house.layout import ROOT
from tests.policy.models import tiny_bundle
from tests.training.worlds import World, dense_trace
from tests.treewise.test_traces_command import fits, run
from treewise.cli import main
from treewise.cli.bench_policy import command_of
from treewise.data.envelope import Envelope
from treewise.data.trace_writer import TraceWriter
from treewise.policy_bench_nodes import SIZES
from treewise.policy_bench_plan import PolicyBenchSettings

SCHEMA = json.loads((ROOT / "treewise" / "schemas" / "bench_policy.json").read_text(encoding="utf-8"))
ENVELOPE = Envelope(max_depth=8, draft_width=3, min_path_prior=0.03, min_grow_prior=0.06)
JUDGED = "topn:6x2"  # in place of a trained policy
ASKED = ["bench-policy", "--quick", "--sources", "all", "--sources", "free"]


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traces to tune on and others to judge on."""
    folder = tmp_path_factory.mktemp("shipped")
    for name, seed in (("train", 1), ("judge", 2)):
        trace = dense_trace(World(seed=seed, num_texts=3, answer_tokens=26), ENVELOPE)
        with TraceWriter(folder / name, trace.manifest) as writer:
            for request in trace.requests:
                part = request.shard.take(sorted(request.rows.values()))  # type: ignore[arg-type]
                writer.add(part.rounds, part.nodes)
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return replace(tiny_bundle(), envelope=ENVELOPE.widened()).save(tmp_path_factory.mktemp("bundles") / "tiny")


@pytest.fixture(autouse=True)
def small(shipped: Path, home: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One cache for all tests here; a rule stands for the trained policy, except where nodes are counted."""
    monkeypatch.setenv("TREEWISE_HOME", str(home))
    monkeypatch.setattr("treewise.shipped.shipped_traces", lambda: shipped)
    monkeypatch.setattr("treewise.policy_bench_material.Workshop.bundle", lambda *_: str(bundle))
    monkeypatch.setattr("treewise.policy_bench._Bench.learned", JUDGED)


def test_json_follows_its_schema_and_nothing_is_done_twice(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = json.loads(run([*ASKED, "--json"], capsys))
    assert fits(found, SCHEMA)
    assert not fits({**found, "cells": "four"}, SCHEMA)
    cells: list[dict[str, Any]] = found["cells"]
    assert [(cell["sources"], cell["cost"]) for cell in cells] == [
        (sources, cost) for sources in ("all", "free") for cost in ("example-a100-70b", "example-a100-70b-3ms")
    ]
    for cell in cells:
        part = cell["subsets"][0]
        assert part["speedup"]["value"] <= part["depth_oracle"] <= part["oracle"]
        for opponent in part["opponents"]:
            # the same prompts under both: the ratio is that of their speed-ups
            ratio = part["speedup"]["value"] / opponent["speedup"]["value"]
            assert opponent["ratio"]["value"] == pytest.approx(ratio, rel=1e-5)
            assert opponent["joint"]["low"] <= opponent["ratio"]["value"] <= opponent["joint"]["high"]
        opponents = {opponent["name"]: opponent["policy"] for opponent in part["opponents"]}
        assert {"frontier-table", "sequoia", "entropy, untuned"} <= set(opponents)
        assert opponents["sequoia"].startswith("sequoia:TABLE")
    (curve,) = found["node_curves"]
    assert [point["size"] for point in curve["points"]] == list(SIZES)
    for point in curve["points"]:
        assert point["saved"]["value"] == pytest.approx(1.0 - point["priced"] / point["nodes"], abs=1e-5)
    mean = sum(point["saved"]["value"] for point in curve["points"]) / len(SIZES)
    assert curve["saved"]["value"] == pytest.approx(mean, abs=1e-5)
    assert curve["saved"]["low"] < mean < curve["saved"]["high"]
    assert len(found["carried"]) == 2
    assert len(found["schedules"]) == 1

    def refuse(*_: object) -> None:
        raise AssertionError("replayed again")

    monkeypatch.setattr("treewise.policy_bench_store._replay", refuse)
    monkeypatch.setattr("treewise.training.survival_check.check_survival", refuse)
    assert json.loads(run([*ASKED, "--json"], capsys)) == found


def test_tables_fit_and_the_page_says_how_it_was_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "docs" / "results.md"
    printed = run([*ASKED, "--write", str(page)], capsys)
    assert max(len(line) for line in printed.splitlines()) <= 100
    assert "default T0 all a100-3ms" in printed
    text = page.read_text(encoding="utf-8")
    assert re.search(r"Made on \d{4}-\d\d-\d\d by `treewise bench-policy --quick --sources all --sources free`", text)
    assert "| best tuned draft-only tree, draft prune:12-17 |" in text
    for line in text.splitlines():
        if line.startswith("| plain decoding and transformers, live"):
            assert line.endswith("| not measured |")
    words = re.findall(r"\| (reached|not reached|not measured) \|$", text, re.MULTILINE)
    assert len(words) == 15
    assert re.findall(r"^\| `topn:(\d+)x", text, re.MULTILINE) == [str(size) for size in SIZES]
    assert "The older figure, at the one point where the learned policy stands" in text


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--bundle", "default"), "bundle must be DRAFT=DIR with a draft among default, got 'default'"),
        (("--bundle", "other=x"), "bundle must be DRAFT=DIR with a draft among default, got 'other=x'"),
        (("--sources", "web"), "sources must be among draft, lookup, free, all, got"),
        (("--cost", "nowhere.json"), "cost must be a file that exists, got 'nowhere.json'"),
    ],
)
def test_bad_options_are_refused(option: tuple[str, str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench-policy", "--quick", *option]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_the_command_can_be_typed_again() -> None:
    usual = PolicyBenchSettings()
    sizes = "--train-prompts 60 --test-prompts 60 --max-new-tokens 64"
    assert command_of(usual, "", "smollm2-135m", "default") == f"treewise bench-policy {sizes}"
    other = replace(usual, drafts=("prune:12-17",), temperatures=(0.7,), policy="guarded", leaves_tasks_out=True)
    assert command_of(other, "/somewhere/prompts", "folder/target", "none") == (
        f"treewise bench-policy --prompts prompts --draft prune:12-17 --temperature 0.7 {sizes} --guarded "
        "--left-out-tasks --corpus none --target folder/target"
    )
    assert command_of(usual.quick(), "", "smollm2-135m", "default") == "treewise bench-policy --quick"
