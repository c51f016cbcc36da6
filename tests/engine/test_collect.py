"""Collections: resumable, the same text however they are made, and told apart by their conditions."""

from __future__ import annotations

import multiprocessing
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.data.test_trace_claims import hold
from tests.engine.tiny import NARROW, VOCAB, example_cost, lax_settings, plain_text, tiny_pair
from treewise.data.envelope import PriorTable
from treewise.data.errors import ParameterError, PromptError, TraceError
from treewise.data.prompt_set import Prompt
from treewise.data.trace_reader import TraceReader
from treewise.data.trace_writer import TraceWriter
from treewise.engine import collect
from treewise.engine.collect import (
    CollectSettings,
    build_manifest,
    collect_dense,
    collect_live,
    collect_whole,
    known_device,
    prompt_seed,
    texts,
)
from treewise.engine.pair import Pair
from treewise.engine.sampling import Sampling

PROMPTS = tuple(Prompt(f"p{number}", "chat", text) for number, text in enumerate(("dcdcdc", "ghi", "tuvt")))
SETTINGS = CollectSettings(max_new_tokens=8, batch_rows=2)


@pytest.fixture(autouse=True)
def letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny pairs have no tokenizer: a letter is a token."""
    monkeypatch.setattr(collect, "encode_prompt", encode)


def encode(pair: Pair, text: str) -> list[int]:
    return [(ord(letter) - ord("a")) % VOCAB for letter in text]


def texts_in(folder: Path) -> dict[str, list[int]]:
    rounds = TraceReader(folder).read_all().rounds
    found: dict[str, list[int]] = {}
    for row in range(len(rounds)):
        found.setdefault(str(rounds.prompt_id[row]), []).extend(rounds.committed_of(row).tolist())
    return found


def sampling_of(settings: CollectSettings, prompt: Prompt) -> Sampling:
    seed = prompt_seed(settings.seed, prompt.id) if settings.temperature else 0
    return Sampling(settings.temperature, settings.top_k, settings.top_p, seed, settings.min_p, settings.typical_p)


@pytest.mark.parametrize(
    "settings", [SETTINGS, replace(SETTINGS, temperature=0.9, top_k=8, min_p=0.02, typical_p=0.9, seed=4)]
)
def test_live_and_dense_collections_hold_the_plain_text(settings: CollectSettings, tmp_path: Path) -> None:
    pair = tiny_pair("pruned", seed=2)
    told: list[tuple[str, int]] = []
    done = collect_live(
        pair,
        "topn:8x2",
        example_cost(),
        PROMPTS,
        tmp_path / "live",
        settings,
        lax_settings(),
        lambda *told_of: told.append(told_of),
    )
    assert done == 0
    assert told == [(prompt.id, 8) for prompt in PROMPTS]
    collect_dense(pair, PROMPTS, tmp_path / "dense", NARROW, PriorTable(), settings)
    expected = {
        prompt.id: list(plain_text(pair, encode(pair, prompt.text), 8, sampling_of(settings, prompt)))
        for prompt in PROMPTS
    }
    assert texts_in(tmp_path / "live") == texts_in(tmp_path / "dense") == expected
    live, dense = TraceReader(tmp_path / "live").manifest, TraceReader(tmp_path / "dense").manifest
    assert (live.kind, live.policy, live.envelope) == ("live", "topn:8x2", NARROW)
    assert (dense.kind, dense.policy, dense.envelope) == ("dense", None, NARROW.widened())
    assert live.temperature == dense.temperature == settings.temperature
    assert live.input_hashes["prompts"] == dense.input_hashes["prompts"] and live.pair == pair.description.to_json()


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_texts_end_at_the_targets_context(temperature: float, tmp_path: Path) -> None:
    pair = tiny_pair("pruned", seed=2, context=24)
    settings = CollectSettings(max_new_tokens=60, temperature=temperature)
    collect_live(pair, "topn:8x2", example_cost(), PROMPTS, tmp_path / "live", settings, lax_settings())
    collect_dense(pair, PROMPTS, tmp_path / "dense", NARROW, PriorTable(), settings)
    assert texts_in(tmp_path / "live") == texts_in(tmp_path / "dense")
    first = [TraceReader(tmp_path / kind).read_all().rounds for kind in ("live", "dense")]
    rooms = [dict(zip(rounds.prompt_id[::-1], rounds.remaining_tokens[::-1], strict=True)) for rounds in first]
    assert rooms[0] == rooms[1] == {prompt.id: 24 - len(prompt.text) for prompt in PROMPTS}
    with pytest.raises(PromptError, match=r"prompt.* must be shorter than the target's context of 24 tokens, got 24"):
        list(texts(pair, [Prompt("long", "chat", "d" * 24)], settings))


def test_a_collection_goes_on_where_it_stopped(tmp_path: Path) -> None:
    pair = tiny_pair("pruned", seed=2)

    def stop(prompt_id: str, tokens: int) -> None:
        raise KeyboardInterrupt

    small = replace(SETTINGS, shard_rounds=1)
    with pytest.raises(KeyboardInterrupt):
        collect_live(pair, "chain:3", example_cost(), PROMPTS, tmp_path, small, lax_settings(), stop)
    assert set(texts_in(tmp_path)) == {"p0"}
    assert collect_live(pair, "chain:3", example_cost(), PROMPTS, tmp_path, small, lax_settings()) == 1
    assert collect_live(pair, "chain:3", example_cost(), PROMPTS, tmp_path, small, lax_settings()) == 3
    assert set(texts_in(tmp_path)) == {"p0", "p1", "p2"}
    with pytest.raises(TraceError):
        collect_live(pair, "chain:4", example_cost(), PROMPTS, tmp_path, small, lax_settings())


@pytest.mark.skipif(sys.platform == "win32", reason="needs file locks")
def test_a_trace_that_is_needed_whole_waits_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = tiny_pair("pruned", seed=2)
    wide = NARROW.widened()
    TraceWriter(tmp_path, build_manifest(pair, PROMPTS, wide, PriorTable(), SETTINGS, None), 1).close()
    spawning = multiprocessing.get_context("spawn")
    mine, theirs = spawning.Pipe()
    other = spawning.Process(target=hold, args=(tmp_path, ["p1"], theirs))
    other.start()
    found: list[list[str]] = []

    def looked(seconds: float) -> None:
        found.append(sorted(texts_in(tmp_path)))
        other.kill()  # what it had taken stays undone
        other.join(60.0)

    monkeypatch.setattr(time, "sleep", looked)
    try:
        assert mine.recv() == [True]
        collect_whole(pair, PROMPTS, tmp_path, NARROW, PriorTable(), SETTINGS)
    finally:
        other.kill()
        other.join()
    assert found == [["p0", "p2"]]
    assert sorted(texts_in(tmp_path)) == ["p0", "p1", "p2"]


def test_known_texts_carry_their_conditions() -> None:
    pair = tiny_pair("none", seed=2)
    settings = replace(SETTINGS, temperature=1.0, seed=7)
    found = list(texts(pair, PROMPTS, settings))
    assert [text.prompt_id for text in found] == ["p0", "p1", "p2"]
    assert [text.seed for text in found] == [prompt_seed(7, f"p{number}") for number in range(3)]
    assert {(text.finish, text.max_new_tokens, text.temperature) for text in found} == {("length", 8, 1.0)}
    assert len({prompt_seed(run, "p0") for run in range(50)}) == 50
    assert all(0 <= prompt_seed(run, "p0") < 2**63 for run in range(50))


def test_settings_out_of_range_and_device_words() -> None:
    with pytest.raises(ParameterError, match="max_new_tokens must be >= 1, got 0"):
        CollectSettings(max_new_tokens=0)
    with pytest.raises(ParameterError, match="batch_rows must be >= 1, got 0"):
        CollectSettings(batch_rows=0)
    assert "thread" in known_device(tiny_pair("none").target.device)
