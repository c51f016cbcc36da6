"""`treewise bench`, on the tiny pair."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.house.layout import ROOT
from tests.treewise.test_traces_command import fits, run
from tests.treewise.tiny import DRAFT, HASTY, leave
from treewise import bench, demo
from treewise.arms import Arm
from treewise.bench import BenchSettings, run_bench
from treewise.bench_inputs import bench_prompts
from treewise.bench_store import BenchKey, BenchResult, BenchStore, content_key
from treewise.data.cost import CostProfile
from treewise.data.prompt_set import Prompt
from treewise.demo_summary import Label
from treewise.engine.decode import Completion, Engine
from treewise.engine.pair import Pair, encode_prompt
from treewise.engine.pass_clock import ClockedPair
from treewise.engine.sampling import Sampling
from treewise.live import LiveFigures
from treewise.policy.registry import LEARNED, RULES
from treewise.shipped import split_trace, train_part
from treewise.sidebyside import _Runner
from treewise.stages import silent
from treewise.texts import Divergence

SCHEMA = json.loads((ROOT / "treewise" / "schemas" / "bench.json").read_text(encoding="utf-8"))
COST = CostProfile.load("example-a100-70b")


@pytest.fixture(autouse=True)
def own_prompts(prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ten short prompts in place of the project's own."""
    monkeypatch.setenv("TREEWISE_PROMPTS", str(prompts.parent))


def test_live_runs_tell_policies_the_kind_of_task(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    generate = Engine.generate

    def noted(engine: Engine, ids: list[int], longest: int, sampling: Sampling, task: str = "") -> Completion:
        told.append(task)
        return generate(engine, ids, longest, sampling, task)

    monkeypatch.setattr(Engine, "generate", noted)
    prompt, sampling = Prompt("one", "rag", "red red"), Sampling()
    with ClockedPair(pair) as clocked:
        decoder = bench._Decoder(clocked, COST, {"plain": "plain"}, 3)
        decoder.decode(BenchKey("plain", 0.0, "one"), prompt, None)
    _Runner(pair, COST, 3).run(Arm("plain", "plain"), encode_prompt(pair, prompt.text), sampling, prompt)
    demo._decode(pair, COST, [Label("plain", "plain")], [prompt], 3, silent)
    assert told == ["rag"] * 3


def test_json_follows_its_schema_and_a_second_run_decodes_nothing(
    tiny: Path, traces: Path, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train_part(split_trace(traces), COST, tmp_path / "policy", HASTY)
    sizes = ("--max-new-tokens", "6", "--threads", "1", "--cost", "example-a100-70b", "--policies", "entropy,learned")
    asked = ["bench", "--quick", "--target", str(tiny), "--draft", DRAFT, "--bundle", str(tmp_path / "policy"), *sizes]
    first = json.loads(run([*asked, "--json"], capsys))
    assert fits(first, SCHEMA)
    assert not fits({**first, "resumed": None}, SCHEMA)
    assert first["identical"] is True
    assert first["replays_live"] is True
    assert first["resumed"] == 0
    assert Path(first["results_file"]).is_relative_to(home)
    names = [(row["policy"], row["temperature"], row["texts"]) for row in first["rows"]]
    assert names == [(name, heat, 4) for heat in (0.0, 1.0) for name in ("plain", "entropy", "learned")]
    assert [(row["policy"], row["rounds"] == row["compared"] > 0) for row in first["replays"]] == [
        ("entropy", True),
        ("learned", True),
    ]
    again = json.loads(run([*asked, "--json"], capsys))
    assert again["resumed"] == 24
    assert again["rows"] == first["rows"]
    printed = run(asked, capsys)
    drawn = [line for line in printed.splitlines() if line.startswith(("│", "┏"))]
    assert max(len(line) for line in drawn) <= 100
    for word in ("identical", "outside", "replay against live", "live rounds"):
        assert word in printed


def test_an_interrupted_run_goes_on(pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = BenchSettings(2, 1, 5, (0.0,), ("chain", "topn"))
    whole = run_bench(pair, COST, settings, home=tmp_path)
    assert [len(row.results) for row in whole.rows] == [2, 1, 1]
    path = Path(whole.results_file)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    assert len(lines) == 4
    path.write_text("".join(lines[:2]) + lines[2][:30], encoding="utf-8")
    again = run_bench(pair, COST, settings, home=tmp_path)
    assert again.resumed == 2
    assert [row.identical for row in again.rows] == [2, 1, 1]
    assert again.rows[2].results[0].tokens == whole.rows[2].results[0].tokens
    assert len(BenchStore(path)) == 4
    other = run_bench(pair, COST, BenchSettings(2, 1, 4, (0.0,), ("chain", "topn")), home=tmp_path)
    assert other.resumed == 0


def test_a_bundle_is_trained_once_from_what_ships(
    pair: Pair, traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treewise.bench.shipped_traces", lambda: traces)
    settings = BenchSettings(1, 1, 4, (0.0,), ("learned",))
    first = run_bench(pair, COST, settings, home=tmp_path)
    bundle = Path(first.bundle) / "bundle.json"
    written = bundle.stat().st_mtime_ns
    again = run_bench(pair, COST, settings, home=tmp_path)
    assert (again.bundle, bundle.stat().st_mtime_ns) == (first.bundle, written)
    assert again.resumed == 2
    assert again.is_identical


def test_a_differing_text_fails(
    tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setattr("treewise.bench.first_divergence", lambda *_: Divergence(2, 1, 0, 1e-6))
    sizes = ("--max-new-tokens", "4", "--threads", "1", "--cost", "example-a100-70b", "--policies", "chain")
    assert leave(["bench", "--quick", "--target", str(tiny), "--draft", DRAFT, *sizes]) == 1
    assert "chain at temperature 0 on tiny/0 differs: token 2: 0 instead of 1" in capsys.readouterr().err
    assert list(home.rglob("results.jsonl"))


def test_only_registered_names_are_benched(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert leave(["bench", "--target", str(tiny), "--policies", "chain,magic"]) == 2
    assert "policies must be among" in capsys.readouterr().err
    assert set(BenchSettings().policies) == {*RULES, LEARNED} - {"plain"}


def test_a_missing_bundle_is_one_line(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ("--threads", "1", "--cost", "example-a100-70b", "--policies", "learned", "--bundle", str(tmp_path))
    assert leave(["bench", "--target", str(tiny), "--draft", DRAFT, *sizes]) == 2
    assert "error: bundle must be a folder with a bundle.json, got" in capsys.readouterr().err


def test_prompts_take_turns_between_tasks() -> None:
    assert [prompt.task for prompt in bench_prompts(4)] == ["copy", "chat", "copy", "chat"]


def test_a_result_comes_back_from_its_line() -> None:
    figures = LiveFigures("chain", 1, 3, 2, 4, 2, 0.5, 0.25, 0.125, 0, 0)
    result = BenchResult(BenchKey("chain", 1.0, "a"), (1, 2, 3), figures, Divergence(1, 2, 9, 0.5))
    assert BenchResult.from_line(result.to_line()) == result
    assert BenchResult.from_line(result.to_line()[:-9]) is None


def test_the_key_depends_on_every_part() -> None:
    assert content_key(["a", 1]) == content_key(["a", 1])
    assert len({content_key(["a", 1]), content_key(["a", 2]), content_key(["b", 1])}) == 3
