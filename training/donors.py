"""What the draft said where a log of pruned trees asked it, lent to where it was not asked."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from treewise.data.envelope import PriorTable
from treewise.data.errors import CoverageError
from treewise.data.trace_schema import TraceShard
from treewise.training.live_rows import logged_priors
from treewise.training.logged import LoggedRequest
from treewise.training.logged_columns import LoggedColumns
from treewise.training.logged_trace import LoggedTrace
from treewise.training.logged_tree import SCORES
from treewise.training.replay_result import Float64Array, Int64Array

NEIGHBOURS = 64  # donors among which one is drawn; more where path priors are equal

Scores = tuple[float, ...]  # in the order of `SCORES`


@dataclass(frozen=True, slots=True)
class DraftAnswer:
    """What the draft proposed below one row of the committed path, best first."""

    tokens: tuple[int, ...]
    scores: tuple[Scores, ...]  # of each token
    entropy: float  # bits
    margin: float
    match: int  # place of the token that the target said there; -1: the draft did not propose it


@dataclass(frozen=True, slots=True)
class _Pool:
    """Donors in order of path prior."""

    columns: tuple[LoggedColumns, ...]
    shard: Int64Array  # [donors] place in `columns`
    place: Int64Array  # [donors] of the row in the shard's columns
    path_prior: Float64Array  # [donors] ascending
    below: Float64Array  # [donors + 1] weight of all donors before each

    def pick(self, path_prior: float, share: float) -> DraftAnswer:
        """The donor at `share` of the weight of those nearest to `path_prior`."""
        count, sorted_priors = len(self.place), self.path_prior
        first, last = (
            np.searchsorted(sorted_priors, path_prior, "left"),
            np.searchsorted(sorted_priors, path_prior, "right"),
        )
        middle = int(first + last) // 2
        low = max(min(int(first), middle - NEIGHBOURS // 2), 0)
        high = min(max(int(last), middle + NEIGHBOURS // 2), count)
        wanted = self.below[low] + share * (self.below[high] - self.below[low])
        at = min(max(int(np.searchsorted(self.below, wanted, "right")) - 1, low), high - 1)
        return answer_at(self.columns[int(self.shard[at])], int(self.place[at]))


class DraftDonors:
    """Answers of the draft on committed paths, where the log shows both them and what the target said.

    A row that was not drafted gets the answer of a drafted one: a root that of a root, another row that of one of
    about the same path prior in its own tree, drawn with weight 1 / propensity of the request it lies in, so that each
    policy that wrote the log counts as if it had decided every request. `seed` draws weights of prompts besides
    (exponential ones: the Bayesian bootstrap), so that answers of several seeds differ by as much as other prompts
    would have made them differ. Rubin and Schenker, "Multiple imputation for interval estimation from simple random
    samples with ignorable nonresponse", 1986.
    """

    def __init__(self, trace: LoggedTrace, seed: int = 0) -> None:
        """Raises `CoverageError` where the draft never ran on a path whose continuation is known."""
        self.seed = seed
        prompts = sorted({request.prompt_id for request in trace.requests})
        luck = dict(zip(prompts, np.random.default_rng(seed).exponential(size=len(prompts)).tolist(), strict=True))
        shards: dict[int, list[LoggedRequest]] = {}
        for request in trace.requests:
            shards.setdefault(id(request.columns), []).append(request)
        self._path_priors: dict[int, Float64Array] = {}
        found = []
        for number, (key, requests) in enumerate(shards.items()):
            columns = requests[0].columns
            table = trace.manifest.prior_table
            self._path_priors[key] = path_priors(columns.shard, table, trace.manifest.ranking)
            found.append(self._of_shard(number, columns, requests, luck))
        parts = [np.concatenate(part) for part in zip(*found, strict=True)]
        every = tuple(requests[0].columns for requests in shards.values())
        is_root = parts[3] > 0
        if not len(is_root):
            raise CoverageError(f"trace {trace.name} must hold guesses of the draft to estimate from, got none")
        pools = [_pool(every, [part[chosen] for part in parts]) for chosen in (is_root, ~is_root)]
        # Where one of the two kinds was never drafted the other stands in.
        self._roots, self._inner = (pool if len(pool.place) else pools[1 - at] for at, pool in enumerate(pools))

    def path_prior(self, request: LoggedRequest, position: int, node: int) -> float:
        """That of `node` in the logged tree at `position`; 1 for the root."""
        if not node:
            return 1.0
        rows = request.node_rows(request.row_at(position))
        return float(self._path_priors[id(request.columns)][rows.start + node - 1])

    def pick(self, is_root: bool, path_prior: float, key: Sequence[int]) -> DraftAnswer:
        """An answer for a row without one; the same for the same `key`."""
        text = ",".join(map(str, (self.seed, *key))).encode()
        share = int.from_bytes(hashlib.blake2b(text, digest_size=6).digest(), "big") / 2.0**48
        return (self._roots if is_root else self._inner).pick(path_prior, share)

    def _of_shard(
        self, number: int, columns: LoggedColumns, requests: Sequence[LoggedRequest], luck: dict[str, float]
    ) -> tuple[Int64Array, Int64Array, Float64Array, Int64Array, Float64Array]:
        """(place of the shard, place of the row, path prior, whether it is a root, weight) of the shard's donors."""
        shard = columns.shard
        weight = np.zeros(len(shard.rounds))
        for request in requests:
            weight[list(request.rows.values())] = luck[request.prompt_id] / request.propensity
        rows = np.flatnonzero(weight > 0.0)
        inner = np.flatnonzero(shard.nodes.on_path & (weight[shard.round_rows()] > 0.0))
        places = np.concatenate([columns.root_place[rows], columns.node_place[inner]]).astype(np.int64)
        priors = np.concatenate([np.ones(len(rows)), self._path_priors[id(columns)][inner]])
        is_root = np.arange(len(places)) < len(rows)
        weights = np.concatenate([weight[rows], weight[shard.round_rows()[inner]]])
        drafted = columns.drafted
        starts, stops = drafted.starts[places], drafted.starts[places + 1]
        answered = drafted.ran[places] & (stops > starts)
        first = drafted.nodes[np.where(answered, starts, 0)]
        answered &= shard.nodes.match[first] >= 0 if len(shard.nodes) else False
        chosen = np.flatnonzero(answered)
        return (
            np.full(len(chosen), number, dtype=np.int64),
            places[chosen],
            priors[chosen],
            is_root[chosen].astype(np.int64),
            weights[chosen],
        )


def answer_at(columns: LoggedColumns, place: int) -> DraftAnswer:
    """What the draft proposed at `place`, where it ran."""
    drafted, nodes = columns.drafted, columns.shard.nodes
    proposed = drafted.nodes[drafted.starts[place] : drafted.starts[place + 1]]
    matches = np.flatnonzero(nodes.match[proposed] == 1)
    scores = zip(*(getattr(nodes, name)[proposed].tolist() for name in SCORES), strict=True)
    return DraftAnswer(
        tokens=tuple(columns.token[proposed].tolist()),
        scores=tuple(scores),
        entropy=float(drafted.entropy[place]),
        margin=float(drafted.margin[place]),
        match=int(matches[0]) if len(matches) else -1,
    )


def path_priors(shard: TraceShard, table: PriorTable, ranking: str) -> Float64Array:
    """Product of priors from the root down to each node of the shard, [nodes]."""
    found = logged_priors(shard.nodes, table, ranking).astype(np.float64)
    above = shard.parent_rows()
    for depth in range(2, int(shard.nodes.depth.max(initial=0)) + 1):
        rows = np.flatnonzero(shard.nodes.depth == depth)
        found[rows] *= found[above[rows]]
    return found


def _pool(columns: tuple[LoggedColumns, ...], parts: Sequence[np.ndarray]) -> _Pool:
    order = np.argsort(parts[2], kind="stable")
    shard, place, prior, _, weight = (part[order] for part in parts)
    return _Pool(columns, shard, place, prior, np.concatenate([[0.0], np.cumsum(weight)]))
