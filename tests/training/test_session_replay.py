"""Sessions in several orders: who decides, what is summed, and what the interval holds."""

from __future__ import annotations

import numpy as np
import pytest

from tests.training.worlds import COST, GrowAll, World, dense_trace
from treewise.data.envelope import Envelope
from treewise.data.errors import ParameterError
from treewise.policy.hook import Expansion, Level, RequestInfo, RoundOutcome, State
from treewise.policy.topn import TopNPolicy
from treewise.training.contest import Contender
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay import replay
from treewise.training.replay_result import modelled_ms
from treewise.training.session_replay import SessionRatio, SessionTotals, session_ratio, session_replay
from treewise.training.statistics import Totals


@pytest.fixture(scope="module")
def trace() -> LoggedTrace:
    return dense_trace(World(num_texts=4), Envelope(max_depth=4, draft_width=3))


class Fading(GrowAll):
    """Grows as long as it has seen few rounds, then never again."""

    state: State = "session"

    def __init__(self) -> None:
        self.requests: list[int] = []
        self.rounds = 0

    def begin(self, request: RequestInfo) -> None:
        self.requests.append(request.prompt_tokens)

    def expand(self, level: Level) -> Expansion:
        answer = super().expand(level)
        return answer if self.rounds < 12 else Expansion(answer.admit, np.zeros_like(answer.grow))

    def observe(self, outcome: RoundOutcome) -> None:
        self.rounds += 1


FADING = Contender("fading", Fading)


def test_orders_differ_and_repeat_with_the_seed(trace: LoggedTrace) -> None:
    deployment = trace.deployment(COST)
    first, again = (session_replay(FADING, trace.requests, deployment, orders=6, seed=3) for _ in range(2))
    seen = [policy.requests for policy in first.policies if isinstance(policy, Fading)]
    assert len(seen) == 6
    assert len({tuple(order) for order in seen}) > 1
    assert all(sorted(order) == sorted(seen[0]) for order in seen)
    np.testing.assert_array_equal(first.speeds, again.speeds)
    assert len(set(first.speeds.tolist())) > 1, "the order matters to a policy that remembers"
    tokens = [request.num_tokens for request in sorted(trace.requests, key=lambda request: request.prompt_id)]
    for totals in first.orders:
        np.testing.assert_array_equal(totals.tokens, tokens)


def test_a_policy_without_memory_does_not_care_for_the_order(trace: LoggedTrace) -> None:
    deployment = trace.deployment(COST)
    found = session_replay("topn", trace.requests, deployment, orders=3)
    assert np.ptp(found.speeds) < 1e-12
    result = replay(TopNPolicy(), trace.requests, deployment)
    assert found.orders[0].ms.sum() == pytest.approx(modelled_ms(result, deployment, COST.policy_ms).sum())


def test_a_session_may_pass_through_the_log_again(trace: LoggedTrace) -> None:
    steps: list[int] = []
    found = session_replay(
        FADING, trace.requests, trace.deployment(COST), orders=2, passes=3, advance=lambda: steps.append(1)
    )
    assert found.orders[0].tokens.sum() == 3 * sum(request.num_tokens for request in trace.requests)
    assert len(steps) == 2 * 3 * len(trace.requests)


def test_a_policy_is_copied_for_every_order(trace: LoggedTrace) -> None:
    policy = Fading()
    found = session_replay(policy, trace.requests, trace.deployment(COST), orders=2)
    assert policy.rounds == 0
    assert len({id(each) for each in (policy, *found.policies)}) == 3


def totals(speed: float, spread: float, orders: int, prompts: int = 40) -> SessionTotals:
    """Sessions whose orders differ in speed by the factors 1 - spread to 1 + spread."""
    factors = np.linspace(1.0 - spread, 1.0 + spread, orders) if orders > 1 else [1.0]
    tokens = np.linspace(50.0, 150.0, prompts)
    return SessionTotals(tuple(Totals(tokens, tokens / (speed * factor)) for factor in factors), ())


def test_the_interval_holds_what_the_order_does() -> None:
    steady = session_ratio(totals(1.2, 0.0, 5), totals(1.0, 0.0, 1))
    assert [steady.value, steady.low, steady.high] == pytest.approx([1.2, 1.2, 1.2])
    moody = session_ratio(totals(1.2, 0.1, 5), totals(1.0, 0.0, 1))
    assert (moody.low, moody.high) == pytest.approx((1.08, 1.32))
    assert moody.value == pytest.approx(1.2, rel=0.01)


def test_one_prompt_has_no_interval() -> None:
    found = session_ratio(totals(1.2, 0.1, 5, prompts=1), totals(1.0, 0.0, 1, prompts=1))
    assert np.isnan([found.low, found.high]).all()


def test_unequal_prompts_and_empty_sessions_are_refused(trace: LoggedTrace) -> None:
    with pytest.raises(ParameterError, match=r"baseline must be totals of the policy's prompts, got \[3, 4\]"):
        SessionRatio(totals(1.0, 0.0, 1, 4), totals(1.0, 0.0, 1, 3))
    for name in ("orders", "passes"):
        with pytest.raises(ParameterError, match=f"{name} must be at least 1, got 0"):
            session_replay(FADING, trace.requests, trace.deployment(COST), **{name: 0})  # type: ignore[arg-type]
