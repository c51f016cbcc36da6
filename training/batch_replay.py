"""Batched replay: many requests of a shard take their next round in one call of the hook."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from treewise.data.errors import CoverageError, PolicyError
from treewise.policy.hook import (
    DRAFT,
    Deployment,
    Int32Array,
    RoundContext,
    RoundOutcome,
    TreePolicy,
)
from treewise.policy.round import RoundTree
from treewise.training.batch_free import BatchBuilder
from treewise.training.flight import Driven, Flight
from treewise.training.logged import LoggedRequest
from treewise.training.logged_batch import BatchDraft
from treewise.training.logged_columns import LoggedColumns
from treewise.training.strict_policy import StrictPolicy


class BatchReplay:
    """Drives a bound policy, which is not contained: where it fails, its requests are handed back to run alone."""

    def __init__(
        self, policy: TreePolicy, deployment: Deployment, columns: LoggedColumns, tells_size: bool = False
    ) -> None:
        """`tells_size`: tell the policy of the batch that it sees, as though it was served so."""
        self._tells_size = tells_size
        self._policy = StrictPolicy(policy)
        self._columns = columns
        self._builder = BatchBuilder(
            deployment.envelope,
            deployment.prior_table,
            deployment.ranking,
            columns,
            deployment.sources,
        )
        self._has_draft = bool(deployment.sources & DRAFT)

    @property
    def seconds(self) -> float:
        """What the policy's calls took so far."""
        return self._policy.seconds

    def drive(self, requests: Sequence[tuple[int, LoggedRequest]], batch_requests: int) -> Iterator[Driven]:
        """Replay numbered `requests`, at most `batch_requests` side by side; yields each when it is done with.

        Those that must run alone come without rows: recorded suspensions, and whatever was under way when the policy
        failed or asked for what the log does not hold.
        """
        waiting, flight = deque(requests), Flight(self._columns, min(batch_requests, len(requests)))
        has_probe = False
        while waiting or flight:
            while waiting and len(flight) < batch_requests:
                driven = Driven(*waiting.popleft())
                request = driven.request
                if request.was_suspended or request.was_batched or not self._begin(driven):
                    driven.rows = None
                    yield driven
                else:
                    flight.join(driven)
            if len(flight) > 1 and not has_probe:
                has_probe = flight.driven[-1].is_probe = True
            ended = flight.leave()  # texts of no token
            try:
                if flight:
                    self._round(flight)
            except (CoverageError, PolicyError):
                yield from flight.clear()
            for driven in ended + flight.leave():
                if not self._finish(driven):
                    driven.rows = None
                yield driven

    def _begin(self, driven: Driven) -> bool:
        try:
            self._policy.begin(driven.info())
        except PolicyError:
            return False
        return True

    def _finish(self, driven: Driven) -> bool:
        try:
            self._policy.finish(driven.number, driven.request.finish)
        except PolicyError:
            return False
        return True

    def _round(self, flight: Flight) -> None:
        """The next round of every request of `flight`."""
        columns = self._columns
        # Each request was logged alone, and a policy may read that.
        context = flight.context(len(flight) if self._tells_size else 1)
        rows = flight.rows()
        roots = columns.root_place[rows]
        places = self._builder.places
        places.open(roots)
        draft = BatchDraft(places, context.catch_up) if self._has_draft else None
        tree = self._builder.build(
            self._policy,
            context,
            columns.root_token[rows],
            [None] * len(flight),
            draft,
        )
        outcome, drafted_path = self._follow(flight, tree, context, roots)
        self._policy.observe(outcome)
        self._record(flight, tree, outcome, [] if draft is None else draft.growths)
        flight.advance(outcome.accepted_length, outcome.committed_tokens, drafted_path)

    def _follow(
        self, flight: Flight, tree: RoundTree, context: RoundContext, roots: Int32Array
    ) -> tuple[RoundOutcome, Int32Array]:
        """(outcome, rows of each path that the draft ran on): `walk` for all requests at once, one depth at a time."""
        forest, kept, columns = tree.forest, tree.kept, self._columns
        request, parent, token = forest.column("request"), forest.column("parent"), forest.column("token")
        drafted = forest.column("drafted")
        texts = columns.shard.rounds.committed
        count = len(flight)
        end, offset = flight.column("end"), flight.column("text_offset")
        on_path = np.zeros(forest.num_rows, dtype=np.bool_)
        match = np.full(forest.num_rows, -1, dtype=np.int8)
        accepted, committed = np.zeros((2, count), dtype=np.int32)
        drafted_path = drafted[:count].astype(np.int32)
        on_path[:count] = True
        tip = np.arange(count)  # the path's last row, -1 where it has ended
        truth = np.full(count, -1, dtype=np.int32)
        depth = 0
        while True:
            place = context.position + depth + 1
            goes_on = (tip >= 0) & (place < end)
            active = goes_on.nonzero()[0]
            if not active.size:
                break
            committed[active] += 1
            if columns.tokens_included:
                truth[active] = texts[offset[active] + place[active]]
            else:
                truth[active] = columns.matching[roots[active] + token[tip[active]]]
            tips = np.where(goes_on, tip, -2)
            children = (parent == tips[request]).nonzero()[0]
            agrees = token[children] == truth[request[children]]
            match[children] = agrees
            taken = children[agrees & kept[children]]
            tip[:] = -1
            own = request[taken]
            tip[own] = taken
            on_path[taken] = True
            accepted[own] += 1
            depth += 1
            drafted_path[own] += drafted[taken] & (drafted_path[own] == depth)
        outcome = RoundOutcome(forest.view(), context, kept, on_path, match, accepted, committed)
        return outcome, drafted_path

    def _record(
        self, flight: Flight, tree: RoundTree, outcome: RoundOutcome, growths: Sequence[NDArray[np.intp]]
    ) -> None:
        request, count = tree.forest.column("request"), len(flight)
        verified = np.bincount(request[tree.kept], minlength=count) - 1
        decided = np.bincount(request[tree.kept & (outcome.match >= 0)], minlength=count)
        levels = np.zeros(count, dtype=np.int64)
        levels[request] = tree.forest.column("level")  # ascending, so that the last stays
        grown = np.asarray(growths, dtype=np.int64).reshape(-1, count)
        passes, calls, fallback = (grown > 0).sum(axis=0), 2 + levels, np.zeros(count, dtype=np.int64)
        reached = (outcome.accepted_length, outcome.committed_tokens)
        numbers = np.stack([*reached, verified, decided, passes, calls, fallback])
        flight.record(numbers, np.asarray(digests(tree, count), dtype=np.uint64), grown)


def digests(tree: RoundTree, requests: int) -> list[int]:
    """64 bits for each of the tree's `requests`, over its own shape and its admitted, grown and kept rows."""
    column = tree.forest.column
    request, parent = column("request"), column("parent")
    # Numpy sorts 8 or 16 bits in one pass over each byte.
    short = request.astype(np.uint8 if requests <= 1 << 8 else np.uint16) if requests <= 1 << 16 else request
    order = short.argsort(kind="stable")
    ends = np.bincount(request, minlength=requests).cumsum()
    starts = np.concatenate([[0], ends[:-1]])
    within = np.empty(len(order), dtype=np.int32)
    within[order] = np.arange(len(order)) - starts[request[order]]
    above = np.where(parent < 0, np.int32(-1), within[parent])
    parts = [part[order].tobytes() for part in (above, column("admitted"), column("grown"), tree.kept)]
    codes = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        own = b"".join([parts[0][4 * start : 4 * end], *(part[start:end] for part in parts[1:])])
        codes.append(int.from_bytes(hashlib.blake2b(own, digest_size=8).digest(), "big"))
    return codes
