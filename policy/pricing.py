"""What rows and growths cost in one deployment, as the planner reads it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from treewise.policy.budget import padded_sizes
from treewise.policy.hook import Deployment, Int32Array
from treewise.policy.planner import PRICED_NODES, Curves, Prices

KEPT_CURVES = 1024  # capacities


@dataclass(frozen=True, slots=True)
class RoundPrices:
    """The prices of all requests of a round."""

    rates: NDArray[np.float64]  # [requests] tokens per millisecond
    curve_of: NDArray[np.intp]  # [requests] requests at the same capacity share their curves
    verify: NDArray[np.float64]  # [curves, nodes + 1] milliseconds
    draft: NDArray[np.float64]  # [curves, tokens + 1]
    curves: tuple[Curves, ...]  # [curves]

    def of(self, requests: NDArray[np.intp]) -> RoundPrices:
        """The prices of some `requests` [n]."""
        return replace(self, rates=self.rates[requests], curve_of=self.curve_of[requests])

    def draft_ms(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """Milliseconds of growths of `tokens` [requests, n], ascending."""
        most = self.draft.shape[1] - 1
        found: NDArray[np.float64] = self.draft[self.curve_of[:, None], np.minimum(tokens, most)]
        for request in np.flatnonzero(tokens[:, -1:].max(axis=1, initial=0) > most).tolist():
            found[request] = self.curves[self.curve_of[request]].draft_ms(tokens[request])
        return found


class Pricing:
    """Prices of one round for a request; curves are kept by the capacity of the cache, as far as that matters."""

    def __init__(self, deployment: Deployment) -> None:
        """A call of the policy costs the profile's `policy_ms`."""
        self._deployment = deployment
        self._padded = padded_sizes(deployment, 2 * PRICED_NODES)
        grids = (deployment.cost.verify, deployment.cost.draft)
        # Outside the measured capacities nothing changes any more.
        self._least = min(grid.capacities[0] for grid in grids)
        self._most = max(grid.capacities[-1] for grid in grids)
        self._kept: dict[int, Curves] = {}

    def at(self, capacity: int, rate: float) -> Prices:
        """Prices at `capacity` tokens of cache; `rate`, in tokens per millisecond, is at least plain decoding's."""
        cost = self._deployment.cost
        curves = self._curves(capacity, PRICED_NODES)
        single = self._padded[0] == 1  # then the curve begins with plain decoding
        plain_ms = cost.round_ms + float(curves.verify[0]) if single else cost.plain_ms(capacity)
        return Prices(max(rate, 1.0 / max(plain_ms, 1e-9)), curves, cost.policy_ms + cost.level_ms)

    def of_round(self, capacity: Int32Array, rates: NDArray[np.float64], nodes: int) -> RoundPrices:
        """What `at` says of each request, [requests], with verify curves that hold at least `nodes` nodes."""
        cost = self._deployment.cost
        capacities, curve_of = np.unique(np.clip(capacity, self._least, self._most), return_inverse=True)
        curves = tuple(self._curves(tokens, max(nodes, PRICED_NODES)) for tokens in capacities.tolist())
        if self._padded[0] == 1:
            plain_ms = cost.round_ms + np.asarray([float(own.verify[0]) for own in curves])
        else:
            plain_ms = np.asarray([cost.plain_ms(own.capacity) for own in curves])
        least = min(len(own.verify) for own in curves)
        return RoundPrices(
            np.maximum(rates, (1.0 / np.maximum(plain_ms, 1e-9))[curve_of]),
            curve_of,
            np.stack([own.verify[:least] for own in curves]),
            np.stack([own.draft for own in curves]),
            curves,
        )

    def cover(self, prices: Prices, nodes: int) -> Prices:
        """The same prices, with a verify curve that holds at least `nodes` nodes."""
        if len(prices.curves.verify) > nodes:
            return prices
        return replace(prices, curves=self._curves(prices.curves.capacity, nodes))

    def _curves(self, capacity: int, nodes: int) -> Curves:
        """Curves for at least `nodes` nodes."""
        capacity = min(max(capacity, self._least), self._most)
        kept = self._kept.get(capacity)
        if kept is not None and len(kept.verify) > nodes:
            return kept
        if len(self._padded) <= nodes:
            self._padded = padded_sizes(self._deployment, 2 * nodes)
        if len(self._kept) >= KEPT_CURVES:
            self._kept.clear()
        cost = self._deployment.cost
        self._kept[capacity] = curves = Curves.at(cost.verify_ms(self._padded, capacity), cost.draft, capacity)
        return curves
