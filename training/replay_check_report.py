"""What `treewise check-replay` found: decisions, speeds and their order, live and replayed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from treewise.data.cost import CostProfile
from treewise.training.dense_check import MAX_DIFFERING, DenseCheck
from treewise.training.live_check import LiveCheck
from treewise.training.statistics import Interval, SpeedRatio, Totals, interval

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class PolicyCheck:
    """One policy, live and replayed."""

    policy: str  # name
    spec: str
    own: LiveCheck  # replayed on its own live trace
    dense: DenseCheck  # and on a dense trace of the same texts
    live: Totals  # tokens and milliseconds by prompt, prefill left out
    modelled: Totals  # the same by replay on the dense trace
    rounds: int  # of the timed decodes, one a prompt
    nodes: int  # verified in them

    @property
    def is_own_exact(self) -> bool:
        """Whether every round of its own trace was decided again."""
        return self.own.compared == self.own.rounds and not self.own.mismatches

    @property
    def speed(self) -> Interval:
        """Live tokens per second, with its interval over prompts."""
        ones = np.ones(len(self.live.ms))
        found = interval(SpeedRatio(self.live, Totals(ones, ones)))
        return Interval(found.value * 1e3, found.low * 1e3, found.high * 1e3)

    @property
    def error(self) -> Interval:
        """Modelled over live speed, less 1, with its interval over prompts."""
        found = interval(SpeedRatio(self.modelled, self.live))
        return Interval(found.value - 1.0, found.low - 1.0, found.high - 1.0)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        return {
            "policy": self.policy,
            "spec": self.spec,
            "own": self.own.to_json(),
            "dense": self.dense.to_json(),
            "live_tokens_per_second": _bounds(self.speed),
            "modelled_tokens_per_second": self.modelled.speed * 1e3,
            "error": _bounds(self.error),
            "tokens_per_round": float(self.live.tokens.sum() / max(self.rounds, 1)),
            "nodes_per_round": self.nodes / max(self.rounds, 1),
        }


@dataclass(frozen=True, slots=True)
class Order:
    """Two policies whose live speeds are told apart."""

    faster: str
    slower: str
    live: Interval  # ratio of their live speeds, over the same prompts
    modelled: float

    @property
    def agrees(self) -> bool:
        """Whether the model orders them as live decoding does."""
        return self.modelled > 1.0

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        return {
            "faster": self.faster,
            "slower": self.slower,
            "live_ratio": _bounds(self.live),
            "modelled_ratio": self.modelled,
            "agrees": self.agrees,
        }


@dataclass(frozen=True, slots=True)
class ReplayCheckReport:
    """Every policy that was checked."""

    pair: str
    device: str
    cost: str  # name of the profile that policies decided by
    prices: CostProfile  # that modelled milliseconds come from
    prompts: int
    max_new_tokens: int
    temperature: float
    repeats: int
    tolerance: float
    folder: str  # of the traces
    policies: tuple[PolicyCheck, ...]

    @property
    def is_own_exact(self) -> bool:
        """Whether every policy repeats every round of its own trace."""
        return all(check.is_own_exact for check in self.policies)

    @property
    def differing(self) -> float:
        """Share of all live rounds that were decided otherwise on the dense trace."""
        return sum(check.dense.differing for check in self.policies) / sum(
            max(check.dense.rounds, 1) for check in self.policies
        )

    @property
    def is_dense_close(self) -> bool:
        """Whether that share is within bounds."""
        return self.differing <= MAX_DIFFERING

    @property
    def is_speed_close(self) -> bool:
        """Whether every modelled speed is within the tolerance of the live one."""
        return all(abs(check.error.value) <= self.tolerance for check in self.policies)

    @property
    def orders(self) -> tuple[Order, ...]:
        """The pairs of policies whose live speeds are told apart: the paired interval of their ratio excludes 1."""
        found: list[Order] = []
        for place, first in enumerate(self.policies):
            for second in self.policies[place + 1 :]:
                ratio = interval(SpeedRatio(first.live, second.live))
                if ratio.low > 1.0:
                    found.append(_order(first, second, ratio))
                elif ratio.high < 1.0:
                    flipped = Interval(1.0 / ratio.value, 1.0 / ratio.high, 1.0 / ratio.low)
                    found.append(_order(second, first, flipped))
        return tuple(found)

    @property
    def is_ordered(self) -> bool:
        """Whether the model agrees with every order that live decoding shows."""
        return all(order.agrees for order in self.orders)

    @property
    def passes(self) -> bool:
        """Whether replay equals live in all of it."""
        return self.is_own_exact and self.is_dense_close and self.is_speed_close and self.is_ordered

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping that fits `treewise/schemas/check_replay.json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "pair": self.pair,
            "device": self.device,
            "cost": self.cost,
            "prices": self.prices.to_json(),
            "prompts": self.prompts,
            "max_new_tokens": self.max_new_tokens,
            "temperature": self.temperature,
            "repeats": self.repeats,
            "tolerance": self.tolerance,
            "folder": self.folder,
            "own_exact": self.is_own_exact,
            "dense_differing": self.differing,
            "dense_close": self.is_dense_close,
            "speed_close": self.is_speed_close,
            "ordered": self.is_ordered,
            "passes": self.passes,
            "policies": [check.to_json() for check in self.policies],
            "orders": [order.to_json() for order in self.orders],
        }


def _order(faster: PolicyCheck, slower: PolicyCheck, live: Interval) -> Order:
    return Order(faster.policy, slower.policy, live, faster.modelled.speed / slower.modelled.speed)


def _bounds(found: Interval) -> dict[str, float | None]:
    """An interval; bounds that one prompt cannot give are null."""
    parts = {"value": found.value, "low": found.low, "high": found.high}
    return {name: None if np.isnan(value) else value for name, value in parts.items()}
