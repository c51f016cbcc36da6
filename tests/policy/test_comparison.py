"""The running comparison on made-up rounds."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from treewise.data.errors import ParameterError
from treewise.policy.comparison import Arm, Comparison, ComparisonSettings

PLAIN_MS = 20.0
Speeds = Callable[[int], dict[Arm, float]]  # round -> speed over plain decoding of each arm that is not plain


def run(found: Comparison, rounds: int, speeds: Speeds, seed: int = 0) -> tuple[float, list[Arm]]:
    """Milliseconds over those of the fastest arm at every round, token by token, and who decided.

    Rounds commit 1 to 5 tokens; their price makes the speed right on average, and a slow drift makes text easy or hard.
    """
    rng = np.random.default_rng(seed)
    spent = best = hard = 0.0
    arms: list[Arm] = []
    for index in range(rounds):
        arm, now = found.arm, speeds(index)
        hard = 0.99 * hard + 0.03 * rng.normal()
        tokens = 1 if arm == "plain" else int(rng.integers(1, 6))
        speed = {**now, "plain": 1.0}
        factor = 1.0 if arm == "plain" else float(np.exp(hard))
        ms = PLAIN_MS if arm == "plain" else 3.0 * PLAIN_MS * factor / speed[arm]
        found.add(tokens, tokens * PLAIN_MS, ms, 1)
        expected = tokens if arm == "plain" else 3.0 * factor
        spent += ms
        best += expected * PLAIN_MS / max(speed.values())
        arms.append(arm)
    return spent / best, arms


@pytest.mark.parametrize("speed", [1.5, 2.0])
def test_never_steps_aside_from_what_is_faster(speed: float) -> None:
    # At 1.5 a round saves 1 with variance about 2: one false alarm in 1e27 rounds, were the text not easy and hard.
    found = Comparison()
    lost, arms = run(found, 20_000, lambda _: {"learned": speed})
    assert set(arms) == {"learned"}
    assert found.counters.learned_rounds == 20_000
    assert lost == pytest.approx(1.0)


def test_hard_stretches_of_a_slight_gain_cost_little() -> None:
    for seed in range(3):
        lost, arms = run(Comparison(), 20_000, lambda _: {"learned": 1.2}, seed)
        assert arms.count("learned") > 16_000
        assert lost < 1.02


@pytest.mark.parametrize("speed", [0.3, 0.7, 0.9])
def test_a_slow_policy_steps_aside_and_its_trials_grow_rare(speed: float) -> None:
    found = Comparison()
    lost, arms = run(found, 40_000, lambda _: {"learned": speed})
    counters = found.counters
    assert counters.plain_rounds > 32_000
    assert counters.returns <= 2, "an easy stretch may win a trial"
    assert 4 <= counters.trials <= 12
    assert counters.asides in (counters.trials, counters.trials + 1)
    # Each attempt loses about its patience, and those of the last round; pauses double from 128 to 8192.
    assert lost < 1.04
    turns = [place for place in range(1, len(arms)) if arms[place] == "plain" and arms[place - 1] == "learned"]
    pauses = [arms[place:].index("learned") for place in turns if "learned" in arms[place:]]
    assert pauses[:2] == [128, 256]


def test_comes_back_when_the_cause_is_gone() -> None:
    found = Comparison()
    _, arms = run(found, 6000, lambda index: {"learned": 0.5 if index < 1500 else 1.8})
    assert found.counters.returns == 1
    assert found.counters.plain_rounds < 3000
    assert set(arms[3200:]) == {"learned"}


def test_hysteresis_keeps_ties_from_flapping() -> None:
    changes = []
    for seed in range(3):
        _, arms = run(Comparison(), 20_000, lambda _: {"learned": 1.0}, seed)
        changes.append(sum(one != other for one, other in itertools.pairwise(arms)))
    assert max(changes) < 40, "never more than once in hundreds of rounds"


def test_a_single_bad_round_is_no_reason() -> None:
    found = Comparison()
    for _ in range(50):
        found.add(2, 2 * PLAIN_MS, PLAIN_MS, 1)
    found.add(1, PLAIN_MS, 30 * PLAIN_MS, 1)
    before = found.arm
    found.add(1, PLAIN_MS, 40 * PLAIN_MS, 1)
    assert (before, found.arm) == ("learned", "plain")


@pytest.mark.parametrize("fixed", [0.8, 1.6, 1.9])
def test_probes_of_a_slower_tree_cost_less_than_a_hundredth(fixed: float) -> None:
    for seed in range(3):
        found = Comparison(has_fixed=True)
        lost, _ = run(found, 20_000, lambda _: {"learned": 2.0, "fixed": fixed}, seed)
        assert found.counters.changes == 0
        assert found.counters.probes >= 8
        assert lost < 1.01
        assert found.counters.fixed_rounds < 20_000 / 32


def test_a_faster_tree_takes_over_and_hands_back() -> None:
    found = Comparison(has_fixed=True)
    speeds: Speeds = lambda index: {"learned": 1.2 if index < 20_000 else 2.0, "fixed": 1.6}  # noqa: E731
    _, arms = run(found, 60_000, speeds)
    assert "fixed" in arms[:12_000]
    assert arms[15_000:20_000].count("fixed") > 4500
    assert arms[55_000:].count("learned") > 4500
    assert found.counters.changes >= 1


def test_equal_arms_rarely_change_places() -> None:
    changes = []
    for seed in range(4):
        found = Comparison(has_fixed=True)
        run(found, 20_000, lambda _: {"learned": 1.5, "fixed": 1.5}, seed)
        changes.append(found.counters.changes)
    assert max(changes) <= 2


def test_both_slower_than_plain_decoding_leaves_plain() -> None:
    found = Comparison(has_fixed=True)
    lost, arms = run(found, 40_000, lambda _: {"learned": 0.6, "fixed": 0.8})
    assert found.counters.plain_rounds > 32_000
    assert {"learned", "fixed"} < set(arms[500:])
    assert lost < 1.05


def test_a_tree_that_pays_is_tried_first() -> None:
    found = Comparison(has_fixed=True)
    _, arms = run(found, 4000, lambda _: {"learned": 0.5, "fixed": 1.5})
    assert set(arms[600:]) <= {"fixed", "learned"}
    assert arms[600:].count("fixed") > 3000
    assert found.counters.returns == 1


def test_lead_is_unknown_before_there_are_probes() -> None:
    assert Comparison(has_fixed=True).fixed_lead == (0.0, float("inf"))


def test_without_a_tree_nothing_is_probed() -> None:
    found = Comparison()
    run(found, 5000, lambda _: {"learned": 1.5})
    assert found.counters.probes == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"patience_rounds": 0.0}, "patience_rounds must be finite and above 0, got 0.0"),
        ({"pause_rounds": 0}, "pause_rounds must be finite and above 0, got 0"),
        ({"longest_pause_rounds": 5}, "longest_pause_rounds must be at least pause_rounds, got 5"),
        ({"longest_probe_blocks": 5}, "longest_probe_blocks must be at least probe_blocks, got 5"),
        ({"pairs": 3}, "pairs must be at least 8, got 3"),
        ({"margin": 1.0}, "margin must be at least 0 and below 1, got 1.0"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        ComparisonSettings(**settings)  # type: ignore[arg-type]
