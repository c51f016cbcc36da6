"""Plain decoding."""

import pytest

from tests.policy.conformance import CHECKS, Check
from tests.policy.scripted import World, play
from treewise.policy.hook import Reach
from treewise.policy.plain import PlainPolicy


@pytest.mark.parametrize("check", CHECKS)
def test_conforms(check: Check) -> None:
    assert check(PlainPolicy) > 0


def test_guesses_nothing_and_commits_one_token_a_round() -> None:
    decisions = play(PlainPolicy(), World(0), max_new_tokens=7)[0]
    assert len(decisions) == 7
    assert all(d.kept == {()} and not d.grown for d in decisions)
    assert PlainPolicy().reach == Reach(0, 0)
