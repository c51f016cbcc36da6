"""Replaying policies on a dense trace of the texts that they decoded live: which rounds differ, and by how little.

A live pass and a dense pass compute the same numbers in differently shaped matrix products, so a signal may differ in
its last bits; a decision flips where a threshold lies between its two values, which bounds the distance to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from treewise.data.cost import CostProfile
from treewise.data.envelope import Envelope
from treewise.data.errors import TraceError
from treewise.policy.hook import Deployment, TreePolicy
from treewise.policy.outcome import Walk
from treewise.policy.round import RoundTree
from treewise.training.live_check import difference
from treewise.training.live_rows import rebuild_forest
from treewise.training.logged import LoggedRequest
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay import Replayer
from treewise.training.replay_result import ReplayResult

MAX_DIFFERING = 0.001  # share of rounds that may differ on a dense trace
# Of a node, read in this order; the first that moved furthest is named.
SIGNALS = (
    *("path_prior", "draft_prob", "draft_entropy", "draft_margin", "draft_drawn_prob", "draft_gap"),
    *("lookup_share", "recycled_prob", "recycled_weight"),
)
BOUNDS = ("min_path_prior", "min_grow_prior")


@dataclass(frozen=True, slots=True)
class Flip:
    """One live round that replay on the dense trace decided otherwise."""

    prompt_id: str
    position: int  # absolute position of the root
    reason: str
    signal: str  # that differs most between the two, over the candidates both hold; empty where none differs
    live: float  # its value there; NaN where no signal differs
    dense: float
    bound: str  # of the envelope that lies between the two values; empty where it was a threshold of the policy's own
    follows: int  # live rounds behind it whose roots replay did not reach, before it came back to one

    @property
    def distance(self) -> float:
        """The most by which the threshold that flipped the decision lies from the signal; NaN where none differs."""
        return abs(self.live - self.dense)

    def __str__(self) -> str:
        words = f"{self.prompt_id} at {self.position}: {self.reason}"
        if self.signal:
            words += f"; {self.signal} is {self.live:.9g} live and {self.dense:.9g} here"
            words += f", {self.bound} lies between" if self.bound else ", the threshold is within that distance"
        else:
            words += "; no signal differs"
        return f"{words}; {self.follows} rounds follow from it" if self.follows else words

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping; unknown figures are null."""
        numbers = {"live": self.live, "dense": self.dense, "distance": self.distance}
        return {**asdict(self), **{name: None if np.isnan(value) else value for name, value in numbers.items()}}


@dataclass(frozen=True, slots=True)
class DenseCheck:
    """What a replay on a dense trace compared with the live rounds."""

    rounds: int  # live
    differing: int  # of those: decided otherwise, or never reached because of that
    flips: tuple[Flip, ...]
    result: ReplayResult  # requests in the order of the live trace
    deployment: Deployment

    @property
    def share(self) -> float:
        """Share of live rounds that differ."""
        return self.differing / max(self.rounds, 1)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        return {
            "rounds": self.rounds,
            "differing": self.differing,
            "flips": [flip.to_json() for flip in self.flips],
        }


def replay_dense(
    live: LoggedTrace,
    dense: LoggedTrace,
    policy: TreePolicy,
    cost: CostProfile,
    row_buckets: tuple[int, ...] = (),
    advance: Callable[[], None] | None = None,
) -> DenseCheck:
    """Replay `policy` on `dense` and compare with the `live` trace that it wrote of the same texts.

    `cost` and `row_buckets` must be those of the live run. Raises `TraceError` where a text differs or is missing and
    `CoverageError` where the dense trace is narrower than the live envelope.
    """
    twins = {(request.prompt_id, request.seed): request for request in dense.requests}
    pairs = [(request, _twin(request, twins, dense.name)) for request in live.requests]
    deployment = dense.deployment(cost, live.manifest.envelope, row_buckets)
    by_number: list[_Compared] = []

    def compare(request: LoggedRequest, position: int, tree: RoundTree, walk: Walk) -> None:
        by_number[-1].see(position, tree, walk)

    replayer = Replayer(policy, deployment, compare)
    for request, twin in pairs:
        by_number.append(_Compared(request, live.manifest.envelope, live))
        replayer.run(twin)
        request.release()
        twin.release()
        if advance is not None:
            advance()
    flips = tuple(flip for compared in by_number for flip in compared.flips())
    rounds = sum(len(request.rows) for request in live.requests)
    return DenseCheck(rounds, sum(1 + flip.follows for flip in flips), flips, replayer.result(), deployment)


def _twin(request: LoggedRequest, twins: dict[tuple[str, int], LoggedRequest], name: str) -> LoggedRequest:
    twin = twins.get((request.prompt_id, request.seed))
    if twin is None:
        raise TraceError(f"trace {name} must hold the texts of the live trace, got none of {request.prompt_id}")
    if not np.array_equal(twin.text, request.text):
        raise TraceError(f"trace {name} must hold the texts of the live trace, got another one of {request.prompt_id}")
    return twin


class _Compared:
    """The rounds of one live request beside those of its replay on a dense trace."""

    def __init__(self, request: LoggedRequest, envelope: Envelope, trace: LoggedTrace) -> None:
        self._request = request
        self._envelope = envelope
        self._prior_table = trace.manifest.prior_table
        self._reached: set[int] = set()
        self._flips: list[Flip] = []

    def see(self, position: int, tree: RoundTree, walk: Walk) -> None:
        """One round of the replay; a root that live decoding did not have is a consequence of an earlier round."""
        if position not in self._request.rows:
            return
        self._reached.add(position)
        if reason := difference(self._request, position, tree, walk):
            signal, live, dense = self._furthest(position, tree)
            bound = self._bound(live, dense) if signal == "path_prior" else ""
            self._flips.append(Flip(self._request.prompt_id, position, reason, signal, live, dense, bound, 0))

    def flips(self) -> Iterator[Flip]:
        """What differs, each with the rounds behind it that were never reached."""
        missed = [position for position in self._request.rows if position not in self._reached]
        starts = [flip.position for flip in self._flips]
        for place, flip in enumerate(self._flips):
            end = starts[place + 1] if place + 1 < len(starts) else self._request.end_position
            yield replace(flip, follows=sum(flip.position < position < end for position in missed))
        if early := [position for position in missed if not starts or position < starts[0]]:
            nan = float("nan")
            yield Flip(self._request.prompt_id, early[0], "root not reached", "", nan, nan, "", len(early) - 1)

    def _furthest(self, position: int, tree: RoundTree) -> tuple[str, float, float]:
        """The signal that differs most, over candidates that have the same path of tokens in both."""
        request, row = self._request, self._request.row_at(position)
        shard = request.shard
        nodes = shard.nodes.take(np.arange(len(shard.nodes))[request.node_rows(row)])
        live = rebuild_forest(shard.rounds, row, nodes, self._prior_table, request.ranking)
        mine, theirs = (
            _by_path(live.column("parent"), live.column("token")),
            _by_path(tree.forest.column("parent"), tree.forest.column("token")),
        )
        shared = [path for path in mine if path in theirs]
        here, there = [mine[path] for path in shared], [theirs[path] for path in shared]
        found = ("", float("nan"), float("nan"))
        furthest = 0.0
        for name in SIGNALS:
            left = live.column(name)[here].astype(np.float64)
            right = tree.forest.column(name)[there].astype(np.float64)
            moved = np.nan_to_num(np.abs(left - right))
            if moved.size and moved.max() > furthest:
                at = int(moved.argmax())
                furthest, found = float(moved[at]), (name, float(left[at]), float(right[at]))
        return found

    def _bound(self, live: float, dense: float) -> str:
        low, high = sorted((live, dense))
        return next((name for name in BOUNDS if low < getattr(self._envelope, name) <= high), "")


def _by_path(parents: Any, tokens: Any) -> dict[tuple[int, ...], int]:
    """Row by path of tokens; the root's is empty."""
    paths: list[tuple[int, ...]] = [()]
    for parent, token in zip(parents[1:].tolist(), tokens[1:].tolist(), strict=True):
        paths.append((*paths[parent], token))
    return {path: row for row, path in enumerate(paths)}
