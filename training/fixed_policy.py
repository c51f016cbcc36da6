"""The best fixed tree of a deployment: what a guarded policy steps aside for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from treewise.data.cost import CostProfile
from treewise.policy.hook import DRAFT
from treewise.training.contest import Contender, contests
from treewise.training.logged_trace import LoggedTrace
from treewise.training.planner_fit import PlannerFitSettings, choose_requests
from treewise.training.tally import joined
from treewise.training.tune import reachable_specs

FAMILIES = ("topn", "frontier")  # the fixed families that stand first in most deployments
_NODES, _DEPTHS = (8, 16, 24, 32, 48), (1, 2, 3)
# Of their grids, where there is a draft; all of what is tried without one is few.
_SMALL = {
    *(f"topn:{nodes}x{depth},sources=all" for nodes in _NODES for depth in _DEPTHS),
    *(f"topn:{nodes}x1,sources=free" for nodes in _NODES),
    *("frontier:sources=all", "frontier:sources=free"),
}


def choose_fixed(traces: Sequence[LoggedTrace], cost: CostProfile, settings: PlannerFitSettings) -> str:
    """Spec of the fixed tree that replays fastest on the requests which the planner is fitted on.

    Empty without a dense trace. Milliseconds are the profile's, so nothing here depends on a clock; of equals the
    first in the grid's order.
    """
    groups = choose_requests(traces, settings)
    if not groups:
        return ""
    chosen = [replace(trace, requests=tuple(requests)) for trace, requests in groups]
    specs = list(reachable_specs(chosen, cost, FAMILIES)[0])
    if any(trace.sources & DRAFT for trace in chosen):
        specs = [spec for spec in specs if spec in _SMALL]
    parts = contests(chosen, [cost], [Contender.of(spec) for spec in specs])
    ms = {spec: float(joined([part[0, spec] for part in parts]).columns["ms"].sum()) for spec in specs}
    return min(specs, key=ms.__getitem__, default="")
