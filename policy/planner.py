"""The planner: survival and prices in, growths and kept nodes out. No knobs, one currency.

Decoding is a renewal process: a round costs C milliseconds and commits T tokens, and the long-run throughput is
E[T] / E[C] (renewal reward theorem; S. Ross, "Stochastic Processes", section 3.6). A decision rule that maximises it
also maximises E[T] - lambda E[C] at lambda = the best throughput itself, and following the throughput that is reached
converges there (W. Dinkelbach, "On nonlinear fractional programming", 1967). So a millisecond is worth lambda tokens,
and everything below compares expected tokens with lambda times milliseconds of the deployment's cost profile:

- survival of a row = survival of its parent x its match probability; kept rows add the sum of their survivals.
- keep: rows by survival, the count k with the largest (sum of the first k) - lambda verify(1 + k, padded): a global
  argmax, because padding and hardware make the price a staircase.
- draft below rows S: sum over the rows that the growth runs of survival x P(the draft holds the next token there and
  the lookup does not) x (1 + what growing on from there would add), against lambda (draft(tokens) + policy call +
  verify rows of one kept child each). Ancestors without draft KV run in the same pass, cost their tokens, and bring
  their own gain. Rows enter by gain; the best count is a global argmax again.
- open: the lookup is free. The draft is asked at the root at once only where that beats both leaving it out and
  looking up first: then one later pass runs the root and the lookup's chain together.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.cost import CostGrid
from treewise.data.errors import ParameterError, require
from treewise.policy.budget import best_prefix
from treewise.policy.hook import Nodes

Float64Array = NDArray[np.float64]
IndexArray = NDArray[np.intp]
_TINY = 1e-12
_ONE = np.ones(1, dtype=np.int64)
PRICED_NODES = 64  # every verify curve reaches at least so far


@dataclass(frozen=True, slots=True)
class PlannerSettings:
    """What a bundle may tune by replay. At the defaults every decision follows from prices alone."""

    growth_scale: float = 1.0  # times the price of growths below the root's level
    opening_scale: float = 1.0  # times the price of drafting at the root
    prune_scale: float = 1.0  # times the price of verified rows in the final choice
    sibling_normalise: bool = True  # siblings exclude each other: their match probabilities sum to at most 1
    rate_over_plain: float = 1.3  # first guess of the throughput, over plain decoding

    def __post_init__(self) -> None:
        for name in ("growth_scale", "opening_scale", "prune_scale"):
            value = getattr(self, name)
            require(0.0 <= value < float("inf"), name, "finite and at least 0", value)
        require(isinstance(self.sibling_normalise, bool), "sibling_normalise", "true or false", self.sibling_normalise)
        require(1.0 <= self.rate_over_plain <= 100.0, "rate_over_plain", "between 1 and 100", self.rate_over_plain)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping; `from_json` reads it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> PlannerSettings:
        """The settings that `to_json` wrote. Raises `ParameterError` on unknown or missing names."""
        names = set(cls.__dataclass_fields__)
        if set(value) != names:
            raise ParameterError(f"planner settings must have the names {sorted(names)}, got {sorted(value)}")
        return cls(**value)


@dataclass(frozen=True, slots=True)
class Curves:
    """Milliseconds by size at one cache capacity, looked up rather than interpolated in every decision."""

    verify: Float64Array  # [nodes + 1] of the root and so many nodes, padding included; at least PRICED_NODES nodes
    draft: Float64Array  # [tokens + 1] of one growth
    grid: CostGrid  # of the draft, for growths beyond the curve
    capacity: int  # tokens of cache
    cheapest_row_ms: float  # the least that one more verified row costs, at any size up to PRICED_NODES

    @classmethod
    def at(cls, verify: Float64Array, grid: CostGrid, capacity: int) -> Curves:
        """Curves of a verify curve [nodes + 1] and the draft's grid."""
        cheapest = max(float(np.diff(verify[: PRICED_NODES + 1]).min()), 0.0)
        return cls(verify, grid.at(np.arange(2 * PRICED_NODES), capacity), grid, capacity, cheapest)


@dataclass(frozen=True, slots=True)
class Prices:
    """What one request pays in one round."""

    rate: float  # lambda, tokens per millisecond
    curves: Curves
    call_ms: float  # one more level

    def rows_ms(self, kept: int, more: NDArray[Any]) -> Float64Array:
        """Milliseconds of verifying `more` [n] nodes on top of `kept` ones."""
        verify = self.curves.verify
        return np.asarray(verify[kept + more] - verify[kept])

    def draft_ms(self, tokens: NDArray[np.integer[Any]]) -> Float64Array:
        """Milliseconds of one growth of `tokens` [n] tokens, ascending, and of the level that it opens."""
        curves = self.curves
        if tokens[-1] < len(curves.draft):
            return np.asarray(curves.draft[tokens] + self.call_ms)
        return np.asarray(curves.grid.at(tokens, curves.capacity) + self.call_ms)


def normalise_siblings(match: Float64Array, parent: NDArray[np.integer[Any]]) -> Float64Array:
    """`match` [rows], scaled down below every parent whose children sum to more than 1; roots keep theirs."""
    inner = parent >= 0
    total = np.bincount(parent[inner], weights=match[inner], minlength=len(match))
    scale = 1.0 / np.maximum(total, 1.0)
    return np.where(inner, match * scale[parent], match)


def path_products(match: Float64Array, parent: NDArray[np.integer[Any]], deepest: int) -> Float64Array:
    """Survival [rows]: the product of `match` [rows] along each row's path; roots must hold 1. By path doubling."""
    survival = match
    jump = np.where(parent < 0, np.arange(len(parent)), parent)
    span = 1
    while span < deepest:
        survival = survival * survival[jump]
        jump = jump[jump]
        span *= 2
    return survival


def keep_rows(survival: Float64Array, rows: IndexArray, prices: Prices, scale: float = 1.0) -> IndexArray:
    """Those of `rows` whose verification pays: the best count of them by `survival` [forest rows], ties to low rows."""
    order = rows[np.argsort(-survival[rows], kind="stable")]
    count = best_prefix(survival[order], prices.curves.verify[: len(order) + 1], prices.rate * scale)
    return order[:count]


def continuation_value(
    survival: Float64Array, holds: Float64Array, levels_left: NDArray[Any], step_tokens: float
) -> Float64Array:
    """Expected further tokens below a child that the draft is to offer, given that it matches, [n].

    Growing on for h levels, one row each, adds holds + holds^2 + .. + holds^h tokens there and costs h x `step_tokens`
    (tokens) whether or not the child matches; the best h counts, 0 included. `levels_left` [n] bounds it.
    """
    most = int(levels_left.max(initial=0))
    if most <= 0:
        return np.zeros(len(survival))
    steps = np.arange(1, most + 1)
    gain = np.cumsum(holds[:, None] ** steps, axis=1)
    price = step_tokens * steps / np.maximum(survival * holds, _TINY)[:, None]
    net = np.where(steps <= levels_left[:, None], gain - price, 0.0)
    return np.asarray(np.maximum(net.max(axis=1), 0.0))


def growth_gain(
    survival: Float64Array, holds: Float64Array, levels_left: NDArray[Any], prices: Prices, kept: int, scale: float
) -> Float64Array:
    """Expected tokens that running the draft on each row adds, [n].

    `holds`: probability that the draft offers the next token below the row and the lookup does not. `levels_left`:
    further levels that could grow below the offered child. `kept`: nodes that are worth verifying already.
    """
    step = prices.rate * scale * float((prices.draft_ms(_ONE) + prices.rows_ms(kept, _ONE))[0])
    return survival * holds * (1.0 + continuation_value(survival, holds, levels_left, step))


def choose_growths(
    gain: Float64Array, rows: IndexArray, forest: Nodes, catch_up: int, prices: Prices, kept: int, scale: float
) -> IndexArray:
    """Those of `rows` (candidates that may be drafted below) to run the draft on; empty: no growth.

    `gain` [forest rows] is in tokens; rows that the draft ran on already must not be asked again.
    """
    rows = rows[np.argsort(-gain[rows], kind="stable")]
    if not len(rows) or (gain[rows[0]] <= 0.0 and not forest.draft_missing[rows].any()):
        return rows[:0]
    if forest.draft_missing[rows].any():
        gains, nodes, extra = _with_ancestors(gain, rows, forest, catch_up)
    else:
        gains, nodes, extra = np.cumsum(gain[rows]), np.arange(1, len(rows) + 1), 0
    price = prices.draft_ms(nodes + extra) + prices.rows_ms(kept, nodes)
    net = gains - prices.rate * scale * price
    best = int(np.argmax(net))
    return rows[: best + 1] if net[best] > 0.0 else rows[:0]


def _with_ancestors(
    gain: Float64Array, rows: IndexArray, forest: Nodes, catch_up: int
) -> tuple[Float64Array, NDArray[np.int64], int]:
    """Summed gains and nodes of the growths on the first 1, 2, .. of `rows`, ancestors included; further tokens."""
    parent, drafted = forest.parent, forest.drafted
    running: set[int] = set()
    total = 0.0
    extra = 0
    gains = np.empty(len(rows))
    nodes = np.empty(len(rows), dtype=np.int64)
    for place, row in enumerate(rows.tolist()):
        while row >= 0 and row not in running and not drafted[row]:
            running.add(row)
            total += float(gain[row])
            row = int(parent[row])
            if row < 0:
                extra = catch_up  # the root runs, and with it what the draft has not seen
        gains[place] = total
        nodes[place] = len(running)
    return gains, nodes, extra


@dataclass(frozen=True, slots=True)
class Opening:
    """What is known of one request before anything is asked."""

    holds: float  # probability that the draft offers the next token and the lookup does not; 0: no draft here
    first_match: float  # prior of the lookup's first continuation; 0: it has none
    carries: bool  # that continuation will be a row which the draft may grow below
    levels: int  # deepest node that may be guessed
    catch_up: int  # tokens


def draft_at_once(opening: Opening, prices: Prices, scale: float = 1.0) -> bool:
    """Whether the opening level asks the draft at the root, rather than only the lookup.

    Where the lookup's first continuation carries, the draft can still be run on the root with the lookup's chain in
    one pass a level later; that is weighed with the chain's prior and the root's own chance below each of its nodes.
    """
    if opening.holds <= 0.0 or opening.levels < 1:
        return False
    rate = prices.rate * scale
    holds, levels = np.asarray([opening.holds]), np.asarray([opening.levels - 1])
    root = float(growth_gain(np.ones(1), holds, levels, prices, 0, scale)[0])
    now = root - rate * float((prices.draft_ms(_ONE + opening.catch_up) + prices.rows_ms(0, _ONE))[0])
    if now <= 0.0:
        return False
    if not opening.carries or opening.levels < 2:
        return True
    nodes = np.arange(1, opening.levels)
    chain = np.cumsum(opening.first_match**nodes * opening.holds)
    later = root + chain - rate * (prices.draft_ms(1 + nodes + opening.catch_up) + prices.rows_ms(0, 1 + nodes))
    then = chain - rate * (prices.draft_ms(nodes) + prices.rows_ms(1, nodes))
    return now + max(float(then.max()), 0.0) > float(later.max()) - rate * prices.call_ms
