"""What rows and growths cost in one deployment, as the planner reads it."""

from __future__ import annotations

from dataclasses import replace

from treewise.policy.budget import padded_sizes
from treewise.policy.hook import Deployment
from treewise.policy.planner import PRICED_NODES, Curves, Prices


class Pricing:
    """Prices of one round for a request; curves are kept while the capacity of the cache does not matter."""

    def __init__(self, deployment: Deployment) -> None:
        """A call of the policy costs the profile's `policy_ms`."""
        self._deployment = deployment
        self._padded = padded_sizes(deployment, 2 * PRICED_NODES)
        self._kept: Curves | None = None

    def at(self, capacity: int, rate: float) -> Prices:
        """Prices at `capacity` tokens of cache; `rate`, in tokens per millisecond, is at least plain decoding's."""
        cost = self._deployment.cost
        curves = self._curves(capacity, PRICED_NODES)
        single = self._padded[0] == 1  # then the curve begins with plain decoding
        plain_ms = cost.round_ms + float(curves.verify[0]) if single else cost.plain_ms(capacity)
        return Prices(max(rate, 1.0 / max(plain_ms, 1e-9)), curves, cost.policy_ms + cost.level_ms)

    def cover(self, prices: Prices, nodes: int) -> Prices:
        """The same prices, with a verify curve that holds at least `nodes` nodes."""
        if len(prices.curves.verify) > nodes:
            return prices
        return replace(prices, curves=self._curves(prices.curves.capacity, nodes))

    def _curves(self, capacity: int, nodes: int) -> Curves:
        """Curves for at least `nodes` nodes."""
        cost = self._deployment.cost
        if self._kept is not None and len(self._kept.verify) > nodes:
            return self._kept
        if len(self._padded) <= nodes:
            self._padded = padded_sizes(self._deployment, 2 * nodes)
        curves = Curves.at(cost.verify_ms(self._padded, capacity), cost.draft, capacity)
        if len(cost.verify.capacities) == len(cost.draft.capacities) == 1:
            self._kept = curves
        return curves
