"""What the controller makes of a loop's draft: calls, guesses, and answers that are none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.policy.controlled import DRAFT_MODEL, PROMPTS, TARGET, controller_of
from tests.policy.loops import VOCAB, CheckedDraft, Loop, greedy, plain_text
from treewise.data.errors import ParameterError
from treewise.policy.controller import DraftCall
from treewise.policy.controller_draft import CalledDraft, DraftVocabulary, checked_guesses
from treewise.policy.draft_ranking import LISTED
from treewise.policy.everything import EverythingPolicy
from treewise.policy.forest import Forest
from treewise.policy.hook import DRAFT, LOOKUP, DraftGuesses, Drawn, Expansion, Level


class EveryThird(EverythingPolicy):
    """Drafts in every third round alone, so that the draft's cache has to catch up."""

    rounds = 0

    def expand(self, level: Level) -> Expansion:
        self.rounds += level.index == 0
        answer = super().expand(level)
        grow = answer.grow if self.rounds % 3 == 0 else answer.grow & np.uint8(0xFF & ~DRAFT)
        return Expansion(answer.admit, grow.astype(np.uint8))


def test_the_draft_catches_up_in_the_same_call() -> None:
    controller = controller_of(EveryThird())
    loop = Loop(controller, greedy(TARGET), DRAFT_MODEL)
    loop.begin(PROMPTS[0], 40)
    late = []
    draft = loop.drafts[0]

    def watched(call: DraftCall) -> Any:
        late.append(call.catch_up)
        return draft(call)

    while 0 not in loop.finishes:
        draft.rows.clear()
        tree = controller.propose(0, watched)
        loop.accept(0, tree, loop.verify(0, tree))
    assert max(late) >= 2
    assert loop.completion(0, PROMPTS[0]) == plain_text(PROMPTS[0], greedy(TARGET), 40)


def test_guesses_and_probabilities_give_the_same_trees() -> None:
    """A draft that ranks on its own device answers `DraftGuesses`; the controller ranks a softmax alike."""
    probabilities, guesses = controller_of("topn:12x3"), controller_of("topn:12x3")
    for controller in (probabilities, guesses):
        controller.begin(PROMPTS[0], 30)
    texts = list(PROMPTS[0])
    by_probability, by_guess = CheckedDraft(DRAFT_MODEL, texts.copy()), CheckedDraft(DRAFT_MODEL, texts.copy())

    def ranked(call: DraftCall) -> DraftGuesses:
        probs = by_guess(call)
        order = np.argsort(-probs, axis=1, kind="stable")
        ranks = np.argsort(order, axis=1)[call.extra_rows, call.extra_tokens]
        top = np.take_along_axis(probs, order, axis=1)
        return DraftGuesses(
            tokens=order[:, :4].astype(np.int32),
            probs=top[:, :4],
            entropy=-(probs * np.log2(probs)).sum(axis=1),
            margin=top[:, 0] - top[:, 1],
            extra_probs=probs[call.extra_rows, call.extra_tokens],
            extra_ranks=ranks.astype(np.float32),
        )

    finish = ""
    while not finish:
        first, second = probabilities.propose(0, by_probability), guesses.propose(0, ranked)
        assert first.tokens.tolist() == second.tokens.tolist()
        assert first.parents.tolist() == second.parents.tolist()
        chosen = [greedy(TARGET)(by_probability.text)] * first.num_rows
        steps = [controller.accept(0, chosen) for controller in (probabilities, guesses)]
        by_probability.commit(steps[0])
        by_guess.commit(steps[1])
        finish = steps[0].finish
        assert finish == steps[1].finish


def call_of(num_rows: int, extra_tokens: list[int]) -> DraftCall:
    rows = np.arange(num_rows, dtype=np.int32)
    below = np.zeros(len(extra_tokens), dtype=np.int32)
    return DraftCall(0, rows, rows - 1, rows, 0, 0, below, np.asarray(extra_tokens, dtype=np.int32))


@pytest.mark.parametrize(("width", "listed"), [(3, LISTED), (40, 40), (90, 50)])
@pytest.mark.parametrize("as_guesses", [False, True])
def test_late_ranks_read_alike_as_in_the_engines_own_draft_heads(width: int, listed: int, as_guesses: bool) -> None:
    probs = np.linspace(2.0, 0.0, 50, dtype=np.float32)[None] / 50.0
    extras = [0, 20, 31, 32, 39, 40, 49]

    def draft(call: DraftCall) -> Any:
        if not as_guesses:
            return probs
        exact = call.extra_tokens.astype(np.float32)
        flat, tokens = np.zeros(1, dtype=np.float32), np.arange(50, dtype=np.int32)[None]
        return DraftGuesses(tokens, probs, flat, flat, probs[0, call.extra_tokens], exact)

    source = CalledDraft(DraftVocabulary(50), width, 0)
    source.open(draft, (), 7)
    forest = Forest()
    forest.append(1)
    forest.column("parent")[:] = -1
    zeros = np.zeros(len(extras), dtype=np.int32)
    found = source.grow(forest.view(), np.zeros(1, dtype=np.int32), zeros, np.asarray(extras, dtype=np.int32))
    assert found.extra_ranks.tolist() == [min(rank, listed) for rank in extras]


def drawn_of(*shape: int) -> Drawn:
    return Drawn(*(np.zeros(shape, dtype=np.float32) for _ in range(3)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"probs": [[2.5, 0.1, 0.0]]}, "draft guesses' probs must be between 0 and 1, got 2.5"),
        ({"probs": [[0.5, -0.1, 0.0]]}, "draft guesses' probs must be between 0 and 1, got -0.1"),
        ({"probs": [[0.5, np.nan, 0.0]]}, "draft guesses' probs must be between 0 and 1, got nan"),
        ({"probs": [[0.1, 0.5, 0.0]]}, r"draft guesses' probs must be in falling order, .* got \[0.1"),
        ({"tokens": [[3, -1, 1]], "probs": [[0.5, 0.4, 0.1]]}, "must be in falling order, tokens of -1 last"),
        ({"extra_probs": [np.nan, 1.5]}, "draft guesses' extra_probs must be between 0 and 1, got 1.5"),
        ({"ranks": [[0.0, 1.0]]}, r"draft guesses' ranks must be of shape \[1, 3\], got \[1, 2\]"),
        ({"drawn": drawn_of(1, 2)}, r"draft guesses' drawn.probs must be of shape \[1, 3\], got \[1, 2\]"),
        ({"extra_drawn": drawn_of(3)}, r"draft guesses' extra_drawn.probs must be of shape \[2\], got \[3\]"),
    ],
)
def test_guesses_that_are_none_are_named(changes: dict[str, Any], message: str) -> None:
    good = DraftGuesses(
        tokens=np.asarray([[3, 2, -1]], dtype=np.int32),
        probs=np.asarray([[0.5, 0.5001, 9.0]], dtype=np.float32),  # rounding is no disorder, and -1 no token
        entropy=np.zeros(1, dtype=np.float32),
        margin=np.zeros(1, dtype=np.float32),
        extra_probs=np.asarray([np.nan, 0.1], dtype=np.float32),
        extra_ranks=np.asarray([np.nan, 4.0], dtype=np.float32),
        ranks=np.zeros((1, 3), dtype=np.float32),
        drawn=drawn_of(1, 3),
        extra_drawn=drawn_of(2),
    )
    call = call_of(1, [7, 8])
    assert checked_guesses(good, call, VOCAB) is good
    arrays: dict[str, Any] = {
        name: np.asarray(value) if isinstance(value, list) else value for name, value in changes.items()
    }
    with pytest.raises(ParameterError, match=message):
        checked_guesses(replace(good, **arrays), call, VOCAB)


def test_a_reduced_draft_head_speaks_for_the_tokens_it_names() -> None:
    ids = tuple(range(VOCAB - 1, 3, -1))  # backwards, and without the last four
    controller = controller_of("topn:12x3", draft_token_ids=ids)
    inner = CheckedDraft(DRAFT_MODEL, PROMPTS[0].copy())
    controller.begin(PROMPTS[0], 20)
    while True:
        tree = controller.propose(0, lambda call: inner(call)[:, list(ids)])
        paths = [inner.text]
        for row in range(1, tree.num_rows):
            paths.append([*paths[tree.parents[row]], int(tree.tokens[row])])
        step = controller.accept(0, [greedy(TARGET)(path) for path in paths])
        inner.commit(step)
        if step.finish:
            break
    assert inner.text[len(PROMPTS[0]) :] == plain_text(PROMPTS[0], greedy(TARGET), 20)
    assert controller.counters.accepted_tokens > 0


def answers(kind: str, call: DraftCall) -> Any:
    probs = np.full((call.num_rows, VOCAB), 1.0 / VOCAB, dtype=np.float32)
    if kind == "logits":
        return probs - 3.0
    if kind == "large":
        return probs * VOCAB * 2
    if kind == "shape":
        return probs[:, :-1]
    if kind == "text":
        return "probabilities"
    if kind == "raises":
        raise RuntimeError("out of memory")
    tokens = np.zeros((call.num_rows, 2), dtype=np.int32)
    flat = np.zeros(call.num_rows, dtype=np.float32)
    extras = np.zeros(len(call.extra_rows), dtype=np.float32)
    if kind == "stray":
        tokens += VOCAB
    if kind == "extras":
        extras = np.zeros(99, dtype=np.float32)
    if kind == "rows":
        tokens = tokens[:0]
    return DraftGuesses(tokens, tokens.astype(np.float32), flat, flat, extras, extras)


BAD_DRAFTS = [
    ("logits", "draft probabilities must be between 0 and 1 .a softmax, no logits., got -2.9"),
    ("large", "draft probabilities must be between 0 and 1"),
    ("shape", rf"draft must return probabilities of shape \[1, {VOCAB}\], got \[1, {VOCAB - 1}\]"),
    ("text", "draft must return an array of probabilities, got str"),
    ("stray", f"draft tokens must be between 0 and {VOCAB - 1}, or -1, got {VOCAB}"),
    ("extras", "draft guesses' extra_probs must be 1 numbers, got .99."),
    ("rows", "draft guesses must be of the call's 1 rows, got shapes"),
]


@pytest.mark.parametrize(("kind", "message"), [*BAD_DRAFTS, ("raises", "out of memory")])
def test_a_bad_draft_is_named_and_the_request_stands(kind: str, message: str) -> None:
    controller = controller_of("topn:12x3,sources=draft" if kind != "extras" else EverythingPolicy())
    loop = Loop(controller, greedy(TARGET), DRAFT_MODEL)
    loop.begin([3, 7, 1, 3, 7, 1, 3], 25)
    if kind == "extras":  # the first growth comes before the lookup's candidates; make them the second question
        message = r"draft guesses' extra_\w+ must be \d+ numbers, got \[99\]"
    for _ in range(2):
        with pytest.raises((ParameterError, RuntimeError), match=message):
            controller.propose(0, lambda call: answers(kind, call))
    loop.run()
    assert loop.completion(0, [3, 7, 1, 3, 7, 1, 3]) == plain_text([3, 7, 1, 3, 7, 1, 3], greedy(TARGET), 25)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_rows_that_are_not_finite_have_no_guesses(value: float) -> None:
    controller = controller_of("topn:12x3,sources=draft")
    controller.begin(PROMPTS[0], 10)

    def half_broken(call: DraftCall) -> Any:
        probs = np.full((call.num_rows, VOCAB), 1.0 / VOCAB, dtype=np.float32)
        probs[::2, 3] = value  # the root and every second row
        return probs

    assert controller.propose(0, half_broken).num_nodes == 0
    controller.accept(0, [1])
    assert controller.counters.unhealthy_rows == 1
    assert controller.counters.failures == 0


def test_a_draft_is_asked_for_exactly_where_there_is_one() -> None:
    with_draft, without = controller_of(), controller_of(sources=LOOKUP)
    for controller in (with_draft, without):
        controller.begin([1, 2], 4)
    with pytest.raises(ParameterError, match="draft must be a callable where sources hold DRAFT, got None"):
        with_draft.propose(0)
    with pytest.raises(ParameterError, match="draft must be None where sources lack DRAFT"):
        without.propose(0, lambda call: np.zeros((1, VOCAB)))
    without.propose(0)
    with pytest.raises(ParameterError, match="propose must be called once before accept or withdraw"):
        without.propose(0)
