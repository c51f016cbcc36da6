"""The feedback controller."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.policy.conformance import CHECKS, Check
from tests.policy.scripted import Played, World, play
from treewise.policy.feedback import FeedbackPolicy, FeedbackSettings
from treewise.policy.hook import DRAFT, FREE, LOOKUP, RequestInfo, RoundOutcome


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(("headroom", "context_tokens"), [(0.7, 0), (0.2, 12)])
def test_conforms(check: Check, headroom: float, context_tokens: int) -> None:
    settings = FeedbackSettings(nodes=16, headroom=headroom, context_tokens=context_tokens, probe_rounds=3)
    assert check(lambda: FeedbackPolicy(settings)) > 0


class Told(FeedbackPolicy):
    """Is told accepted lengths in place of those that were."""

    def __init__(self, lengths: dict[int, int], settings: FeedbackSettings) -> None:
        super().__init__(settings)
        self.lengths = lengths

    def observe(self, outcome: RoundOutcome) -> None:
        told = [self.lengths[request] for request in outcome.context.request_id.tolist()]
        super().observe(replace(outcome, accepted_length=np.asarray(told, dtype=np.int32)))


def played(
    lengths: dict[int, int], sources: int = DRAFT, tokens: int = 60, **settings: Any
) -> tuple[list[Played], FeedbackPolicy]:
    rounds: list[Played] = []
    policy = Told(lengths, FeedbackSettings(**{"nodes": 24, "depth": 6, **settings}))
    play(policy, World(4, sources), tuple(lengths), max_new_tokens=tokens, rounds=rounds)
    return rounds, policy


def growths(rounds: list[Played]) -> list[int]:
    return [len(round_.tree.growth_tokens) for round_ in rounds[:-2]]


def nodes_of(rounds: list[Played], request: int = 0) -> list[int]:
    """Verified nodes of one of the batch's requests, round by round."""
    return [
        int((round_.tree.kept & (round_.tree.forest.view().request == request)).sum()) - 1 for round_ in rounds[:-2]
    ]


def test_trees_grow_while_guesses_come_true_and_shrink_while_they_fail() -> None:
    whole, _ = played({0: 6})
    none, _ = played({0: 0}, headroom=0.8)
    assert growths(whole)[0] == growths(none)[0] == 3  # half way
    assert max(growths(whole)) == 6 and growths(none)[-1] == 1
    assert growths(whole) == sorted(growths(whole)) or max(growths(whole)[-4:]) == 6
    assert growths(none) == sorted(growths(none), reverse=True)
    assert nodes_of(whole)[-3:] > nodes_of(whole)[:1] > nodes_of(none)[-3:]
    assert max(nodes_of(whole)) == 24 and nodes_of(none)[-1] <= 4


def test_beams_widen_with_the_size() -> None:
    def widest(length: int) -> int:
        """Most tokens of a second growth, once the size has settled."""
        rounds, _ = played({0: length}, beam=6, headroom=1.0)
        settled = [round_.tree.growth_tokens for round_ in rounds[12:-2]]
        return max(tokens[1] for tokens in settled if len(tokens) > 1)

    assert widest(6) > widest(1)
    assert widest(1) <= 2  # a size of 2 of 6


def test_a_draft_that_fails_is_only_probed() -> None:
    rounds, _ = played({0: 0}, headroom=0.0, gain=1.0, probe_rounds=4)
    assert [place for place, count in enumerate(growths(rounds)) if count] == [0, *range(5, len(rounds) - 2, 5)]
    silent, _ = played({0: 0}, headroom=0.0, gain=1.0, probe_rounds=0)
    assert growths(silent) == [3, *[0] * (len(growths(silent)) - 1)]


def test_free_guesses_that_come_true_bring_the_draft_back() -> None:
    rounds, _ = played({0: 0}, DRAFT | LOOKUP, headroom=0.0, gain=1.0, probe_rounds=0)
    assert growths(rounds)[1:] == [0] * (len(growths(rounds)) - 1)
    rounds, policy = played({0: 0}, DRAFT | LOOKUP, headroom=0.0, gain=1.0, probe_rounds=0)
    assert isinstance(policy, Told)
    policy.lengths = {0: 3}
    again: list[Played] = []
    play(policy, World(4, DRAFT | LOOKUP), max_new_tokens=40, rounds=again)
    assert max(growths(again)) >= 3


def test_long_contexts_have_small_trees() -> None:
    far, _ = played({0: 6}, context_tokens=10)
    near, _ = played({0: 6})
    assert growths(far)[0] == 2 and growths(near)[0] == 3  # position 9 of 10: about half as large
    assert np.mean(growths(far)[-6:]) < np.mean(growths(far)[:3]) + 1 < np.mean(growths(near)[-6:])


def test_a_round_that_verified_nothing_says_nothing() -> None:
    policy = FeedbackPolicy(FeedbackSettings(headroom=0.0))
    play(policy, World(3, DRAFT, empty=True), max_new_tokens=6)
    policy.begin(RequestInfo(5, 10, 6, 0.0))
    size = policy._records[5].size
    play(policy, World(3, DRAFT, empty=True), (6,), max_new_tokens=6)
    assert size == 3.0 and policy._records[5].size == size


def test_every_request_has_a_memory_of_its_own() -> None:
    together, policy = played({0: 6, 1: 0}, DRAFT | FREE, headroom=0.8)
    alone = {request: played({request: length}, DRAFT | FREE, headroom=0.8)[0] for request, length in ((0, 6), (1, 0))}
    assert nodes_of(together)[:8] == nodes_of(alone[0])[:8]
    assert nodes_of(together, 1)[:8] == nodes_of(alone[1])[:8]
    assert sum(nodes_of(together)[:8]) > sum(nodes_of(together, 1)[:8])
    assert not policy._records


def test_a_request_starts_anew() -> None:
    policy = FeedbackPolicy()
    policy.begin(RequestInfo(0, 10, 6, 0.0))
    policy._records[0].size = 0.0
    policy.begin(RequestInfo(0, 10, 6, 0.0))
    assert policy._records[0].size == 3.0
