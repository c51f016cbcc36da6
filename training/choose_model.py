"""Which class of match model a bundle keeps: the one whose policy replays faster after paying for its own calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from treewise.data.cost import CostProfile
from treewise.policy.bundle import Bundle
from treewise.training.call_time import measure_call_ms
from treewise.training.logged_trace import LoggedTrace
from treewise.training.planner_fit import WORTH, PlannerFitSettings, ReplayBench, count_requests, solve_rate
from treewise.training.report import Choice

ModelName = Literal["forest", "table"]


def choose_model(
    bundles: Mapping[ModelName, Bundle],
    log_losses: Mapping[ModelName, float],
    traces: Sequence[LoggedTrace],
    cost: CostProfile,
    settings: PlannerFitSettings,
    step: Callable[[], None] = lambda: None,
) -> tuple[Choice, ...]:
    """One choice per class, in the order of `bundles`; exactly one of them is kept.

    Each is replayed with its throughput solved and charged what a call of its policy takes here. That is a clock's
    answer, so another class than the first is kept only where it is faster by more than `WORTH`.
    """
    found: list[tuple[ModelName, float, float]] = []
    # In turns, and the quieter of two: what else the machine does comes and goes.
    turns = [{name: measure_call_ms(bundle, traces, cost, settings) for name, bundle in bundles.items()} for _ in "12"]
    for name, bundle in bundles.items():
        call_ms = min(turn[name] for turn in turns)
        bench = ReplayBench(replace(bundle, call_ms=call_ms), traces, cost, settings, step)
        planner = solve_rate(bench, bundle.planner, settings.rate_rounds)
        speedup = float(bench.plain_ms.sum() / bench.ms(planner).sum()) if bench.num_requests else 0.0
        found.append((name, call_ms, speedup))
    kept, _, reached = found[0]
    for name, _, speedup in found[1:]:
        if speedup > WORTH * reached:
            kept, reached = name, speedup
    return tuple(Choice(name, log_losses[name], ms, speedup, name == kept) for name, ms, speedup in found)


def count_choices(models: int, traces: Sequence[LoggedTrace], settings: PlannerFitSettings) -> int:
    """Requests that `choose_model` replays at most; nothing where there is no choice."""
    chosen = count_requests(traces, settings)
    return models * chosen * (settings.rate_rounds + 1) if models > 1 else 0
