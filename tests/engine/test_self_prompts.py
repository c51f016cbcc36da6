"""Prompts that a target writes: what is kept, that a stopped run goes on, and that a seed decides the text."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.engine.disk_pairs import write_model
from treewise.data.errors import ParameterError, PromptError
from treewise.data.own_prompts.openers import OPENERS
from treewise.data.prompt_set import read_prompts
from treewise.engine import self_prompts
from treewise.engine.batch_decode import DecodeRow
from treewise.engine.pair import Pair, load_pair
from treewise.engine.self_prompts import (
    TRIES_A_PROMPT,
    SelfPromptSettings,
    fault_of,
    likeness,
    opened_turn,
    openings,
    write_self_prompts,
)

SETTINGS = SelfPromptSettings(max_new_tokens=40, batch_rows=9)
ENDINGS = (
    " the {n} small boats in the harbour?",
    " the {n} tall trees of our street",
    " it",
    " {n} " + "again and " * 9,
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = write_model(tmp_path_factory.mktemp("target"), seed=2, num_layers=2)
    return load_pair(str(folder), "none", corpus="none")


@pytest.fixture
def spoken(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> list[list[DecodeRow]]:
    """Lets the target end most turns with a phrase that the row's seed decides; the batches it was given."""
    batches: list[list[DecodeRow]] = []

    def decode(
        model: object, rows: Sequence[DecodeRow], *, max_new_tokens: int, eos_ids: Sequence[int]
    ) -> list[list[int]]:
        batches.append(list(rows))
        answers = []
        for row in rows:
            draw = np.random.default_rng(list(row.seed))
            text = ENDINGS[draw.integers(len(ENDINGS))].format(n=draw.integers(1000))
            ends = [] if draw.random() < 0.2 else [eos_ids[0]]
            answers.append([*pair.tokenizer(text, add_special_tokens=False)["input_ids"], *ends])
        return answers

    monkeypatch.setattr(self_prompts, "decode_batch", decode)
    return batches


def test_what_is_kept_is_a_prompt_file_with_its_provenance(
    pair: Pair, spoken: list[list[DecodeRow]], tmp_path: Path
) -> None:
    out = tmp_path / "made" / "prompts.jsonl"
    seen: list[tuple[int, int]] = []
    made = write_self_prompts(pair, out, 20, SETTINGS, report=lambda kept, tried: seen.append((kept, tried)))
    assert [prompt.text for prompt in read_prompts(out)] == [entry.prompt for entry in made.prompts]
    assert len(made.prompts) == 20 and sum(made.by_task.values()) == 20
    assert seen[-1] == (20, made.tried) and made.tried == 9 * len(spoken)
    assert set(made.dropped) >= {"endless", "repeats"}
    first = json.loads(out.read_text(encoding="utf-8").splitlines()[0])
    assert first["prompt"].startswith(first["opener"]) and first["opener"] in OPENERS[first["task"]]
    assert first["target_sha256"] == pair.description.target_sha256
    assert (first["temperature"], first["seed"], first["split"]) == (0.7, 0, "self")
    assert all(fault_of(entry.prompt) == "" for entry in made.prompts)


@pytest.mark.usefixtures("spoken")
def test_a_seed_decides_and_a_shorter_file_is_continued(pair: Pair, tmp_path: Path) -> None:
    whole, parts, other = (tmp_path / name for name in ("whole", "parts", "other"))
    write_self_prompts(pair, whole, 30, SETTINGS)
    write_self_prompts(pair, parts, 11, SETTINGS)
    assert whole.read_text().startswith(parts.read_text())
    # Another size of batches: only how often the file is written.
    write_self_prompts(pair, parts, 30, replace(SETTINGS, batch_rows=5))
    assert parts.read_text() == whole.read_text()
    write_self_prompts(pair, other, 30, replace(SETTINGS, seed=1))
    assert other.read_text() != whole.read_text()


def test_a_full_file_is_left_alone(pair: Pair, spoken: list[list[DecodeRow]], tmp_path: Path) -> None:
    out = tmp_path / "prompts.jsonl"
    write_self_prompts(pair, out, 8, SETTINGS)
    before = len(spoken)
    assert write_self_prompts(pair, out, 5, SETTINGS).tried == 0
    assert len(spoken) == before and len(read_prompts(out)) == 8


@pytest.mark.usefixtures("spoken")
def test_nothing_like_a_known_text_is_kept(pair: Pair, tmp_path: Path) -> None:
    made = write_self_prompts(pair, tmp_path / "a", 12, SETTINGS).prompts
    shouted = [entry.prompt.upper() + "!" for entry in made]
    again = write_self_prompts(pair, tmp_path / "b", 12, SETTINGS, without=shouted)
    assert not {likeness(text) for text in shouted} & {likeness(entry.prompt) for entry in again.prompts}
    assert again.dropped["known"] == 12


@pytest.mark.usefixtures("spoken")
def test_a_file_of_another_kind_is_refused(pair: Pair, tmp_path: Path) -> None:
    out = tmp_path / "prompts.jsonl"
    write_self_prompts(pair, out, 3, SETTINGS)
    with pytest.raises(PromptError, match=r"prompts\.jsonl:1: settings and target must be \(0\.7, 40, 3, '"):
        write_self_prompts(pair, out, 5, replace(SETTINGS, seed=3))
    out.write_text('{"id": "a", "task": "chat", "prompt": "b"}\n')
    with pytest.raises(PromptError, match="line must be a prompt of this command"):
        write_self_prompts(pair, out, 5, SETTINGS)
    out.write_bytes(b'{"id": "\xff')
    with pytest.raises(PromptError, match="text must be UTF-8, got byte"):
        write_self_prompts(pair, out, 5, SETTINGS)
    with pytest.raises(ParameterError, match="out must be a file"):
        write_self_prompts(pair, tmp_path, 5, SETTINGS)


def test_a_target_that_says_rubbish_is_given_up(pair: Pair, tmp_path: Path) -> None:
    # Random weights over bytes: no turn is a prompt, and every run of them says the same.
    settings = replace(SETTINGS, max_new_tokens=4, batch_rows=20)
    one, two = (write_self_prompts(pair, tmp_path / name, 1, settings) for name in "ab")
    assert one.tried == TRIES_A_PROMPT and len(one.prompts) <= 1
    assert sum(one.dropped.values()) >= one.tried - 1
    assert one == two


def test_a_file_that_holds_nothing_yet_is_continued(pair: Pair, spoken: list[list[DecodeRow]], tmp_path: Path) -> None:
    (tmp_path / "left.jsonl").touch()  # by a run that was stopped before it kept a prompt
    left, fresh = (write_self_prompts(pair, tmp_path / f"{name}.jsonl", 3, SETTINGS) for name in ("left", "fresh"))
    assert left == fresh and len(left.prompts) == 3 and spoken


def test_a_turn_stays_open_behind_its_first_words(pair: Pair) -> None:
    assert pair.tokenizer.decode(opened_turn(pair, "How do I")) == "<|start|>How do I"


def test_tasks_and_their_openers_take_turns() -> None:
    drawn = list(itertools.islice(openings(0), 9 * 40))
    assert [task for task, _ in drawn[:9]] == list(OPENERS)
    chat = [opener for task, opener in drawn if task == "chat"]
    assert sorted(chat[: len(OPENERS["chat"])]) == sorted(OPENERS["chat"])
    assert drawn == list(itertools.islice(openings(0), 9 * 40))
    assert drawn != list(itertools.islice(openings(1), 9 * 40))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Why is the sky blue?", ""),
        ("Pourquoi la mer est-elle salée, et où ?", ""),
        ("Why not?", "short"),
        ("Translate this sentence into English: 今天的天气非常好我们去公园散步吧", "script"),
        ("Is this a whole \ufffd sentence or not", "script"),
        ("one two three four one two three four one two three four", "repeats"),
        ("a b c d e a c b e d b a d c e d e a b c b d", "repeats"),
    ],
)
def test_faults(text: str, fault: str) -> None:
    assert fault_of(text) == fault


@pytest.mark.parametrize("bad", [{"temperature": 0.0}, {"max_new_tokens": 0}, {"batch_rows": 0}, {"seed": -1}])
def test_settings_are_checked(bad: dict[str, float]) -> None:
    with pytest.raises(ParameterError, match=f"{next(iter(bad))} must be "):
        SelfPromptSettings(**bad)  # type: ignore[arg-type]
