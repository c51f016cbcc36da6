"""The entropy state machine."""

import numpy as np
import pytest

from tests.policy.conformance import CHECKS, Check, sizes
from tests.policy.scripted import Played, World, play
from treewise.policy.entropy import EntropyPolicy, EntropySettings
from treewise.policy.hook import DRAFT, LOOKUP
from treewise.policy.rule import Sources


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("sources", ["both", "draft"])
def test_conforms(check: Check, sources: Sources) -> None:
    assert check(lambda: EntropyPolicy(EntropySettings(sources=sources))) > 0


@pytest.mark.parametrize("mid_width", [2, 3])
def test_width_follows_the_drafts_entropy_below_each_node(mid_width: int) -> None:
    seen = {1: 0, mid_width: 0, 0: 0}
    for seed in range(5):
        rounds: list[Played] = []
        play(EntropyPolicy(EntropySettings(mid_width=mid_width)), World(seed, DRAFT), rounds=rounds)
        for played in rounds:
            nodes = played.tree.forest.view()
            for parent in np.unique(nodes.parent[nodes.parent >= 0]).tolist():
                children = np.flatnonzero(nodes.parent == parent)
                bits = nodes.draft_entropy[children[0]]
                width = 1 if bits < 1.0 else mid_width if bits <= 2.2 else 0
                sure = children[:width][nodes.path_prior[children[:width]] >= np.float32(0.08)]
                np.testing.assert_array_equal(children[played.tree.kept[children]], sure)
                seen[width] += 1
    assert min(seen.values()) > 3


def test_lookup_guesses_are_followed_by_path_prior_alone() -> None:
    rounds: list[Played] = []
    play(EntropyPolicy(), World(0, LOOKUP), rounds=rounds)
    for played in rounds:
        nodes = played.tree.forest.view()
        np.testing.assert_array_equal(played.tree.kept, nodes.path_prior >= np.float32(0.08))
    assert max(played.tree.num_nodes for played in rounds) > 1


def test_the_budget_holds_and_is_spent_on_the_surest() -> None:
    policy = EntropyPolicy(EntropySettings(max_nodes=3, min_path_prior=0.02, low_bits=0.0, high_bits=9.0, mid_width=4))
    decisions = play(policy, World(0))[0]
    assert max(sizes(decisions)) == 3
