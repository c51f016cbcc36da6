"""Ratios of totals and their intervals, on known truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from treewise.data.errors import ParameterError
from treewise.training.statistics import Totals, speed_ratio, totals_by_prompt


def totals(tokens: list[float], ms: list[float]) -> Totals:
    return Totals(np.asarray(tokens, dtype=np.float64), np.asarray(ms, dtype=np.float64))


def test_the_value_is_a_ratio_of_totals_not_a_mean_of_ratios() -> None:
    policy, plain = totals([10.0, 90.0], [10.0, 10.0]), totals([10.0, 90.0], [10.0, 90.0])
    assert speed_ratio(policy, plain).value == pytest.approx((100 / 20) / (100 / 100))


def test_an_equal_policy_has_ratio_one_without_spread() -> None:
    one = totals([5.0, 7.0, 9.0], [1.0, 2.0, 3.0])
    found = speed_ratio(one, one)
    assert [found.value, found.low, found.high] == pytest.approx([1.0, 1.0, 1.0])


def test_pairing_removes_what_prompts_share() -> None:
    rng = np.random.default_rng(0)
    plain_ms = rng.uniform(10.0, 100.0, size=40)
    tokens = np.full(40, 50.0)
    found = speed_ratio(Totals(tokens, plain_ms / 2.0), Totals(tokens, plain_ms))
    assert [found.low, found.high] == pytest.approx([2.0, 2.0])


def test_the_interval_is_reproducible_and_moves_with_the_seed() -> None:
    rng = np.random.default_rng(1)
    policy = Totals(np.full(12, 50.0), rng.uniform(10.0, 20.0, 12))
    plain = Totals(np.full(12, 50.0), rng.uniform(20.0, 40.0, 12))
    assert speed_ratio(policy, plain, seed=3) == speed_ratio(policy, plain, seed=3)
    assert speed_ratio(policy, plain, seed=3).low != speed_ratio(policy, plain, seed=4).low


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    # 200 experiments of 30 prompts at nominal 95 %: fewer than 175 hits has probability below 1e-5 at 94 % coverage.
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(200):
        plain_ms = rng.uniform(50.0, 150.0, size=30)
        policy_ms = plain_ms * rng.uniform(0.4, 0.6, size=30)  # truth: half the milliseconds
        found = speed_ratio(Totals(np.full(30, 60.0), policy_ms), Totals(np.full(30, 60.0), plain_ms))
        hits += found.low <= 2.0 <= found.high
    assert hits >= 175


def test_one_prompt_gives_no_interval() -> None:
    found = speed_ratio(totals([5.0], [1.0]), totals([5.0], [2.0]))
    assert found.value == 2.0
    assert math.isnan(found.low) and math.isnan(found.high)


def test_requests_of_one_prompt_are_summed() -> None:
    found = totals_by_prompt(np.asarray(["b", "a", "b"]), [1, 2, 3], [10.0, 20.0, 30.0])
    assert found.tokens.tolist() == [2.0, 4.0]
    assert found.ms.tolist() == [20.0, 40.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"resamples": 100}, "resamples must be >= 2000, got 100"),
        ({"level": 1.0}, "level must be between 0 and 1, got 1.0"),
    ],
)
def test_bad_settings_are_named(arguments: dict[str, float], message: str) -> None:
    one = totals([5.0], [1.0])
    with pytest.raises(ParameterError, match=message):
        speed_ratio(one, one, **arguments)  # type: ignore[arg-type]


def test_unequal_prompts_and_missing_time_are_errors() -> None:
    with pytest.raises(ParameterError, match="baseline must be totals of 1 prompts, got 2"):
        speed_ratio(totals([5.0], [1.0]), totals([5.0, 1.0], [1.0, 1.0]))
    with pytest.raises(ParameterError, match="ms must be above 0"):
        totals([5.0], [0.0])
