"""Chain mode: one draft length for a batch, for engines that take nothing else. Numbers in, one int out."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.cost import CostProfile
from treewise.data.envelope import Envelope, PriorTable
from treewise.data.errors import ParameterError, PolicyError, require
from treewise.policy.chain import ChainPolicy
from treewise.policy.chain_calibration import FLOOR, DepthCalibration, tried_and_true
from treewise.policy.chain_signals import ChainSignals, base_chance
from treewise.policy.controller_settings import is_whole
from treewise.policy.counters import ControllerCounters
from treewise.policy.frontier import FrontierPolicy
from treewise.policy.hook import DRAFT, Deployment, TreePolicy
from treewise.policy.learned import RATE_ROUNDS, LearnedPolicy, make_scorer
from treewise.policy.plain import PlainPolicy
from treewise.policy.registry import parse_policy
from treewise.policy.static import StaticPolicy
from treewise.policy.topn import TopNPolicy

__all__ = ["ChainController", "ChainSignals"]

Float64Array = NDArray[np.float64]

PROBE_ROUNDS = 32  # rounds in a row without drafting before one that drafts all the same
MARGIN_TOKENS = 0.01  # per request: how much better another depth must be before the depth changes
CAPACITY_STEP = 64  # tokens of context whose milliseconds are taken as one
MAX_CURVES = 256  # kept at once
RATE_WINDOW = 100.0  # rounds after which a round's throughput counts 1/e


@dataclass(frozen=True, slots=True)
class _Plan:
    """What one `depth` call reckoned with."""

    base: Float64Array  # [requests]
    conditional: Float64Array  # [requests, depths]
    context_tokens: int  # mean


class ChainController:
    """Chooses how many tokens a chain engine drafts in the next round, for its whole batch.

    A learned policy's bundle gives, for request r, the chance base(r) that a first guess matches (its growth model, fed
    with what is known before drafting), and `DepthCalibration` turns it into conditional chances q(r, d) corrected by
    what `observe` was told. For a batch of B requests and a depth D:

        tokens(D) = sum over r of 1 + q(r, 1) + q(r, 1) q(r, 2) + .. + q(r, 1) .. q(r, D)      (to remaining - 1)
        ms(D)     = round + verify(B (1 + D) rows, padded) + D draft(B tokens) + policy call
        D*        = argmax over all D of tokens(D) - price ms(D)

    where the cost profile gives the milliseconds, so that the argmax may cross a step of the verify curve, and the
    price is the long-run throughput: B / ms(0) times the recent ratio of tokens to what plain decoding would have
    brought in the same time, never below 1. The profile's rows and tokens are of the whole batch; catch-up tokens of
    the draft are not priced. Depth 0 drafts nothing.

    Hysteresis: the depth changes only where the new one is better by `MARGIN_TOKENS` per request. After `PROBE_ROUNDS`
    rounds of depth 0 one round drafts the best depth above 0, so that the estimate does not go stale; where at least
    half of the batch accepts that probe's first guess, the next round probes again, and a draft that became good is
    found out within a few probes.

    `frontier` reckons in the same way, its base chance being the recent agreement or acceptance alone. `chain:N` says
    N, `plain` 0, `static:WxD` and `topn:NxD` their D. Other rules have no draft length.

    Raises:
        ParameterError: a bad argument, or a policy that has no draft length.
    """

    def __init__(
        self,
        policy: TreePolicy | str,
        *,
        cost: CostProfile,
        max_depth: int = 8,
        row_buckets: tuple[int, ...] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        require(isinstance(cost, CostProfile), "cost", "a CostProfile", cost)
        require(is_whole(max_depth) and 1 <= max_depth <= 64, "max_depth", "between 1 and 64", max_depth)
        self.policy = parse_policy(policy) if isinstance(policy, str) else policy
        self.spec = policy if isinstance(policy, str) else str(getattr(policy, "spec", type(policy).__name__))
        self.cost = cost
        self.max_depth = max_depth
        self.calibration = DepthCalibration(max_depth)
        self.counters = ControllerCounters()
        self.last_error: Exception | None = None
        self._bundle = self.policy.bundle if isinstance(self.policy, LearnedPolicy) else None
        self._length = own_length(self.policy)
        growth = None if self._bundle is None else self._bundle.growth
        self._growth = None if growth is None else make_scorer(growth)
        self._table = PriorTable() if self._bundle is None else self._bundle.prior_table
        self._call_ms = cost.policy_ms if self._bundle is None else self._bundle.call_ms
        self._deployment = Deployment(cost, Envelope(), self._table, DRAFT, 1, tuple(row_buckets))
        self._curves: dict[tuple[int, int], Float64Array] = {}  # (requests, steps of context) -> milliseconds
        self._clock = clock
        self._depth = 0  # chosen last, probes aside
        self._idle_rounds = 0  # since the last round that drafted
        self._plan: _Plan | None = None
        over_plain = 1.0 if self._bundle is None else self._bundle.planner.rate_over_plain
        self._tokens = RATE_ROUNDS * over_plain  # of recent rounds
        self._plain_tokens = RATE_ROUNDS  # that plain decoding would have brought in their time

    @property
    def over_plain(self) -> float:
        """Recent throughput over plain decoding's, in profile milliseconds; at least 1."""
        return max(self._tokens / self._plain_tokens, 1.0)

    @property
    def is_probe_due(self) -> bool:
        """Whether a depth above 0 is worth a try for what it tells: too long none was drafted, or a probe went well."""
        return self._length is None and self._idle_rounds >= PROBE_ROUNDS

    def depth(self, signals: ChainSignals) -> int:
        """Draft length for the next round of the batch, 0 .. `max_depth`. Raises `ParameterError` on other signals."""
        if not isinstance(signals, ChainSignals):
            raise ParameterError(f"signals must be ChainSignals, got {type(signals).__name__}")
        began = self._clock()
        base = self._base(signals)
        plan = _Plan(base, self.calibration.conditional(base), int(signals.context_tokens.mean()))
        limit = min(self.max_depth, max(int(signals.remaining_tokens.max()) - 1, 0))
        self._plan = plan
        chosen = min(self._length, limit) if self._length is not None else self._choose(plan, signals, limit)
        self.counters.policy_calls += 1
        self.counters.policy_seconds += self._clock() - began
        return chosen

    def observe(self, accepted_lengths: Sequence[int] | NDArray[Any], depth: int) -> None:
        """Take how many guesses each request of the batch accepted of its chain of `depth`, [requests].

        Follows the `depth` call of the same batch, whose order it keeps; an engine that drafted another length says so
        by `depth`. Raises `ParameterError` on lengths outside 0 .. `depth`; nothing is taken then.
        """
        require(
            is_whole(depth) and 0 <= depth <= self.max_depth,
            "depth",
            f"between 0 and {self.max_depth}",
            depth,
        )
        accepted = np.asarray(accepted_lengths)
        fits = accepted.ndim == 1 and accepted.size > 0 and np.issubdtype(accepted.dtype, np.integer)
        require(fits, "accepted_lengths", "whole numbers, one per request", accepted_lengths)
        inside = int(accepted.min()) >= 0 and int(accepted.max()) <= depth
        require(inside, "accepted_lengths", f"between 0 and the depth of {depth}", accepted.tolist())
        plan = self._plan
        require(plan is not None, "observe", "called after depth", "no call of depth before it")
        assert plan is not None
        count = len(accepted)
        if len(plan.base) != count:  # requests came or went in between: the mean stands for each
            base = np.full(count, float(plan.base.mean()))
            plan = _Plan(base, self.calibration.conditional(base), plan.context_tokens)
        is_probe = self.is_probe_due or (self._length is None and self._depth == 0)
        if depth:
            tried, came_true = tried_and_true(accepted, depth)
            self.counters.calibration.add(plan.conditional[:, :depth][tried], came_true[tried])
            self.calibration.add(plan.base, accepted, depth)
            hopeful = is_probe and float(came_true[:, 0].mean()) >= 0.5
            self._idle_rounds = PROBE_ROUNDS if hopeful else 0
        else:
            self._idle_rounds += 1
        spent_ms = self._milliseconds(count, plan.context_tokens)
        fade = np.exp(-1.0 / RATE_WINDOW)
        self._tokens = self._tokens * fade + 1.0 + float(accepted.mean())
        self._plain_tokens = self._plain_tokens * fade + float(spent_ms[depth] / max(spent_ms[0], 1e-9))
        counters = self.counters
        counters.rounds += count
        counters.accepted_tokens += int(accepted.sum())
        counters.committed_tokens += int(accepted.sum()) + count
        counters.verified_nodes += depth * count
        counters.growths += depth
        counters.draft_tokens += depth * count

    def expected_tokens(self, conditional: Float64Array, remaining: NDArray[np.integer[Any]]) -> Float64Array:
        """Tokens that the batch is expected to commit at every depth from 0 on, [depths + 1].

        `conditional` [requests, depths] are match probabilities given the guess above matched.
        """
        room = np.arange(1, conditional.shape[1] + 1) <= remaining[:, None] - 1
        survival = np.cumprod(conditional, axis=1) * room
        return np.concatenate([[0.0], np.cumsum(survival.sum(axis=0))]) + len(conditional)

    def _milliseconds(self, requests: int, context_tokens: int) -> Float64Array:
        """Profile milliseconds of a round of the batch at every depth from 0 on, [depths + 1]; kept for the next."""
        step = CAPACITY_STEP if max(len(self.cost.verify.capacities), len(self.cost.draft.capacities)) > 1 else 1 << 30
        key = (requests, context_tokens // step)
        if key in self._curves:
            return self._curves[key]
        if len(self._curves) >= MAX_CURVES:
            self._curves.clear()
        depths = np.arange(self.max_depth + 1)
        rows = [self._deployment.padded_rows(requests * (1 + int(depth))) for depth in depths]
        growth_ms = float(self.cost.draft_ms([requests], context_tokens)[0])
        verify_ms = self.cost.verify_ms(rows, context_tokens)
        self._curves[key] = self.cost.round_ms + self._call_ms + verify_ms + depths * growth_ms
        return self._curves[key]

    def _choose(self, plan: _Plan, signals: ChainSignals, limit: int) -> int:
        requests = signals.num_requests
        ms = self._milliseconds(requests, plan.context_tokens)[: limit + 1]
        tokens = self.expected_tokens(plan.conditional, signals.remaining_tokens)[: limit + 1]
        price = self.over_plain * requests / max(float(ms[0]), 1e-9)
        value = tokens - price * ms
        best = int(np.argmax(value))
        stay = min(self._depth, limit)
        if value[best] - value[stay] >= MARGIN_TOKENS * requests:
            self._depth = stay = best
        if stay == 0 and limit > 0 and self._idle_rounds >= PROBE_ROUNDS:
            return 1 + int(np.argmax(value[1:]))
        return stay

    def _base(self, signals: ChainSignals) -> Float64Array:
        """The model's chance per request; recent experience where the model fails or says nothing."""
        plain = np.clip(signals.agreement(), FLOOR, 1.0 - FLOOR)
        try:
            base = base_chance(signals, self._growth, self._table)
            if not np.isfinite(base).all():
                raise PolicyError(f"growth model must answer with numbers, got {base.tolist()}")
        except Exception as error:
            self.counters.failures += 1
            self.counters.fallbacks += 1
            if self.last_error is None:
                warnings.warn(
                    f"the growth model failed and recent acceptance took over ({type(error).__name__}: {error}); "
                    "further failures are counted without a warning",
                    RuntimeWarning,
                    stacklevel=3,
                )
            self.last_error = error
            return plain
        return np.clip(base, FLOOR, 1.0 - FLOOR)


def own_length(policy: TreePolicy) -> int | None:
    """The fixed draft length of a rule policy; None where the controller reckons it (learned policies, `frontier`).

    Raises `ParameterError` where the policy has none.
    """
    if isinstance(policy, LearnedPolicy | FrontierPolicy):
        return None
    if isinstance(policy, PlainPolicy):
        return 0
    if isinstance(policy, ChainPolicy):
        return policy.settings.length
    if isinstance(policy, StaticPolicy | TopNPolicy):
        return policy.settings.depth
    rule = "one with a draft length in chain mode (learned:DIR, frontier, chain, plain, static or topn)"
    raise ParameterError(f"policy must be {rule}, got {getattr(policy, 'spec', type(policy).__name__)!r}")
