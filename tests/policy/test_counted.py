"""The learned policy where nodes are counted: what stays, what is asked, and how it is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.policy.conformance import CHECKS, Check
from tests.policy.models import tiny_bundle
from tests.policy.scripted import World, example_cost, example_deployment, play
from treewise.data.errors import ParameterError, PolicySpecError
from treewise.policy.counted import CountedPolicy, NodePrice
from treewise.policy.hook import DRAFT, LOOKUP, BoolArray, Expansion, ForestView, Level
from treewise.policy.learned import LearnedPolicy
from treewise.policy.registry import parse_policy

BOTH = DRAFT | LOOKUP
WORLDS = tuple(World(seed, BOTH) for seed in range(3))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle().save(tmp_path_factory.mktemp("bundles") / "a,b")


class Checked(CountedPolicy):
    """Checks each round against the rule, over what its models state."""

    def __init__(self, price: NodePrice) -> None:
        super().__init__(tiny_bundle(), "flat", compiled="off", price=price)
        self.sizes: list[int] = []  # kept, by round and request
        self.left: list[float] = []  # highest survival of a round that was not kept

    def expand(self, level: Level) -> Expansion:
        answer = super().expand(level)
        if level.index:
            assert self.survival is not None
            asked, may = answer.grow > 0, level.candidates.may_grow > 0
            surest = self.survival[level.start :]
            if not self.price.nodes:
                assert (asked == (may & (surest > self.price.least))).all()
            elif asked.any():  # of one level: whatever is asked below ranks before what is not
                for request in np.unique(level.candidates.request[asked]).tolist():
                    own = may & (level.candidates.request == request)
                    assert surest[own & asked].min(initial=1.0) >= surest[own & ~asked].max(initial=0.0)
        return answer

    def select(self, forest: ForestView) -> BoolArray:
        keep = super().select(forest)
        nodes, survival = forest.nodes, self.survival
        assert survival is not None
        inner = nodes.parent >= 0
        assert keep[nodes.parent[inner & keep]].all()  # closed under parents
        for request in range(len(forest.context.request_id)):
            own = inner & (nodes.request == request)
            kept, left = survival[own & keep], survival[own & ~keep]
            self.sizes.append(len(kept))
            assert kept.min(initial=1.0) > self.price.least
            if self.price.nodes and len(kept) == self.price.nodes:
                assert kept.min(initial=1.0) >= left.max(initial=0.0)
            else:
                assert left.max(initial=0.0) <= self.price.least
        return keep


@pytest.mark.parametrize("check", CHECKS)
def test_conformance(check: Check, folder: Path) -> None:
    assert check(lambda: parse_policy(f"learned:{folder},nodes=6,least=0.02")) > 0


@pytest.mark.parametrize("price", [NodePrice(least=0.1), NodePrice(nodes=3), NodePrice(nodes=2, least=0.1)])
def test_what_survives_above_the_price_stays(price: NodePrice) -> None:
    policy = Checked(price)
    for world in WORLDS:
        play(policy, world, (0, 1))
    assert len(policy.sizes) > 20
    if price.nodes:
        assert max(policy.sizes) == price.nodes
    if price.least:
        assert len(set(policy.sizes)) > 2  # sure places get few nodes, open ones many


def test_milliseconds_count_nothing() -> None:
    for world in WORLDS:
        cheap, dear = (
            play(
                CountedPolicy(tiny_bundle(), "flat", compiled="off", price=NodePrice(least=0.05)),
                world,
                deployment=example_deployment(BOTH, example_cost(draft_ms)),
            )
            for draft_ms in (0.0, 500.0)
        )
        assert cheap == dear
        assert any(bits & DRAFT for decision in dear[0] for _, bits in decision.grown)


def test_a_higher_price_buys_fewer_nodes() -> None:
    means = []
    for least in (0.02, 0.1, 0.4):
        policy = Checked(NodePrice(least=least))
        for world in WORLDS:
            play(policy, world)
        means.append(float(np.mean(policy.sizes)))
    assert means[0] > means[1] > means[2] > 0.0


def test_a_spec_names_folder_and_price(folder: Path) -> None:
    for settings, price in (("nodes=8", NodePrice(nodes=8)), ("nodes=8,least=0.05", NodePrice(8, 0.05))):
        policy = parse_policy(f"learned:{folder},{settings}")
        assert isinstance(policy, CountedPolicy)
        assert (policy.price, policy.spec) == (price, f"learned:{folder},{settings}")
    assert type(parse_policy(f"learned:{folder}")) is LearnedPolicy  # whose name holds a comma
    unsaid = CountedPolicy.load(folder)
    assert isinstance(unsaid, CountedPolicy) and unsaid.price == NodePrice(least=0.05)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("nodes=-1", "nodes must be between 0 and 1024, got -1 in policy"),
        ("nodes=2000", "nodes must be between 0 and 1024, got 2000 in policy"),
        ("nodes=2.5", "nodes must be a whole number, got '2.5'"),
        ("least=1", "least must be at least 0 and below 1, got 1.0 in policy"),
        ("least=0", r"nodes or least must be above 0, got \(0, 0.0\) in policy"),
        ("depth=3", "setting must be one that learned takes nodes, least, got 'depth'"),
        ("nodes=3,nodes=4", "nodes must be given once, got it twice"),
    ],
)
def test_bad_settings_are_refused(settings: str, message: str, folder: Path) -> None:
    with pytest.raises(PolicySpecError, match=message):
        parse_policy(f"learned:{folder},{settings}")
    with pytest.raises(ParameterError, match="nodes or least must be above 0"):
        NodePrice()
