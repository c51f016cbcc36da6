"""Texts that are there already become dense traces where replay on them is exact, and are refused where it is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.data.traces import same
from tests.engine.tiny import NARROW, VOCAB, end_token, example_cost, lax_settings, tiny_pair
from treewise.data.envelope import PriorTable
from treewise.data.errors import PromptError
from treewise.data.trace_reader import TraceReader
from treewise.engine.collect import CollectSettings
from treewise.engine.decode import Engine
from treewise.engine.dense import KnownText, grow_dense
from treewise.engine.known_texts import (
    TextRecord,
    check_texts,
    collect_texts,
    known_texts,
    own_share,
    read_texts,
)
from treewise.engine.pair import Pair
from treewise.engine.sampling import Sampling
from treewise.policy.plain import PlainPolicy

PROMPT = (3, 7, 1, 9, 3, 7)
LIMIT = 12
GREEDY = CollectSettings(max_new_tokens=LIMIT)


def answer(pair: Pair, sampling: Sampling | None = None) -> tuple[int, ...]:
    engine = Engine(pair, PlainPolicy(), example_cost(), lax_settings())
    return engine.generate(PROMPT, LIMIT, sampling).tokens


def texts_of(pair: Pair, completion: tuple[int, ...], settings: CollectSettings = GREEDY) -> tuple[KnownText, ...]:
    return known_texts(pair, [TextRecord("p", "chat", PROMPT, completion)], settings)


def test_a_given_text_makes_the_trace_that_decoding_makes(tmp_path: Path) -> None:
    pair = tiny_pair("pruned", seed=2)
    (text,) = texts_of(pair, answer(pair))
    own = check_texts(pair, [text], GREEDY)
    assert own is not None and (own.said, own.tokens) == (LIMIT, LIMIT)
    assert collect_texts(pair, [text], tmp_path, NARROW, PriorTable(), GREEDY, own) == 0
    reader = TraceReader(tmp_path)
    shard = reader.read_all()
    rounds, nodes = grow_dense(
        pair, KnownText("p", "chat", PROMPT, answer(pair), LIMIT, "length"), NARROW.widened(), PriorTable()
    )
    assert same(shard.nodes, nodes)
    assert same(shard.rounds, rounds)
    assert reader.manifest.kind == "dense"
    assert reader.manifest.input_hashes["own_share"] == f"{LIMIT}/{LIMIT}"
    assert collect_texts(pair, [text], tmp_path, NARROW, PriorTable(), GREEDY, own) == 1


def test_another_models_text_is_refused_unless_it_is_asked_for() -> None:
    pair, other = tiny_pair("none", seed=2), tiny_pair("none", seed=5)
    texts = texts_of(pair, answer(other))
    found = own_share(pair, texts)
    assert found.share < 0.9
    with pytest.raises(PromptError, match=r"completions must be what the target says, in at least 98.0% .*foreign"):
        check_texts(pair, texts, GREEDY)
    assert check_texts(pair, texts, GREEDY, min_own_share=0.0) == found


def test_one_wrong_token_is_counted_once() -> None:
    pair = tiny_pair("none", seed=2)
    said = answer(pair)
    wrong = (*said[:-1], (said[-1] + 1) % VOCAB)
    found = own_share(pair, texts_of(pair, wrong))
    assert (found.said, found.tokens) == (LIMIT - 1, LIMIT)


def test_noise_that_nobody_knows_allows_plain_ranking_alone(tmp_path: Path) -> None:
    pair = tiny_pair("same", seed=2)
    sampling = Sampling(0.8, seed=11)
    warm = CollectSettings(max_new_tokens=LIMIT, temperature=0.8)
    texts = texts_of(pair, answer(pair, sampling), warm)
    assert texts[0].seed is None
    with pytest.raises(PromptError, match=r"ranking must be plain above temperature 0 .*got both and no seed for 'p'"):
        check_texts(pair, texts, warm)
    plain = CollectSettings(max_new_tokens=LIMIT, temperature=0.8, ranking="plain")
    assert check_texts(pair, texts, plain) is None
    collect_texts(pair, texts, tmp_path / "plain", NARROW, PriorTable(), plain)
    assert TraceReader(tmp_path / "plain").manifest.ranking == "plain"
    seeded = known_texts(pair, [TextRecord("p", "chat", PROMPT, texts[0].completion, 11)], warm)
    assert check_texts(pair, seeded, warm) is None
    collect_texts(pair, seeded, tmp_path / "both", NARROW, PriorTable(), warm)
    assert set(TraceReader(tmp_path / "both").read_all().rounds.seed.tolist()) == {11}
    without = texts_of(tiny_pair("none", seed=2), texts[0].completion, warm)
    assert check_texts(tiny_pair("none", seed=2), without, warm) is None  # the lookup knows no noise


def test_a_text_is_cut_where_the_engine_would_have_stopped() -> None:
    pair = tiny_pair("none", seed=2)
    said = answer(pair)
    place = said.index(said[4])
    with end_token(pair, said[4]):
        (text,) = texts_of(pair, said)
    assert (text.completion, text.finish) == (said[: place + 1], "eos")
    (text,) = texts_of(pair, (*said, *said))
    assert (len(text.completion), text.finish) == (LIMIT, "length")


@pytest.mark.parametrize(
    ("prompt", "completion", "message"),
    [
        (PROMPT, (VOCAB,), f"text 'p' must hold token ids below {VOCAB}, got {VOCAB}"),
        ((-1,), (1,), "must hold token ids below"),
        (tuple([1] * 64), (1,), "prompt 'p' must be shorter than the target's context of 64 tokens, got 64"),
    ],
)
def test_ids_and_lengths_are_checked(prompt: tuple[int, ...], completion: tuple[int, ...], message: str) -> None:
    with pytest.raises(PromptError, match=message):
        known_texts(tiny_pair("none"), [TextRecord("p", "chat", prompt, completion)], GREEDY)


GOOD: dict[str, Any] = {"id": "a", "prompt": "hi", "completion": "ho"}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", ":1: line must be a JSON object"),
        ("[]", ":1: line must be a JSON object"),
        ("[" * 100_000, ":1: line must be a JSON object"),
        (json.dumps({**GOOD, "id": 3}), ":1: id must be a non-empty string, got 3"),
        (json.dumps({**GOOD, "task": ""}), ":1: task must be a non-empty string"),
        (json.dumps({**GOOD, "prompt": ""}), ":1: prompt must be a non-empty string"),
        (json.dumps({**GOOD, "prompt": "\ud800"}), ":1: prompt must be encodable as UTF-8"),
        (json.dumps({**GOOD, "prompt_ids": [1]}), ":1: line must hold either prompt or prompt_ids"),
        (json.dumps({"id": "a", "prompt": "hi"}), ":1: line must hold either completion or completion_ids"),
        (json.dumps({"id": "a", "prompt": "hi", "completion_ids": [True]}), ":1: completion_ids must be a list of"),
        (json.dumps({**GOOD, "seed": -1}), ":1: seed must be a whole number between 0 and"),
        (json.dumps({**GOOD, "answer": "x"}), ":1: line must hold no fields but .*, got 'answer'"),
        (json.dumps(GOOD) + "\n" + json.dumps(GOOD), ":2: id must be unique, got 'a' again"),
    ],
)
def test_a_bad_line_is_named(lines: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text(lines, encoding="utf-8")
    with pytest.raises(PromptError, match=message):
        read_texts(path)


def test_lines_come_back_as_records(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    ids = {"id": "b", "task": "chat", "prompt_ids": [1, 2], "completion_ids": [3], "seed": 7}
    path.write_text(json.dumps(GOOD) + "\n" + json.dumps(ids) + "\n", encoding="utf-8")
    assert read_texts(path) == (TextRecord("a", "text", "hi", "ho"), TextRecord("b", "chat", (1, 2), (3,), 7))
    with pytest.raises(PromptError, match="texts must be an existing file"):
        read_texts(tmp_path / "none.jsonl")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(PromptError, match="text must be UTF-8"):
        read_texts(path)
