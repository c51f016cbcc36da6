"""The draft's growths: guesses, catching up, commits."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.engine.tiny import VOCAB, next_logits, tiny_model, tiny_pair
from treewise.engine.draft_model import DraftModel
from treewise.engine.live_draft import LiveDraft
from treewise.policy.forest import Forest
from treewise.policy.hook import Int32Array, Nodes

TEXT = [3, 8, 1, 12]
NONE = np.zeros(0, dtype=np.int32)


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())


def nodes_of(*rows: tuple[int, int, int]) -> Nodes:
    """A forest of (parent, depth, token)."""
    forest = Forest(8)
    forest.append(len(rows))
    for place, name in enumerate(("parent", "depth", "token")):
        forest.column(name)[:] = [row[place] for row in rows]
    return forest.view()


def ints(*values: int) -> Int32Array:
    return np.asarray(values, dtype=np.int32)


def draft_of(kind: str) -> DraftModel:
    pair = tiny_pair("same" if kind == "same" else "cut", seed=3)
    assert pair.draft is not None
    return pair.draft


@pytest.mark.parametrize("kind", ["same", "cut"])
@pytest.mark.parametrize("prefill", [True, False])
def test_guesses_are_the_softmax_below_each_row(kind: str, prefill: bool) -> None:
    draft = draft_of(kind)
    live = LiveDraft(draft, VOCAB, 4)
    live.begin(TEXT, 64, prefill)
    assert live.seen_tokens == (3 if prefill else 0)
    nodes = nodes_of((-1, 0, TEXT[-1]), (0, 1, 5), (0, 1, 6), (1, 2, 9))
    extras = ints(2, 6, 7)
    first = live.grow(nodes, ints(0), ints(0, 0, 0), extras)
    second = live.grow(nodes, ints(1, 2, 3), ints(2, 1, 0), extras)
    assert live.num_growths == 2
    ids = np.arange(VOCAB) if draft.head_token_ids is None else np.asarray(draft.head_token_ids)
    paths = {0: [], 1: [5], 2: [6], 3: [5, 9]}
    asked = [(first, 0, 0, [(0, 2), (1, 6), (2, 7)]), (second, 0, 1, [(2, 7)]), (second, 1, 2, [(1, 6)])]
    asked.append((second, 2, 3, [(0, 2)]))
    for guesses, place, row, scored in asked:
        probs = softmax(next_logits(tiny_model(3), [*TEXT, *paths[row]])[ids])
        order = np.argsort(-probs)
        assert guesses.tokens[place].tolist() == ids[order[:4]].tolist()
        np.testing.assert_allclose(guesses.probs[place], probs[order[:4]], rtol=1e-4)
        assert guesses.entropy[place] == pytest.approx(-(probs * np.log2(probs)).sum(), rel=1e-4)
        assert guesses.margin[place] == pytest.approx(probs[order[0]] - probs[order[1]], abs=1e-5)
        for extra, token in scored:
            if token not in ids:
                assert np.isnan(guesses.extra_probs[extra]) and np.isnan(guesses.extra_ranks[extra])
                continue
            here = int(np.flatnonzero(ids == token)[0])
            assert guesses.extra_probs[extra] == pytest.approx(probs[here], rel=1e-4)
            assert guesses.extra_ranks[extra] == np.flatnonzero(order == here)[0]


def test_a_commit_keeps_the_drafted_part_of_the_path_and_the_next_growth_catches_up() -> None:
    live = LiveDraft(draft_of("same"), VOCAB, 3)
    live.begin(TEXT, 64, True)
    nodes = nodes_of((-1, 0, TEXT[-1]), (0, 1, 5), (0, 1, 6), (2, 2, 9), (3, 3, 4))
    live.grow(nodes, ints(0), NONE, NONE)
    live.grow(nodes, ints(1, 2), NONE, NONE)
    live.commit((0, 2, 3, 4), (6, 9, 4, 11))  # 9 and 4 were guessed by another source and never drafted
    live.check_integrity()
    assert live.seen_tokens == len(TEXT) + 1
    assert set(live.first_guess) == {3, 4}
    live.commit((0,), (2,))  # a round without the draft
    assert live.seen_tokens == len(TEXT) + 1
    text = [*TEXT, 6, 9, 4, 11, 2]
    before = live.num_growths
    guesses = live.grow(nodes_of((-1, 0, 2), (0, 1, 7)), ints(0, 1), NONE, NONE)
    assert live.num_growths == before + 1
    for place, path in enumerate(([], [7])):
        probs = softmax(next_logits(tiny_model(3), [*text, *path]))
        np.testing.assert_allclose(guesses.probs[place], np.sort(probs)[::-1][:3], rtol=1e-4)
    # What it said below each token that it caught up on can be compared with the text now.
    for position in (5, 6, 7):
        assert live.first_guess[position] == int(np.argmax(next_logits(tiny_model(3), text[: position + 1])))
    live.commit((0,), (1,))
    assert live.seen_tokens == len(text)
    live.check_integrity()


def test_logits_that_are_not_finite_give_no_guesses() -> None:
    draft = draft_of("same")
    bias = torch.zeros(VOCAB, dtype=torch.float64)
    bias[3] = float("nan")
    live = LiveDraft(replace(draft, head_bias=bias), VOCAB, 4)
    live.begin(TEXT, 64, True)
    guesses = live.grow(nodes_of((-1, 0, TEXT[-1])), ints(0), ints(0), ints(5))
    assert guesses.tokens.tolist() == [[-1] * 4]
    assert guesses.probs.tolist() == [[0.0] * 4]
    assert np.isnan([guesses.entropy[0], guesses.margin[0], guesses.extra_probs[0], guesses.extra_ranks[0]]).all()
    assert live.num_unhealthy == 1
    live.commit((0,), (2,))
    assert live.first_guess[3] == -1
