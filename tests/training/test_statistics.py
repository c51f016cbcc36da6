"""Ratios of totals and their intervals, on known truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from treewise.data.errors import ParameterError
from treewise.training.statistics import (
    Estimator,
    Interval,
    MedianRatio,
    SpeedRatio,
    Totals,
    bootstrap,
    interval,
    log_spread,
    median_ratio,
    point,
    prompts_needed,
    speed_ratio,
    totals_by_prompt,
)


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


def test_an_interval_without_bounds_shows_none() -> None:
    assert str(Interval(1.25, 1.0, 1.5)) == "1.250 [1.000, 1.500]"
    assert str(Interval(1.25, math.nan, math.nan)) == "1.250"


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


def test_the_median_ratio_is_by_prompt_and_one_slow_prompt_moves_nothing() -> None:
    plain = totals([10.0, 100.0, 10.0], [10.0, 100.0, 10.0])
    policy = totals([10.0, 100.0, 10.0], [5.0, 1e6, 8.0])  # 2, almost 0 and 1.25 times as fast
    assert median_ratio(policy, plain).value == pytest.approx(1.25)
    even = median_ratio(Totals(plain.tokens, plain.ms / 2.0), plain)
    assert [even.value, even.low, even.high] == pytest.approx([2.0, 2.0, 2.0])


def test_the_medians_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    # 200 experiments of 30 prompts at nominal 95 %: fewer than 175 hits has probability below 1e-5 at 94 % coverage.
    rng = np.random.default_rng(5)
    tokens = np.full(30, 60.0)
    hits = 0
    for _ in range(200):
        plain_ms = rng.uniform(50.0, 150.0, size=30)
        found = median_ratio(Totals(tokens, plain_ms / rng.uniform(1.5, 2.5, size=30)), Totals(tokens, plain_ms))
        hits += found.low <= 2.0 <= found.high
    assert hits >= 175


def test_the_medians_interval_is_reproducible_and_refuses_what_speed_ratio_refuses() -> None:
    one = totals([5.0, 7.0, 9.0, 4.0], [1.0, 2.0, 3.0, 4.0])
    two = totals([5.0, 7.0, 9.0, 4.0], [2.0, 3.0, 9.0, 9.0])
    assert median_ratio(one, two, seed=3) == median_ratio(one, two, seed=3)
    single = median_ratio(totals([5.0], [1.0]), totals([5.0], [2.0]))
    assert single.value == 2.0
    assert math.isnan(single.low) and math.isnan(single.high)
    with pytest.raises(ParameterError, match="resamples must be >= 2000, got 100"):
        median_ratio(one, two, resamples=100)
    with pytest.raises(ParameterError, match=r"level must be between 0 and 1, got 1\.0"):
        median_ratio(one, two, level=1.0)
    with pytest.raises(ParameterError, match="baseline must be totals of 4 prompts, got 1"):
        median_ratio(one, totals([5.0], [1.0]))


@pytest.mark.parametrize("count", [2, 3, 8, 9])
def test_an_estimator_weighs_prompts_by_how_often_they_were_drawn(count: int) -> None:
    rng = np.random.default_rng(count)
    policy, plain = (Totals(rng.uniform(5, 50, count), rng.uniform(10, 90, count)) for _ in range(2))
    draws = rng.integers(count, size=(20, count))
    times = np.stack([np.bincount(draw, minlength=count) for draw in draws]).astype(np.float64)
    ratio, median = SpeedRatio(policy, plain), MedianRatio(policy, plain)
    assert (ratio.by_prompt.shape, median.by_prompt.shape) == ((count, 4), (count, 1))
    for place, draw in enumerate(draws):
        mine, theirs = (Totals(part.tokens[draw], part.ms[draw]) for part in (policy, plain))
        assert ratio.value(times)[place] == pytest.approx(mine.speed / theirs.speed)
        assert median.value(times)[place] == pytest.approx(np.median(median.by_prompt[draw, 0]))
    for estimator in (ratio, median):
        one: Estimator = estimator
        assert interval(one).value == point(one) and len(bootstrap(one, 2500)) == 2500


def test_the_spread_of_one_prompt_is_that_of_its_ratio() -> None:
    # Equal tokens and plain time: the log of the ratio of totals has about the spread of the policy's own log time.
    rng = np.random.default_rng(3)
    tokens = np.full(400, 50.0)
    policy = Totals(tokens, 100.0 * np.exp(0.1 * rng.standard_normal(400)))
    spread = log_spread(bootstrap(SpeedRatio(policy, Totals(tokens, np.full(400, 200.0)))), 400)
    assert spread == pytest.approx(0.1, rel=0.1)
    assert math.isnan(log_spread(np.ones(2000), 1))


def test_planned_prompts_by_hand() -> None:
    # (1.960 + 0.842) x 0.1 / log 1.03, squared: 89.9
    assert prompts_needed(0.1, 0.03) == 90
    assert prompts_needed(0.2, 0.03) == pytest.approx(4 * 90, abs=2)
    assert prompts_needed(0.1, 0.03, level=0.99) > prompts_needed(0.1, 0.03) > prompts_needed(0.1, 0.03, power=0.5)
    assert prompts_needed(0.001, 1.0) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"difference": 0.0}, "difference must be above -1 and not 0, got 0.0"),
        ({"difference": -1.0}, "difference must be above -1 and not 0, got -1.0"),
        ({"difference": 0.1, "power": 1.0}, "power must be at least 0.5 and below 1, got 1.0"),
        ({"difference": 0.1, "level": 0.0}, "level must be between 0 and 1, got 0.0"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        prompts_needed(0.1, **arguments)
