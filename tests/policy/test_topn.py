"""Top-N by path prior."""

from collections import Counter

import numpy as np
import pytest

from tests.policy.conformance import CHECKS, Check
from tests.policy.scripted import Played, World, play
from treewise.policy.hook import DRAFT, LOOKUP
from treewise.policy.rule import Sources
from treewise.policy.topn import TopNPolicy, TopNSettings


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("sources", ["both", "lookup"])
def test_conforms(check: Check, sources: Sources) -> None:
    assert check(lambda: TopNPolicy(TopNSettings(sources=sources))) > 0


def test_keeps_the_nodes_with_the_highest_path_prior() -> None:
    rounds: list[Played] = []
    play(TopNPolicy(TopNSettings(nodes=10, depth=3)), World(0), rounds=rounds)
    full = 0
    for played in rounds:
        nodes, kept = played.tree.forest.view(), played.tree.kept
        inner = nodes.parent >= 0
        assert played.tree.num_nodes == min(10, int(inner.sum()))
        left = inner & ~kept
        if left.any():
            full += 1
            assert nodes.path_prior[inner & kept].min() >= nodes.path_prior[left].max()
    assert full > 2


def test_drafts_below_the_beam_of_each_level() -> None:
    rounds: list[Played] = []
    play(TopNPolicy(TopNSettings(nodes=64, depth=3, beam=2)), World(1), rounds=rounds)
    for played in rounds:
        nodes = played.tree.forest.view()
        asked = (nodes.grown & DRAFT) > 0
        assert len(played.tree.growth_tokens) <= 3
        assert max(Counter(nodes.level[asked].tolist()).values(), default=0) <= 2
        for level in np.unique(nodes.level[asked]).tolist():
            rivals = (nodes.level == level) & ((nodes.may_grow & DRAFT) > 0) & ~asked
            assert not rivals.any() or level == 0 or asked[nodes.level == level].sum() == 2
    assert any(len(played.tree.growth_tokens) == 3 for played in rounds)


def test_looks_up_everywhere() -> None:
    rounds: list[Played] = []
    play(TopNPolicy(), World(0), rounds=rounds)
    for played in rounds:
        nodes = played.tree.forest.view()
        assert ((nodes.may_grow & LOOKUP) == (nodes.grown & LOOKUP)).all()
