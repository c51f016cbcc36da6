"""Figures of verification rules from answers whose scores are known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from treewise.data.errors import ParameterError
from treewise.training.quality import NAMES, Answers, Change, figure_of, quality_figures, take

NAN = math.nan


def answers(name: str, **changes: Any) -> Answers:
    """Four answers of 10, 10, 20 and 40 tokens that are plain decoding's, changed as told."""
    columns: dict[str, Any] = {
        "tokens": np.asarray([10, 10, 20, 40]),
        "rounds": np.asarray([10, 10, 20, 40]),
        "ms": np.asarray([10.0, 10.0, 20.0, 40.0]),
        "is_cut": np.zeros(4, dtype=np.bool_),
        "is_same": np.ones(4, dtype=np.bool_),
        "shared_tokens": np.asarray([10, 10, 20, 40]),
        "rouge_l": np.ones(4),
        "is_json": np.asarray([1.0, 0.0, NAN, NAN]),
        "is_pass": np.full(4, NAN),
    }
    return Answers(name, **{**columns, **changes})


PLAIN = answers("plain")
EXACT = answers("exact", rounds=np.asarray([5, 5, 10, 20]), ms=np.asarray([5.0, 5.0, 10.0, 20.0]))
LOSSY = answers(
    "threshold:0.2",
    rounds=np.asarray([4, 4, 8, 16]),
    ms=np.asarray([4.0, 4.0, 8.0, 16.0]),
    is_same=np.asarray([True, False, False, True]),
    shared_tokens=np.asarray([10, 2, 6, 40]),
    rouge_l=np.asarray([1.0, 0.5, 0.75, 1.0]),
    is_json=np.asarray([0.0, 0.0, NAN, NAN]),
)


def test_figures_are_ratios_over_prompts() -> None:
    values = quality_figures(PLAIN, EXACT, [PLAIN, EXACT, LOSSY])
    plain, exact, lossy = ({name: figure_of(row, name).value for name in NAMES} for row in values)
    expected = {"same": 0.5, "kept": 58 / 80, "rouge_l": 0.8125, "json": 0.0, "tokens_per_round": 2.5, "speedup": 2.5}
    assert {name: lossy[name] for name in expected} == pytest.approx(expected)
    assert lossy["over_exact"] == pytest.approx(1.25)
    assert (exact["same"], exact["kept"], exact["rouge_l"], exact["json"]) == (1.0, 1.0, 1.0, 0.5)
    assert exact["speedup"] == pytest.approx(2.0)
    assert [math.isnan(value) for value in (plain["speedup"], exact["over_exact"], lossy["passed"])] == [True] * 3


def test_intervals_hold_the_value_and_are_those_of_the_prompts() -> None:
    values = quality_figures(PLAIN, EXACT, [LOSSY])[0]
    for name in ("same", "kept", "rouge_l"):
        found = figure_of(values, name)
        assert 0.0 <= found.low < found.value < found.high <= 1.0
    steady = figure_of(values, "speedup")  # every prompt is as much faster
    assert (steady.low, steady.high) == pytest.approx((2.5, 2.5))
    plain, exact, lossy = (take(each, np.asarray([1])) for each in (PLAIN, EXACT, LOSSY))
    one = quality_figures(plain, exact, [lossy])
    assert math.isnan(figure_of(one[0], "kept").low)
    assert figure_of(one[0], "kept").value == pytest.approx(0.2)


def test_identical_is_said_of_texts_that_are_all_the_same() -> None:
    assert EXACT.is_identical
    assert (EXACT.num_differing, EXACT.first_differences.tolist()) == (0, [])
    assert not LOSSY.is_identical
    assert (LOSSY.num_differing, LOSSY.first_differences.tolist()) == (2, [2, 6])


def test_changes_tell_lost_from_gained() -> None:
    was, now = np.asarray([1.0, 1.0, 0.0, NAN, 0.0]), np.asarray([1.0, 0.0, 1.0, NAN, 0.0])
    assert Change.between(was, now) == Change(right=2, of=4, lost=1, gained=1)
    assert Change.between(PLAIN.is_pass, LOSSY.is_pass) == Change(0, 0, 0, 0)


def test_columns_are_of_one_length() -> None:
    with pytest.raises(ParameterError, match=r"rouge_l must be of shape \(4,\), got \(3,\)"):
        answers("exact", rouge_l=np.ones(3))
    with pytest.raises(ParameterError, match="figure must be one of same, kept"):
        figure_of(np.zeros((len(NAMES), 3)), "bleu")
