"""`treewise decode`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.house.layout import ROOT
from tests.treewise.test_traces_command import fits, run
from tests.treewise.tiny import DRAFT, leave
from treewise.cli import _options
from treewise.data.errors import LossyWarning
from treewise.texts import Divergence

SCHEMA = json.loads((ROOT / "treewise" / "schemas" / "decode.json").read_text(encoding="utf-8"))
COST = ("--cost", "example-a100-70b", "--threads", "1")


def arguments(tiny: Path, *more: str) -> list[str]:
    return ["decode", "--target", str(tiny), "--draft", DRAFT, *COST, "--max-new-tokens", "10", *more]


@pytest.mark.parametrize("sampled", [(), ("--temperature", "0.9", "--top-k", "20", "--top-p", "0.95", "--seed", "7")])
def test_json_follows_its_schema(
    tiny: Path, prompts: Path, sampled: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--policy", "entropy", "--prompts", str(prompts), "--limit", "3", "--compare-plain", "--json", *sampled)
    printed = json.loads(run(arguments(tiny, *asked), capsys))
    assert fits(printed, SCHEMA)
    assert not fits({**printed, "identical": "perhaps"}, SCHEMA)
    assert printed["identical"] is True
    assert [answer["prompt_id"] for answer in printed["answers"]] == ["tiny/0", "tiny/1", "tiny/2"]
    assert printed["total"]["tokens"] == sum(len(answer["tokens"]) for answer in printed["answers"])
    assert printed["plain"]["tokens"] == printed["total"]["tokens"]


@pytest.mark.parametrize("way", [(), ("--passes", "static", "--attention", "split"), ("--passes", "captured")])
def test_prompts_side_by_side_have_the_same_texts(
    way: tuple[str, ...], tiny: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--policy", "topn:4x2", "--prompts", str(prompts), "--limit", "5", "--json", "--temperature", "0.8")
    alone = json.loads(run(arguments(tiny, *asked), capsys))
    together = json.loads(run(arguments(tiny, *asked, *way, "--batch-size", "3", "--compare-plain"), capsys))
    assert fits(together, SCHEMA) and fits(alone, SCHEMA)
    assert (alone["batch_size"], together["batch_size"]) == (1, 3)
    assert together["identical"] is True
    for name in ("prompt_id", "tokens", "text", "finish", "tokens_per_round", "nodes_per_round"):
        assert [answer[name] for answer in together["answers"]] == [answer[name] for answer in alone["answers"]]


@pytest.mark.parametrize(
    ("way", "words"),
    [
        (("--passes", "graph"), "passes must be one of eager, static, captured, got 'graph'"),
        (("--attention", "flash"), "attention must be one of sdpa, split, got 'flash'"),
        (("--device", "cuda"), "device must be one that is there, got 'cuda'"),
    ],
)
def test_passes_that_there_are_not(
    way: tuple[str, ...],
    words: str,
    tiny: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert leave(arguments(tiny, "--policy", "plain", "--prompt", "a b", "--batch-size", "2", *way)) == 2
    assert words in capsys.readouterr().err


def test_warpers_and_a_lossy_rule(tiny: Path, prompts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--policy", "topn:8x3", "--prompts", str(prompts), "--limit", "2", "--compare-plain", "--json")
    warped = ("--temperature", "0.9", "--min-p", "0.02", "--typical-p", "0.9", "--seed", "3")
    assert json.loads(run(arguments(tiny, *asked, *warped), capsys))["identical"] is True
    with pytest.warns(LossyWarning, match="'relaxed-top-n:1' is lossy"):  # top 1 at temperature 0 is the target's own
        printed = json.loads(run(arguments(tiny, *asked, "--verification", "relaxed-top-n:1"), capsys))
    assert printed["identical"] is True


def test_without_comparison_plain_is_null(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = json.loads(run(arguments(tiny, "--policy", "chain:2", "--prompt", "a b a b", "--json"), capsys))
    assert fits(printed, SCHEMA)
    assert printed["plain"] is None
    assert printed["identical"] is None


def test_text_and_figures_fit_a_hundred_columns(
    tiny: Path, prompts: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    printed = run(arguments(tiny, "--policy", "entropy", "--prompts", str(prompts), "--compare-plain"), capsys)
    assert max(len(line) for line in printed.splitlines()) <= 100
    for word in (
        "tiny/9 (chat)",
        "tokens/s",
        "nodes per round",
        "identical to plain decoding",
        "speed-up",
        "10 prompts",
    ):
        assert word in printed
    printed = run(arguments(tiny, "--policy", "entropy", "--prompt", "a b a b"), capsys)
    assert "tokens per round" in printed
    assert "identical" not in printed


def test_a_differing_text_names_its_place(
    tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treewise.live.first_divergence", lambda *_: Divergence(4, 1, 2, 0.25))
    assert leave(arguments(tiny, "--policy", "entropy", "--prompt", "a b", "--compare-plain")) == 1
    assert "differs from plain decoding at token 4: 2 instead of 1, top-2 margin 2.50e-01" in capsys.readouterr().out


def test_another_devices_profile_is_told(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert leave(arguments(tiny, "--policy", "plain", "--prompt", "a")) == 0
    told = capsys.readouterr().err
    assert "warning: cost profile example-a100-70b is for another deployment: measured on A100" in told


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--policy", "magic", "--prompt", "a"), "policy must be one of"),
        (("--policy", "plain"), "prompt must be given as one of --prompt and --prompts, got both or neither"),
        (("--policy", "plain", "--prompts", "nowhere.jsonl"), "path must be an existing prompt file or folder"),
        (("--policy", "plain", "--prompt", "  "), "prompt must be non-empty text"),
        (("--policy", "plain", "--prompt", "a" * 9000), "prompt must be shorter than the target's context of 8192"),
        (("--policy", "plain", "--prompt", "a", "--top-p", "2"), "top_p must be above 0 and at most 1"),
        (("--policy", "plain", "--prompt", "a", "--min-p", "2"), "min_p must be between 0 and 1"),
        (("--policy", "plain", "--prompt", "a", "--typical-p", "0"), "typical_p must be above 0 and at most 1"),
        (("--policy", "plain", "--prompt", "a", "--verification", "0.4"), "verification must be exact, relaxed-top-n"),
        (("--policy", "plain", "--prompts", "own:nothing"), "split must be None or one of"),
    ],
)
def test_errors_are_one_line(
    tiny: Path, more: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert leave(arguments(tiny, *more)) == 2
    assert message in capsys.readouterr().err


def test_the_options_defaults_are_the_engines() -> None:
    from treewise.data.trace_manifest import EXACT
    from treewise.engine.pair import DEFAULT_CORPUS, DEFAULT_DRAFT, DEFAULT_TARGET
    from treewise.engine.passes import EAGER
    from treewise.engine.split_attention import ATTENTIONS

    assert (_options.DEFAULT_TARGET, _options.DEFAULT_DRAFT) == (DEFAULT_TARGET, DEFAULT_DRAFT)
    assert _options.DEFAULT_CORPUS == DEFAULT_CORPUS
    assert _options.EXACT == EXACT
    assert _options.EAGER == EAGER and _options.DEFAULT_ATTENTION in ATTENTIONS


def test_prompts_are_chosen_by_task_and_limit(prompts: Path) -> None:
    chosen = _options.prompts_from(str(prompts), ["copy"], 2)
    assert [prompt.id for prompt in chosen] == ["tiny/0", "tiny/2"]
    assert len(_options.prompts_from("own:demo")) == 9
    with pytest.raises(ValueError, match="task must be one of chat, copy, got 'poem'"):
        _options.prompts_from(str(prompts), ["poem"])
