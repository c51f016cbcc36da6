"""The planner: survival and prices in, growths and kept nodes out. No knobs, one currency.

Decoding is a renewal process: a round costs C milliseconds and commits T tokens, and the long-run throughput is
E[T] / E[C] (renewal reward theorem; S. Ross, "Stochastic Processes", section 3.6). A decision rule that maximises it
also maximises E[T] - lambda E[C] at lambda = the best throughput itself, and following the throughput that is reached
converges there (W. Dinkelbach, "On nonlinear fractional programming", 1967). So a millisecond is worth lambda tokens,
and everything below compares expected tokens with lambda times milliseconds of the deployment's cost profile:

- survival of a row = survival of its parent x its match probability; kept rows add the sum of their survivals.
- keep: rows by survival, the count k with the largest (sum of the first k) - lambda verify(1 + k, padded): a global
  argmax, because padding and hardware make the price a staircase.
- draft below rows S for h levels: sum over the rows that the growth runs of survival x (q + q^2 + .. + q^h), q the
  chance that the draft holds the next token there and the lookup does not, against lambda (h growths + policy calls)
  and the price of one kept child per row and level. Ancestors without draft KV run in the same pass, cost their
  tokens, and bring their own gain. Rows enter by gain; count and h are a global argmax again. Only the first level is
  then asked for; the next is weighed anew when its candidates are known.
- the price of n more rows is what they take from the best kept set: max_k(first k - lambda verify(1 + k)) minus
  max_k(first k - lambda verify(1 + k + n)). Rows that do not pay alone can pay together.
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
from treewise.data.stored_json import check_names
from treewise.policy.budget import best_prefix
from treewise.policy.hook import Nodes

Float64Array = NDArray[np.float64]
IndexArray = NDArray[np.intp]
PLANNED_LEVELS = 6  # levels that a growth decision looks ahead
PLANNED_GROWTHS = 32  # candidates of one level that it weighs
PLANNED_ROWS = 48  # rows that a plan may add
PRICED_ROWS = 64  # rows with the most survival that a plan weighs them against
PRICED_NODES = 192  # every verify curve reaches at least so far
CHEAP_NODES = 64  # the cheapest row is sought among so many
_SHIFTED = np.arange(PRICED_ROWS + 1)[:, None] + np.arange(PLANNED_ROWS + 1)  # sizes of kept set plus added rows
_TOKENS = np.arange(PRICED_NODES)
_COUNTS = np.arange(1, PLANNED_GROWTHS + 1)
_LEVELS = np.arange(1.0, PLANNED_LEVELS + 1)
_LATER = _LEVELS - 1.0
_DEPTHS = np.arange(1, PLANNED_LEVELS + 1)


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
        check_names(value, cls.__dataclass_fields__, "planner settings", ParameterError)
        return cls(**value)


@dataclass(frozen=True, slots=True)
class Curves:
    """Milliseconds by size at one cache capacity, looked up rather than interpolated in every decision."""

    verify: Float64Array  # [nodes + 1] of the root and so many nodes, padding included; at least PRICED_NODES nodes
    draft: Float64Array  # [tokens + 1] of one growth
    grid: CostGrid  # of the draft, for growths beyond the curve
    capacity: int  # tokens of cache
    cheapest_row_ms: float  # the least that one more verified row costs, at any size up to CHEAP_NODES
    shifted: Float64Array  # [PRICED_ROWS + 1, PLANNED_ROWS + 1] of the root, so many kept nodes and so many more

    @classmethod
    def at(cls, verify: Float64Array, grid: CostGrid, capacity: int) -> Curves:
        """Curves of a verify curve [nodes + 1] and the draft's grid."""
        first = verify[: CHEAP_NODES + 1]
        cheapest = max(float((first[1:] - first[:-1]).min()), 0.0)
        return cls(verify, grid.at(_TOKENS, capacity), grid, capacity, cheapest, verify[_SHIFTED])

    def draft_ms(self, tokens: NDArray[np.integer[Any]]) -> Float64Array:
        """Milliseconds of one growth of `tokens` [n] tokens, ascending."""
        known = tokens[-1] < len(self.draft)
        return np.asarray(self.draft[tokens] if known else self.grid.at(tokens, self.capacity))


@dataclass(frozen=True, slots=True)
class Prices:
    """What one request pays in one round."""

    rate: float  # lambda, tokens per millisecond
    curves: Curves
    call_ms: float  # one more level: the policy's call and the driver's work

    def growth_ms(self, tokens: int) -> float:
        """Milliseconds of one growth of `tokens` tokens, and of the level that it opens."""
        curves = self.curves
        known = tokens < len(curves.draft)
        return float(curves.draft[tokens] if known else curves.grid.at([tokens], curves.capacity)[0]) + self.call_ms

    def draft_ms(self, tokens: NDArray[np.integer[Any]]) -> Float64Array:
        """Milliseconds of one growth of `tokens` [n] tokens, ascending, and of the level that it opens."""
        return self.curves.draft_ms(tokens) + self.call_ms


def normalise_siblings(match: Float64Array, parent: NDArray[np.integer[Any]], roots: int = 1) -> Float64Array:
    """`match` [rows], scaled down where siblings sum to more than 1; the first `roots` rows keep theirs."""
    above, inner = parent[roots:], match[roots:]
    total = np.bincount(above, weights=inner, minlength=len(match))
    if not total.max(initial=0.0) > 1.0:
        return match
    shared = match.copy()
    shared[roots:] = inner * (1.0 / np.maximum(total, 1.0))[above]
    return shared


def path_products(match: Float64Array, parent: NDArray[np.integer[Any]], deepest: int) -> Float64Array:
    """Survival [rows]: the product of `match` [rows] along each row's path; roots must hold 1. By path doubling."""
    if deepest <= 1:
        return match
    jump = np.where(parent < 0, np.arange(len(parent)), parent)
    survival = match * match[jump]
    span = 2
    while span < deepest:
        jump = jump[jump]
        survival = survival * survival[jump]
        span *= 2
    return survival


def keep_rows(survival: Float64Array, rows: IndexArray, prices: Prices, scale: float = 1.0) -> IndexArray:
    """Those of `rows` whose verification pays: the best count of them by `survival` [forest rows], ties to low rows."""
    order = rows[np.argsort(-survival[rows], kind="stable")]
    count = best_prefix(survival[order], prices.curves.verify[: len(order) + 1], prices.rate * scale)
    return order[:count]


def row_prices(survival: Float64Array, prices: Prices, scale: float = 1.0) -> Float64Array:
    """Tokens that 0, 1, .. `PLANNED_ROWS` more rows take from the best kept set of rows with `survival` [rows]."""
    totals = np.zeros(min(len(survival), PRICED_ROWS) + 1)
    order = -survival
    order.sort()
    np.negative(order[:PRICED_ROWS], out=order[:PRICED_ROWS])
    order[:PRICED_ROWS].cumsum(out=totals[1:])
    best = (totals[:, None] - prices.rate * scale * prices.curves.shifted[: len(totals)]).max(axis=0)
    return np.asarray(best[0] - best)


def choose_growths(
    survival: Float64Array,
    holds: Float64Array,
    rows: IndexArray,
    forest: Nodes,
    deepest: int,
    catch_up: int,
    row_price: Float64Array,
    prices: Prices,
    scale: float = 1.0,
) -> IndexArray:
    """Those of `rows` (candidates that may be drafted below) to run the draft on; empty: no growth.

    `survival` and `holds` are of all forest rows; `holds` is the chance that the draft offers the next token below the
    row and the lookup does not. `deepest` is the deepest node that may be guessed, `row_price` from `row_prices`.
    """
    rows = rows[(-(survival[rows] * holds[rows])).argsort(kind="stable")[:PLANNED_GROWTHS]]
    if not rows.size:
        return rows
    run, nodes, extra = rows, _COUNTS[: len(rows)], 0
    if forest.draft_missing[rows].any():
        run, nodes, extra = _with_ancestors(rows, forest, catch_up)
    room = deepest - forest.depth[run]
    levels = min(int(room.max()), PLANNED_LEVELS)
    if levels < 1:
        return rows[:0]
    gains = _growth_gains(survival[run], holds[run], room, levels)
    if run is not rows:
        gains = gains[nodes - 1]
    later_ms = prices.draft_ms(nodes)
    first_ms = later_ms if extra == 0 else prices.draft_ms(nodes + extra)
    ms = first_ms[:, None] + later_ms[:, None] * _LATER[:levels]
    children = nodes[:, None] * _DEPTHS[:levels]
    if children[-1, -1] > PLANNED_ROWS:
        gains[children > PLANNED_ROWS] = -np.inf
        children = np.minimum(children, PLANNED_ROWS)
    net = (gains - prices.rate * scale * ms - row_price[children]).max(axis=1)
    best = int(net.argmax())
    return rows[: best + 1] if net[best] > 0.0 else rows[:0]


def _growth_gains(
    survival: Float64Array, holds: Float64Array, room: NDArray[np.integer[Any]], levels: int
) -> Float64Array:
    """Tokens that growths on the first 1, 2, .. rows add in 1, 2, .. `levels` more levels, [rows, levels].

    `survival`, `holds` and `room` (levels that fit below) are [rows].
    """
    steps: Float64Array = np.repeat(holds[:, None], levels, axis=1).cumprod(axis=1)
    if room.min() < levels:
        steps[_LEVELS[:levels] > room[:, None]] = 0.0
    gains: Float64Array = survival[:, None] * steps.cumsum(axis=1)
    return gains.cumsum(axis=0)


def _with_ancestors(rows: IndexArray, forest: Nodes, catch_up: int) -> tuple[IndexArray, NDArray[np.int64], int]:
    """(rows that growths on `rows` run, in that order; how many the first 1, 2, .. of `rows` run; further tokens)."""
    parent, drafted = forest.parent, forest.drafted
    running: dict[int, None] = {}
    extra = 0
    nodes = np.empty(len(rows), dtype=np.int64)
    for place, row in enumerate(rows.tolist()):
        while row >= 0 and row not in running and not drafted[row]:
            running[row] = None
            row = int(parent[row])
            if row < 0:
                extra = catch_up  # the root runs, and with it what the draft has not seen
        nodes[place] = len(running)
    return np.asarray(list(running), dtype=np.intp), nodes, extra


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
    holds, levels = opening.holds, opening.levels
    if holds <= 0.0 or levels < 1:
        return False
    rate, catch_up, match = prices.rate * scale, opening.catch_up, opening.first_match
    chain = np.cumprod(np.full(levels, match)) if match > 0.0 else np.zeros(0)  # what the lookup will offer for nothing
    row_price = row_prices(chain, prices).tolist()
    most = len(row_price) - 1
    gain, now, depth = 0.0, -np.inf, 0
    first_ms, next_ms, step = prices.growth_ms(1 + catch_up), prices.growth_ms(1), 1.0
    for level in range(1, min(levels, PLANNED_LEVELS) + 1):
        step *= holds
        gain += step
        net = gain - rate * (first_ms + (level - 1) * next_ms) - row_price[level]
        if net > now:
            now, depth = net, level
    if now <= 0.0:
        return False
    if not opening.carries or levels < 2:
        return True
    more, together, then, survival = 0.0, -np.inf, 0.0, 1.0
    for nodes in range(1, levels):
        survival *= match
        more += survival * holds
        price = row_price[min(depth + nodes, most)] - row_price[depth]
        joint = rate * (prices.growth_ms(1 + nodes + catch_up) - first_ms)
        together = max(together, more - price - joint)
        then = max(then, more - price - rate * prices.growth_ms(nodes))
    return then > together - rate * prices.call_ms
