"""Streaming: stable pieces, and engines that take the next request after any interruption."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.disk_pairs import write_tokenizer
from tests.engine.tiny import end_token, example_cost, lax_settings
from treewise.engine.decode import Engine
from treewise.engine.pair import Pair, encode_prompt, load_tokenizer
from treewise.engine.sampling import Sampling
from treewise.policy.hook import Expansion, Level
from treewise.policy.registry import parse_policy
from treewise.policy.topn import TopNPolicy, TopNSettings
from treewise.stream import StableText, TextStream

TEXTS = ("plain words, and more", "naïve café — “quotes”", "日本語のテキスト", "🙂👩‍👩‍👧 done", "a\n\n  b\tc")


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_pieces_are_the_text_and_no_half_character_is_shown(tmp_path: Path, text: str, size: int) -> None:
    write_tokenizer(tmp_path)
    tokenizer = load_tokenizer(str(tmp_path), name="bytes")
    ids = [*tokenizer(text, add_special_tokens=False)["input_ids"], 1]  # an end of text is no text
    stable = StableText(tokenizer)
    pieces = [stable.add(ids[start : start + size]) for start in range(0, len(ids), size)]
    assert not any("�" in piece for piece in pieces)
    assert "".join(pieces) == text
    assert stable.finish() == ""


def test_a_text_that_ends_in_half_a_character_is_told_at_the_end(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    tokenizer = load_tokenizer(str(tmp_path), name="bytes")
    ids = tokenizer("ok é", add_special_tokens=False)["input_ids"][:-1]
    stable = StableText(tokenizer)
    assert "".join(stable.add([token]) for token in ids) == "ok "
    assert stable.finish() == "�"
    assert stable.finish() == ""


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_pieces_are_the_answer_of_generate(pair: Pair, temperature: float) -> None:
    sampling = Sampling(temperature, seed=4)
    prompt = encode_prompt(pair, "red green red green")
    expected = _engine(pair).generate(prompt, 24, sampling)
    stream = TextStream(_engine(pair), prompt, 24, sampling)
    assert stream.finish == ""
    assert "".join(stream) == pair.tokenizer.decode(list(expected.tokens), skip_special_tokens=True)
    assert tuple(stream.tokens) == expected.tokens
    assert (stream.rounds, stream.nodes) == (expected.num_rounds, sum(expected.verified_nodes))
    assert stream.finish == expected.finish
    assert stream.tokens_per_round == expected.tokens_per_round
    assert stream.nodes_per_round == expected.nodes_per_round
    assert stream.tokens_per_second > 0
    assert 0 < stream.policy_share < 1


def test_an_end_of_text_is_not_shown(pair: Pair) -> None:
    prompt = encode_prompt(pair, "red green red green")
    whole = _engine(pair).generate(prompt, 24).tokens
    with end_token(pair, whole[7]):
        stream = TextStream(_engine(pair), prompt, 24)
        shown = "".join(stream)
    assert stream.finish == "eos"
    assert shown == pair.tokenizer.decode(stream.tokens, skip_special_tokens=True)


@pytest.mark.parametrize("spec", ["frontier", "chain:3", "plain"])
def test_an_abandoned_stream_leaves_the_engine_as_new(pair: Pair, spec: str) -> None:
    prompt, other = encode_prompt(pair, "red green red green"), encode_prompt(pair, "blue 1 blue 2")
    expected = [_engine(pair, spec).generate(ids, 20) for ids in (prompt, other)]
    engine = _engine(pair, spec)
    for taken in (1, 2, 5):
        stream = TextStream(engine, prompt, 20)
        pieces = iter(stream)
        while stream.rounds < taken:
            next(pieces)
        for ids, answer in zip((prompt, other), expected, strict=True):  # while the stream still hangs there
            assert _same(engine.generate(ids, 20), answer)
        pieces.close()  # type: ignore[attr-defined]
        assert _same(engine.generate(prompt, 20), expected[0])
    never = TextStream(engine, prompt, 20)
    assert never.tokens == []
    assert _same(engine.generate(other, 20), expected[1])


def test_a_stopped_stream_ends_between_rounds(pair: Pair) -> None:
    prompt = encode_prompt(pair, "red green red green")
    engine = _engine(pair)
    whole = engine.generate(prompt, 20)
    stream = TextStream(engine, prompt, 20)
    for _ in stream:
        if stream.rounds == 3:
            stream.stop()
    assert stream.finish == "stopped"
    assert 3 <= stream.rounds < whole.num_rounds
    assert tuple(stream.tokens) == whole.tokens[: len(stream.tokens)]
    assert _same(engine.generate(prompt, 20), whole)


class Interrupted(TopNPolicy):
    """Someone presses Ctrl-C while it decides in the third round."""

    presses = 3

    def expand(self, level: Level) -> Expansion:
        if level.index == 0:
            self.presses -= 1
            if self.presses == 0:
                raise KeyboardInterrupt
        return super().expand(level)


def test_an_interrupt_inside_a_round_leaves_the_engine_as_new(pair: Pair) -> None:
    prompt = encode_prompt(pair, "red green red green")
    expected = _engine(pair, "topn:8x3").generate(prompt, 20)
    engine = Engine(pair, Interrupted(TopNSettings(8, 3)), example_cost(), lax_settings())
    stream = TextStream(engine, prompt, 20)
    with pytest.raises(KeyboardInterrupt):
        list(stream)
    assert stream.rounds == 2
    assert stream.finish == ""
    assert tuple(stream.tokens) == expected.tokens[: len(stream.tokens)]
    assert _same(engine.generate(prompt, 20), expected)


def _engine(pair: Pair, spec: str = "frontier") -> Engine:
    return Engine(pair, parse_policy(spec), example_cost(), lax_settings())


def _same(here: object, there: object) -> bool:
    names = ("tokens", "finish", "accepted_lengths", "verified_nodes", "growths", "fallbacks", "suspensions")
    return all(getattr(here, name) == getattr(there, name) for name in names)
