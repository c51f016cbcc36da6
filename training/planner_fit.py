"""Planner settings from replay: the throughput that prices a millisecond, and scales where they pay.

The throughput is a fixed point: the planner decides by it, and replaying its decisions gives it back (Dinkelbach 1967).
Where asked to, a scale is moved from 1 if that was worth it on prompts that did not choose it. Every replay charges the
cost profile's price of a policy call, so that nothing here depends on a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from treewise.data.cost import CostProfile
from treewise.data.errors import PolicyError, require
from treewise.policy.bundle import Bundle
from treewise.policy.hook import DRAFT
from treewise.policy.learned import LearnedPolicy
from treewise.policy.planner import PlannerSettings
from treewise.training.logged import LoggedRequest
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay import replay
from treewise.training.replay_result import modelled_ms, plain_ms
from treewise.training.report import Tuning

FloatArray = NDArray[np.float64]

FOLDS = 5
WORTH = 1.002  # the least held-out gain that moves a scale


@dataclass(frozen=True, slots=True)
class PlannerFitSettings:
    """How long the planner is fitted."""

    requests: int = 24  # replayed, spread over tasks
    rate_rounds: int = 3  # replays of the fixed point, at most
    grid: tuple[float, ...] = (0.7, 1.4)  # tried beside 1
    tune: bool = False  # a scale that pays under one profile, on few prompts, costs elsewhere
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.requests >= 1, "requests", ">= 1", self.requests)
        require(self.rate_rounds >= 0, "rate_rounds", ">= 0", self.rate_rounds)
        require(all(value > 0.0 for value in self.grid), "grid", "above 0", self.grid)


@dataclass(frozen=True, slots=True)
class PlannerFit:
    """What replay settled."""

    planner: PlannerSettings
    tuning: tuple[Tuning, ...]


def fit_planner(
    bundle: Bundle,
    traces: Sequence[LoggedTrace],
    cost: CostProfile,
    settings: PlannerFitSettings,
    step: Callable[[], None] = lambda: None,
) -> PlannerFit:
    """Solve the throughput and try the scales on dense traces; the bundle's own settings where there is none.

    `step` is called after each replayed request. Raises `PolicyError` where the policy fails in replay.
    """
    bench = ReplayBench(replace(bundle, call_ms=cost.policy_ms), traces, cost, settings, step)
    if not bench.num_requests:
        return PlannerFit(bundle.planner, ())
    planner = solve_rate(bench, bundle.planner, settings.rate_rounds)
    tuning: list[Tuning] = []
    if settings.tune and settings.grid:
        names = ("prune_scale", "growth_scale", "opening_scale") if bench.has_draft else ("prune_scale",)
        for name in names:
            planner, tried = _try_scale(bench, planner, name, settings.grid)
            tuning.append(tried)
    return PlannerFit(planner, tuple(tuning))


def solve_rate(bench: ReplayBench, planner: PlannerSettings, rounds: int) -> PlannerSettings:
    """`planner` with the throughput that its decisions by it reach, after at most `rounds` replays."""
    if not bench.num_requests:
        return planner
    for _ in range(rounds):
        rate = float(np.clip(bench.plain_ms.sum() / bench.ms(planner).sum(), 1.0, 100.0))
        moved = abs(rate - planner.rate_over_plain)
        planner = replace(planner, rate_over_plain=rate)
        if moved < 0.005:
            break
    return planner


def count_replays(traces: Sequence[LoggedTrace], settings: PlannerFitSettings) -> int:
    """Requests that `fit_planner` replays at most."""
    chosen = count_requests(traces, settings)
    scales = 3 if any(trace.sources & DRAFT for trace in traces) else 1
    return chosen * (settings.rate_rounds + (1 + scales * len(settings.grid) if settings.tune else 0))


def choose_requests(
    traces: Sequence[LoggedTrace], settings: PlannerFitSettings
) -> list[tuple[LoggedTrace, Sequence[LoggedRequest]]]:
    """Requests of the dense traces, one task after the other until there are enough, in a seeded order; in memory.

    The throughput depends on the temperature, so all are of the one that most requests have (of two, the lower).
    """
    chosen = _choose(traces, settings)
    return [
        (trace, trace.only(places).in_memory().requests) for trace, places in zip(traces, chosen, strict=True) if places
    ]


def count_requests(traces: Sequence[LoggedTrace], settings: PlannerFitSettings) -> int:
    """How many `choose_requests` chooses."""
    return sum(map(len, _choose(traces, settings)))


def _choose(traces: Sequence[LoggedTrace], settings: PlannerFitSettings) -> list[list[int]]:
    """Places of the requests that are chosen from each trace, [traces]."""
    draw = np.random.default_rng(settings.seed)
    count_at: dict[float, int] = {}
    for trace in traces:
        if trace.manifest.kind == "dense":
            heat = trace.manifest.temperature
            count_at[heat] = count_at.get(heat, 0) + len(trace.requests)
    usual = min(count_at, key=lambda heat: (-count_at[heat], heat), default=0.0)
    by_task: dict[str, list[tuple[int, int]]] = {}
    for number, trace in enumerate(traces):
        if trace.manifest.kind == "dense" and trace.manifest.temperature == usual:
            for place, entry in enumerate(trace.entries):
                by_task.setdefault(entry.task, []).append((number, place))
    queues = [[by_task[task][at] for at in draw.permutation(len(by_task[task]))] for task in sorted(by_task)]
    chosen: list[list[int]] = [[] for _ in traces]
    left = settings.requests
    while any(queues) and left:
        for queue in queues:
            if queue and left:
                number, place = queue.pop()
                chosen[number].append(place)
                left -= 1
    return chosen


class ReplayBench:
    """Replays one bundle under different planner settings on the same requests."""

    def __init__(
        self,
        bundle: Bundle,
        traces: Sequence[LoggedTrace],
        cost: CostProfile,
        settings: PlannerFitSettings,
        step: Callable[[], None],
    ) -> None:
        self._bundle = bundle
        self._cost = cost
        self._groups = choose_requests(traces, settings)
        self._step = step
        requests = [request for _, group in self._groups for request in group]
        self.num_requests = len(requests)
        self.has_draft = any(trace.sources & DRAFT for trace, _ in self._groups)
        self.plain_ms: FloatArray = np.asarray([plain_ms(request, cost) for request in requests], dtype=np.float64)
        # Requests of one prompt share a fold.
        prompts = sorted({request.prompt_id for request in requests})
        draw = np.random.default_rng(settings.seed).permutation(len(prompts))
        fold_of = {prompt: int(draw[place]) % FOLDS for place, prompt in enumerate(prompts)}
        self.fold = np.asarray([fold_of[request.prompt_id] for request in requests], dtype=np.int64)
        self._known: dict[PlannerSettings, FloatArray] = {}

    def ms(self, planner: PlannerSettings) -> FloatArray:
        """Modelled milliseconds of each request, [requests]."""
        known = self._known.get(planner)
        if known is None:
            parts = []
            for trace, requests in self._groups:
                deployment = trace.deployment(self._cost)
                policy = LearnedPolicy(replace(self._bundle, planner=planner))
                result = replay(policy, requests, deployment, self._step)
                if result.fallback.any():
                    raise PolicyError(f"the policy that was trained failed in {int(result.fallback.sum())} rounds")
                parts.append(result.by_request(modelled_ms(result, deployment, self._bundle.call_ms)))
            known = self._known[planner] = np.concatenate(parts)
        return known


def _try_scale(
    bench: ReplayBench, planner: PlannerSettings, name: str, grid: Sequence[float]
) -> tuple[PlannerSettings, Tuning]:
    """Move one scale to a value of `grid` where the folds agree that it pays."""
    options = [planner, *(_with(planner, name, value) for value in grid)]
    ms = np.stack([bench.ms(option) for option in options])  # [options, requests]
    held_out = 0.0
    for fold in range(FOLDS):
        here = bench.fold == fold
        best = int(np.argmin(ms[:, ~here].sum(axis=1)))
        held_out += float(ms[best, here].sum())
    total = ms.sum(axis=1)
    best = int(np.argmin(total))
    gain = float(total[0] / held_out)
    taken = best > 0 and gain > WORTH
    tried = Tuning(name, float(getattr(options[best], name)), float(total[0] / total[best]), gain, taken)
    return (options[best] if taken else planner), tried


def _with(planner: PlannerSettings, name: str, value: float) -> PlannerSettings:
    settings = planner.to_json()
    settings[name] = value
    return PlannerSettings.from_json(settings)
