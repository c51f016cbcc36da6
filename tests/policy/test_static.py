"""The static tree."""

from collections import Counter

import numpy as np
import pytest

from tests.policy.conformance import CHECKS, Check
from tests.policy.scripted import Played, World, play
from treewise.policy.hook import DRAFT
from treewise.policy.rule import Sources
from treewise.policy.static import StaticPolicy, StaticSettings


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("sources", ["both", "draft"])
def test_conforms(check: Check, sources: Sources) -> None:
    assert check(lambda: StaticPolicy(StaticSettings(sources=sources))) > 0


@pytest.mark.parametrize("sources", [DRAFT, 3])
def test_keeps_the_best_children_of_every_kept_node(sources: int) -> None:
    rounds: list[Played] = []
    play(StaticPolicy(StaticSettings(width=2, depth=3)), World(2, sources), rounds=rounds)
    widths: Counter[int] = Counter()
    for played in rounds:
        nodes, kept = played.tree.forest.view(), played.tree.kept
        assert nodes.depth[kept].max() <= 3
        for parent in np.flatnonzero(kept & (nodes.depth < 3)).tolist():
            children = np.flatnonzero((nodes.parent == parent) & nodes.admitted)
            chosen = children[kept[children]]
            widths[len(chosen)] += 1
            assert len(chosen) == min(2, len(children))
            left = children[~kept[children]]
            assert not left.size or nodes.prior[chosen].min() >= nodes.prior[left].max()
    assert widths[2] > 10


def test_width_and_depth_count_the_tree_where_the_envelope_allows_it() -> None:
    rounds: list[Played] = []
    play(StaticPolicy(StaticSettings(width=1, depth=2)), World(0, DRAFT), rounds=rounds)
    assert {len(played.tree.growth_tokens) for played in rounds[:-2]} == {2}
