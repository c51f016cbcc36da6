"""The learned policy: the conformance battery, and what prices make it do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.policy.conformance import CHECKS, Check, sizes
from tests.policy.models import tiny_bundle
from tests.policy.scripted import Decision, Played, World, example_cost, example_deployment, play
from treewise.data.cost import CostGrid
from treewise.data.envelope import Envelope, PriorTable
from treewise.data.errors import BundleError, ParameterError
from treewise.policy.bundle import Bundle
from treewise.policy.features import node_features
from treewise.policy.hook import (
    DRAFT,
    LOOKUP,
    BoolArray,
    Deployment,
    Expansion,
    ForestView,
    Level,
    Nodes,
    RoundContext,
    TimedPolicy,
    TreePolicy,
)
from treewise.policy.learned import LearnedPolicy, ScorerName
from treewise.policy.planner import Float64Array, PlannerSettings
from treewise.policy.registry import parse_policy

BOTH = DRAFT | LOOKUP


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle().save(tmp_path_factory.mktemp("bundles") / "tiny")


def priced(draft_ms: float, verify_ms: tuple[float, ...] = (20.0, 21.0, 24.0, 28.0, 45.0)) -> Deployment:
    cost = replace(example_cost(draft_ms), verify=CostGrid((1, 8, 9, 32, 64), (0,), (verify_ms,)))
    return example_deployment(BOTH, cost)


@pytest.mark.parametrize("check", CHECKS)
def test_conformance(check: Check, folder: Path) -> None:
    assert check(lambda: LearnedPolicy.load(folder)) > 0


@pytest.mark.parametrize("scorer", ["lightgbm", "flat", "compiled"])
def test_scorers_decide_alike(scorer: ScorerName, folder: Path) -> None:
    for seed in range(3):
        world = World(seed, BOTH)
        expected = play(LearnedPolicy.load(folder, "onnx"), world, (0, 1))
        assert play(LearnedPolicy.load(folder, scorer), world, (0, 1)) == expected


def test_is_a_timed_policy_named_by_its_folder(folder: Path) -> None:
    policy = parse_policy(f"learned:{folder}")
    assert isinstance(policy, LearnedPolicy)
    assert isinstance(policy, TimedPolicy)
    assert isinstance(policy, TreePolicy)
    assert policy.call_ms == tiny_bundle().call_ms
    assert policy.spec == f"learned:{folder}"
    assert policy.state == "request"


def test_unknown_scorer_is_refused() -> None:
    with pytest.raises(ParameterError, match="scorer must be one of auto, compiled, onnx, lightgbm, flat, got 'fast'"):
        LearnedPolicy(tiny_bundle(), "fast")  # type: ignore[arg-type]


def grown(decisions: list[Decision], bit: int) -> int:
    return sum(bool(bits & bit) for decision in decisions for _, bits in decision.grown)


@pytest.mark.parametrize("with_growth", [True, False])
def test_dear_draft_is_never_asked_and_a_free_one_often(with_growth: bool) -> None:
    policy = LearnedPolicy(tiny_bundle(with_growth))
    for seed in range(4):
        assert grown(play(policy, World(seed, BOTH), max_new_tokens=30, deployment=priced(500.0))[0], DRAFT) == 0
        free = play(policy, World(seed, BOTH), max_new_tokens=30, deployment=priced(0.0))[0]
        assert grown(free, DRAFT) >= len(free) - 3  # short of room at the very end


def test_free_rows_are_all_kept() -> None:
    rounds: list[Played] = []
    play(LearnedPolicy(tiny_bundle()), World(1, BOTH), deployment=priced(1.0, (20.0,) * 5), rounds=rounds)
    for played in rounds:
        assert played.tree.kept.all()
    assert max(played.tree.num_nodes for played in rounds) > 10


class Rescored(LearnedPolicy):
    """Checks after each scoring that no row still holds a score of features that have changed since."""

    checked = 0

    def _survival(self, forest: Nodes, context: RoundContext) -> Float64Array:
        survival = super()._survival(forest, context)
        rows = np.flatnonzero(forest.parent >= 0)
        if rows.size:
            fresh = self._match.score(node_features(forest, rows, context))
            np.testing.assert_allclose(self._scores.match[rows], fresh, atol=1e-6)
            self.checked += 1
        return survival


def test_no_score_is_older_than_its_features() -> None:
    policy = Rescored(tiny_bundle())
    for seed in range(6):
        play(policy, World(seed, BOTH), max_new_tokens=30, deployment=priced(1.0))
    assert policy.checked > 100


def test_dear_rows_make_plain_decoding() -> None:
    dear = (20.0, 20.0 + 7 * 500.0, 20.0 + 8 * 500.0, 20.0 + 31 * 500.0, 20.0 + 63 * 500.0)
    decisions = play(LearnedPolicy(tiny_bundle()), World(1, BOTH), deployment=priced(1.0, dear))[0]
    assert sizes(decisions) == [0] * len(decisions)


def test_prices_move_the_tree_without_retraining() -> None:
    policy = LearnedPolicy(tiny_bundle())

    def mean_nodes(verify_ms: tuple[float, ...]) -> float:
        kept = [sizes(play(policy, World(s, BOTH), deployment=priced(1.0, verify_ms))[0]) for s in range(4)]
        return float(np.mean(np.concatenate(kept)))

    flat, middle = mean_nodes((20.0, 20.1, 20.2, 21.0, 23.0)), mean_nodes((20.0, 24.0, 25.0, 48.0, 80.0))
    steep = mean_nodes((20.0, 90.0, 100.0, 330.0, 650.0))
    assert flat > middle > steep


class Spy(LearnedPolicy):
    """Remembers the prices it decided by and what it scored."""

    def __init__(self, bundle: Bundle | None = None) -> None:
        super().__init__(bundle or tiny_bundle())
        self.rates: list[float] = []
        self.scored: list[tuple[bool, ...]] = []

    def select(self, forest: ForestView) -> BoolArray:
        kept = super().select(forest)
        self.rates.append(self._scores.prices[0].rate)
        self.scored.append(tuple(self._scores.drafted.tolist()))
        nodes = forest.nodes
        inner = nodes.parent >= 0
        drafted = nodes.drafted[nodes.parent[inner]]
        assert (self._scores.drafted[inner] == drafted).all(), "every row is scored in its present state"
        return kept


@pytest.mark.parametrize(("draft_ms", "first"), [(0.1, 1.3), (50.0, 2.6)])
def test_rate_starts_at_the_guess_and_follows_what_is_reached(draft_ms: float, first: float) -> None:
    """The price is (guess of 30 rounds + own tokens) over (30 plain rounds + own modelled ms), never below plain."""
    policy = Spy(replace(tiny_bundle(), planner=PlannerSettings(rate_over_plain=first)))
    bound = priced(draft_ms)
    rounds: list[Played] = []
    decisions = play(policy, World(2, BOTH), max_new_tokens=60, deployment=bound, rounds=rounds)[0]
    tokens, ms = 30 * first, 30 * 20.0
    for decision, played, rate in zip(decisions, rounds, policy.rates, strict=True):
        assert rate == pytest.approx(max(tokens / ms, 1 / 20.0))
        tokens += decision.accepted_length + 1
        ms += float(bound.cost.verify_ms(1 + played.tree.num_nodes)) + policy.call_ms * played.tree.policy_calls
        ms += float(bound.cost.draft_ms(played.tree.growth_tokens).sum())
    reached = 60 / (ms - 30 * 20.0)
    assert abs(tokens / ms - reached) < abs(first / 20.0 - reached), "the price moves towards the throughput"


def test_a_batch_is_decided_by_shares() -> None:
    """Told of a batch, the policy decides as where the profile states the shares of so many."""
    bound, worlds = priced(1.0, (20.0, 24.0, 25.0, 48.0, 80.0)), [World(seed, BOTH) for seed in range(4)]
    told = [play(LearnedPolicy(tiny_bundle()), world, deployment=bound, batch_size=8)[0] for world in worlds]
    shared = replace(bound, cost=bound.cost.shared_by(8))
    stated = [play(LearnedPolicy(tiny_bundle()), world, deployment=shared)[0] for world in worlds]
    alone = [play(LearnedPolicy(tiny_bundle()), world, deployment=bound)[0] for world in worlds]
    assert told == stated
    assert sum(sum(sizes(kept)) for kept in told) < 0.7 * sum(sum(sizes(kept)) for kept in alone)


def test_rows_are_scored_again_once_the_draft_has_spoken() -> None:
    for seed in range(4):
        policy = Spy()
        play(policy, World(seed, BOTH), max_new_tokens=30, deployment=priced(0.1))
        assert any(any(flags) for flags in policy.scored)


def test_looks_up_first_where_the_lookup_is_sure() -> None:
    """A sure chain is drafted along in one pass later; without a match the draft is asked at once."""

    class Opening(LearnedPolicy):
        seen: list[tuple[float, int]]

        def expand(self, level: Level) -> Expansion:
            answer = super().expand(level)
            if level.index == 0 and level.candidates.may_grow[0] & DRAFT:
                self.seen.append((float(level.candidates.lookup_match_length[0]), int(answer.grow[0])))
            return answer

    policy = Opening(tiny_bundle())
    policy.seen = []
    for seed in range(6):
        play(policy, World(seed, BOTH), max_new_tokens=30, deployment=priced(0.5))
    unknown = [grow for length, grow in policy.seen if length == 0]
    known = [grow for length, grow in policy.seen if length >= 8]
    assert unknown
    assert all(grow & DRAFT for grow in unknown[:-1])
    assert known
    assert np.mean([not grow & DRAFT for grow in known]) > 0.5


@pytest.mark.parametrize(
    ("deployment", "message"),
    [
        (example_deployment(BOTH, envelope=Envelope(max_depth=9, draft_width=4)), "max_depth 9 > 6"),
        (example_deployment(BOTH, envelope=Envelope(max_depth=6, draft_width=5)), "draft_width 5 > 4"),
        (
            replace(example_deployment(BOTH), prior_table=PriorTable((0.0, 0.5))),
            r"prior table must be the bundle's .*\(0.0, 0.5\)",
        ),
    ],
)
def test_deployments_outside_the_bundle_are_refused(deployment: Deployment, message: str) -> None:
    with pytest.raises(BundleError, match=message):
        LearnedPolicy(tiny_bundle()).bind(deployment)
