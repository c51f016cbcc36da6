"""Seeds: a request's text belongs to its prompt and seed alone, whatever is decoded before or beside it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.driving import PROMPT, engine_of, policy_of, samplings
from tests.engine.tiny import RandomPolicy, plain_text, tiny_pair
from treewise.engine.sampling import Sampling

OTHER = [9, 2, 9, 2, 9]


@pytest.mark.parametrize("spec", ["plain", "entropy", "topn:12x3", "random", "everything"])
@settings(max_examples=4)
@given(sampling=samplings(), turns=st.lists(st.booleans(), min_size=4, max_size=40))
def test_a_seed_gives_one_text_alone_and_beside_others(spec: str, sampling: Sampling, turns: list[bool]) -> None:
    pair = tiny_pair("pruned", seed=3)
    expected = plain_text(pair, PROMPT, 24, sampling)
    engine, neighbour = engine_of(pair, policy_of(spec, 1)), engine_of(pair, RandomPolicy(2))
    assert engine.generate(PROMPT, 24, sampling).tokens == expected
    engine.generate(OTHER, 9, Sampling(1.2, seed=77))
    # Two engines of one pair take turns, round by round.
    mine = engine.rounds(PROMPT, 24, sampling)
    theirs = neighbour.rounds(OTHER, 24, Sampling(0.7, seed=5))
    text: list[int] = []
    for turn in turns:
        if turn:
            next(theirs, None)
        else:
            record = next(mine, None)
            text.extend(record.committed if record else ())
    text.extend(token for record in mine for token in record.committed)
    assert tuple(text) == expected
    assert engine.generate(PROMPT, 24, sampling).tokens == expected


def test_other_seeds_give_other_texts_and_temperature_0_has_none() -> None:
    engine = engine_of(tiny_pair("same"), "topn:12x3")
    texts = {engine.generate(PROMPT, 12, Sampling(1.5, seed=seed)).tokens for seed in range(20)}
    assert len(texts) == 20
    assert len({engine.generate(PROMPT, 12, Sampling(0.0, seed=seed)).tokens for seed in range(5)}) == 1


def test_the_same_prompt_takes_the_same_rounds() -> None:
    engine = engine_of(tiny_pair("other"), "entropy")
    sampling = Sampling(1.0, seed=9)
    first = engine.generate(PROMPT, 30, sampling)
    engine.generate(PROMPT[:3], 5)
    again = engine.generate(PROMPT, 30, sampling)
    assert (first.tokens, first.accepted_lengths, first.verified_nodes) == (
        again.tokens,
        again.accepted_lengths,
        again.verified_nodes,
    )
    assert (first.growths, first.policy_calls) == (again.growths, again.policy_calls)
