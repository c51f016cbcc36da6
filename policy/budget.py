"""Milliseconds against tokens: what a round cost, and the node set that is worth its verify pass."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from treewise.policy.hook import DRAFT, BoolArray, Deployment, Float32Array, Nodes, RoundOutcome

Float64Array = NDArray[np.float64]


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


def shared_survival(nodes: Nodes) -> Float64Array:
    """Survival of every row where siblings share one text: priors that sum to more than 1 are scaled down, [rows].

    The prior is that of the most confident source, so where two sources disagree the siblings' priors add up to more
    than the one token that can follow.
    """
    prior = nodes.prior.astype(np.float64)
    inner = np.flatnonzero(nodes.parent >= 0)
    mass = np.bincount(nodes.parent[inner], weights=prior[inner], minlength=len(prior))
    survival = np.ones(len(prior), dtype=np.float64)
    for depth in range(1, int(nodes.depth.max(initial=0)) + 1):
        rows = inner[nodes.depth[inner] == depth]
        above = nodes.parent[rows]
        survival[rows] = survival[above] * prior[rows] / np.maximum(mass[above], 1.0)
    return survival


def keep_by_price(
    survival: Float64Array | Float32Array,
    nodes: Nodes,
    deployment: Deployment,
    tokens_per_ms: Float64Array,
    capacity: NDArray[np.integer],
) -> BoolArray:
    """The admitted nodes worth verifying, request by request, each priced as though alone; roots are True. [rows].

    `survival` [rows] is the probability that the row's whole path matches; it must not exceed its parent's, which
    makes the chosen set closed under parents. `tokens_per_ms` and `capacity` (tokens of cache) are [requests].
    """
    keep = np.asarray(nodes.parent < 0).copy()
    inner = np.asarray(nodes.admitted & (nodes.parent >= 0))
    for request in range(len(tokens_per_ms)):
        rows = np.flatnonzero(inner & (nodes.request == request))
        order = rows[np.argsort(-survival[rows], kind="stable")]
        curve = verify_curve(deployment, len(order), int(capacity[request]))
        keep[order[: best_prefix(survival[order], curve, float(tokens_per_ms[request]))]] = True
    return keep


def modelled_ms(outcome: RoundOutcome, deployment: Deployment) -> Float64Array:
    """Modelled milliseconds of a round for each request as though it ran alone, [requests].

    An ancestor that a growth ran on the way is counted with the request's first growth.
    """
    nodes, context, cost = outcome.nodes, outcome.context, deployment.cost
    total = np.empty(len(context.request_id), dtype=np.float64)
    for request in range(len(total)):
        mine = nodes.request == request
        capacity = int(context.position[request])
        rows = deployment.padded_rows(int((outcome.kept & mine).sum()))
        calls = 2 + int(nodes.level[mine].max())
        total[request] = cost.round_ms + float(cost.verify_ms(rows, capacity)) + cost.policy_ms * calls
        total[request] += cost.level_ms * (calls - 2)
        growths = np.bincount(nodes.level[mine & ((nodes.grown & DRAFT) > 0)])
        growths = growths[growths > 0]  # those of each level that made one, in order
        if growths.size:
            asked = int(growths.sum())
            growths[0] += int((nodes.drafted & mine).sum()) - asked
            growths[0] += int(context.catch_up[request]) if nodes.drafted[request] else 0
            total[request] += float(cost.draft_ms(growths, capacity).sum())
    return total
