"""Replay of policies that remember the session: several random orders of the log, and intervals over both.

A policy of state "session" decides a request by those before it, so its figure depends on their order. All requests of
one order are replayed one after the other by one policy, which is made anew for every order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.errors import require
from treewise.policy.hook import Deployment, TreePolicy
from treewise.training.contest import Contender
from treewise.training.logged import LoggedRequest
from treewise.training.replay import Replayer
from treewise.training.replay_result import Float64Array, call_ms_of, modelled_ms
from treewise.training.statistics import LEVEL, RESAMPLES, Interval, Totals, bootstrap, percentiles, totals_by_prompt


@dataclass(frozen=True, slots=True)
class SessionTotals:
    """What a policy did in every order, prompt by prompt."""

    orders: tuple[Totals, ...]  # of the same prompts, sorted
    policies: tuple[TreePolicy, ...]  # [orders] as they were at the end of the session

    @property
    def speeds(self) -> Float64Array:
        """Tokens per millisecond of every order, [orders]."""
        return np.asarray([totals.speed for totals in self.orders])


def session_replay(
    policy: str | TreePolicy | Contender,
    requests: Sequence[LoggedRequest],
    deployment: Deployment,
    orders: int = 8,
    passes: int = 1,
    seed: int = 0,
    advance: Callable[[], None] | None = None,
) -> SessionTotals:
    """Replay sessions of `requests` in `orders` random orders, each with a new policy.

    A session goes through the log `passes` times, in a new order each time; totals are of all its passes. A policy
    given as such is copied. `advance` is called after each request. Raises `ParameterError` where `orders` or `passes`
    is below 1, and as `Contender.of` and `replay` do.
    """
    require(orders >= 1, "orders", "at least 1", orders)
    require(passes >= 1, "passes", "at least 1", passes)
    prompts: NDArray[np.str_] = np.asarray([request.prompt_id for request in requests], dtype=np.str_)
    contender = Contender.of(policy)
    found: list[Totals] = []
    ended: list[TreePolicy] = []
    for order in range(orders):
        draw = np.random.default_rng([seed, order])
        own = contender.make()
        places = np.concatenate([draw.permutation(len(requests)) for _ in range(passes)])
        replayer = Replayer(own, deployment)
        replayer.run_all([requests[place] for place in places.tolist()], advance)
        result = replayer.result()
        ms = result.by_request(modelled_ms(result, deployment, call_ms_of(own, deployment.cost)))
        found.append(totals_by_prompt(prompts[places], result.by_request(result.committed_tokens), ms))
        ended.append(own)
    return SessionTotals(tuple(found), tuple(ended))


@dataclass(frozen=True, slots=True)
class SessionRatio:
    """How many times faster `policy` is than `baseline`, prompts and orders of the log both drawn.

    Draw d takes the prompts it was dealt and order d modulo the number of orders, so that the percentiles of many draws
    hold what the choice of prompts and what their order make of the figure. A ratio of totals; assumptions are those
    of `SpeedRatio`, and that orders are exchangeable. A `baseline` that remembers no session has one order.
    """

    policy: SessionTotals
    baseline: SessionTotals

    def __post_init__(self) -> None:
        prompts = {len(totals.tokens) for totals in (*self.policy.orders, *self.baseline.orders)}
        require(len(prompts) == 1, "baseline", "totals of the policy's prompts", sorted(prompts))

    @property
    def by_prompt(self) -> Float64Array:
        """Tokens and milliseconds of every order of the policy, then of the baseline, [prompts, 2 x orders in all]."""
        every = (*self.policy.orders, *self.baseline.orders)
        return np.stack([column for totals in every for column in (totals.tokens, totals.ms)], axis=1)

    def value(self, times: Float64Array) -> Float64Array:
        """Ratio of each draw in its order, [draws]."""
        mine, theirs = self._speeds(times)
        draws = np.arange(len(times))
        return np.asarray(mine[draws, draws % mine.shape[1]] / theirs[draws, draws % theirs.shape[1]])

    def point(self) -> float:
        """Geometric mean over the orders, on the prompts as they are."""
        mine, theirs = self._speeds(np.ones((1, len(self.by_prompt))))
        return float(np.exp(np.log(mine).mean() - np.log(theirs).mean()))

    def _speeds(self, times: Float64Array) -> tuple[NDArray[Any], NDArray[Any]]:
        """Speeds of the policy and of the baseline, each [draws, orders]."""
        sums = times @ self.by_prompt
        speeds = sums[:, 0::2] / sums[:, 1::2]
        count = len(self.policy.orders)
        return speeds[:, :count], speeds[:, count:]


def session_ratio(
    policy: SessionTotals, baseline: SessionTotals, resamples: int = RESAMPLES, seed: int = 0, level: float = LEVEL
) -> Interval:
    """`SessionRatio` with its interval; both bounds are NaN with one prompt. Raises as `bootstrap`."""
    ratio = SessionRatio(policy, baseline)
    if len(ratio.by_prompt) == 1:
        return Interval(ratio.point(), float("nan"), float("nan"))
    return percentiles(ratio.point(), bootstrap(ratio, resamples, seed), level)
