"""What the draft's head says, and how the public noise ranks it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.engine.tiny import VOCAB, tiny_pair
from treewise.data.noise import gumbel
from treewise.engine.draft_head import DraftHead
from treewise.engine.draft_model import DraftModel
from treewise.engine.sampling import Sampling, entropy_and_margin, target_token, warp
from treewise.policy.draft_ranking import RANKINGS
from treewise.policy.hook import MAX_GAP, DraftGuesses, Int32Array

NONE = np.zeros(0, dtype=np.int32)
WIDTH = 3
NODES = 6


def draft_of(kind: str) -> DraftModel:
    pair = tiny_pair("same" if kind == "same" else "cut", seed=3)
    assert pair.draft is not None
    return pair.draft


def hidden_states(seed: int = 0, nodes: int = NODES) -> torch.Tensor:
    return torch.randn(nodes, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def places(nodes: int = NODES) -> Int32Array:
    return np.arange(40, 40 + nodes, dtype=np.int32)


def read(draft: DraftModel, sampling: Sampling, ranking: str) -> tuple[DraftHead, DraftGuesses]:
    """Guesses below every node, with every token of the vocabulary scored below each of them."""
    head = DraftHead(draft, VOCAB, WIDTH)
    head.begin(sampling, ranking)
    rows = np.repeat(np.arange(NODES, dtype=np.int32), VOCAB)
    return head, head.read(hidden_states(), places(), rows, np.tile(np.arange(VOCAB, dtype=np.int32), NODES))


def test_equal_probabilities_have_ranks_of_their_own() -> None:
    draft = draft_of("same")
    flat = replace(draft, head_weight=torch.zeros_like(draft.head_weight))
    head = DraftHead(flat, VOCAB, 4)
    every = np.arange(VOCAB, dtype=np.int32)
    guesses = head.read(torch.ones(1, 16, dtype=torch.float64), places(1), np.zeros(VOCAB, dtype=np.int32), every)
    listed = guesses.tokens[0].tolist()
    assert guesses.extra_ranks[listed].tolist() == [0, 1, 2, 3]
    assert (np.delete(guesses.extra_ranks, listed) >= 4).all()


def test_a_cut_head_knows_what_it_can_say() -> None:
    head = DraftHead(draft_of("cut"), VOCAB, 3)
    assert np.flatnonzero(head.in_vocab(np.arange(VOCAB, dtype=np.int32))).tolist() == list(range(1, VOCAB, 2))
    whole = DraftHead(draft_of("same"), VOCAB, 99)
    assert whole.in_vocab(np.arange(VOCAB, dtype=np.int32)).all()
    assert whole.read(hidden_states(nodes=2), places(2), NONE, NONE).tokens.shape == (2, VOCAB)


@pytest.mark.parametrize("ranking", RANKINGS)
def test_without_temperature_every_ranking_is_the_plain_one(ranking: str) -> None:
    _, guesses = read(draft_of("same"), Sampling(), ranking)
    _, plain = read(draft_of("same"), Sampling(), "plain")
    assert guesses.drawn is None and guesses.extra_drawn is None and guesses.ranks is None
    np.testing.assert_array_equal(guesses.tokens, plain.tokens)


@pytest.mark.parametrize("kind", ["same", "cut"])
def test_the_first_drawn_candidate_is_what_the_draft_would_say_by_the_targets_rule(kind: str) -> None:
    draft = draft_of(kind)
    sampling = Sampling(0.9, seed=17)
    head, guesses = read(draft, sampling, "coupled")
    logits = draft.head(hidden_states()).to(torch.float32)
    for node in range(NODES):
        whole = torch.full((VOCAB,), -torch.inf)
        whole[torch.as_tensor(head.token_ids.astype(np.int64))] = logits[node]
        assert guesses.tokens[node, 0] == target_token(whole, int(places()[node]), sampling)


@pytest.mark.parametrize("filters", [{}, {"top_k": 5}, {"top_p": 0.6}])
def test_drawn_signals_are_those_of_the_perturbed_scores(filters: dict[str, float]) -> None:
    draft = draft_of("cut")
    sampling = Sampling(0.7, seed=5, **filters)  # type: ignore[arg-type]
    head, guesses = read(draft, sampling, "both")
    assert guesses.drawn is not None and guesses.extra_drawn is not None and guesses.ranks is not None
    logits = draft.head(hidden_states()).to(torch.float32)
    for node in range(NODES):
        kept, scores = warp(logits[node], sampling)
        perturbed = np.full(len(head.token_ids), -np.inf)
        perturbed[kept.numpy()] = scores.numpy() + gumbel(5, int(places()[node]), head.token_ids[kept.numpy()])
        weights = np.exp(perturbed - perturbed.max())
        drawn = weights / weights.sum()
        gaps = np.minimum(perturbed.max() - perturbed, MAX_GAP)
        probs = torch.softmax(logits[node], -1).numpy()
        mine = slice(node * VOCAB, (node + 1) * VOCAB)
        inside = head.head_row >= 0
        assert np.isnan(guesses.extra_drawn.probs[mine][~inside]).all()
        np.testing.assert_allclose(guesses.extra_drawn.probs[mine][inside], drawn[head.head_row[inside]], atol=1e-6)
        np.testing.assert_allclose(guesses.extra_drawn.gaps[mine][inside], gaps[head.head_row[inside]], atol=1e-4)
        by_prob, by_draw = np.argsort(-probs)[:WIDTH], np.argsort(-perturbed)[: min(WIDTH, len(kept))]
        union = sorted({*by_prob.tolist(), *by_draw.tolist()}, key=lambda at: -(probs[at] + drawn[at]))
        tokens = guesses.tokens[node]
        assert tokens[tokens >= 0].tolist() == head.token_ids[union].tolist()
        rank_of = {int(at): place for place, at in enumerate(np.argsort(-probs))}
        assert guesses.ranks[node, : len(union)].tolist() == [rank_of[at] for at in union]
        np.testing.assert_allclose(guesses.drawn.probs[node, : len(union)], drawn[union], atol=1e-6)
        first = guesses.tokens[node].tolist().index(int(head.token_ids[by_draw[0]]))
        assert guesses.drawn.ranks[node, first] == 0 and guesses.drawn.gaps[node, first] == 0


def test_the_noise_belongs_to_seed_and_position() -> None:
    draft = draft_of("same")
    head = DraftHead(draft, VOCAB, WIDTH)
    head.begin(Sampling(1.0, seed=3), "coupled")
    states = hidden_states(nodes=1).expand(8, -1)
    there = head.read(states, np.arange(8, dtype=np.int32), NONE, NONE)
    again = head.read(states[:1], np.asarray([5], dtype=np.int32), NONE, NONE)
    assert again.tokens[0].tolist() == there.tokens[5].tolist()
    assert len({tuple(row) for row in there.tokens.tolist()}) > 1
    head.begin(Sampling(1.0, seed=4), "coupled")
    other = head.read(states, np.arange(8, dtype=np.int32), NONE, NONE)
    assert other.tokens.tolist() != there.tokens.tolist()


@pytest.mark.parametrize("ranking", RANKINGS)
def test_a_sick_node_guesses_nothing(ranking: str) -> None:
    draft = draft_of("same")
    head = DraftHead(draft, VOCAB, WIDTH)
    head.begin(Sampling(1.0, seed=3), ranking)
    states = hidden_states(nodes=2)
    states[0] = torch.nan
    guesses = head.read(states, places(2), np.asarray([0, 1], dtype=np.int32), np.asarray([4, 4], dtype=np.int32))
    assert (guesses.tokens[0] == -1).all() and (guesses.tokens[1, :WIDTH] >= 0).all()
    assert np.isnan(guesses.extra_probs).tolist() == [True, False]


@pytest.mark.parametrize("kind", ["same", "cut"])
def test_entropy_and_margin_are_those_of_the_one_function(kind: str) -> None:
    draft = draft_of(kind)
    head = DraftHead(draft, VOCAB, WIDTH)
    guesses = head.read(hidden_states(), places(), NONE, NONE)
    entropy, margin = entropy_and_margin(draft.head(hidden_states()))
    np.testing.assert_array_equal(guesses.entropy, entropy.numpy())
    np.testing.assert_array_equal(guesses.margin, margin.numpy())
