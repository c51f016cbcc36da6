"""`treewise collect`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.house.layout import ROOT
from tests.treewise.test_traces_command import fits, run
from tests.treewise.tiny import DRAFT, leave
from treewise import cli
from treewise.cli.collect import collect
from treewise.data.errors import LossyWarning
from treewise.data.trace_reader import TraceReader
from treewise.engine.collect import CollectSettings

SCHEMA = json.loads((ROOT / "treewise" / "schemas" / "collect.json").read_text(encoding="utf-8"))


def arguments(tiny: Path, prompts: Path, out: Path, *more: str) -> list[str]:
    pair = ("--target", str(tiny), "--draft", DRAFT, "--threads", "1", "--max-new-tokens", "6")
    return ["collect", "--prompts", str(prompts), "-o", str(out), *pair, *more]


@pytest.mark.parametrize(
    ("kind", "more"),
    [("dense", ()), ("live", ("--policy", "entropy", "--cost", "example-a100-70b"))],
)
def test_a_collection_goes_on_where_it_stopped(
    kind: str,
    more: tuple[str, ...],
    tiny: Path,
    prompts: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "trace"
    asked = arguments(tiny, prompts, out, "--kind", kind, "--shard-rounds", "1", "--limit", "3", "--json", *more)
    written: list[str] = []

    def stop(prompt_id: str) -> None:
        written.append(prompt_id)
        if len(written) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("treewise.cli.collect.progress", _told(stop))
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            cli.main(asked)
    capsys.readouterr()
    first = json.loads(run(asked, capsys))
    assert fits(first, SCHEMA)
    assert not fits({**first, "kind": "dead"}, SCHEMA)
    assert (first["already_there"], first["collected"], first["prompts"]) == (2, 1, 3)
    again = json.loads(run(asked, capsys))
    assert (again["already_there"], again["collected"], again["tokens"]) == (3, 0, 0)
    reader = TraceReader(out)
    assert reader.manifest.kind == kind
    assert sorted(set(reader.read_all().rounds.prompt_id.tolist())) == ["tiny/0", "tiny/1", "tiny/2"]


def _told(stop: Callable[[str], None]) -> object:
    """A stand-in for the progress bar that hands each finished prompt to `stop`."""

    @contextmanager
    def bar(title: str, total: int | None = None) -> Iterator[Callable[[str], None]]:
        yield stop

    return bar


def test_tasks_tokens_and_words(tiny: Path, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = run(arguments(tiny, prompts, tmp_path / "t", "--task", "copy", "--no-tokens"), capsys)
    assert "5 collected, 0 already there" in printed
    shard = TraceReader(tmp_path / "t").read_all()
    assert set(shard.rounds.task.tolist()) == {"copy"}
    assert (shard.nodes.token == -1).all()


@pytest.mark.parametrize("more", [("--kind", "live"), ("--kind", "dense", "--policy", "entropy")])
def test_a_policy_goes_with_live_traces(
    more: tuple[str, ...], tiny: Path, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert leave(arguments(tiny, prompts, tmp_path / "t", *more)) == 2
    assert "policy must be given with --kind live and only there" in capsys.readouterr().err


def test_exploring_is_logged_and_shown(
    tiny: Path, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "t"
    live = ("--kind", "live", "--policy", "topn:4x2", "--cost", "example-a100-70b", "--seed", "3")
    explored = ("--explore", "0.5", "--explore-policy", "plain", "--json")
    printed = json.loads(run(arguments(tiny, prompts, out, *live, *explored), capsys))
    assert fits(printed, SCHEMA) and printed["explore"] == 0.5
    rounds = TraceReader(out).read_all().rounds
    assert set(zip(rounds.explorer.tolist(), rounds.propensity.tolist(), strict=True)) == {("", 0.5), ("plain", 0.5)}
    requests = len(set(rounds.prompt_id[rounds.explorer == "plain"].tolist()))
    assert f"{requests} of them explored" in run(["traces", "summary", str(out)], capsys)
    assert leave(arguments(tiny, prompts, tmp_path / "d", "--explore", "0.5")) == 2
    assert "explore must go with --kind live, got dense" in capsys.readouterr().err
    assert leave(arguments(tiny, prompts, tmp_path / "d", *live, "--explore-policy", "plain")) == 2
    assert "explore must be above 0 where --explore-policy names a policy, got 0.0" in capsys.readouterr().err


def test_warpers_and_a_lossy_rule_are_in_the_manifest(
    tiny: Path, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    warped = ("--temperature", "0.8", "--min-p", "0.05", "--typical-p", "0.9", "--limit", "1")
    live = ("--kind", "live", "--policy", "topn:4x2", "--cost", "example-a100-70b")
    with pytest.warns(LossyWarning):
        run(arguments(tiny, prompts, tmp_path / "t", *live, *warped, "--verification", "threshold"), capsys)
    manifest = TraceReader(tmp_path / "t").manifest
    assert (manifest.min_p, manifest.typical_p, manifest.verification) == (0.05, 0.9, "threshold:0.45")
    assert leave(arguments(tiny, prompts, tmp_path / "d", "--verification", "threshold:0.3")) == 2
    assert "verification must be exact with --kind dense, got 'threshold:0.3'" in capsys.readouterr().err
    assert leave(arguments(tiny, prompts, tmp_path / "d", *live, "--verification", "typical")) == 2
    assert "verification must be exact, relaxed-top-n:N or threshold:P, got 'typical'" in capsys.readouterr().err


def test_other_conditions_are_refused(
    tiny: Path, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(arguments(tiny, prompts, tmp_path / "t", "--limit", "1"), capsys)
    assert leave(arguments(tiny, prompts, tmp_path / "t", "--limit", "1", "--max-new-tokens", "7")) == 2
    assert "max_new_tokens 6 != 7" in capsys.readouterr().err


def test_the_defaults_are_the_settings() -> None:
    defaults = {name: value.default for name, value in inspect.signature(collect).parameters.items()}
    settings = CollectSettings()
    same = (
        "max_new_tokens",
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "typical_p",
        "seed",
        "batch_rows",
        "shard_rounds",
    )
    for name in same:
        assert defaults[name] == getattr(settings, name)
    assert defaults["tokens"] == settings.tokens_included
