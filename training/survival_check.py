"""How far a policy's survival can be believed where it decides: on the rounds of its own replay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from treewise.data.cost import CostProfile
from treewise.data.errors import require
from treewise.policy.contain import ContainedPolicy
from treewise.policy.outcome import Walk
from treewise.policy.round import RoundTree
from treewise.training.contest import Contender
from treewise.training.explain import survival_of
from treewise.training.logged import LoggedRequest
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay import Replayer
from treewise.training.replay_result import Float64Array
from treewise.training.report import calibration_error

LEAST = 0.05  # survival of the nodes that are looked at


@dataclass(frozen=True, slots=True)
class SurvivalCheck:
    """Stated survival beside what happened, over nodes with a stated survival of at least `LEAST`."""

    ece: float  # expected calibration error over 15 bins of equal mass; NaN without nodes
    nodes: int
    stated: float  # mean
    happened: float  # mean


def check_survival(
    traces: Sequence[LoggedTrace], cost: CostProfile, policy: Contender, least: float = LEAST
) -> SurvivalCheck:
    """`compare_survival` of one policy on all `traces`. Raises as `stated_survival`."""
    return compare_survival([stated_survival(trace, cost, policy, least) for trace in traces])


def stated_survival(
    trace: LoggedTrace, cost: CostProfile, policy: Contender, least: float = LEAST
) -> tuple[Float64Array, Float64Array]:
    """Replay `policy`: survival that it stated of at least `least`, and whether the path survived, each [nodes].

    Every node that it was offered counts, kept or not, as far as the text goes. Where the policy has no survival of its
    own, its path prior stands for it. Raises `ParameterError` on a log without token ids.
    """
    require(trace.manifest.tokens_included, "trace", "logged with token ids", f"{trace.name} without")
    contained = ContainedPolicy(policy.make(), time_limit_ms=math.inf)
    watcher = _Watcher(contained, least)
    replayer = Replayer(contained, trace.deployment(cost), watcher.watch)
    for request in trace.requests:
        replayer.run(request)
        request.release()
    return watcher.found()


def compare_survival(parts: Sequence[tuple[Float64Array, Float64Array]]) -> SurvivalCheck:
    """The check over all `parts` together, each as `stated_survival` returns it."""
    stated, happened = (np.concatenate([*(part[side] for part in parts), np.zeros(0)]) for side in (0, 1))
    if not stated.size:
        return SurvivalCheck(math.nan, 0, math.nan, math.nan)
    error = calibration_error(happened, stated, np.ones(len(stated)))
    return SurvivalCheck(error, len(stated), float(stated.mean()), float(happened.mean()))


class _Watcher:
    def __init__(self, policy: ContainedPolicy, least: float) -> None:
        self._policy = policy  # the one that is replayed
        self._least = least
        self._stated: list[Float64Array] = []
        self._happened: list[Float64Array] = []

    def watch(self, request: LoggedRequest, position: int, tree: RoundTree, walk: Walk) -> None:
        """One round."""
        column = tree.forest.column
        parent, depth, token = column("parent"), column("depth"), column("token")
        place = position + depth - request.prompt_tokens
        known = place < request.num_tokens
        text = request.text[np.minimum(np.maximum(place, 0), request.num_tokens - 1)]
        survives = (token == text) | (parent < 0)
        for level in range(2, int(depth.max(initial=0)) + 1):
            rows = np.flatnonzero(depth == level)
            survives[rows] &= survives[parent[rows]]
        stated = survival_of(self._policy, tree, request.is_suspended(position))
        asked = known & (parent >= 0) & (stated >= self._least)
        self._stated.append(stated[asked])
        self._happened.append(survives[asked].astype(np.float64))

    def found(self) -> tuple[Float64Array, Float64Array]:
        """Of all rounds so far."""
        nothing = np.zeros(0)
        return np.concatenate([*self._stated, nothing]), np.concatenate([*self._happened, nothing])
