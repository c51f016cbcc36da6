"""The battery itself: each kind of misconduct is caught by the check that is there for it."""

import numpy as np
import pytest

from tests.policy.conformance import (
    Check,
    Wrapped,
    check_answers,
    check_batch_independence,
    check_determinism,
    check_spec,
    check_statelessness,
)
from treewise.data.errors import PolicyError
from treewise.policy.hook import BoolArray, Expansion, ForestView, Level, Reach, RequestInfo, TreePolicy
from treewise.policy.registry import parse_policy


class Cheating(Wrapped):
    """Top-N that misbehaves in subclasses."""

    def __init__(self) -> None:
        super().__init__(parse_policy("topn:12x3"))
        self.requests = 0

    def begin(self, request: RequestInfo) -> None:
        self.requests += 1


class Crowded(Cheating):
    def select(self, forest: ForestView) -> BoolArray:
        return self.policy.select(forest) & ((forest.nodes.parent < 0) | (len(forest.context.request_id) == 1))


class Tired(Cheating):
    def select(self, forest: ForestView) -> BoolArray:
        return self.policy.select(forest) & ((forest.nodes.parent < 0) | (self.requests < 2))


class Overreaching(Cheating):
    @property
    def reach(self) -> Reach:
        return Reach(2, 1)


class Hasty(Cheating):
    def expand(self, level: Level) -> Expansion:
        answer = self.policy.expand(level)
        return Expansion(np.zeros_like(answer.admit), answer.grow)


class Open(Cheating):
    def select(self, forest: ForestView) -> BoolArray:
        return np.asarray(forest.nodes.depth != 1)


class Writing(Cheating):
    def expand(self, level: Level) -> Expansion:
        level.context.catch_up[:] += 1
        return self.policy.expand(level)


class Begun(Cheating):
    def select(self, forest: ForestView) -> BoolArray:
        return self.policy.select(forest) & ((forest.nodes.parent < 0) | (self.requests > 0))


@pytest.mark.parametrize(
    ("policy", "check"),
    [
        (Crowded, check_batch_independence),
        (Tired, check_determinism),
        (Overreaching, check_answers),
        (Hasty, check_answers),
        (Open, check_answers),
        (Writing, check_answers),
        (Begun, check_statelessness),
        (Cheating, check_spec),
    ],
)
def test_misconduct_is_caught(policy: type[TreePolicy], check: Check) -> None:
    with pytest.raises((AssertionError, PolicyError)):
        check(policy)
