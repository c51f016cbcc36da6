"""The columns of a batch under way against one `Progress` for each request."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from tests.training.batch_traces import trace
from treewise.data.errors import CoverageError
from treewise.policy.hook import RoundContext
from treewise.policy.progress import Progress, build_context
from treewise.training.flight import Driven, Flight
from treewise.training.logged import LoggedRequest


def same(ours: RoundContext, theirs: RoundContext) -> None:
    for item in fields(RoundContext):
        np.testing.assert_array_equal(getattr(ours, item.name), getattr(theirs, item.name), err_msg=item.name)
        assert np.asarray(getattr(ours, item.name)).dtype == np.asarray(getattr(theirs, item.name)).dtype


def progress_of(number: int, request: LoggedRequest) -> Progress:
    return Progress(number, request.prompt_tokens, request.max_new_tokens, request.temperature)


def test_columns_advance_as_single_requests_do() -> None:
    log, rng = trace(), np.random.default_rng(0)
    requests = log.requests[:4]
    flight = Flight(requests[0].columns, 3)
    singles: dict[int, Progress] = {}
    waiting, rounds = list(enumerate(requests)), 0
    while waiting or flight:
        while waiting and len(flight) < 3:
            number, request = waiting.pop(0)
            flight.join(Driven(number, request))
            singles[number] = progress_of(number, request)
        own = [(singles[driven.number], driven.request) for driven in flight.driven]
        same(flight.context(len(own)), build_context([progress for progress, _ in own]))
        rows = [request.row_at(progress.position) for progress, request in own]
        assert flight.rows().tolist() == rows
        accepted = rng.integers(0, 4, len(own)).astype(np.int32)
        left = np.asarray([request.end_position - 1 - progress.position for progress, request in own])
        committed = np.minimum(accepted + 1, left).astype(np.int32)
        drafted = np.where(rng.random(len(own)) < 0.4, committed, 0).astype(np.int32)
        flight.advance(accepted, committed, drafted)
        for (progress, request), length, tokens, ran in zip(
            own, accepted.tolist(), committed.tolist(), drafted.tolist(), strict=True
        ):
            position = progress.position
            checkable = (progress.draft_seen, position + ran) if ran else (position, position)
            progress.advance(
                length,
                tokens,
                ran,
                request.draft_agreement(*checkable),
                request.lookup_agreement(position, position + tokens),
                *request.target_state(position + tokens),
            )
        flight.leave()
        rounds += 1
    assert rounds > 10


def test_rounds_come_out_by_request() -> None:
    requests = trace().requests[:3]
    flight = Flight(requests[0].columns, 3)
    for number, request in enumerate(requests):
        flight.join(Driven(number, request))
    counts = np.asarray([1, 5, 3])
    for step in range(100):
        numbers = np.stack([counts * 0, counts, counts, counts, np.minimum(counts, 2), counts, counts * 0])
        growths = counts * (np.arange(2)[:, None] < (step % 3)) * (counts > 1)
        flight.record(numbers, (counts + step).astype(np.uint64), growths)
        flight.advance(*(part.astype(np.int32) for part in (counts * 0, counts * 0, counts * 0)))
    flight.column("position")[:] = flight.column("end")
    ended = flight.leave()
    assert [driven.number for driven in ended] == [0, 1, 2]
    assert len(flight) == 0
    for driven, count in zip(ended, counts.tolist(), strict=True):
        rows, position = driven.rows, driven.request.first_position
        assert rows is not None
        assert rows.rounds == [(step, position, 0, count, count, count, min(count, 2), count, 0) for step in range(100)]
        assert rows.digests == [count + step for step in range(100)]
        assert rows.growth_tokens == ([count] * 99 if count > 1 else [])


def test_what_is_given_up_has_no_rows_and_its_room_is_free() -> None:
    requests = trace().requests[:2]
    flight = Flight(requests[0].columns, 2)
    for _ in range(3):
        for number in (1, 0):
            flight.join(Driven(number, requests[number]))
        assert [(driven.number, driven.rows) for driven in flight.clear()] == [(0, None), (1, None)]
        assert len(flight) == 0


def test_a_root_that_was_not_logged_is_an_error() -> None:
    request = trace().requests[0]
    columns, missing = request.columns, request.row_at(request.first_position + 2)
    one, two, none = (np.asarray([count], dtype=np.int32) for count in (1, 2, 0))
    flight = Flight(columns, 1)
    flight.join(Driven(0, request))
    columns.token_round[columns.token_round == missing] = -1
    try:
        with pytest.raises(CoverageError, match="no round"):
            flight.advance(one, two, none)
        with pytest.raises(CoverageError, match="no round"):
            flight.rows()
    finally:
        del columns.token_round  # made anew for the next who asks
