"""Chain mode against worlds of known acceptance: near the best fixed length, back to it after a change, never stuck."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.policy.models import tiny_bundle
from treewise.data.cost import CostGrid, CostProfile
from treewise.data.envelope import PriorTable
from treewise.data.errors import ParameterError
from treewise.policy.chain_calibration import WINDOW, DepthCalibration
from treewise.policy.chain_controller import PROBE_ROUNDS, ChainController, ChainSignals
from treewise.policy.chain_signals import base_chance
from treewise.policy.features import GROWTH_FEATURES
from treewise.policy.hook import Float32Array
from treewise.policy.learned import AGREEMENT, LearnedPolicy
from treewise.policy.registry import parse_policy

MOST = 8
STAIRS = CostProfile(
    "stairs",
    CostGrid((1, 4, 5, 8, 9, 64), (0,), ((10.0, 10.0, 14.0, 14.0, 20.0, 40.0),)),
    CostGrid((1,), (0,), ((1.0,),)),
)
STEEP = CostProfile("steep", CostGrid((1, 64), (0,), ((20.0, 90.0),)), CostGrid((1,), (0,), ((4.0,),)))
FLAT = CostProfile("flat", CostGrid((1, 64), (0,), ((25.0, 30.0),)), CostGrid((1,), (0,), ((3.0,),)))
COSTS = {cost.name: cost for cost in (STAIRS, STEEP, FLAT)}
WORLDS = {
    "good": [0.9] * MOST,
    "fair": [0.6] * MOST,
    "poor": [0.3] * MOST,
    "useless": [0.05] * MOST,
    "cliff": [0.9, 0.9, 0.9, 0.2, 0.2, 0.2, 0.2, 0.2],
    "fading": [0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.1],
}


def throughputs(q: list[float], cost: CostProfile, requests: int = 1) -> NDArray[Any]:
    """Tokens per millisecond of every fixed length, by hand."""
    found = []
    for depth in range(MOST + 1):
        tokens = requests * (1.0 + sum(np.prod(q[:d]) for d in range(1, depth + 1)))
        rows = requests * (1 + depth)
        ms = float(cost.verify_ms(rows)) + depth * float(cost.draft_ms(requests)) + cost.policy_ms
        found.append(tokens / ms)
    return np.asarray(found)


def play(
    controller: ChainController, q: list[float], rounds: int, requests: int = 1, seed: int = 0, **known: Any
) -> list[int]:
    """Depths that the controller chose in a world where a guess at depth d matches with chance q[d - 1]."""
    rng = np.random.default_rng(seed)
    chosen = []
    for _ in range(rounds):
        depth = controller.depth(ChainSignals.of(np.full(requests, 100), **known))
        hits = rng.random((requests, depth)) < np.asarray(q[:depth])
        accepted = np.cumprod(hits, axis=1).sum(axis=1) if depth else np.zeros(requests, dtype=np.int64)
        controller.observe(accepted, depth)
        chosen.append(depth)
    return chosen


def share_of_best(depths: list[int], q: list[float], cost: CostProfile, requests: int = 1) -> float:
    """Expected throughput of the chosen depths over the best fixed one's."""
    tokens_ms = throughputs(q, cost, requests)
    ms = np.asarray([float(cost.verify_ms(requests * (1 + d))) + d * float(cost.draft_ms(requests)) for d in depths])
    return float((tokens_ms[depths] * ms).sum() / ms.sum() / tokens_ms.max())


@pytest.mark.parametrize(("policy", "requests"), [("frontier", 1), ("frontier", 4), ("learned", 1)])
@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("world", WORLDS)
def test_depths_reach_the_brute_force_optimum(policy: str, world: str, cost: str, requests: int) -> None:
    """Within 4 % of the best fixed length after 200 rounds, probes and wrong turns included."""
    made = parse_policy("frontier") if policy == "frontier" else LearnedPolicy(tiny_bundle(), "flat")
    controller = ChainController(made, cost=COSTS[cost], max_depth=MOST)
    depths = play(controller, WORLDS[world], 600, requests)[200:]
    assert share_of_best(depths, WORLDS[world], COSTS[cost], requests) > 0.96
    assert controller.counters.failures == 0


@pytest.mark.parametrize("world", WORLDS)
def test_the_choice_is_the_argmax_over_all_depths_when_acceptance_is_known(world: str) -> None:
    controller = ChainController("frontier", cost=STAIRS, max_depth=MOST)
    q = WORLDS[world]
    controller.calibration.conditional = lambda base: np.tile(q, (len(base), 1))  # type: ignore[method-assign]
    best = int(np.argmax(throughputs(q, STAIRS)))
    # At the price of the best throughput itself the argmax of tokens minus price x ms is the best ratio.
    controller._tokens = controller._plain_tokens * throughputs(q, STAIRS).max() / throughputs(q, STAIRS)[0]
    assert controller.depth(ChainSignals.of([100])) == best
    assert controller.expected_tokens(np.asarray([q]), np.asarray([99])).tolist() == pytest.approx(
        [1.0 + sum(np.prod(q[:d]) for d in range(1, depth + 1)) for depth in range(MOST + 1)]
    )


@pytest.mark.parametrize(("before", "after"), [("useless", "good"), ("good", "useless"), ("good", "cliff")])
def test_depths_follow_acceptance_that_changes(before: str, after: str) -> None:
    controller = ChainController("frontier", cost=STAIRS, max_depth=MOST)
    play(controller, WORLDS[before], 800)
    depths = play(controller, WORLDS[after], 800, seed=1)
    assert share_of_best(depths[400:], WORLDS[after], STAIRS) > 0.94
    assert share_of_best(depths, WORLDS[after], STAIRS) > 0.85


def test_a_useless_draft_is_probed_now_and_then() -> None:
    controller = ChainController("frontier", cost=STEEP, max_depth=MOST)
    depths = play(controller, [0.0] * MOST, 1000)
    late = depths[500:]
    drafted = [place for place, depth in enumerate(late) if depth]
    assert {late[place] for place in drafted} == {1}
    assert set(np.diff(drafted).tolist()) == {PROBE_ROUNDS + 1}


def test_a_hopeful_probe_is_repeated_at_once() -> None:
    controller = ChainController("frontier", cost=STEEP, max_depth=MOST)
    play(controller, [0.0] * MOST, 600)
    while controller.depth(ChainSignals.of([100])) == 0:
        controller.observe([0], 0)
    controller.observe([1], 1)
    assert controller.depth(ChainSignals.of([100])) >= 1
    controller.observe([0], 1)
    assert controller.depth(ChainSignals.of([100])) == 0


def test_small_differences_do_not_move_the_depth() -> None:
    controller = ChainController("frontier", cost=FLAT, max_depth=MOST)
    depths = play(controller, WORLDS["fair"], 1200)[300:]
    changes = sum(before != after for before, after in pairwise(depths))
    assert changes <= len(depths) // 20


def test_what_is_known_of_a_request_moves_its_chance() -> None:
    """The bundle's growth model reads the draft's agreement: a batch that agrees is drafted deeper."""
    policy = LearnedPolicy(tiny_bundle(), "flat")
    growth = policy._growth
    table = tiny_bundle().prior_table
    signals = ChainSignals.of([50, 50], draft_agreement=[0.2, 0.95], lookup_match_length=[0, 6], lookup_share=[0, 1.0])
    base = base_chance(signals, growth, table)
    expected = 0.95 * table.prior(6, 1.0)
    assert base[1] >= expected and base[1] > base[0] > 0.0
    assert base_chance(ChainSignals.of([50]), None, table).tolist() == [AGREEMENT]
    assert base_chance(ChainSignals.of([50], accepted_recent=3.0), None, table).tolist() == [0.75]


def test_the_growth_model_is_fed_with_root_features() -> None:
    seen: list[Float32Array] = []

    class Noting:
        def score(self, features: Float32Array) -> Float32Array:
            seen.append(features.copy())
            return np.full(len(features), 0.4, dtype=np.float32)

    signals = ChainSignals.of([9, 9], draft_agreement=[0.5, np.nan], lookup_match_length=3, temperature=0.7)
    assert base_chance(signals, Noting(), PriorTable()).tolist() == pytest.approx([0.4, 0.4])
    (features,) = seen
    columns = dict(zip(GROWTH_FEATURES, features.T.tolist(), strict=True))
    assert columns["depth"] == [0.0, 0.0] and columns["log_prior"] == [0.0, 0.0]
    assert columns["below_match_length"] == [3.0, 3.0] and np.isnan(columns["draft_log_prob"]).all()
    assert columns["draft_agreement"] == pytest.approx([0.5, AGREEMENT])
    assert columns["temperature"] == pytest.approx([0.7, 0.7])


@pytest.mark.filterwarnings("ignore:.*growth model failed:RuntimeWarning")
@pytest.mark.parametrize("answer", ["raises", "nan"])
def test_a_failing_model_is_counted_and_survived(answer: str) -> None:
    class Broken:
        def score(self, features: Float32Array) -> Float32Array:
            if answer == "raises":
                raise ZeroDivisionError("no model")
            return np.full(len(features), np.nan, dtype=np.float32)

    controller = ChainController(LearnedPolicy(tiny_bundle(), "flat"), cost=FLAT, max_depth=MOST)
    controller._growth = Broken()
    depths = play(controller, WORLDS["good"], 600)
    assert controller.counters.failures == controller.counters.fallbacks == 600
    assert controller.last_error is not None
    assert share_of_best(depths[300:], WORLDS["good"], FLAT) > 0.96


@pytest.mark.parametrize(
    ("spec", "expected"), [("plain", 0), ("chain:3", 3), ("chain:20", MOST), ("static:2x4", 4), ("topn:24x5", 5)]
)
def test_rules_answer_their_own_length(spec: str, expected: int) -> None:
    controller = ChainController(spec, cost=FLAT, max_depth=MOST)
    assert set(play(controller, WORLDS["useless"], 40)) == {expected}
    assert controller.depth(ChainSignals.of([10, 10], remaining_tokens=[2, 1])) == min(expected, 1)


def test_nothing_is_drafted_beyond_the_end_of_the_text() -> None:
    controller = ChainController("frontier", cost=FLAT, max_depth=MOST)
    play(controller, WORLDS["good"], 300)
    assert controller.depth(ChainSignals.of([100])) >= 6
    assert controller.depth(ChainSignals.of([100], remaining_tokens=3)) <= 2
    assert controller.depth(ChainSignals.of([100], remaining_tokens=1)) == 0
    one_long = controller.expected_tokens(np.full((2, 4), 0.5), np.asarray([1, 9]))
    assert one_long.tolist() == pytest.approx([2.0, 2.5, 2.75, 2.875, 2.9375])


def test_buckets_are_part_of_the_price() -> None:
    steps = CostProfile("steps", CostGrid((1, 64), (0,), ((10.0, 73.0),)), CostGrid((1,), (0,), ((0.5,),)))
    controller = ChainController("frontier", cost=steps, max_depth=MOST, row_buckets=(1, 8, 16))
    depths = play(controller, WORLDS["good"], 600)[300:]
    assert max(depths) <= 7 and sum(depth == 7 for depth in depths) > 270


def test_counters_add_up() -> None:
    controller = ChainController("chain:3", cost=FLAT, max_depth=MOST)
    for accepted in ([0, 3], [1, 2], [3, 3]):
        controller.observe(accepted, controller.depth(ChainSignals.of([10, 20])))
    counters = controller.counters
    assert (counters.rounds, counters.accepted_tokens, counters.committed_tokens) == (6, 12, 18)
    assert (counters.growths, counters.verified_nodes, counters.policy_calls) == (9, 18, 3)
    tried = 1 + 3 + 2 + 3 + 3 + 3
    assert int(counters.calibration.nodes.sum()) == tried and int(counters.calibration.matched.sum()) == 12


def test_calibration_recovers_a_known_shift() -> None:
    """1,000 chains of 3 at base 0.5 whose guesses match with 0.8, 0.6, 0.4: each within 0.09, four deviations."""
    calibration = DepthCalibration(5)
    rng = np.random.default_rng(3)
    base = np.full(10, 0.5)
    assert (calibration.shifts() == 0.0).all()
    for _ in range(100):
        hits = rng.random((10, 3)) < np.asarray([0.8, 0.6, 0.4])
        calibration.add(base, np.cumprod(hits, axis=1).sum(axis=1), 3)
    found = calibration.conditional(np.asarray([0.5]))[0]
    assert found[:3].tolist() == pytest.approx([0.8, 0.6, 0.4], abs=4 * np.sqrt(0.25 / (0.5 * 0.48 * 2 * WINDOW)))
    assert found[3] == found[4] == pytest.approx(found[2], abs=0.01)  # never tried: as the depth above
    surer = calibration.conditional(np.asarray([0.7]))[0]
    assert (surer > found).all()


def test_a_batch_that_changed_between_the_calls_is_taken_by_its_mean() -> None:
    controller = ChainController("frontier", cost=FLAT, max_depth=MOST)
    controller.depth(ChainSignals.of([10, 10, 10], draft_agreement=[0.2, 0.4, 0.9]))
    controller.observe([1, 0], 2)
    assert controller.counters.rounds == 2


@pytest.mark.parametrize(
    ("accepted", "depth", "message"),
    [
        ([4], 3, r"accepted_lengths must be between 0 and the depth of 3, got \[4\]"),
        ([-1], 3, "accepted_lengths must be between 0"),
        ([], 3, r"accepted_lengths must be whole numbers, one per request, got \[\]"),
        ([0.5], 3, "accepted_lengths must be whole numbers"),
        ([0], 99, "depth must be between 0 and 8, got 99"),
    ],
)
def test_bad_observations_change_nothing(accepted: list[Any], depth: int, message: str) -> None:
    controller = ChainController("frontier", cost=FLAT, max_depth=MOST)
    controller.depth(ChainSignals.of([10]))
    with pytest.raises(ParameterError, match=message):
        controller.observe(accepted, depth)
    assert controller.counters.rounds == 0 and (controller.calibration.shifts() == 0.0).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: ChainController("entropy", cost=FLAT),
            "policy must be one with a draft length in chain mode .*'entropy",
        ),
        (lambda: ChainController("chain", cost=FLAT, max_depth=0), "max_depth must be between 1 and 64, got 0"),
        (lambda: ChainController("chain", cost="flat"), "cost must be a CostProfile, got 'flat'"),  # type: ignore[arg-type]
        (lambda: ChainController("chain", cost=FLAT).depth(3), "signals must be ChainSignals, got int"),  # type: ignore[arg-type]
        (lambda: ChainController("chain", cost=FLAT).observe([1], 1), "observe must be called after depth"),
        (lambda: ChainSignals.of([]), "context_tokens must be one number per request, at least one"),
        (
            lambda: ChainSignals.of([1, 2], temperature=[1.0, 1.0, 1.0]),
            "temperature must be one number, or one for each",
        ),
        (lambda: ChainSignals.of([1], warmth=1.0), "signals must be among .*, got warmth"),
        (lambda: ChainSignals.of([-1]), "context_tokens must be >= 0, got -1"),
        (lambda: ChainSignals.of([1.0], remaining_tokens=np.nan), "remaining_tokens must be known of every request"),
        (lambda: ChainSignals.of([1], draft_agreement="high"), "draft_agreement must be numbers"),
    ],
)
def test_bad_arguments_are_named(call: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        call()


def test_signals_are_arrays_and_finite() -> None:
    good = ChainSignals.of([10, 20])
    with pytest.raises(ParameterError, match="temperature must be an array of numbers"):
        replace(good, temperature=[0.0, 0.0])  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="accepted_recent must be finite, NaN where unknown"):
        ChainSignals.of([10], accepted_recent=np.inf)
    with pytest.raises(ParameterError, match="max_depth must be between 1 and 64, got True"):
        ChainController("frontier", cost=FLAT, max_depth=True)
