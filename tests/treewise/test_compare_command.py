"""`treewise compare`, on the tiny pair."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.house.layout import ROOT
from tests.treewise.test_traces_command import fits, run
from tests.treewise.tiny import DRAFT, HASTY, leave
from treewise import arms as arms_module
from treewise.arms import FAMILIES, GENERATE, tune_rivals
from treewise.bench_inputs import UNSEEN_SPLITS, bench_prompts
from treewise.cli import compare as command
from treewise.data.cost import CostProfile
from treewise.data.errors import PromptError
from treewise.data.prompt_set import own_prompts
from treewise.engine.pair import Pair, encode_prompt
from treewise.engine.rivals import Rival, RivalAnswer, RivalDecoder
from treewise.live import LiveFigures
from treewise.shipped import split_trace, train_part
from treewise.sidebyside import CompareSettings, _Runner, compare
from treewise.sidebyside_report import ArmResult, PromptKey, PromptResult
from treewise.stages import silent
from treewise.texts import Divergence
from treewise.training.statistics import Interval

SCHEMA = json.loads((ROOT / "treewise" / "schemas" / "compare.json").read_text(encoding="utf-8"))
COST = CostProfile.load("example-a100-70b")
RIVALS = [
    GENERATE,
    "transformers assisted",
    "transformers assisted, tuned",
    "transformers lookup",
    "transformers lookup, tuned",
]
SMALL = {"chain": ("chain:2", "chain:3"), "topn": ("topn:8x2",), "entropy": ("entropy",)}
OURS = ["plain", "tuned chain", "tuned topn", "tuned entropy", "learned"]


@pytest.fixture(autouse=True)
def small(prompts: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The ten short prompts in place of the project's own, and few settings to tune; the cache is `home`."""
    monkeypatch.setenv("TREEWISE_PROMPTS", str(prompts.parent))
    monkeypatch.setattr("treewise.training.tune.GRIDS", SMALL)
    monkeypatch.setattr("treewise.arms.FAMILIES", tuple(SMALL))
    monkeypatch.setattr("treewise.arms.ASSISTED_TOKENS", (2,))
    monkeypatch.setattr("treewise.arms.LOOKUP_GRID", (2,))
    return home


@pytest.fixture(scope="module")
def bundle(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy trained on the tiny traces."""
    folder = tmp_path_factory.mktemp("bundle") / "policy"
    train_part(split_trace(traces), COST, folder, HASTY)
    return folder


def asked(tiny: Path, traces: Path, bundle: Path, *more: str) -> list[str]:
    inputs = ("--target", str(tiny), "--draft", DRAFT, "--traces", str(traces), "--bundle", str(bundle))
    return ["compare", "--quick", *inputs, "--threads", "1", "--cost", COST.name, "--max-new-tokens", "6", *more]


def test_json_follows_its_schema_and_a_second_run_measures_nothing(
    tiny: Path, traces: Path, bundle: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = json.loads(run(asked(tiny, traces, bundle, "--json", "--repeats", "2"), capsys))
    assert fits(first, SCHEMA)
    assert not fits({**first, "baseline": None}, SCHEMA)
    assert [arm["name"] for arm in first["arms"]] == [*RIVALS, *OURS]
    assert [arm["ours"] for arm in first["arms"]] == [False] * len(RIVALS) + [True] * len(OURS)
    assert first["baseline"] == GENERATE
    assert first["identical"] is True
    assert first["ours_agree"] is True
    assert first["resumed"] == 0
    # Two of the ten prompts are none that the policy was trained on.
    used = {request.prompt_id for request in split_trace(traces).train.requests}
    assert len(first["prompts"]) == 2
    assert not used & set(first["prompts"])
    assert {arm["texts"] for arm in first["arms"]} == {4}
    assert len({arm["tokens"] for arm in first["arms"]}) == 1
    by_name = {arm["name"]: arm for arm in first["arms"]}
    assert by_name[GENERATE]["over_baseline"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    for name in (GENERATE, "plain"):
        assert by_name[name]["tokens_per_pass"] == 1.0
    for arm in first["arms"]:
        assert arm["over_baseline"]["low"] <= arm["over_baseline"]["value"] <= arm["over_baseline"]["high"]
        assert (arm["policy_share"] is None) == (not arm["ours"])
        if arm["ours"]:
            assert 0 < arm["policy_share"] < arm["overhead_share"] < 1
    assert first["machine"]["threads"] == 1
    again = json.loads(run(asked(tiny, traces, bundle, "--json", "--repeats", "2"), capsys))
    assert again["resumed"] == 4
    assert again["arms"] == first["arms"]
    assert Path(first["results_file"]).is_relative_to(home)


def test_above_temperature_zero_our_arms_are_alone(
    tiny: Path, traces: Path, bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(run(asked(tiny, traces, bundle, "--json", "--fresh", "--temperature", "0.8"), capsys))
    assert fits(found, SCHEMA)
    assert [arm["name"] for arm in found["arms"]] == OURS
    assert found["baseline"] == "plain"
    assert found["identical"] is True


def test_an_interrupted_run_goes_on_behind_its_last_whole_prompt(
    pair: Pair, traces: Path, bundle: Path, tmp_path: Path
) -> None:
    settings = CompareSettings(2, 5, tune_prompts=1, rival_prompts=1, rival_tokens=4, bundle=bundle, traces=traces)
    whole = compare(pair, COST, settings, home=tmp_path / "runs")
    path = Path(whole.results_file)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    assert len(lines) == 2
    path.write_text(lines[0] + lines[1][:-40], encoding="utf-8")
    order: list[str] = []

    @contextmanager
    def told(title: str, total: int | None = None) -> Iterator[Any]:
        def advance(word: str = "", steps: int = 1) -> None:
            if title == "decoding side by side":
                order.append(word.partition(" on ")[0])

        yield advance

    again = compare(pair, COST, settings, told, home=tmp_path / "runs")
    assert again.resumed == 1
    assert again.results[0] == whole.results[0]
    assert [part.tokens for part in again.results[1].arms] == [part.tokens for part in whole.results[1].arms]
    # The second prompt begins with the second arm, and the first comes last.
    names = [arm.name for arm in again.arms]
    assert order[1:] == [*names[1:], names[0]]
    assert [part.name for part in again.results[1].arms] == names
    other = compare(pair, COST, replace(settings, max_new_tokens=4), home=tmp_path / "runs")
    assert other.resumed == 0
    fresh = compare(pair, COST, settings, home=tmp_path / "runs", is_fresh=True)
    assert (fresh.resumed, fresh.results_file) == (0, whole.results_file)


def test_without_a_draft_nothing_is_assisted() -> None:
    names = [arm.name for arm in arms_module.rival_arms([Rival("lookup", 2)], has_draft=False)]
    assert names == [GENERATE, "transformers lookup", "transformers lookup, tuned"]


def test_the_fastest_setting_of_transformers_is_kept(pair: Pair, tmp_path: Path) -> None:
    class Told(RivalDecoder):
        """Two guesses are quickest, and longest texts."""

        def decode(self, rival: Rival, prompt: Any, max_new_tokens: int) -> RivalAnswer:
            if rival.tokens == 2 and rival.threshold in (None, 0.0):
                return RivalAnswer((1, 2, 3, 4), 1, 2.0 if rival.threshold is None else 1.0)
            return RivalAnswer((1,), 1, 0.9)

    prompts = [encode_prompt(pair, "a"), encode_prompt(pair, "b")]
    path = tmp_path / "deep" / "rivals.json"
    best = tune_rivals(Told(pair), prompts, 4, path, silent)
    assert [rival.spec for rival in best] == ["assisted:2,threshold=0", "lookup:2"]
    path.write_text(path.read_text(encoding="utf-8").replace('"tokens": 2', '"tokens": 9'), encoding="utf-8")
    assert [rival.tokens for rival in tune_rivals(Told(pair), prompts, 4, path, silent)] == [9, 9]


def test_tables_fit_and_a_differing_text_is_told(
    tiny: Path,
    traces: Path,
    bundle: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("treewise.sidebyside.first_divergence", lambda *_: Divergence(2, 1, 0, 1e-6))
    assert leave(asked(tiny, traces, bundle)) == 0  # our own arms agree with each other
    printed = capsys.readouterr()
    drawn = [line for line in printed.out.splitlines() if line.startswith(("│", "┃", "┏", "┡", "└"))]
    assert drawn
    assert max(len(line) for line in drawn) <= 100
    words = (
        *OURS,
        "over",
        "learned is",
        "prefill included",
        "tuned chain: chain:",
        "plain decoding is",
        "fastest other",
    )
    for word in words:
        assert word in printed.out
    assert "TEXTS DIFFER" in printed.out
    assert "learned on tiny/" in printed.err
    assert "differs from transformers generate: token 2: 0 instead of 1, top-2 margin 1.00e-06" in printed.err


def test_a_policy_that_leaves_our_plain_text_fails(
    tiny: Path, traces: Path, bundle: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = _Runner.run

    def wrong(self: _Runner, arm: Any, *rest: Any) -> ArmResult:
        result = honest(self, arm, *rest)
        return replace(result, tokens=result.tokens[:-1]) if arm.name == "learned" else result

    monkeypatch.setattr(_Runner, "run", wrong)
    assert leave(asked(tiny, traces, bundle)) == command.EXIT_DIFFERS
    assert "learned on tiny/" in capsys.readouterr().err


def test_results_come_back_from_their_lines() -> None:
    figures = LiveFigures("chain", 1, 3, 2, 4, 2, 0.5, 0.25, 0.125, 0, 0)
    parts = (
        ArmResult("chain", (1, 2, 3), 0.5, 2, figures, Divergence(1, 2, 9, 0.5)),
        ArmResult(GENERATE, (1, 2), 0.5, 2, None, None),
    )
    result = PromptResult(PromptKey("a", 1), parts)
    assert PromptResult.from_line(result.to_line()) == result
    assert PromptResult.from_line(result.to_line()[:-9]) is None


def test_words_follow_the_interval() -> None:
    assert command.standing(Interval(1.2, 1.1, 1.3)) == "ahead"
    assert command.standing(Interval(0.8, 0.7, 0.9)) == "behind"
    assert command.standing(Interval(1.0, 0.9, 1.1)) == "level within the interval"
    assert command.standing(Interval(1.2, np.nan, np.nan)) == "level within the interval"
    assert command.short(Interval(1.0, 0.9, 1.1)) == "1.00 [0.90, 1.10]"


def test_errors_are_one_line(
    tiny: Path, traces: Path, bundle: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert leave(asked(tiny, traces, bundle, "--long")) == 2
    assert "form must be one of --quick and --long, got both" in capsys.readouterr().err
    monkeypatch.setattr("treewise.sidebyside.bench_prompts", lambda *_: ())
    assert leave(asked(tiny, traces, bundle)) == 2
    assert "prompts must hold one that nothing was tuned on, got none" in capsys.readouterr().err
    assert issubclass(PromptError, ValueError)


def test_the_projects_judged_prompts_are_none_that_something_was_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TREEWISE_PROMPTS")
    judged = bench_prompts(1000, UNSEEN_SPLITS)
    assert len(judged) == CompareSettings().long().prompts == 45
    trained = {prompt.id for split in ("distill", "policy") for prompt in own_prompts(split)}
    assert not trained & {prompt.id for prompt in judged}
    assert len({prompt.task for prompt in bench_prompts(CompareSettings().prompts, UNSEEN_SPLITS)}) == 9


def test_every_family_that_is_tuned_has_a_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    from treewise.training.tune import GRIDS

    assert set(FAMILIES) <= set(GRIDS)
