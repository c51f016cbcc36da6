"""The suffix lookup: what followed the longest earlier occurrence of the text's end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

MAX_CONTINUATIONS = 16
_ROOT = 0
_NONE = -1


@dataclass(frozen=True, slots=True)
class Continuations:
    """What the lookup knows below one node, most frequent first (ties: most recent first)."""

    match_length: int  # tokens of context matched, path included; 0 where nothing is known
    tokens: Sequence[int]
    counts: Sequence[int]
    shares: Sequence[float]  # count over all continuations of the match, float32-rounded
    ages: Sequence[int]  # tokens since the latest occurrence


_NOTHING = Continuations(0, (), (), (), ())


class SuffixIndex:
    """An online suffix automaton over one text, prompt and committed tokens, with exact occurrence counts.

    A state stands for all substrings that end at the same positions; its *count* is how many those are, its *latest*
    the last of them. Both are kept exact on every `append`, which walks the suffix links of the new prefix: their
    number is the count of nested repeats, small for text and linear at worst (one token repeated).

    The automaton: A. Blumer and others, "The smallest automaton recognizing the subwords of a text", 1985.
    """

    def __init__(self, tokens: Iterable[int] = ()) -> None:
        self._edges: list[dict[int, int]] = [{}]
        self._link: list[int] = [_NONE]
        self._longest: list[int] = [0]
        self._count: list[int] = [0]
        self._latest: list[int] = [_NONE]
        self._last = _ROOT
        self._num_tokens = 0
        self._places: dict[tuple[int, ...], tuple[int, int]] = {}
        self.extend(tokens)

    def __len__(self) -> int:
        """Tokens of text."""
        return self._num_tokens

    def extend(self, tokens: Iterable[int]) -> None:
        """Append `tokens` in order."""
        for token in tokens:
            self.append(token)

    def append(self, token: int) -> None:
        """Make `token` the text's new end. What was asked of the old text is forgotten."""
        token = int(token)
        end = self._num_tokens
        self._num_tokens += 1
        self._places.clear()
        state = self._new_state(self._longest[self._last] + 1, {})
        before = self._last
        while before != _NONE and token not in self._edges[before]:
            self._edges[before][token] = state
            before = self._link[before]
        self._link[state] = _ROOT if before == _NONE else self._state_for(before, token)
        self._last = state
        # Every suffix of the text occurs once more, here.
        while state != _ROOT:
            self._count[state] += 1
            self._latest[state] = end
            state = self._link[state]

    def continuations(self, path: Sequence[int] = ()) -> Continuations:
        """What followed the longest suffix of text + `path` that occurs earlier in the text with a token behind it.

        `path` holds guessed tokens behind the text, itself not part of it. At most `MAX_CONTINUATIONS` come back;
        shares count all. Does not change the text.
        """
        state, length = self._place(tuple(int(token) for token in path))
        edges = self._edges[state]
        if length == 0 or not edges:
            return _NOTHING
        # Behind a match, a token's state ends exactly where match + token does, so it counts those occurrences.
        found = sorted(
            ((self._count[target], self._latest[target], token) for token, target in edges.items()), reverse=True
        )
        total = sum(count for count, _, _ in found)
        found = found[:MAX_CONTINUATIONS]
        newest = self._num_tokens - 1
        return Continuations(
            match_length=length,
            tokens=tuple(token for _, _, token in found),
            counts=tuple(count for count, _, _ in found),
            shares=tuple(float(np.float32(count / total)) for count, _, _ in found),
            ages=tuple(newest - latest for _, latest, _ in found),
        )

    def copy(self) -> SuffixIndex:
        """An independent index of the same text."""
        twin = SuffixIndex()
        twin._edges = [dict(edges) for edges in self._edges]
        twin._link = list(self._link)
        twin._longest = list(self._longest)
        twin._count = list(self._count)
        twin._latest = list(self._latest)
        twin._last = self._last
        twin._num_tokens = self._num_tokens
        return twin

    def predict(self) -> int:
        """The first continuation of the text, -1 where there is none."""
        tokens = self.continuations().tokens
        return tokens[0] if tokens else -1

    def check_integrity(self) -> None:
        """Assert what always holds: links lead to shorter states, counts add up, the text's own state is whole."""
        assert self._longest[self._last] == self._num_tokens
        for state in range(1, len(self._link)):
            link = self._link[state]
            assert self._longest[link] < self._longest[state]
            assert link == _ROOT or self._count[link] >= self._count[state] >= 1
            assert link == _ROOT or self._latest[link] >= self._latest[state]
        assert sum(self._count[target] for target in self._edges[_ROOT].values()) == self._num_tokens

    def _place(self, path: tuple[int, ...]) -> tuple[int, int]:
        """State and length of the match behind text + `path`; the state has edges, or the length is 0."""
        known = self._places.get(path)
        if known is not None:
            return known
        if path:
            state, length = self._place(path[:-1])
            state, length = self._step(state, length, path[-1])
        else:
            # The whole text has not occurred before; its longest suffix that has is one link up.
            state = max(self._link[self._last], _ROOT)
            length = self._longest[state]
        while state != _ROOT and not self._edges[state]:
            state = self._link[state]
            length = self._longest[state]
        self._places[path] = (state, length)
        return state, length

    def _step(self, state: int, length: int, token: int) -> tuple[int, int]:
        """Match one token more: the longest suffix of the match that `token` follows, and that token."""
        while state != _ROOT and token not in self._edges[state]:
            state = self._link[state]
            length = self._longest[state]
        target = self._edges[state].get(token)
        return (_ROOT, 0) if target is None else (target, length + 1)

    def _state_for(self, before: int, token: int) -> int:
        """The state of exactly (longest of `before`) + `token`, split off its class where that is longer."""
        target = self._edges[before][token]
        if self._longest[target] == self._longest[before] + 1:
            return target
        split = self._new_state(self._longest[before] + 1, dict(self._edges[target]))
        self._link[split] = self._link[target]
        self._count[split] = self._count[target]
        self._latest[split] = self._latest[target]
        self._link[target] = split
        state = before
        while state != _NONE and self._edges[state].get(token) == target:
            self._edges[state][token] = split
            state = self._link[state]
        return split

    def _new_state(self, longest: int, edges: dict[int, int]) -> int:
        self._edges.append(edges)
        self._link.append(_NONE)
        self._longest.append(longest)
        self._count.append(0)
        self._latest.append(_NONE)
        return len(self._link) - 1
