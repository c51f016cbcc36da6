"""The threshold on the path prior."""

import numpy as np
import pytest

from tests.policy.conformance import CHECKS, Check, sizes
from tests.policy.scripted import Played, World, play
from treewise.policy.cumulative import CumulativePolicy, CumulativeSettings
from treewise.policy.hook import DRAFT


@pytest.mark.parametrize("check", CHECKS)
def test_conforms(check: Check) -> None:
    assert check(CumulativePolicy) > 0


def test_keeps_and_grows_exactly_the_draft_nodes_above_the_threshold() -> None:
    rounds: list[Played] = []
    play(CumulativePolicy(CumulativeSettings(threshold=0.2, depth=3)), World(0, DRAFT), rounds=rounds)
    for played in rounds:
        nodes = played.tree.forest.view()
        sure = nodes.path_prior >= np.float32(0.2)
        np.testing.assert_array_equal(played.tree.kept, sure)
        np.testing.assert_array_equal(nodes.grown > 0, sure & (nodes.depth < 3) & (nodes.may_grow > 0))


def test_a_higher_threshold_keeps_fewer() -> None:
    means = [np.mean(sizes(play(CumulativePolicy(CumulativeSettings(t)), World(1))[0])) for t in (0.05, 0.3, 1.0)]
    assert means[0] > means[1] > means[2]
