"""The suffix lookup against a search by hand."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treewise.data.suffix import MAX_CONTINUATIONS, Continuations, SuffixIndex


def by_hand(text: list[int], path: list[int]) -> Continuations:
    """The definition, spelled out: try every suffix, longest first, at every place."""
    whole = text + path
    for length in range(len(whole), 0, -1):
        match = whole[len(whole) - length :]
        counts: dict[int, int] = {}
        latest: dict[int, int] = {}
        for start in range(len(text) - length):
            if text[start : start + length] == match:
                token = text[start + length]
                counts[token] = counts.get(token, 0) + 1
                latest[token] = start + length
        if counts:
            order = sorted(counts, key=lambda token: (-counts[token], -latest[token]))[:MAX_CONTINUATIONS]
            total = sum(counts.values())
            return Continuations(
                length,
                tuple(order),
                tuple(counts[token] for token in order),
                tuple(float(np.float32(counts[token] / total)) for token in order),
                tuple(len(text) - 1 - latest[token] for token in order),
            )
    return Continuations(0, (), (), (), ())


@pytest.mark.parametrize("letters", [2, 3, 6])
@given(data=st.data())
def test_equals_search_by_hand_at_every_length(letters: int, data: st.DataObject) -> None:
    token = st.integers(0, letters - 1)
    text = data.draw(st.lists(token, max_size=30))
    path = data.draw(st.lists(token, max_size=6))
    index = SuffixIndex()
    for end in range(len(text) + 1):
        assert index.continuations(path) == by_hand(text[:end], path)
        assert index.continuations(()) == by_hand(text[:end], [])
        index.check_integrity()
        if end < len(text):
            index.append(text[end])


@given(st.lists(st.integers(0, 2), max_size=20), st.lists(st.lists(st.integers(0, 2), max_size=5), max_size=5))
def test_asking_changes_nothing(text: list[int], paths: list[list[int]]) -> None:
    index = SuffixIndex(text)
    first = [index.continuations(path) for path in paths]
    assert [index.continuations(path) for path in reversed(paths)] == first[::-1]
    assert len(index) == len(text)


def test_a_known_case() -> None:
    index = SuffixIndex([1, 2, 3, 1, 2, 4, 1, 2, 3, 1, 2])
    assert index.continuations() == Continuations(match_length=5, tokens=(4,), counts=(1,), shares=(1.0,), ages=(5,))
    # Below the guess 3 the match is 1 2 3, followed by 1 both times.
    assert index.continuations([3]) == Continuations(3, (1,), (2,), (1.0,), (1,))
    assert index.continuations([9]) == Continuations(0, (), (), (), ())
    assert index.predict() == 4


def test_counts_sort_before_recency_and_ties_by_recency() -> None:
    index = SuffixIndex([7, 1, 7, 2, 7, 1, 7, 3, 9, 8, 7])
    found = index.continuations()
    assert found.match_length == 1
    assert found.tokens == (1, 3, 2)
    assert found.counts == (2, 1, 1)
    assert found.ages == (5, 3, 7)
    assert found.shares == (0.5, 0.25, 0.25)


def test_at_most_sixteen_come_back_with_shares_over_all() -> None:
    text = [token for follower in range(1, 21) for token in (0, follower)]
    found = SuffixIndex([*text, 0]).continuations()
    assert len(found.tokens) == MAX_CONTINUATIONS == 16
    assert found.tokens[0] == 20
    assert found.shares[0] == float(np.float32(1 / 20))


@pytest.mark.parametrize("text", [[], [5], [1, 2, 3]])
def test_nothing_is_known_without_a_repeat(text: list[int]) -> None:
    index = SuffixIndex(text)
    assert index.continuations().match_length == 0
    assert index.predict() == -1


def test_an_unfinished_repeat_falls_back_to_a_shorter_match_with_a_continuation() -> None:
    # Below the guess 2, "1 2" has occurred once, at the very end: nothing follows it. "2" alone is followed by 9.
    index = SuffixIndex([2, 9, 1, 3, 1, 2])
    assert index.continuations([9, 1, 2]) == by_hand([2, 9, 1, 3, 1, 2], [9, 1, 2])
    assert index.continuations([9, 1, 2]).match_length == 1
    assert index.continuations([9, 1, 2]).tokens == (9,)


def test_numpy_tokens_are_taken_as_numbers() -> None:
    index = SuffixIndex(np.array([4, 5, 4], dtype=np.int32))
    assert index.continuations(np.array([5], dtype=np.int64)).tokens == (4,)  # type: ignore[arg-type]


def test_five_thousand_tokens_are_quick() -> None:
    text = np.random.default_rng(0).zipf(1.3, 5000) % 2000
    started = time.process_time()
    index = SuffixIndex(text.tolist())
    assert time.process_time() - started < 2.0  # about 0.05 s; the bound only refuses a quadratic build
    assert len(index._link) <= 2 * len(text)


def test_a_copy_goes_its_own_way() -> None:
    index = SuffixIndex([1, 2, 1, 2, 3, 1])
    twin = index.copy()
    assert twin.continuations([2]) == index.continuations([2])
    twin.extend([2, 4, 1, 2])
    twin.check_integrity()
    assert twin.continuations().tokens == (4, 3, 1)
    assert len(index) == 6
    assert index.continuations([2]) == by_hand([1, 2, 1, 2, 3, 1], [2])
