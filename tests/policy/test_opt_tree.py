"""The expected-gain rule."""

from __future__ import annotations

import numpy as np
import pytest

from tests.policy.conformance import CHECKS, Check
from tests.policy.scripted import Played, World, play
from treewise.policy.budget import shared_survival
from treewise.policy.hook import DRAFT, FREE, Nodes
from treewise.policy.opt_tree import OptTreePolicy, OptTreeSettings


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("beam", [None, 2])
def test_conforms(check: Check, beam: int | None) -> None:
    assert check(lambda: OptTreePolicy(OptTreeSettings(nodes=10, threshold=0.2, beam=beam))) > 0


def played(settings: OptTreeSettings, sources: int = DRAFT) -> list[Played]:
    rounds: list[Played] = []
    play(OptTreePolicy(settings), World(4, sources), max_new_tokens=40, rounds=rounds)
    return rounds


def best(nodes: Nodes, count: int, level: int) -> float:
    """Expected accepted length of the best tree of `count` rows offered up to `level`: the sum of the best products."""
    products: list[float] = []
    for row in range(1, len(nodes.parent)):
        product, at = 1.0, row
        while nodes.parent[at] >= 0:
            product *= float(nodes.prior[at])
            at = int(nodes.parent[at])
        if nodes.level[row] <= level:
            products.append(product)
    return sum(sorted(products, reverse=True)[:count])


@pytest.mark.parametrize("threshold", [0.1, 0.3])
def test_a_growth_follows_where_the_last_one_was_worth_the_threshold(threshold: float) -> None:
    settings = OptTreeSettings(nodes=8, threshold=threshold)
    stopped = went_on = 0
    for round_ in played(settings)[:-1]:
        nodes, growths = round_.tree.forest.view(), len(round_.tree.growth_tokens)
        lengths = [0.0, *(best(nodes, 8, level) for level in range(1, growths + 1))]
        gains = np.diff(lengths)
        assert (gains[:-1] >= threshold - 1e-6).all()
        went_on += growths - 1
        if growths < 6 and (nodes.may_grow[nodes.level == growths] & DRAFT).any():
            assert gains[-1] < threshold + 1e-6
            stopped += 1
    assert stopped > 0 and went_on > 0


def test_a_higher_threshold_makes_fewer_growths_and_none_that_is_out_of_reach() -> None:
    means = [
        float(np.mean([len(round_.tree.growth_tokens) for round_ in played(OptTreeSettings(threshold=threshold))[:-1]]))
        for threshold in (0.0, 0.2, 0.6, 2.0)
    ]
    assert means[0] > means[1] > means[2] > means[3] == 1.0


def test_depth_and_beam_bound_the_growths() -> None:
    rounds = played(OptTreeSettings(threshold=0.0, depth=2, beam=1))
    assert max(len(round_.tree.growth_tokens) for round_ in rounds) == 2
    assert all(round_.tree.growth_tokens[1:] in ((), (1,)) for round_ in rounds)


@pytest.mark.parametrize("sources", [DRAFT, DRAFT | FREE])
def test_the_tree_that_was_weighed_is_kept(sources: int) -> None:
    for round_ in played(OptTreeSettings(nodes=6), sources)[:-1]:
        nodes, kept = round_.tree.forest.view(), round_.tree.kept
        survival = shared_survival(nodes)
        inner = nodes.parent >= 0
        assert kept[inner].sum() == min(6, int(inner.sum()))
        assert survival[inner & kept].min() >= survival[inner & ~kept].max(initial=0.0)


def test_rows_that_are_left_out_have_no_survival_and_no_share() -> None:
    nodes = played(OptTreeSettings(nodes=6), DRAFT | FREE)[0].tree.forest.view()
    among = np.arange(len(nodes.parent)) < len(nodes.parent) // 2
    whole, first = shared_survival(nodes), shared_survival(nodes, among)
    assert (first[~among] == 0.0).all()
    assert (first[among] >= whole[among]).all()


def test_free_guesses_are_no_gain_of_the_first_growth() -> None:
    threshold, second, saved = 0.4, [], 0
    for round_ in played(OptTreeSettings(nodes=8, threshold=threshold, depth=2), DRAFT | FREE)[:-1]:
        nodes = round_.tree.forest.view()
        offered = nodes.level <= 1
        free = offered & ((nodes.sources & FREE) > 0) | (nodes.parent < 0)
        with_draft, without = (
            sum(sorted(shared_survival(nodes, rows)[1:].tolist(), reverse=True)[:8]) for rows in (offered, free)
        )
        if (nodes.may_grow[nodes.level == 1] & DRAFT).any():
            made = len(round_.tree.growth_tokens) == 2
            second.append(made == (with_draft - without >= threshold))
            saved += with_draft >= threshold and not made
    assert np.mean(second) > 0.9  # a second growth moves priors of the first level
    assert saved > 0
