"""One request of a trace as sources."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.training.worlds import ALL, COST, World, as_trace, dense, dense_trace, manifest
from treewise.data.envelope import Envelope
from treewise.data.errors import CoverageError, TraceError
from treewise.data.suffix import SuffixIndex
from treewise.policy.hook import DRAFT, LOOKUP
from treewise.training.logged_sources import LoggedLookup, LoggedRecycled
from treewise.training.logged_trace import LoggedTrace, logged_trace, open_trace

ENVELOPE = Envelope(max_depth=4, draft_width=3)


@pytest.fixture(scope="module")
def world() -> World:
    return World(seed=2, num_texts=2, answer_tokens=24)


@pytest.fixture(scope="module")
def trace(world: World) -> LoggedTrace:
    return dense_trace(world, ENVELOPE)


def test_the_text_and_its_ends(world: World, trace: LoggedTrace) -> None:
    for request, text in zip(trace.requests, world.texts, strict=True):
        assert request.text.tolist() == list(text.answer)
        assert (request.first_position, request.end_position) == (len(text.prompt) - 1, len(text.tokens))
        assert (request.finish, request.max_new_tokens) == (text.finish, text.max_new_tokens)


def test_the_opening_level_sees_the_first_continuation(world: World, trace: LoggedTrace) -> None:
    text, request = world.texts[0], trace.requests[0]
    seen = 0
    for position in request.rows:
        live = SuffixIndex(text.tokens[: position + 1]).continuations()
        logged = LoggedLookup(request.tree(position)).continuations(())
        assert logged.match_length == live.match_length
        if live.tokens:
            assert (logged.counts[0], logged.shares[0], logged.ages[0]) == (
                live.counts[0], live.shares[0], live.ages[0],
            )  # fmt: skip
            seen += 1
        for rank, token in enumerate(logged.tokens):
            assert token in (-1, live.tokens[rank])
    assert seen > 10


def test_the_opening_level_sees_the_first_recycled_guess(world: World, trace: LoggedTrace) -> None:
    text, request = world.texts[0], trace.requests[0]
    hidden = 0
    for position in request.rows:
        live = world.memory(text, position).recycled()
        tree = request.tree(position)
        logged = LoggedRecycled(tree).recycled(())
        assert (logged.order, logged.weight) == (live.order, float(np.float32(live.weight)))
        assert logged.probs[:1] == live.probs[:1]
        for token, prob, known, its in zip(logged.tokens, logged.probs, live.tokens, live.probs, strict=False):
            assert (token, prob) in ((known, its), (-1, its if known == live.tokens[0] else 0.0))
            hidden += token < 0
    assert hidden > 0  # a rank that nothing was offered for


def test_a_source_is_told_where_it_was_asked(world: World) -> None:
    trace = dense_trace(world, ENVELOPE, world.texts[:1], sources=LOOKUP | DRAFT)
    assert trace.sources == LOOKUP | DRAFT
    tree = trace.requests[0].tree(trace.requests[0].first_position)
    source = LoggedRecycled(tree)
    assert source.recycled(()).tokens == ()  # what the opening level shows
    with pytest.raises(CoverageError, match="the log did not ask for recycled guesses at path depth 0"):
        source.recycled(())


def test_a_path_that_was_not_offered_is_named(trace: LoggedTrace) -> None:
    request = trace.requests[0]
    lookup = LoggedLookup(request.tree(request.first_position))
    with pytest.raises(CoverageError, match="prompt-0, round 0: the log holds no such candidate at path depth 1"):
        lookup.continuations((99,))


def test_agreement_ends_with_the_text(world: World, trace: LoggedTrace) -> None:
    text, request = world.texts[0], trace.requests[0]
    last = request.end_position
    assert request.draft_agreement(last - 3, last + 5) == [
        world.draft_agrees(text, position) for position in (last - 3, last - 2)
    ]
    assert request.token_after(request.tree(last - 2), last - 2, 0, 0) == text.tokens[-1]
    assert request.token_after(request.tree(last - 2), last - 2, 1, 0) == -1


def test_a_position_without_a_round_is_named(trace: LoggedTrace) -> None:
    with pytest.raises(CoverageError, match="prompt prompt-0: the log holds no round at position 3"):
        trace.requests[0].tree(3)


def test_a_text_with_a_gap_is_refused(world: World) -> None:
    shard = dense(world, world.texts[0], ENVELOPE.widened())
    holed = shard.take(np.arange(len(shard.rounds)) != 4)
    with pytest.raises(TraceError, match="prompt prompt-0: rounds must hold its text from the prompt on, without gaps"):
        as_trace(holed, manifest("dense", ENVELOPE.widened()))


def test_a_dense_trace_is_replayed_a_little_inside_its_envelope(trace: LoggedTrace) -> None:
    assert trace.manifest.envelope == ENVELOPE.widened()
    assert trace.envelope.min_path_prior == pytest.approx(ENVELOPE.min_path_prior)
    assert trace.sources == ALL
    live = replace(trace, manifest=replace(trace.manifest, kind="live"))
    assert live.deployment(COST).envelope == ENVELOPE.widened()


def test_tasks_and_prompts_can_be_chosen(trace: LoggedTrace) -> None:
    assert [request.prompt_id for request in trace.of_task("chat").requests] == ["prompt-1"]
    assert [request.prompt_id for request in trace.of_prompts(["prompt-0"]).requests] == ["prompt-0"]
    with pytest.raises(TraceError, match="task must be one of chat, copy, got 'x'"):
        trace.of_task("x")


def test_a_lossy_trace_is_refused_with_rule_and_cure(trace: LoggedTrace) -> None:
    lossy = replace(trace.manifest, verification="relaxed-top-n:2")
    refused = (
        "must be 'exact' for replay, A/B tests and training, got 'relaxed-top-n:2'.*again with `--verification exact`"
    )
    with pytest.raises(TraceError, match=refused):
        logged_trace("world", lossy, trace.requests[0].shard)


def test_a_folder_without_a_trace_is_an_error(tmp_path: object) -> None:
    with pytest.raises(TraceError, match=r"trace must be a folder with a manifest\.json"):
        open_trace(str(tmp_path))
