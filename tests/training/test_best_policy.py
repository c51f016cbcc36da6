"""The learned policy beside the best one there is, in a world where dynamic programming finds it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.training.burst_world import BURST_COST, Float64Array, full_trees
from treewise.data.cost import CostGrid
from treewise.data.pair import PairDescription
from treewise.policy.bundle import Bundle
from treewise.policy.hook import (
    DRAFT,
    BoolArray,
    Deployment,
    Expansion,
    ForestView,
    Level,
    Reach,
    RequestInfo,
    RoundOutcome,
    State,
)
from treewise.policy.learned import LearnedPolicy
from treewise.policy.registry import parse_policy
from treewise.training.dataset import DatasetSettings
from treewise.training.fit import NamedTrace, TrainSettings, train_on
from treewise.training.logged_trace import LoggedTrace
from treewise.training.planner_fit import PlannerFitSettings
from treewise.training.replay import replay
from treewise.training.replay_result import Float64Array as Milliseconds
from treewise.training.replay_result import modelled_ms

DEPTH, TOKENS = 5, 32
CHANCES = (0.95, 0.3)  # the draft says how likely its guess is, and is right about it; each half of the tokens
PAIR = PairDescription("world", "a" * 64, "b" * 64, 24, "law", "c" * 64, 20)
COST = replace(
    BURST_COST,
    verify=CostGrid((1, 2, 6), (0,), ((10.0, 11.5, 17.5),)),
    draft=CostGrid((1,), (0,), ((2.0,),)),
)


@cache
def expected_ms(left: int) -> float:
    """Least expected milliseconds for `left` more tokens: Bellman's equation, a round being a step."""
    return 0.0 if left == 0 else COST.round_ms + best(left, ())[0]


@cache
def best(left: int, chances: tuple[float, ...]) -> tuple[float, bool, int]:
    """(least expected milliseconds from here, whether to draft on, else nodes to verify) with a chain of `chances`."""
    options = [(verified_ms(left, chances[:count]), False, count) for count in range(len(chances) + 1)]
    if len(chances) < min(DEPTH, left - 1):
        deeper = float(np.mean([best(left, (*chances, chance))[0] for chance in CHANCES]))
        options.append((float(COST.draft_ms(1)) + deeper, True, 0))
    return min(options)


def verified_ms(left: int, chances: tuple[float, ...]) -> float:
    """Expected milliseconds where a chain is verified now and the rest decoded in the best way."""
    total, survival = float(COST.verify_ms(1 + len(chances))), 1.0
    for accepted, chance in enumerate((*chances, 0.0)):
        total += survival * (1.0 - chance) * expected_ms(left - accepted - 1)
        survival *= chance
    return total


class BestPolicy:
    """Does what `best` says, from what the hook shows: the tokens that remain and the draft's probabilities."""

    state: State = "none"
    call_ms = 0.0

    @property
    def reach(self) -> Reach:
        """A chain."""
        return Reach(DEPTH, 1)

    def bind(self, deployment: Deployment) -> None:
        """The costs are known."""

    def begin(self, request: RequestInfo) -> None:
        """Nothing to prepare."""

    def expand(self, level: Level) -> Expansion:
        """Draft below the tip or not."""
        _, on, _ = best(int(level.context.remaining_tokens[0]), seen(level.forest.draft_prob))
        count = len(level.candidates.parent)
        return Expansion(np.ones(count, dtype=np.bool_), np.full(count, DRAFT if on else 0, dtype=np.uint8))

    def select(self, forest: ForestView) -> BoolArray:
        """The first nodes of the chain."""
        _, _, count = best(int(forest.context.remaining_tokens[0]), seen(forest.nodes.draft_prob))
        return np.asarray(forest.nodes.depth <= count, dtype=np.bool_)

    def observe(self, outcome: RoundOutcome) -> None:
        """Nothing to learn."""

    def finish(self, request_id: int, reason: str) -> None:
        """Nothing to forget."""


def seen(draft_prob: NDArray[np.float32]) -> tuple[float, ...]:
    """The chances of the nodes so far; the root's probability is no number."""
    return tuple(min(CHANCES, key=lambda chance: abs(chance - prob)) for prob in draft_prob[1:].tolist())


def drawn(seed: int, prompts: int) -> LoggedTrace:
    """A trace of the world."""
    rng = np.random.default_rng(seed)
    firsts: list[Float64Array] = [rng.choice(CHANCES, size=TOKENS) for _ in range(prompts)]
    answers = [np.where(rng.random(TOKENS) < chances, 0, 2) for chances in firsts]
    trace = full_trees(answers, 1, DEPTH, firsts, "length")
    return replace(trace, manifest=replace(trace.manifest, pair=PAIR.to_json()))


def spent_ms(policy: Any, trace: LoggedTrace) -> Milliseconds:
    """Modelled milliseconds by prompt, calls of the policy being free."""
    setting = trace.deployment(COST)
    result = replay(policy, trace.requests, setting)
    assert not result.fallback.any()
    return result.by_request(modelled_ms(result, setting, 0.0))


@pytest.fixture(scope="module")
def judged() -> LoggedTrace:
    return drawn(1, 60)


def test_the_best_policy_needs_what_bellman_expects(judged: LoggedTrace) -> None:
    found = spent_ms(BestPolicy(), judged)
    error = float(found.std() / np.sqrt(len(found)))
    assert abs(found.mean() - expected_ms(TOKENS)) < 3.5 * error  # a false alarm in two thousand


def test_no_fixed_chain_comes_near_the_best(judged: LoggedTrace) -> None:
    chains = [f"chain:{length},sources=draft" for length in range(1, 4)]
    fastest = min(spent_ms(parse_policy(spec), judged).sum() for spec in chains)
    assert fastest > 1.03 * spent_ms(BestPolicy(), judged).sum()


@pytest.mark.slow
def test_the_learned_policy_is_within_two_percent_of_the_best(judged: LoggedTrace, tmp_path: Path) -> None:
    settings = TrainSettings(
        rows=DatasetSettings(tree_stride=8), planner=PlannerFitSettings(requests=6, rate_rounds=2, tune=False)
    )
    train_on([NamedTrace(drawn(2, 60), "h")], COST, tmp_path / "bundle", settings)
    learned = LearnedPolicy(replace(Bundle.load(tmp_path / "bundle"), call_ms=0.0))
    best_ms, learned_ms = spent_ms(BestPolicy(), judged).sum(), spent_ms(learned, judged).sum()
    assert learned_ms <= 1.02 * best_ms
