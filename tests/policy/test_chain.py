"""The chain."""

import pytest

from tests.policy.conformance import CHECKS, Check, sizes
from tests.policy.scripted import Played, World, path_of, play
from treewise.policy.chain import ChainPolicy, ChainSettings
from treewise.policy.hook import DRAFT, LOOKUP
from treewise.policy.rule import Sources


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("sources", ["both", "draft", "lookup"])
def test_conforms(check: Check, sources: Sources) -> None:
    assert check(lambda: ChainPolicy(ChainSettings(sources=sources))) > 0


@pytest.mark.parametrize("length", [1, 3])
def test_is_one_path_of_at_most_length_nodes(length: int) -> None:
    for seed in range(4):
        decisions = play(ChainPolicy(ChainSettings(length=length)), World(seed))[0]
        for decision in decisions:
            longest = max(decision.kept, key=len)
            assert decision.kept == {longest[:n] for n in range(len(longest) + 1)}
        assert max(sizes(decisions)) == length


def test_follows_the_surest_child_of_each_node() -> None:
    rounds: list[Played] = []
    play(ChainPolicy(ChainSettings(length=4, sources="draft")), World(1, DRAFT), rounds=rounds)
    world = World(1, DRAFT)
    position = 9
    for played in rounds:
        nodes = played.tree.forest.view()
        assert played.tree.num_nodes <= len(played.tree.growth_tokens)
        for row in played.tree.kept.nonzero()[0][1:].tolist():
            path = path_of(nodes, row)
            assert path[-1] == int(world.draft_probs(0, position, path[:-1]).argmax())
        position += len(played.walk.tokens[0])


def test_takes_a_whole_lookup_chain_in_one_level() -> None:
    rounds: list[Played] = []
    play(ChainPolicy(ChainSettings(sources="lookup")), World(0), rounds=rounds)
    assert max(played.tree.num_nodes for played in rounds) > 1
    assert all(played.tree.policy_calls <= 3 and not played.tree.growth_tokens for played in rounds)


def test_asks_only_the_sources_of_its_setting() -> None:
    choices: list[tuple[Sources, int]] = [("draft", DRAFT), ("lookup", LOOKUP), ("both", DRAFT | LOOKUP)]
    for sources, bits in choices:
        decisions = play(ChainPolicy(ChainSettings(sources=sources)), World(0))[0]
        assert {bit for d in decisions for path, bit in d.grown if not path} == {bits}
