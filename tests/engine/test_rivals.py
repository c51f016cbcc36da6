"""Decoding by transformers: the same text whatever the way, every pass counted, nothing left behind."""

from __future__ import annotations

import copy
import logging

import pytest

from tests.engine.tiny import DRAFTS, Draft, end_token, plain_text, tiny_pair
from treewise.data.errors import ParameterError
from treewise.engine.quiet import no_warnings_of_itself
from treewise.engine.rivals import LOOKUP_TOKENS, Rival, RivalDecoder
from treewise.engine.sampling import Sampling

PROMPT = (1, 2, 3, 1, 2, 3, 1, 2)
WAYS = (
    Rival("generate"),
    Rival("assisted"),
    Rival("assisted", 3),
    Rival("assisted", 3, 0.0),
    Rival("lookup"),
    Rival("lookup", 3),
)


@pytest.mark.parametrize("kind", DRAFTS)
def test_every_way_gives_the_greedy_text(kind: Draft) -> None:
    pair = tiny_pair(kind)
    decoder = RivalDecoder(pair)
    expected = plain_text(pair, PROMPT, 20, Sampling())
    for rival in WAYS:
        if rival.way == "assisted" and kind == "none":
            continue
        answer = decoder.decode(rival, PROMPT, 20)
        assert answer.tokens == expected, rival
        assert answer.seconds > 0
        assert answer.passes == 20 if rival.way == "generate" else 1 <= answer.passes <= 20
    if kind == "same":  # the draft is the target: three guesses and one more token a pass
        assert decoder.decode(Rival("assisted", 3, 0.0), PROMPT, 20).passes == 5


def test_an_end_of_text_ends_every_way() -> None:
    pair = tiny_pair("same")
    end = plain_text(pair, PROMPT, 20, Sampling())[6]
    with end_token(pair, end):
        expected = plain_text(pair, PROMPT, 20, Sampling())
        assert expected[-1] == end
        assert len(expected) < 20
        for rival in WAYS:
            assert RivalDecoder(pair).decode(rival, PROMPT, 20).tokens == expected, rival


def test_the_targets_stored_defaults_do_not_apply_and_stay() -> None:
    pair = tiny_pair("same")
    before = pair.target.generation_config
    penal = copy.deepcopy(before)
    assert penal is not None
    penal.repetition_penalty = 5.0
    pair.target.generation_config = penal
    try:
        answer = RivalDecoder(pair).decode(Rival("generate"), PROMPT, 12)
        assert pair.target.generation_config is penal
    finally:
        pair.target.generation_config = before
    assert answer.tokens == plain_text(pair, PROMPT, 12, Sampling())
    assert not pair.target._forward_hooks


def test_texts_stop_at_the_targets_context() -> None:
    pair = tiny_pair("pruned", context=16)
    decoder = RivalDecoder(pair)
    for rival in WAYS:
        assert len(decoder.decode(rival, PROMPT, 50).tokens) == 8
    with pytest.raises(ParameterError, match="prompt must be shorter than 16 tokens, got 16"):
        decoder.decode(Rival("generate"), [1] * 16, 4)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ParameterError, match="rival must not be assisted where the pair has no draft"):
        RivalDecoder(tiny_pair("none")).decode(Rival("assisted"), PROMPT, 4)
    with pytest.raises(ParameterError, match="tokens must be >= 0"):
        Rival("lookup", -1)
    with pytest.raises(ParameterError, match="way must be generate, assisted or lookup, got 'magic'"):
        Rival("magic")  # type: ignore[arg-type]


def test_settings_read_like_specs() -> None:
    assert [rival.spec for rival in WAYS] == [
        "generate",
        "assisted",
        "assisted:3",
        "assisted:3,threshold=0",
        "lookup",
        "lookup:3",
    ]
    assert LOOKUP_TOKENS == 10


def test_only_the_warning_about_itself_is_silenced() -> None:
    logger = logging.getLogger("transformers.generation.utils")
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage().split()[0])  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        with no_warnings_of_itself():
            logger.warning("Passing `generation_config` together with generation-related arguments=({'use_cache'}) is")
            logger.warning("Something else")
        logger.warning("Passing `generation_config` together with generation-related arguments=() once more")
    finally:
        logger.removeHandler(handler)
    assert heard == ["Something", "Passing"]
