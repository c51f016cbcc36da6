"""Recycled guesses against a slow reference, and the corpus file against everything that can be wrong with it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treewise.data import recycled
from treewise.data.recycled import (
    MAX_RECYCLED,
    ORDERS,
    OWN_ORDERS,
    OWN_WEIGHT,
    Recycled,
    RecycledCorpus,
    RecycledIndex,
    pack,
)

VOCAB = 7
Said = tuple[list[int], list[float]]  # what the target ranks high
Steps = list[tuple[int, Said | None]]  # a token that is appended, and what is then remembered
Entries = dict[tuple[int, ...], tuple[int, dict[int, Fraction]]]

TOKENS = st.integers(0, VOCAB - 1)
PATHS = st.lists(TOKENS, max_size=4)
# Eighths are exact in every floating type, so the reference may compute with fractions.
SAID = st.dictionaries(TOKENS, st.integers(0, 8), max_size=4).map(
    lambda found: (list(found), [share / 8 for share in found.values()])
)
STEPS: st.SearchStrategy[Steps] = st.lists(st.tuples(TOKENS, st.none() | SAID), max_size=14)


@st.composite
def corpora(draw: st.DrawFn) -> tuple[RecycledCorpus, Entries]:
    """A small corpus, and the same as a table by context."""
    keys = draw(st.lists(st.lists(TOKENS, min_size=1, max_size=ORDERS).map(tuple), unique=True, max_size=12))
    entries: Entries = {}
    for key in keys:
        tokens, probs = draw(SAID)
        entries[key] = draw(st.integers(1, 9)), dict(zip(tokens, map(Fraction, probs), strict=True))
    return corpus_of(entries), entries


def corpus_of(entries: Entries) -> RecycledCorpus:
    """The corpus of a table by context."""
    stored = {
        pack(key): (count, list(probs), [float(prob) for prob in probs.values()])
        for key, (count, probs) in entries.items()
    }
    return RecycledCorpus.build(stored, VOCAB, "0" * 64, {"command": "by hand"})


def index_of(corpus: RecycledCorpus | None, steps: Iterable[tuple[int, Said | None]]) -> RecycledIndex:
    """An index after `steps`, none of them interrupted by a question."""
    index = RecycledIndex(corpus)
    for token, said in steps:
        index.append(token)
        if said is not None:
            index.remember(*said)
    return index


def by_hand(entries: Entries, steps: Steps, path: Sequence[int]) -> tuple[int, Fraction, dict[int, Fraction]]:
    """Order, weight and blended probabilities by the definition, in fractions."""
    text = [token for token, _ in steps]
    context = [*text, *path][-ORDERS:]
    blended: dict[int, Fraction] = {}
    longest, weight = 0, Fraction(0)
    for order in range(1, len(context) + 1):
        key = tuple(context[-order:])
        count, frozen = entries.get(key, (0, {}))
        own = [
            said
            for end, (_, said) in enumerate(steps, start=1)
            if said is not None and order <= OWN_ORDERS and end >= order and tuple(text[end - order : end]) == key
        ]
        total = count + Fraction(OWN_WEIGHT) * len(own)
        if not total:
            continue
        here = {token: prob * count / total for token, prob in frozen.items()}
        for tokens, probs in own:
            for token, prob in zip(tokens, probs, strict=True):
                here[token] = here.get(token, Fraction(0)) + Fraction(prob) * Fraction(OWN_WEIGHT) / total
        stays = 1 / (total + 1) if blended else Fraction(0)
        blended = {
            token: blended.get(token, Fraction(0)) * stays + here.get(token, Fraction(0)) * (1 - stays)
            for token in blended.keys() | here.keys()
        }
        longest, weight = order, total
    return (longest, weight, blended) if blended else (0, Fraction(0), {})


@given(corpora(), STEPS, PATHS)
def test_equals_the_definition(made: tuple[RecycledCorpus, Entries], steps: Steps, path: list[int]) -> None:
    corpus, entries = made
    answer = index_of(corpus, steps).recycled(path)
    order, weight, expected = by_hand(entries, steps, path)
    assert (answer.order, answer.weight) == (order, float(weight))
    assert set(answer.tokens) == set(expected)  # the vocabulary is smaller than `MAX_RECYCLED`
    assert answer.probs == pytest.approx([float(expected[token]) for token in answer.tokens], abs=1e-7)
    assert list(answer.probs) == sorted(answer.probs, reverse=True)
    assert all(prob == float(np.float32(prob)) for prob in answer.probs)


@given(st.lists(st.integers(0, 40), min_size=20, max_size=30, unique=True), st.data())
def test_the_best_are_kept_and_ties_go_to_low_ids(tokens: list[int], data: st.DataObject) -> None:
    probs = [data.draw(st.integers(0, 5)) / 8 for _ in tokens]
    index = RecycledIndex(None, [1])
    index.remember(tokens, probs)
    best = sorted(zip(tokens, probs, strict=True), key=lambda item: (-item[1], item[0]))[:MAX_RECYCLED]
    answer = index.recycled()
    assert list(zip(answer.tokens, answer.probs, strict=True)) == best


@given(corpora(), STEPS, st.lists(PATHS, max_size=4))
def test_asking_in_between_changes_nothing(
    made: tuple[RecycledCorpus, Entries], steps: Steps, paths: list[list[int]]
) -> None:
    corpus, entries = made
    asked = RecycledIndex(corpus)
    for end, (token, said) in enumerate(steps, start=1):
        asked.append(token)
        before = [asked.recycled(path) for path in paths]
        assert before == [asked.recycled(path) for path in paths]
        if said is not None:
            asked.remember(*said)
        fresh = index_of(corpus_of(entries), steps[:end])  # a corpus that nobody asked yet
        assert [asked.recycled(path) for path in paths] == [fresh.recycled(path) for path in paths]


@given(corpora(), STEPS, STEPS, STEPS, PATHS)
def test_copies_are_independent(
    made: tuple[RecycledCorpus, Entries], common: Steps, here: Steps, there: Steps, path: list[int]
) -> None:
    corpus, _ = made
    first = index_of(corpus, common)
    first.recycled(path)
    second = first.copy()
    for mine, yours in itertools.zip_longest(here, there):
        for index, step in ((first, mine), (second, yours)):
            if step is not None:
                index.append(step[0])
                index.recycled(path)
                if step[1] is not None:
                    index.remember(*step[1])
    for index, steps in ((first, [*common, *here]), (second, [*common, *there])):
        for asked in (path, [], path[:1], path[:2]):
            assert index.recycled(asked) == index_of(corpus, steps).recycled(asked)


def test_a_full_cache_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    contexts = [tuple(rng.integers(0, VOCAB, size=size).tolist()) for size in (1, 2, 3) for _ in range(20)]
    entries: Entries = {key: (2, {sum(key) % VOCAB: Fraction(1, 2), key[0]: Fraction(1, 4)}) for key in contexts}
    paths = [tuple(rng.integers(0, VOCAB, size=3).tolist()) for _ in range(200)]
    expected = [RecycledIndex(corpus_of(entries)).recycled(path) for path in paths]
    monkeypatch.setattr(recycled, "CACHED_CONTEXTS", 3)
    index = RecycledIndex(corpus_of(entries))
    assert [index.recycled(path) for path in paths] == expected
    assert len({answer.order for answer in expected}) > 1


def test_nothing_is_known_of_nothing() -> None:
    nothing = Recycled(0, 0.0, (), ())
    index = RecycledIndex()
    index.remember([1], [0.5])  # behind no context at all
    assert index.recycled() == index.recycled([3]) == nothing
    assert RecycledIndex(corpus_of({}), [1, 2, 3]).recycled() == nothing
    assert corpus_of({(1,): (4, {2: Fraction(1)})}).entry(pack((2,))) is None


def test_contexts_of_different_lengths_have_different_numbers() -> None:
    top = recycled.MAX_VOCABULARY - 2
    contexts = [key for size in (1, 2, 3) for key in itertools.product((0, 1, top), repeat=size)]
    packed = [pack(key) for key in contexts]
    assert len(set(packed)) == len(packed)
    assert min(packed) > 0 and max(packed) < 1 << 63
    assert packed == sorted(packed)  # longer ones are higher, as the files keep them
