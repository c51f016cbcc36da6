"""Decoding of several requests side by side: they join and leave between rounds, and share every pass and call."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakSet

import numpy as np
import torch

from treewise.data.cost import CostProfile
from treewise.data.errors import ParameterError, require
from treewise.engine.batch_draft import BatchDraft, DraftSlot
from treewise.engine.batch_target import BatchTarget
from treewise.engine.completion import Completion, RoundSums
from treewise.engine.engine_settings import EngineSettings
from treewise.engine.live_request import LiveRequest, capacity_of, check_request, open_request
from treewise.engine.pair import Pair
from treewise.engine.round_driver import Paths, RoundDriver
from treewise.engine.sampling import Sampling
from treewise.policy.hook import DraftSource, Int32Array, TreePolicy
from treewise.policy.outcome import RoundRecord
from treewise.policy.round import RoundTree

MAX_BATCH = 4
CANCELLED = "error"  # reason that the policy is told where a request ends before its text does


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """What is asked of an engine of many requests."""

    prompt: Sequence[int]  # token ids
    max_new_tokens: int = 128
    sampling: Sampling = field(default_factory=Sampling)
    task: str = ""  # kind of task that the policy is told of


@dataclass(slots=True)
class _Flying:
    """One request in flight."""

    number: int
    slot: int
    request: LiveRequest
    draft: DraftSlot | None
    prefill_seconds: float
    sums: RoundSums = field(default_factory=RoundSums)
    decode_seconds: float = 0.0


class BatchEngine(RoundDriver):
    """Decodes up to `max_batch` requests at once with a pair, a policy and a cost profile.

    A round asks the policy once a level, the draft once a level and the target once, for all requests in flight. The
    committed text of a request is a function of target, prompt and seed alone: its mates, and when they come and go,
    decide only how fast it comes. `row_buckets` are those of the whole pass; static passes are padded to so many rows,
    and to as many requests as `slot_buckets` say.

    `shares`: an engine of the same pair, settings and `max_batch` whose buffers and recordings this one uses as well;
    only one of the two may have requests in flight.

    Raises:
        BundleError: a learned policy's bundle was trained on another pair, or under a narrower envelope.
        ParameterError: `max_batch` below 1, passes or buckets that there are not, an attention kernel other than sdpa
            and split, or an engine to share with that differs.
    """

    def __init__(
        self,
        pair: Pair,
        policy: TreePolicy,
        cost: CostProfile,
        settings: EngineSettings | None = None,
        max_batch: int = MAX_BATCH,
        shares: BatchEngine | None = None,
    ) -> None:
        require(isinstance(max_batch, int) and max_batch >= 1, "max_batch", "a whole number >= 1", max_batch)
        super().__init__(pair, policy, cost, (settings or EngineSettings()).for_batch(max_batch))
        self.max_batch = max_batch
        own = self.settings
        self._waiting: deque[tuple[int, BatchRequest]] = deque()
        self._flight: list[_Flying] = []
        self._done: dict[int, Completion] = {}
        self._num_requests = 0
        self._target: BatchTarget
        self._draft: BatchDraft | None
        self._sharing: WeakSet[BatchEngine] = WeakSet() if shares is None else shares._sharing
        self._sharing.add(self)
        if shares is not None:
            same = shares.pair is pair and (shares.settings, shares.max_batch) == (own, max_batch)
            require(same, "shares", "an engine of the same pair, settings and max_batch", type(shares).__name__)
            self._target, self._draft = shares._target, shares._draft
            return
        how = (max_batch, own.passes, own.slot_buckets, own.row_buckets)
        self._target = BatchTarget(pair.target, *how)
        width = max(own.envelope.draft_width, 1)
        self._draft = None if pair.draft is None else BatchDraft(pair.draft, pair.description.vocab_size, width, *how)

    @property
    def in_flight(self) -> tuple[int, ...]:
        """Numbers of the requests that take part in rounds, in the order of the records."""
        return tuple(flying.number for flying in self._flight)

    @property
    def num_waiting(self) -> int:
        """Requests that wait for a place in the batch."""
        return len(self._waiting)

    def submit(self, request: BatchRequest) -> int:
        """Let `request` join between two rounds, as soon as there is a place; returns its number.

        Raises as `treewise.engine.live_request.check_request`.
        """
        check_request(self.pair, request.prompt, request.max_new_tokens)
        self._waiting.append((self._num_requests, request))
        self._num_requests += 1
        return self._num_requests - 1

    def step(self) -> list[RoundRecord]:
        """Let requests join and take the next round of all in flight; the records stay valid until the next step.

        A record is of request number `record.context.request_id[record.place]`. Without requests there are none. Where
        a pass raises, every request in flight ends with it, and those that wait go on in the next step.

        Raises:
            ModelOutputError: NaN or infinity in the target's logits.
            ParameterError: an engine that shares the buffers has requests in flight.
        """
        busy = sum(len(other._flight) for other in self._sharing if other is not self)
        require(not busy, "shares", "an engine with 0 requests in flight while this one steps", busy)
        while self._waiting and len(self._flight) < self.max_batch:
            self._join(*self._waiting.popleft())
        if not self._flight:
            return []
        began = time.perf_counter()
        is_whole = False
        try:
            if self._draft is not None:
                self._draft.open([flying.draft for flying in self._flight if flying.draft is not None])
            records = self._round([flying.request for flying in self._flight])
            is_whole = True
        finally:
            if not is_whole:
                self._abandon()
        share = (time.perf_counter() - began) / len(records)
        for flying, record in zip(self._flight, records, strict=True):
            flying.sums.add(record)
            flying.decode_seconds += share
        for flying in [flying for flying in self._flight if flying.request.finish]:
            self._done[flying.number] = flying.sums.completion(flying.prefill_seconds, flying.decode_seconds)
            self._leave(flying, flying.request.finish)
        return records

    def take(self, number: int) -> Completion:
        """The completion of a request that is over, once. Raises `ParameterError` where there is none."""
        if number not in self._done:
            raise ParameterError(f"number must be that of a request that is over and was not taken, got {number}")
        return self._done.pop(number)

    def cancel(self, number: int) -> None:
        """Let a request leave before its text is committed; one that is over or was never there is no matter."""
        self._waiting = deque(item for item in self._waiting if item[0] != number)
        for flying in [flying for flying in self._flight if flying.number == number]:
            self._leave(flying, CANCELLED)

    def generate_many(self, requests: Sequence[BatchRequest]) -> list[Completion]:
        """Decode `requests`, each joining when one before it has left; completions in their order.

        Raises as `submit` and `step`; then none of `requests` stays behind.
        """
        numbers: list[int] = []
        try:
            for request in requests:
                numbers.append(self.submit(request))
            while not self._done.keys() >= set(numbers):
                self.step()
            return [self.take(number) for number in numbers]
        finally:
            for number in numbers:
                self.cancel(number)
                self._done.pop(number, None)

    def _join(self, number: int, asked: BatchRequest) -> None:
        began, slot = time.perf_counter(), len(self._flight)
        text = [int(token) for token in asked.prompt]
        capacity = capacity_of(self.pair, text, asked.max_new_tokens)
        self._target.begin(slot, text, capacity)
        draft = None if self._draft is None else self._draft.begin(slot, text, capacity, asked.sampling, self.ranking)
        request = open_request(
            self.pair,
            self.settings,
            number,
            text,
            asked.max_new_tokens,
            asked.sampling,
            None if draft is None else draft.text.first_guess,
            asked.task,
        )
        self.policy.begin(request.info)
        self._flight.append(_Flying(number, slot, request, draft, time.perf_counter() - began))

    def _leave(self, gone: _Flying, reason: str) -> None:
        """End a request; the one in the last slot moves into its place, so that the slots in use are the first ones."""
        self._flight.remove(gone)
        last = len(self._flight)
        if gone.slot != last:
            mover = next(flying for flying in self._flight if flying.slot == last)
            self._target.take_over(gone.slot, last, mover.request.progress.position)
            if self._draft is not None and mover.draft is not None:
                self._draft.take_over(gone.slot, mover.draft)
            mover.slot = gone.slot
        self.policy.finish(gone.number, reason)

    def _abandon(self) -> None:
        for flying in self._flight:
            self.policy.finish(flying.number, CANCELLED)
        self._flight.clear()
        self._target.forget()
        if self._draft is not None:
            self._draft.forget()

    @property
    def _draft_source(self) -> DraftSource | None:
        return self._draft

    @property
    def _pass_seconds(self) -> tuple[float, float]:
        return self._draft.draft_seconds if self._draft else 0.0, self._target.verify_seconds

    def _verify(
        self, tree: RoundTree, flight: Sequence[LiveRequest], roots: Int32Array, positions: Int32Array
    ) -> tuple[torch.Tensor, Int32Array, int]:
        rows = self.deployment.padded_rows(int(tree.kept.sum()))
        logits = self._target.verify(tree, self._slots, roots, positions, rows)
        return logits, self._target.places, len(logits)

    def _commit(self, flight: Sequence[LiveRequest], paths: Paths, tokens: Paths) -> None:
        positions = np.asarray([request.progress.position for request in flight], dtype=np.int32)
        self._target.commit(self._slots, positions, paths)
        if self._draft is not None:
            self._draft.commit(paths, tokens)

    def _growths(self, tree: RoundTree, count: int) -> list[tuple[int, ...]]:
        if self._draft is None:
            return [()] * count
        return [tuple(growth[place] for growth in self._draft.growths if growth[place]) for place in range(count)]

    @property
    def _slots(self) -> list[int]:
        return [flying.slot for flying in self._flight]

    def check_integrity(self) -> None:
        """Assert that the slots in use are the first ones, and that between rounds no draft is ahead of its text."""
        assert sorted(self._slots) == list(range(len(self._flight)))
        self._target.model.cache.check_integrity()
        for flying in self._flight:
            if flying.draft is not None:
                text = flying.draft.text
                assert flying.draft.slot == flying.slot
                assert text.text == flying.request.text
                assert text.length == text.seen == flying.request.progress.draft_seen <= len(text.text) - 1
