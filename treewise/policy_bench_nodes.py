"""Verified nodes against accepted length: the learned policy where nodes are counted, beside top-N of every size."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from treewise.data.cost import CostProfile
from treewise.policy_bench_plan import Condition
from treewise.policy_bench_store import ReplayStore

if TYPE_CHECKING:
    from treewise.training.statistics import Interval
    from treewise.training.tally import Tally

SIZES = (2, 4, 6, 8, 12, 16, 24, 32)  # nodes of top-N; beyond them nearly everything that is offered is verified
DEPTHS = (1, 2, 3, 4)  # draft growths that top-N is tuned over
SURVIVALS = (
    0.45,
    0.3,
    0.2,
    0.14,
    0.1,
    0.07,
    0.05,
    0.035,
    0.02,
    0.012,
    0.007,
    0.004,
    0.001,
)  # prices, falling
PRIORS = (0.6, 0.45, 0.3, 0.2, 0.15, 0.12, 0.08, 0.04, 0.02, 0.01)  # of the threshold on the path prior, falling
_COLUMNS = ("tokens", "rounds", "nodes")
Float64Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NodePoint:
    """Top-N of one size, and what others verify at its accepted length; nodes are means over rounds."""

    size: int
    spec: str  # that of the size with the longest accepted length on the training prompts
    accepted: float
    nodes: float
    growths: float
    priced: float  # nodes of the learned policy with one price of a node; NaN where it never gets so far
    limited: float  # of the learned policy with the same limit in every round
    prior: float  # of the threshold on the path prior, whose nodes vary as those of `priced` do
    saved: Interval  # share of top-N's nodes that `priced` saves


@dataclass(frozen=True, slots=True)
class NodeCurve:
    """The comparison under one condition, draft and free sources together. No milliseconds enter."""

    condition: Condition
    prompts: int
    points: tuple[NodePoint, ...]  # by size
    saved: Interval  # mean over the sizes
    limited: Interval  # the same of the learned policy with a limit

    @property
    def lowest(self) -> NodePoint:
        """The size at which least is saved."""
        return min(self.points, key=lambda point: known(point.saved.value))


@dataclass(frozen=True, slots=True)
class SavedNodes:
    """Mean share of verified nodes that a curve of settings saves against single settings, at their accepted lengths.

    Between two neighbouring settings of the curve, from verifying nothing on, nodes are linear in accepted length:
    rounds in which one or the other decides come out there. By prompt: tokens, rounds and nodes of every setting.
    Assumes that prompts are independent draws from the users' prompts. NaN where an accepted length is not reached on
    the prompts themselves; a resample that does not reach it goes on with the slope of the curve's last step.
    """

    singles: Float64Array  # [prompts, settings, 3]
    curve: Float64Array  # [prompts, settings, 3] with ascending nodes

    @property
    def by_prompt(self) -> Float64Array:
        """[prompts, 3 x settings]."""
        return np.concatenate([self.singles, self.curve], axis=1).reshape(len(self.singles), -1)

    def value(self, times: Float64Array) -> Float64Array:
        """Mean over the single settings for each draw, [draws]."""
        single, curve = (np.tensordot(times, part, axes=1) for part in (self.singles, self.curve))
        lengths, ends = (_by_round(part.sum(0))[0] for part in (self.singles, self.curve))
        if lengths.max() > max(0.0, ends.max()):
            return np.full(len(times), np.nan)
        found = np.empty(len(times))
        for draw in range(len(times)):
            accepted, nodes = _by_round(single[draw])
            found[draw] = np.mean(1.0 - nodes_at(accepted, *_by_round(curve[draw]), beyond=True) / nodes)
        return found


def known(share: float) -> float:
    """A share to sort by: one that is NaN, as the accepted length is never reached, below all others."""
    return -math.inf if math.isnan(share) else share


def nodes_at(
    accepted: Float64Array, curve_accepted: Float64Array, curve_nodes: Float64Array, *, beyond: bool = False
) -> Float64Array:
    """Nodes at the lengths `accepted` [n] on a curve [settings] of ascending nodes.

    Past its end NaN, or with `beyond` at the slope of the last step that accepted more.
    """
    rising = np.maximum.accumulate(np.concatenate([[0.0], curve_accepted]))
    nodes = np.concatenate([[0.0], curve_nodes])
    found = np.interp(accepted, rising, nodes)
    over = accepted - rising[-1]
    steps = np.flatnonzero(np.diff(rising) > 0)
    if not beyond or not len(steps):
        return np.where(over > 0, np.nan, found)
    last = steps[-1]
    slope = (nodes[last + 1] - nodes[last]) / (rising[last + 1] - rising[last])
    further: Float64Array = np.where(over > 0, nodes[-1] + slope * over, found)
    return further


def node_curve(
    condition: Condition,
    stores: tuple[ReplayStore, ReplayStore],
    sources: int,
    cost: CostProfile,
    learned: str,
    resamples: int,
    advance: Callable[[int], None] = lambda count: None,
) -> NodeCurve:
    """The curves on the judged prompts; `stores` are of the training and the judged ones, `learned` a spec.

    `cost` changes nothing: it only prices the replays. Raises as `ReplayStore.tallies`.
    """
    train, judged = stores
    grid = {size: [f"topn:{size}x{depth},sources=all" for depth in DEPTHS] for size in SIZES}
    every = [spec for specs in grid.values() for spec in specs]
    tuned = {spec: tally for (_, spec), tally in train.tallies(sources, [cost], every, advance).items()}
    chosen = {size: max(specs, key=lambda spec: _length(tuned[spec])) for size, specs in grid.items()}
    curves = (
        [f"{learned},least={least}" for least in SURVIVALS],
        [f"{learned},nodes={size}" for size in SIZES],
        [f"cumulative:{prior}x6,sources=all" for prior in PRIORS],
    )
    asked = [*chosen.values(), *(spec for specs in curves for spec in specs)]
    found = {spec: tally for (_, spec), tally in judged.tallies(sources, [cost], asked, advance).items()}
    return compare_nodes(condition, chosen, found, curves, resamples)


def compare_nodes(
    condition: Condition,
    chosen: Mapping[int, str],
    found: Mapping[str, Tally],
    curves: tuple[Sequence[str], Sequence[str], Sequence[str]],
    resamples: int,
) -> NodeCurve:
    """The comparison of the top-N settings `chosen`, by size, with the priced, the limited and the prior's curve.

    `found` holds the tally of every spec.
    """
    from treewise.training.statistics import interval

    singles = _totals([found[spec] for spec in chosen.values()])
    priced, limited, prior = (_totals([found[spec] for spec in specs]) for specs in curves)
    accepted, nodes = _by_round(singles.sum(axis=0))
    at = [nodes_at(accepted, *_by_round(curve.sum(axis=0))).tolist() for curve in (priced, limited, prior)]
    points = []
    for place, (size, spec) in enumerate(chosen.items()):
        growths = float(found[spec].columns["growths"].sum() / found[spec].columns["rounds"].sum())
        saved = interval(SavedNodes(singles[:, place : place + 1], priced), resamples)
        mine = (float(accepted[place]), float(nodes[place]), growths)
        points.append(NodePoint(size, spec, *mine, at[0][place], at[1][place], at[2][place], saved))
    whole = [interval(SavedNodes(singles, curve), resamples) for curve in (priced, limited)]
    return NodeCurve(condition, len(singles), tuple(points), *whole)


def _totals(tallies: Sequence[Tally]) -> Float64Array:
    """Tokens, rounds and nodes by prompt, [prompts, settings, 3]."""
    _, place = np.unique(tallies[0].prompt_id, return_inverse=True)
    parts = [[np.bincount(place, tally.columns[name]) for name in _COLUMNS] for tally in tallies]
    return np.asarray(parts, dtype=np.float64).transpose(2, 0, 1)


def _by_round(totals: Float64Array) -> tuple[Float64Array, Float64Array]:
    """(accepted length, verified nodes) of rounds with `totals` [settings, 3], each [settings]."""
    tokens, rounds, nodes = totals.T
    return tokens / rounds - 1.0, nodes / rounds


def _length(tally: Tally) -> float:
    return float(tally.columns["tokens"].sum() / tally.columns["rounds"].sum())
