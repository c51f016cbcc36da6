"""`treewise corpus`, and the pairs that its corpora go with."""

from __future__ import annotations

import contextlib
import inspect
import json
import shutil
from pathlib import Path

import pytest
import torch

from tests.engine.disk_pairs import write_model
from tests.house.layout import ROOT
from tests.treewise.test_distill_command import arguments, prompts, target
from tests.treewise.test_traces_command import fits, run
from treewise import cli
from treewise.cli.corpus import corpus
from treewise.data.recycled import RecycledCorpus
from treewise.engine import teacher
from treewise.engine.answer_mark import MARK_NAME
from treewise.engine.pair import load_pair
from treewise.engine.recycled_corpus import MIN_OCCURRENCES

SCHEMA = json.loads((ROOT / "treewise" / "schemas" / "corpus.json").read_text(encoding="utf-8"))
__all__ = ["prompts", "target"]  # fixtures


@pytest.fixture(scope="module")
def kept(target: Path, prompts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Answers as `treewise distill` leaves them."""
    folder = tmp_path_factory.mktemp("distilled")
    with contextlib.suppress(SystemExit):  # as Typer leaves
        cli.main(arguments(target, prompts, folder, "--epochs", "1"))
    return folder / "kept" / "answers"


def asked(target: Path, prompts: Path, kept: Path, out: Path, *more: str) -> list[str]:
    where = ("--target", str(target), "--prompts", str(prompts), "--answers", str(kept), "-o", str(out))
    return ["corpus", *where, "--threads", "1", *more]


def test_a_corpus_comes_out_and_goes_with_its_target(
    target: Path, prompts: Path, kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(run(asked(target, prompts, kept, tmp_path, "--json"), capsys))
    assert fits(found, SCHEMA)
    assert not fits({**found, "contexts": "many"}, SCHEMA)
    stored = RecycledCorpus.load(tmp_path)
    assert (found["sha256"], found["contexts"]) == (stored.sha256, len(stored))
    assert found["bytes"] == Path(found["out"]).stat().st_size
    assert found["provenance"]["answers"] == 12  # two of each of six prompts
    pair = load_pair(str(target), "none", corpus=str(tmp_path))
    assert pair.recycled is not None and pair.recycled.sha256 == stored.sha256


def test_words_and_progress(
    target: Path, prompts: Path, kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.suppress(SystemExit):
        cli.main(asked(target, prompts, kept, tmp_path))
    printed = capsys.readouterr()
    assert "contexts" in printed.out and "12, " in printed.out
    assert "the target reads its answers" in printed.err


def test_another_model_s_answers_folder_is_refused_in_one_line(
    target: Path, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(asked(target, prompts, tmp_path / "nothing", tmp_path)) == 2
    assert "answers must be a folder with answers to these 6 prompts" in capsys.readouterr().err


def test_decoding_with_another_vocabulary_s_corpus_is_refused(
    target: Path, prompts: Path, kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(asked(target, prompts, kept, tmp_path / "corpus"), capsys)
    other = write_model(tmp_path / "other", seed=6, vocab_size=264)
    models = ["--target", str(other), "--draft", "none", "--corpus", str(tmp_path / "corpus")]
    assert cli.main(["decode", "--policy", "plain", "--prompt", "hi", *models]) == 2
    assert "must have the vocab_size 264" in capsys.readouterr().err


def test_defaults_are_those_of_the_engine() -> None:
    assert inspect.signature(corpus).parameters["min_occurrences"].default == MIN_OCCURRENCES


def test_states_of_a_folder_that_nobody_marked_are_not_trusted(
    target: Path, prompts: Path, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []

    def none_kept(folder: Path) -> dict[tuple[int, ...], torch.Tensor]:
        read.append(folder)
        return {}

    monkeypatch.setattr(teacher, "kept_states", none_kept)
    bare = tmp_path / "bare"
    shutil.copytree(kept, bare)
    (bare / MARK_NAME).unlink()
    for folder in (bare, kept):
        with contextlib.suppress(SystemExit):
            cli.main(asked(target, prompts, folder, tmp_path / folder.name, "--json"))
    assert read == [kept]
    assert RecycledCorpus.load(tmp_path / "bare").sha256 == RecycledCorpus.load(tmp_path / kept.name).sha256
