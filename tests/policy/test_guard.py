"""The guarded policy: the conformance battery, what it learns from rounds, and that it does not disturb."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.policy.conformance import CHECKS, Check, sizes
from tests.policy.models import tiny_bundle
from tests.policy.scripted import Decision, Played, World, example_cost, example_deployment, play
from treewise.data.errors import ParameterError, PolicySpecError
from treewise.policy.bundle import Bundle
from treewise.policy.comparison import Arm, ComparisonSettings
from treewise.policy.contain import ContainedPolicy
from treewise.policy.guard import FIXED, GuardedPolicy, GuardSettings
from treewise.policy.hook import DRAFT, LOOKUP, BoolArray, Expansion, ForestView, Level, TimedPolicy, TreePolicy
from treewise.policy.learned import LearnedPolicy
from treewise.policy.recalibration import RecalibrationSettings
from treewise.policy.registry import parse_policy
from treewise.policy.scorer import Calibration

BOTH = DRAFT | LOOKUP
QUICK = ComparisonSettings(patience_rounds=4.0, pause_rounds=8, block_rounds=2, probe_blocks=2)
DEAR = example_deployment(BOTH, example_cost(400.0))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    bundle = replace(tiny_bundle(), provenance={**tiny_bundle().provenance, FIXED: "topn:8x2"})
    return bundle.save(tmp_path_factory.mktemp("bundles") / "guarded")


def shifted(odds: float) -> Bundle:
    """A bundle whose calibration is wrong by so many log-odds."""
    bundle = tiny_bundle()
    curve = bundle.match.calibration
    wrong = Calibration(curve.knots_x, tuple(y + odds for y in curve.knots_y))
    return replace(bundle, match=replace(bundle.match, calibration=wrong))


def guarded(bundle: Bundle | None = None, guard: GuardSettings | None = None) -> GuardedPolicy:
    return GuardedPolicy(bundle or tiny_bundle(), "flat", compiled="off", guard=guard)


def session(policy: TreePolicy, requests: int, rounds: list[Played] | None = None) -> list[list[Decision]]:
    """Requests one after the other."""
    return [play(policy, World(request, BOTH), (request,), 60, rounds=rounds)[request] for request in range(requests)]


@pytest.mark.parametrize("check", CHECKS)
def test_conformance(check: Check, folder: Path) -> None:
    assert check(lambda: parse_policy(f"guarded:{folder}")) > 0


def test_is_a_timed_session_policy_named_by_its_folder(folder: Path) -> None:
    policy = parse_policy(f"guarded:{folder}")
    assert isinstance(policy, GuardedPolicy)
    assert isinstance(policy, LearnedPolicy), "drivers treat its bundle as the learned policy's"
    assert isinstance(policy, TimedPolicy)
    assert policy.state == "session"
    assert policy.spec == f"guarded:{folder}"
    with pytest.raises(PolicySpecError, match="policy must be guarded:DIR with the folder of a bundle, got 'guarded'"):
        parse_policy("guarded")


def test_decides_as_the_learned_policy_until_it_has_learned() -> None:
    quiet = GuardSettings(recalibration=RecalibrationSettings(refit_rows=10**6))
    policy, learned = guarded(guard=quiet), LearnedPolicy(tiny_bundle(), "flat", compiled="off")
    assert session(policy, 4) == session(learned, 4)
    assert policy.recalibration.rows > 100
    assert policy.counters.learned_rounds > 40
    assert policy.counters.plain_rounds == policy.counters.asides == 0


@pytest.mark.parametrize("odds", [-2.0, 2.0])
def test_a_wrong_calibration_is_found_and_undone(odds: float) -> None:
    policy = guarded(shifted(odds), GuardSettings(recalibration=RecalibrationSettings(intercept_ridge=1.0)))
    sound = guarded(guard=GuardSettings(recalibration=RecalibrationSettings(intercept_ridge=1.0)))
    for each in (policy, sound):
        session(each, 24)
        assert each.recalibration.refits > 4
    undone = policy.recalibration.intercept + policy.recalibration.slope * odds
    assert undone == pytest.approx(sound.recalibration.intercept, abs=0.6)
    assert abs(policy.recalibration.intercept) > 1.0


def test_rows_are_those_whose_parent_was_on_the_path() -> None:
    policy, rounds = guarded(), list[Played]()
    session(policy, 2, rounds)
    known = [played.walk.match[played.tree.forest.view().parent >= 0] >= 0 for played in rounds]
    assert policy.recalibration.rows == sum(int(rows.sum()) for rows in known) > 0


def test_dear_rounds_make_it_step_aside_and_try_again() -> None:
    """The learned arm is made to draft whatever it costs; the profile knows that this is ruinous."""

    class Drafts(GuardedPolicy):
        arms: list[Arm]

        def expand(self, level: Level) -> Expansion:
            answer = super().expand(level)
            if level.index == 0:
                self.arms.append(self._arm)
                if self._arm == "plain":
                    assert self.survival is None
                    assert self.round_match.size == 0, "no row of another arm has a score of an earlier round"
            if self._arm == "learned" and level.index < 2:
                return Expansion(np.ones_like(answer.admit), level.candidates.may_grow.copy())
            return answer

    policy = Drafts(tiny_bundle(), "flat", compiled="off", guard=GuardSettings(comparison=QUICK))
    policy.arms = []
    decisions = play(policy, World(1, BOTH), (0,), 80, deployment=DEAR)[0]
    assert policy.arms[0] == "learned"
    assert policy.counters.asides >= 2
    assert policy.counters.trials >= 1
    assert policy.counters.returns == 0
    plain = [place for place, arm in enumerate(policy.arms) if arm == "plain"]
    assert len(plain) == policy.counters.plain_rounds > len(policy.arms) / 2
    kept = sizes(decisions)
    assert all(kept[place] == 0 for place in plain)
    assert not any(decisions[place].grown for place in plain), "plain decoding asks no source"


def test_probes_run_the_fixed_tree(folder: Path) -> None:
    bundle = Bundle.load(folder)
    policy = guarded(bundle, GuardSettings(comparison=QUICK))
    session(policy, 6)
    counters = policy.counters
    assert counters.probes > 3
    assert counters.fixed_rounds > 0
    assert counters.learned_rounds > counters.fixed_rounds
    assert guarded(bundle, GuardSettings(fixed="chain:3")).counters.probes == 0


def test_reach_is_that_of_every_arm() -> None:
    policy = guarded(guard=GuardSettings(fixed="static:3x4"))
    policy.bind(example_deployment(BOTH))
    assert policy.reach == LearnedPolicy(tiny_bundle(), "flat", compiled="off").reach


def test_rounds_that_a_fallback_finished_are_nobodys() -> None:
    class Broken(GuardedPolicy):
        def select(self, forest: ForestView) -> BoolArray:
            raise RuntimeError("broken")

    policy = Broken(tiny_bundle(), "flat", compiled="off")
    contained = ContainedPolicy(policy, is_quiet=True)
    play(contained, World(0, BOTH))
    assert contained.num_fallbacks > 3
    assert contained.num_failures == contained.num_fallbacks, "observe does not fail"
    assert policy.counters.learned_rounds == policy.recalibration.rows == 0


def test_memory_outlives_requests_and_their_records_do_not() -> None:
    policy = guarded()
    session(policy, 3)
    rows = policy.recalibration.rows
    assert policy._records == {}
    session(policy, 1)
    assert policy.recalibration.rows > rows > 0


class Priced(GuardedPolicy):
    """Remembers what the comparison was told."""

    def __init__(self, bundle: Bundle, guard: GuardSettings) -> None:
        super().__init__(bundle, "flat", compiled="off", guard=guard)
        self.told: list[tuple[int, float, float]] = []
        add = self.comparison.add

        def spy(tokens: int, plain_ms: float, ms: float, requests: int) -> None:
            self.told.append((tokens, plain_ms, ms))
            add(tokens, plain_ms, ms, requests)

        self.comparison.add = spy  # type: ignore[method-assign]


def test_rounds_are_priced_by_the_profile() -> None:
    policy, rounds = Priced(tiny_bundle(), GuardSettings()), list[Played]()
    bound = example_deployment(BOTH)
    decisions = play(policy, World(2, BOTH), (0,), 40, deployment=bound, rounds=rounds)[0]
    assert len(policy.told) == len(rounds)
    for (tokens, plain_ms, ms), played, decision in zip(policy.told, rounds, decisions, strict=True):
        spent = float(bound.cost.verify_ms(1 + played.tree.num_nodes)) + policy.call_ms * played.tree.policy_calls
        spent += float(bound.cost.draft_ms(played.tree.growth_tokens).sum())
        assert ms == pytest.approx(spent)
        assert tokens == decision.accepted_length + 1
        assert plain_ms == pytest.approx(20.0 * tokens)


def test_a_fixed_tree_that_remembers_sessions_is_refused(folder: Path) -> None:
    with pytest.raises(ParameterError, match="fixed must be a policy that remembers no session, got 'guarded:"):
        guarded(guard=GuardSettings(fixed=f"guarded:{folder}"))
    with pytest.raises(PolicySpecError, match="policy must be one of"):
        guarded(guard=GuardSettings(fixed="wide:3"))
