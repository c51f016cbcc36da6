"""What one call of a bundle's policy costs here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from treewise.data.cost import CostProfile
from treewise.policy.bundle import Bundle
from treewise.policy.hook import BoolArray, Expansion, ForestView, Level
from treewise.policy.learned import LearnedPolicy
from treewise.training.logged_trace import LoggedTrace
from treewise.training.planner_fit import PlannerFitSettings, choose_requests
from treewise.training.replay import replay

TIMED_REQUESTS = 6
STRETCHES = 8


def measure_call_ms(
    bundle: Bundle, traces: Sequence[LoggedTrace], cost: CostProfile, settings: PlannerFitSettings
) -> float:
    """Mean milliseconds of one `expand` or `select` of the bundle's policy here; the profile's where none can run.

    A mean, because rounds pay the sum; of the quietest of `STRETCHES` stretches of calls, the slowest fiftieth of each
    left out, because what else the machine does is no part of the price.
    """
    policy = _TimedCalls(bundle)
    for trace, requests in choose_requests(traces, replace(settings, requests=TIMED_REQUESTS)):
        # One request a call, as live: side by side they would share it.
        replay(policy, requests, trace.deployment(cost), batch_requests=1)
    if not policy.seconds:
        return cost.policy_ms
    stretches = np.array_split(np.asarray(policy.seconds), min(STRETCHES, len(policy.seconds)))
    means = [np.sort(part)[: max(1, len(part) * 49 // 50)].mean() for part in stretches]
    return float(min(means)) * 1000.0


class _TimedCalls(LearnedPolicy):
    """A learned policy that keeps the seconds of each decision."""

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle)
        self.seconds: list[float] = []

    def expand(self, level: Level) -> Expansion:
        """Timed."""
        started = time.perf_counter()
        answer = super().expand(level)
        self.seconds.append(time.perf_counter() - started)
        return answer

    def select(self, forest: ForestView) -> BoolArray:
        """Timed."""
        started = time.perf_counter()
        answer = super().select(forest)
        self.seconds.append(time.perf_counter() - started)
        return answer
