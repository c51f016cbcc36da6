"""Milliseconds against tokens: what a round cost, and the node set that is worth its verify pass."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from treewise.policy.hook import DRAFT, BoolArray, Deployment, Float32Array, Nodes, RoundOutcome
from treewise.policy.prefixes import Ranked, best_prefixes

Float64Array = NDArray[np.float64]


class SharedDeployments:
    """One deployment as batches of any size pay for it: every pass and call is shared evenly by requests that do alike.

    A profile that states shares already (`CostProfile.requests`) is taken as it is. Row buckets are those of whole
    passes, rounded down to whole rows of one request.
    """

    def __init__(self, deployment: Deployment) -> None:
        self._by_size = {1: deployment}

    def of(self, batch_size: int) -> Deployment:
        """The deployment of one of `batch_size` requests."""
        found = self._by_size.get(batch_size)
        if found is None:
            found = alone = self._by_size[1]
            if alone.cost.requests == 1:
                buckets = sorted({rows // batch_size for rows in alone.row_buckets} - {0})
                found = replace(alone, cost=alone.cost.shared_by(batch_size), row_buckets=tuple(buckets))
            self._by_size[batch_size] = found
        return found


def padded_sizes(deployment: Deployment, max_nodes: int) -> NDArray[np.int64]:
    """Rows that verify passes of the root and 0 .. `max_nodes` nodes run with, [max_nodes + 1]."""
    rows = np.arange(1, max_nodes + 2)
    if deployment.row_buckets:
        buckets = np.asarray(deployment.row_buckets)
        place = buckets.searchsorted(rows)
        inside = place < len(buckets)
        rows[inside] = buckets[place[inside]]
    return rows


def verify_curve(deployment: Deployment, max_nodes: int, capacity: int = 0) -> Float64Array:
    """Milliseconds of a verify pass of the root and 0 .. `max_nodes` nodes, padding included, [max_nodes + 1].

    `capacity` is in tokens of cache.
    """
    return deployment.cost.verify_ms(padded_sizes(deployment, max_nodes), capacity)


def best_prefix(gains: Float64Array | Float32Array, prefix_ms: Float64Array, tokens_per_ms: float) -> int:
    """How many of the nodes with `gains` [n] tokens, sorted downward, to verify; the fewest where several are best.

    Maximises the sum of the first k gains minus `tokens_per_ms` times `prefix_ms[k]` over all k from 0 to n, so a
    step of the cost curve is crossed where what lies behind it pays for it. `prefix_ms` is [n + 1].
    """
    totals = np.zeros(len(gains) + 1)
    gains.cumsum(dtype=np.float64, out=totals[1:])
    return int((totals - tokens_per_ms * prefix_ms).argmax())


def shared_survival(nodes: Nodes, among: BoolArray | None = None) -> Float64Array:
    """Survival of every row where siblings share one text: priors that sum to more than 1 are scaled down, [rows].

    The prior is that of the most confident source, so where two sources disagree the siblings' priors add up to more
    than the one token that can follow. Rows that are not `among` [rows] count as not offered: theirs is 0.
    """
    parent, prior = nodes.parent, nodes.prior.astype(np.float64)
    offered = parent >= 0
    inner = (offered if among is None else offered & among).nonzero()[0]
    mass = np.bincount(parent[inner], weights=prior[inner], minlength=len(prior))
    survival = np.where(offered, 0.0, 1.0)
    # Level by level; numpy sorts 16 bits in one pass over each byte.
    depth = nodes.depth[inner].astype(np.uint16)
    down = inner[depth.argsort(kind="stable")]
    above = parent[down]
    prior, mass = prior[down], np.maximum(mass[above], 1.0)
    ends = np.bincount(depth).cumsum().tolist()
    for start, end in itertools.pairwise(ends):
        survival[down[start:end]] = survival[above[start:end]] * prior[start:end] / mass[start:end]
    return survival


def keep_by_price(
    survival: Float64Array | Float32Array,
    nodes: Nodes,
    curves: Sequence[Float64Array] | Float64Array,
    tokens_per_ms: Float64Array,
) -> BoolArray:
    """The admitted nodes worth verifying, request by request, each priced as though alone; roots are True. [rows].

    `survival` [rows] is the probability that the row's whole path matches; it must not exceed its parent's, which
    makes the chosen set closed under parents. `curves` [requests] are verify curves of at least each one's own nodes.
    """
    keep = np.asarray(nodes.parent < 0).copy()
    inner = np.flatnonzero(nodes.admitted & (nodes.parent >= 0))
    ranked = Ranked.of(inner, survival, nodes.request, len(curves))
    gains = ranked.table(survival[ranked.rows])
    rows = gains.shape[1] + 1
    prices = curves[:, :rows] if isinstance(curves, np.ndarray) else np.asarray([curve[:rows] for curve in curves])
    kept = best_prefixes(gains, prices, tokens_per_ms)
    keep[ranked.rows[ranked.place < kept[ranked.owner]]] = True
    return keep


def modelled_ms(outcome: RoundOutcome, deployment: Deployment) -> Float64Array:
    """Modelled milliseconds of a round for each request, mates left aside, [requests].

    `deployment` is that of a batch of the round's size (`SharedDeployments`), or the round counts as alone.

    An ancestor that a growth ran on the way is counted with the request's first growth.
    """
    nodes, context, cost = outcome.nodes, outcome.context, deployment.cost
    request, capacity = nodes.request, context.position
    count = len(context.request_id)
    rows = np.bincount(request[outcome.kept], minlength=count)
    if deployment.row_buckets:
        rows = np.asarray([deployment.padded_rows(each) for each in rows.tolist()])
    levels = np.zeros(count, dtype=np.int64)
    levels[request] = nodes.level  # rows come level by level, so that the last one's stays
    total = cost.round_ms + cost.verify.at_each(rows, capacity) + cost.policy_ms * (levels + 2)
    total += cost.level_ms * levels
    grown = np.flatnonzero(nodes.grown & DRAFT)
    if grown.size:
        width = int(levels.max()) + 1
        by_level = np.bincount(request[grown] * width + nodes.level[grown], minlength=count * width)
        owner, level = np.nonzero(by_level.reshape(count, width))  # the growths, in order
        tokens = by_level[owner * width + level]
        ran = np.bincount(request[nodes.drafted], minlength=count) - np.bincount(request[grown], minlength=count)
        ran += np.where(nodes.drafted[:count], context.catch_up, 0)
        first = np.flatnonzero(np.diff(owner, prepend=-1))
        tokens[first] += ran[owner[first]]
        total += np.bincount(owner, cost.draft.at_each(tokens, capacity[owner]), minlength=count)
    return np.asarray(total, dtype=np.float64)
