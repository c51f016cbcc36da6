"""Another loop's draft as the builder's draft source: calls go out as arrays, probabilities come back as guesses."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treewise.data.errors import ParameterError, require
from treewise.policy.controller_tree import Draft, DraftCall
from treewise.policy.draft_ranking import LISTED
from treewise.policy.hook import BoolArray, DraftGuesses, Int32Array, Nodes

CERTAIN = 1.001  # rounding stays below it: of 1, and of one probability over another
_SMALLEST = np.float32(1e-30)
# Of `DraftGuesses`: the dtype kinds of numpy that each may have.
_ARRAYS = {
    "tokens": "iu",
    "probs": "iuf",
    "entropy": "iuf",
    "margin": "iuf",
    "extra_probs": "iuf",
    "extra_ranks": "iuf",
}


class DraftVocabulary:
    """Which token each column of the draft's head speaks for."""

    def __init__(self, vocab_size: int, token_ids: ArrayLike | None = None) -> None:
        ids = np.arange(vocab_size) if token_ids is None else np.asarray(token_ids)
        require(ids.size > 0, "draft_token_ids", "at least one token id", token_ids)
        given = f"{ids.dtype} of shape {list(ids.shape)}"
        require(ids.ndim == 1 and ids.dtype.kind in "iu", "draft_token_ids", "whole numbers, [columns]", given)
        strays = ids[(ids < 0) | (ids >= vocab_size)]
        require(not strays.size, "draft_token_ids", f"between 0 and {vocab_size - 1}", strays[:3].tolist())
        require(len(np.unique(ids)) == len(ids), "draft_token_ids", "distinct", token_ids)
        self.vocab_size = vocab_size
        self.token_ids: Int32Array = ids.astype(np.int32)  # [columns]
        self.column_of = np.full(vocab_size, -1, dtype=np.int64)  # token id -> column
        self.column_of[ids] = np.arange(len(ids))

    @property
    def num_columns(self) -> int:
        """Columns of the draft's head."""
        return len(self.token_ids)


class CalledDraft:
    """`DraftSource` of one request that asks the loop's callable; what a round drafted is forgotten at `settle`."""

    def __init__(
        self, vocabulary: DraftVocabulary, width: int, request: int, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.vocabulary = vocabulary
        self.width = max(width, 1)
        self.request = request
        self.draft_ms = 0.0  # of this round
        self.num_unhealthy = 0  # rows of this round whose probabilities were not finite
        self.first_guess: dict[int, int] = {}  # position -> the draft's first token below it, where it ran
        self._clock = clock
        self._draft: Draft | None = None
        self._late: tuple[int, ...] = ()  # committed tokens before the root that the draft's cache lacks
        self._position = 0  # of the root
        self._place_of: dict[int, int] = {}  # forest row -> place
        self._guess_of: dict[int, int] = {}  # forest row -> the draft's first token below it
        self._places = 0  # handed out in this round
        self._late_guesses: tuple[int, ...] = ()

    def open(self, draft: Draft, late: Sequence[int], position: int) -> None:
        """Begin a round at the root's `position`; `late` are the committed tokens that the draft's cache lacks."""
        self._draft = draft
        self._late = tuple(late)
        self._position = position
        self.drop()

    def drop(self) -> None:
        """Forget what this round drafted."""
        self._place_of.clear()
        self._guess_of.clear()
        self._late_guesses = ()
        self._places = 0
        self.draft_ms = 0.0
        self.num_unhealthy = 0

    def in_vocab(self, tokens: Int32Array) -> BoolArray:
        """Which of `tokens` [n] the draft's head can say."""
        return np.asarray(self.vocabulary.column_of[tokens] >= 0)

    @property
    def listed(self) -> int:
        """Ranks that are told apart; it stands for every later one, as in our own engine's draft heads."""
        return min(max(self.width, LISTED), self.vocabulary.num_columns)

    def grow(self, nodes: Nodes, rows: Int32Array, extra_rows: Int32Array, extra_tokens: Int32Array) -> DraftGuesses:
        """Ask the loop for forest `rows`. Raises `ParameterError` where the answer is not one."""
        assert self._draft is not None
        roots = nodes.parent[rows] < 0
        late = self._late if roots.any() else ()
        count, offset = len(late) + len(rows), len(late)
        for place, row in enumerate(rows.tolist(), start=self._places + offset):
            self._place_of[row] = place
        above = [-1 if root else self._place_of[int(nodes.parent[row])] for row, root in zip(rows, roots, strict=True)]
        call = DraftCall(
            request=self.request,
            tokens=np.concatenate([np.asarray(late, dtype=np.int32), nodes.token[rows]]).astype(np.int32),
            parents=np.asarray([-1] * offset + above, dtype=np.int32),
            positions=(self._position + np.concatenate([np.arange(-offset, 0), nodes.depth[rows]])).astype(np.int32),
            catch_up=offset,
            first_place=self._places,
            extra_rows=(extra_rows + offset).astype(np.int32),
            extra_tokens=extra_tokens.astype(np.int32),
        )
        began = self._clock()
        answer = self._draft(call)
        self.draft_ms += (self._clock() - began) * 1e3
        self._places += count
        if isinstance(answer, DraftGuesses):
            guesses = checked_guesses(answer, call, self.vocabulary.vocab_size)
        else:
            guesses = read_probabilities(answer, call, self.vocabulary, self.width)
        ranks = np.minimum(guesses.extra_ranks, np.float32(self.listed))
        guesses = replace(guesses, extra_ranks=ranks)
        self.num_unhealthy += int(np.isnan(guesses.entropy).sum())
        firsts = guesses.tokens[:, 0].tolist() if guesses.tokens.shape[1] else [-1] * len(guesses.tokens)
        if len(firsts) == count and offset:
            self._late_guesses = tuple(firsts[:offset])
            guesses = guesses_from(guesses, offset)
        for row, token in zip(rows.tolist(), firsts[len(firsts) - len(rows) :], strict=True):
            self._guess_of[row] = token
        return guesses

    def settle(self, path_rows: Sequence[int]) -> tuple[int, ...]:
        """Close the round on the committed path (forest rows, root first); places whose draft KV is kept."""
        for back, token in enumerate(reversed(self._late_guesses), start=1):
            self.first_guess[self._position - back] = token
        kept: list[int] = []
        for depth, row in enumerate(path_rows):
            if row not in self._place_of:
                break
            kept.append(self._place_of[row])
            self.first_guess[self._position + depth] = self._guess_of[row]
        late = range(kept[0] - len(self._late), kept[0]) if kept else ()
        self.drop()
        return (*late, *kept)


def read_probabilities(answer: object, call: DraftCall, vocabulary: DraftVocabulary, width: int) -> DraftGuesses:
    """Guesses of a softmax at temperature 1, [rows, columns]; equal probabilities rank by column.

    A row that is not finite has no guesses: tokens -1, probability 0, entropy and margin NaN.

    Raises:
        ParameterError: another shape, or numbers that are no probabilities.
    """
    try:
        given = np.asarray(answer, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"draft must return an array of probabilities, got {type(answer).__name__}") from error
    rows, columns = call.num_rows, vocabulary.num_columns
    shapes = [(rows, columns), (rows - call.catch_up, columns)]
    if given.shape not in shapes:
        rule = " or ".join(str(list(shape)) for shape in dict.fromkeys(shapes))
        raise ParameterError(f"draft must return probabilities of shape {rule}, got {list(given.shape)}")
    healthy = np.asarray(np.isfinite(given).all(axis=1))
    probs = np.where(healthy[:, None], given, np.float32(0.0))
    lowest, highest = float(probs.min(initial=0.0)), float(probs.max(initial=0.0))
    if lowest < 0.0 or highest > CERTAIN:
        stray = lowest if lowest < 0.0 else highest
        raise ParameterError(f"draft probabilities must be between 0 and 1 (a softmax, no logits), got {stray:g}")
    skipped = rows - len(given)
    listed = min(width, columns)
    top = _highest(probs, min(max(listed, 2), columns))
    ranked = np.take_along_axis(probs, top, axis=1)
    entropy = -(probs * np.log2(np.maximum(probs, _SMALLEST))).sum(axis=1)
    margin = ranked[:, 0] - (ranked[:, 1] if ranked.shape[1] > 1 else 0.0)
    tokens = np.where(ranked[:, :listed] > 0.0, vocabulary.token_ids[top[:, :listed]], -1)
    extra_probs = np.full(len(call.extra_rows), np.nan, dtype=np.float32)
    extra_ranks = np.full(len(call.extra_rows), np.nan, dtype=np.float32)
    below = call.extra_rows - skipped
    place = vocabulary.column_of[call.extra_tokens]
    known = (place >= 0) & healthy[below]
    for extra in np.flatnonzero(known).tolist():
        mine = probs[below[extra]]
        value, column = mine[place[extra]], place[extra]
        extra_probs[extra] = value
        # The column's place in the order of the guesses, so that no two tokens share a rank.
        extra_ranks[extra] = int((mine > value).sum()) + int((mine[:column] == value).sum())
    return DraftGuesses(
        tokens=tokens.astype(np.int32),
        probs=ranked[:, :listed],
        entropy=np.where(healthy, entropy, np.nan).astype(np.float32),
        margin=np.where(healthy, margin, np.nan).astype(np.float32),
        extra_probs=extra_probs,
        extra_ranks=extra_ranks,
    )


def _highest(probs: NDArray[np.float32], count: int) -> NDArray[np.intp]:
    """Columns of the `count` highest of each row, descending, ties by column. Returns [rows, count]."""
    columns = probs.shape[1]
    if columns <= 8 * count:
        return np.argsort(-probs, axis=1, kind="stable")[:, :count]
    found = np.empty((len(probs), count), dtype=np.intp)
    for row, mine in enumerate(probs):
        bar = np.partition(mine, columns - count)[columns - count]
        near = np.flatnonzero(mine >= bar)  # ties at the bar included, so that the lowest columns win
        found[row] = near[np.argsort(-mine[near], kind="stable")[:count]]
    return found


def checked_guesses(guesses: DraftGuesses, call: DraftCall, vocab_size: int) -> DraftGuesses:
    """`guesses`, if they answer `call`: the call's shapes, token ids of the vocabulary, probabilities in falling order.

    Raises `ParameterError` where they do not, or name one token twice below a row. Columns of token -1 stand behind the
    others; their numbers are not read.
    """
    for name, kinds in _ARRAYS.items():
        value = getattr(guesses, name)
        if not isinstance(value, np.ndarray) or (value.size and value.dtype.kind not in kinds):
            rule = "an array of whole numbers" if kinds == "iu" else "an array of numbers"
            got = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
            raise ParameterError(f"draft guesses' {name} must be {rule}, got {got}")
    shape = guesses.tokens.shape
    fits = len(shape) == 2 and shape[0] in (call.num_rows, call.num_rows - call.catch_up)
    fits = fits and np.shape(guesses.probs) == shape
    fits = fits and np.shape(guesses.entropy) == np.shape(guesses.margin) == shape[:1]
    if not fits:
        shapes = [list(np.shape(getattr(guesses, name))) for name in ("tokens", "probs", "entropy", "margin")]
        raise ParameterError(f"draft guesses must be of the call's {call.num_rows} rows, got shapes {shapes}")
    for name in ("extra_probs", "extra_ranks"):
        got = np.shape(getattr(guesses, name))
        require(got == call.extra_rows.shape, f"draft guesses' {name}", f"{len(call.extra_rows)} numbers", list(got))
    optional = [("ranks", guesses.ranks, shape)]
    for name, drawn, wanted in (
        ("drawn", guesses.drawn, shape),
        ("extra_drawn", guesses.extra_drawn, call.extra_rows.shape),
    ):
        if drawn is not None:
            optional += [(f"{name}.{item.name}", getattr(drawn, item.name), wanted) for item in fields(drawn)]
    for name, values, wanted in optional:
        if values is not None and np.shape(values) != wanted:
            rule = f"of shape {list(wanted)}"
            raise ParameterError(f"draft guesses' {name} must be {rule}, got {list(np.shape(values))}")
    strays = guesses.tokens[(guesses.tokens < -1) | (guesses.tokens >= vocab_size)]
    if strays.size:
        raise ParameterError(f"draft tokens must be between 0 and {vocab_size - 1}, or -1, got {int(strays[0])}")
    ordered = np.sort(guesses.tokens, axis=1)
    twice = ordered[:, 1:][(ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)]
    if twice.size:
        raise ParameterError(f"draft tokens must be distinct below one row, got {int(twice[0])} twice")
    probs = np.where(guesses.tokens >= 0, guesses.probs, np.float32(0.0))
    _check_range("probs", probs)
    extra_probs = np.asarray(guesses.extra_probs)
    _check_range("extra_probs", extra_probs[~np.isnan(extra_probs)])
    rises = probs[:, 1:] > probs[:, :-1] * CERTAIN + _SMALLEST
    if rises.any():  # growth stops at a row's first improbable column
        shown = probs[int(rises.any(axis=1).argmax())].tolist()
        raise ParameterError(f"draft guesses' probs must be in falling order, tokens of -1 last, got {shown}")
    return guesses


def _check_range(name: str, values: NDArray[Any]) -> None:
    """Raise `ParameterError` on values outside 0 .. 1 and on NaN."""
    strays = values[~((values >= 0.0) & (values <= CERTAIN))]
    if strays.size:
        raise ParameterError(f"draft guesses' {name} must be between 0 and 1, got {float(strays[0]):g}")


def guesses_from(guesses: DraftGuesses, start: int) -> DraftGuesses:
    """The guesses of the rows from `start` on; extras stay."""

    def cut(value: Any) -> Any:
        if value is None or isinstance(value, np.ndarray):
            return None if value is None else value[start:]
        return replace(value, **{item.name: cut(getattr(value, item.name)) for item in fields(value)})

    names = [item.name for item in fields(guesses) if not item.name.startswith("extra_")]
    return replace(guesses, **{name: cut(getattr(guesses, name)) for name in names})
