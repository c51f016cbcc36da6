"""Switching between the sources."""

import pytest

from tests.policy.conformance import CHECKS, Check
from tests.policy.scripted import Played, World, play
from treewise.policy.hook import DRAFT, LOOKUP
from treewise.policy.switch import SwitchPolicy, SwitchSettings


@pytest.mark.parametrize("check", CHECKS)
def test_conforms(check: Check) -> None:
    assert check(SwitchPolicy) > 0


def test_one_source_per_round_by_match_length() -> None:
    rounds: list[Played] = []
    play(SwitchPolicy(SwitchSettings(min_match=6, nodes=12)), World(0), max_new_tokens=40, rounds=rounds)
    used = set()
    for played in rounds[:-1]:
        nodes = played.tree.forest.view()
        expected = LOOKUP if nodes.lookup_match_length[0] >= 6 else DRAFT
        assert set(nodes.grown[nodes.grown > 0].tolist()) == {expected}
        assert played.tree.num_nodes <= 12
        used.add(expected)
    assert used == {LOOKUP, DRAFT}


@pytest.mark.parametrize("source", [LOOKUP, DRAFT])
def test_a_lone_source_is_asked_whatever_the_match(source: int) -> None:
    rounds: list[Played] = []
    play(SwitchPolicy(SwitchSettings(min_match=100)), World(0, source), rounds=rounds)
    assert {int(played.tree.forest.view().grown[0]) for played in rounds[:-1]} == {source}
