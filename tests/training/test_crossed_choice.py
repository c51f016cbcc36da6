"""Choosing a setting without letting the choice flatter itself."""

from __future__ import annotations

import numpy as np
import pytest

from treewise.training.crossed_choice import Choices
from treewise.training.tally import TALLY_COLUMNS, Tally


def choices(ms: list[list[float]], task: list[str]) -> Choices:
    """Settings a, b, ... on prompts of ten tokens that plain decoding takes 100 ms for."""
    count = len(task)
    specs = tuple("abc"[: len(ms)])
    return Choices(specs, np.asarray(task), np.full(count, 10.0), np.full(count, 100.0), np.asarray(ms))


def test_each_prompt_gets_what_the_others_choose() -> None:
    # a: 45 + 70 + 55 = 170, b: 70 + 50 + 60 = 180. Without the first a is 125 and b 110, without the second 100 and
    # 130, without the third 115 and 120: the first gets b.
    found = choices([[45.0, 70.0, 55.0], [70.0, 50.0, 60.0]], ["t"] * 3)
    assert found.best == "a"
    assert found.unseen_ms().tolist() == [70.0, 70.0, 55.0]
    assert found.unseen_speedup().value == pytest.approx(300 / 195)
    assert found.only(("b",)).unseen_ms().tolist() == [70.0, 50.0, 60.0]


def test_a_setting_for_each_task_gains_where_tasks_differ() -> None:
    ms = [[40.0, 40.0, 90.0, 90.0, 70.0], [90.0, 90.0, 40.0, 40.0, 72.0]]
    found = choices(ms, ["chat", "chat", "code", "code", "rag"])
    # One for all: without the first a is 290, b 242, so b; likewise b for the second; a for the others; without the
    # last both are 260, and the first of them is taken.
    assert found.unseen_ms().tolist() == [90.0, 90.0, 90.0, 90.0, 70.0]
    # Of their own: 40 for all four; the lone prompt takes what all choose.
    assert found.own_setting_gain() == pytest.approx(430 / 230)
    alike = choices([[40.0] * 4, [50.0] * 4], ["chat", "chat", "code", "code"])
    assert alike.own_setting_gain() == 1.0


def test_one_prompt_chooses_for_itself_and_has_no_interval() -> None:
    found = choices([[60.0], [50.0]], ["t"])
    assert found.unseen_ms().tolist() == [50.0]
    assert np.isnan(found.unseen_speedup().low)


def test_requests_of_a_prompt_are_summed() -> None:
    def tally(ms: list[float]) -> Tally:
        columns = {name: np.zeros(3) for name in TALLY_COLUMNS}
        columns |= {"ms": np.asarray(ms), "tokens": np.asarray([5.0, 6.0, 7.0])}
        return Tally(np.asarray(["p", "q", "p"]), np.asarray(["t", "u", "t"]), np.asarray([10.0, 20.0, 30.0]), columns)

    found = Choices.of({"a": tally([1.0, 2.0, 3.0]), "b": tally([4.0, 5.0, 6.0])})
    assert found.ms.tolist() == [[4.0, 2.0], [10.0, 5.0]]
    assert (found.tokens.tolist(), found.plain_ms.tolist(), found.task.tolist()) == (
        [12.0, 6.0],
        [40.0, 20.0],
        ["t", "u"],
    )
