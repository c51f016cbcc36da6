"""Verdicts from intervals, and comparisons that are many at once."""

from __future__ import annotations

import math

import numpy as np
import pytest

from treewise.data.errors import ParameterError
from treewise.training.statistics import Interval, SpeedRatio, Totals, prompts_needed
from treewise.training.verdict import Verdict, holm, judge, least_prompts, verdict_of


def pair(seed: int, gain: float, prompts: int = 40, noise: float = 0.05) -> SpeedRatio:
    """A policy about `gain` faster than its baseline on `prompts` prompts."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(20, 80, prompts).astype(np.float64)
    ms = 10.0 * tokens
    return SpeedRatio(
        Totals(tokens, ms / (1.0 + gain) * np.exp(noise * rng.standard_normal(prompts))), Totals(tokens, ms)
    )


def verdict(value: float, low: float, high: float, prompts: int = 50, spread: float = 0.3) -> Verdict:
    return verdict_of(Interval(value, low, high), prompts, spread)


@pytest.mark.parametrize(
    ("bounds", "kind", "words"),
    [
        ((1.1, 1.0349, 1.2), "better", "better by at least 3.4 %"),
        ((1.1, 1.0004, 1.2), "better", "better"),
        ((0.9, 0.8, 0.95), "worse", "worse by at least 5.0 %"),
        ((0.999, 0.98, 1.0), "worse", "worse"),
        ((1.0, 0.9881, 1.01), "not worse", "not worse by more than 1.2 %"),
        ((1.0, 1.0, 1.0), "not worse", "not worse by more than 0.0 %"),
        ((1.0, 0.98, 1.5), "not worse", "not worse by more than 2.0 %"),
        ((1.04, 0.9799, 1.1), "undecided", f"undecided: about {prompts_needed(0.3, 0.04) - 50} more prompts needed"),
        ((0.97, 0.9, 1.01), "undecided", f"undecided: about {prompts_needed(0.3, -0.03) - 50} more prompts needed"),
        (
            (1.0, 0.9, 1.1),
            "undecided",
            f"undecided: about {prompts_needed(0.3, 1.0 / 0.98 - 1.0) - 50:,} more prompts needed",
        ),
        ((0.98, 0.9, 1.1), "undecided", "undecided: the difference is at the margin itself"),
        ((0.98001, 0.9, 1.1), "undecided", "undecided: no affordable number of prompts would tell"),
    ],
)
def test_the_words_follow_from_the_interval(bounds: tuple[float, float, float], kind: str, words: str) -> None:
    found = verdict(*bounds)
    assert (found.kind, found.words) == (kind, words)
    assert (found.share is None) == (kind == "undecided")


def test_words_never_say_more_than_the_interval() -> None:
    rng = np.random.default_rng(0)
    for low in rng.uniform(0.7, 1.3, 200).tolist():
        found = verdict(low + 0.05, low, low + 0.1)
        if found.kind == "better":
            assert found.share is not None and found.share <= low - 1.0 + 1e-9
        elif found.kind == "not worse":
            assert found.share is not None and 1.0 - low <= found.share + 1e-9 <= 0.02 + 2e-9
        elif found.kind == "worse":
            assert found.share is not None and found.share <= 1.0 - (low + 0.1) + 1e-9


def test_few_prompts_carry_no_verdict_however_clear() -> None:
    assert [least_prompts(count) for count in (1, 2, 5, 10)] == [6, 7, 8, 9]
    few = verdict_of(Interval(2.0, 1.9, 2.1), 5, 0.01)
    assert (few.kind, few.words, few.more_prompts) == (
        "undecided",
        "undecided: 5 prompts are too few for any verdict",
        1,
    )
    assert verdict_of(Interval(2.0, 1.9, 2.1), 6, 0.01).kind == "better"
    assert verdict_of(Interval(2.0, 1.9, 2.1), 6, 0.01, comparisons=2).kind == "undecided"


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([0.02]) == [0.02]
    assert holm([]) == []


def test_one_comparison_is_not_widened() -> None:
    estimator = pair(1, 0.05)
    (alone,) = judge([estimator])
    many = judge([estimator, *(pair(seed, 0.0) for seed in range(2, 8))])[0]
    assert alone.verdict.kind == "better" and alone.comparisons == 1
    assert many.comparisons == 7
    assert many.interval.low < alone.interval.low and many.interval.high > alone.interval.high
    assert many.p_value >= alone.p_value
    assert many.log_spread == pytest.approx(alone.log_spread, rel=0.1)


def test_holm_finds_what_bonferroni_alone_would_miss() -> None:
    """Five clear gains leave the sixth, smaller one a whole alpha of its own; its bound is then 1 and no more."""
    clear = [pair(seed, 0.3) for seed in range(5)]
    for gain in np.linspace(-0.03, 0.05, 81).tolist():
        small = judge([*clear, pair(9, gain)])[-1]
        crowd = judge([*(pair(seed, 0.0) for seed in range(20, 25)), pair(9, gain)])[-1]
        if small.interval.low == 1.0:
            assert crowd.interval.low < 1.0
            assert small.p_value <= 0.05 < crowd.p_value
            assert (small.verdict.words, small.verdict.share) == ("better", 0.0)
            return
    pytest.fail("no gain lies between the two procedures")


def test_one_prompt_has_no_p_value() -> None:
    one = np.asarray([5.0])
    (found,) = judge([SpeedRatio(Totals(one, one), Totals(one, 2.0 * one))])
    assert math.isnan(found.p_value) and math.isnan(found.interval.low) and math.isnan(found.log_spread)
    assert found.verdict.words == "undecided: 1 prompts are too few for any verdict"


def test_equal_policies_are_not_worse() -> None:
    both = pair(3, 0.1)
    (found,) = judge([SpeedRatio(both.policy, both.policy)])
    assert (found.verdict.kind, found.p_value) == ("not worse", 1.0)


def test_a_margin_outside_its_range_is_refused() -> None:
    with pytest.raises(ParameterError, match=r"margin must be at least 0 and below 1, got -0\.1"):
        judge([pair(0, 0.0)], margin=-0.1)
