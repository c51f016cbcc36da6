"""The frontier rule."""

import numpy as np
import pytest

from tests.policy.conformance import CHECKS, Check, sizes
from tests.policy.scripted import Decision, Played, World, example_cost, example_deployment, play
from treewise.policy.frontier import FrontierPolicy, FrontierSettings
from treewise.policy.hook import DRAFT, LOOKUP


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("kappa", [None, 0.3])
def test_conforms(check: Check, kappa: float | None) -> None:
    assert check(lambda: FrontierPolicy(FrontierSettings(kappa=kappa))) > 0


def played(settings: FrontierSettings, sources: int = DRAFT, draft_ms: float = 1.0, tokens: int = 30) -> list[Played]:
    rounds: list[Played] = []
    bound = example_deployment(sources, example_cost(draft_ms))
    play(FrontierPolicy(settings), World(4, sources), max_new_tokens=tokens, deployment=bound, rounds=rounds)
    return rounds


def growths(rounds: list[Played]) -> list[int]:
    return [len(round_.tree.growth_tokens) for round_ in rounds]


def test_growths_follow_their_price() -> None:
    cheap, fair, dear = (np.mean(growths(played(FrontierSettings(), draft_ms=ms))) for ms in (0.0, 2.0, 200.0))
    assert cheap >= fair > dear


def test_dear_drafts_are_only_probed() -> None:
    rounds = growths(played(FrontierSettings(probe_rounds=4), draft_ms=500.0))
    assert [n for n, count in enumerate(rounds[:-1]) if count] == list(range(4, len(rounds) - 1, 5))
    assert not any(growths(played(FrontierSettings(probe_rounds=0), draft_ms=500.0)))


def test_a_larger_kappa_stops_sooner() -> None:
    means = [np.mean(growths(played(FrontierSettings(kappa=kappa)))) for kappa in (0.02, 0.5, 1.0)]
    assert means[0] > means[1] > means[2] >= 0.5


def test_a_dearer_millisecond_keeps_fewer_nodes() -> None:
    def kept(rate: float) -> float:
        policy = FrontierPolicy(FrontierSettings(rate=rate))
        decisions: list[Decision] = play(policy, World(4), max_new_tokens=30)[0]
        return float(np.mean(sizes(decisions)))

    assert kept(0.001) > kept(0.05) > kept(0.5)


def test_a_sure_lookup_makes_the_draft_rarer() -> None:
    alone = [count > 0 for count in growths(played(FrontierSettings(), DRAFT, draft_ms=6.0, tokens=60))]
    both = [count > 0 for count in growths(played(FrontierSettings(), DRAFT | LOOKUP, draft_ms=6.0, tokens=60))]
    assert np.mean(both) < np.mean(alone)


def test_records_last_as_long_as_the_request() -> None:
    policy = FrontierPolicy()
    play(policy, World(0), (0, 1))
    assert not policy._records
