"""Several requests side by side commit what each commits alone, one pass a round, whoever joins and leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.driving import INVENTIVE, PROMPT, engine_of, policy_of, samplings
from tests.engine.test_decode import empty_cache
from tests.engine.tiny import (
    CONTEXT,
    DRAFTS,
    VOCAB,
    Draft,
    end_token,
    example_cost,
    lax_settings,
    plain_text,
    tiny_pair,
)
from tests.policy.models import tiny_bundle
from treewise.data.envelope import PriorTable
from treewise.data.errors import ModelOutputError, ParameterError, PromptError
from treewise.engine.batch import BatchEngine, BatchRequest
from treewise.engine.cache import cache_argument
from treewise.engine.draft_model import decoder_of
from treewise.engine.pair import Pair
from treewise.engine.sampling import Sampling
from treewise.policy.everything import EverythingPolicy
from treewise.policy.hook import Expansion, Level, RequestInfo, RoundOutcome, TreePolicy
from treewise.policy.learned import LearnedPolicy
from treewise.policy.outcome import RoundRecord
from treewise.policy.registry import RULES
from treewise.policy.shared_budget import SharedBudgetPolicy

LEARNED = ("learned", "shared")
SPECS = [*RULES, "topn:4x2,budget=batch", "random", "everything", *LEARNED]
Asked = tuple[list[int], int, Sampling, int]  # prompt, limit, sampling, rounds of others before it is submitted


def batch_of(pair: Pair, spec: str | TreePolicy, max_batch: int = 3, **changes: Any) -> BatchEngine:
    policy: TreePolicy
    if spec in LEARNED:
        bundle = replace(tiny_bundle(), pair=pair.description, prior_table=PriorTable())
        policy = (LearnedPolicy if spec == "learned" else SharedBudgetPolicy)(bundle, "flat", compiled="off")
    else:
        policy = policy_of(spec, 1) if isinstance(spec, str) else spec
    return BatchEngine(pair, policy, example_cost(), lax_settings(**changes), max_batch)


def checked_step(engine: BatchEngine) -> list[RoundRecord]:
    """A step, with the passes counted and the caches looked at."""
    target, draft = engine._target, engine._draft
    before, growths = target.num_passes, 0 if draft is None else draft.num_growths
    records = engine.step()
    engine.check_integrity()
    if records:
        tree = records[0].tree
        assert target.num_passes == before + 1
        assert draft is None or draft.num_growths == growths + len(tree.growth_tokens)
        assert sum(map(sum, (record.growth_tokens for record in records))) == sum(tree.growth_tokens)
        assert sum(record.num_nodes for record in records) == tree.num_nodes
        assert [int(record.context.request_id[record.place]) for record in records] == list(
            records[0].context.request_id
        )
        assert {record.context.batch_size for record in records} == {len(records)}
        tree.forest.check_integrity()
    return records


def served(engine: BatchEngine, asked: Sequence[Asked]) -> dict[int, list[int]]:
    """Texts by request, each submitted when so many rounds have passed."""
    texts: dict[int, list[int]] = {}
    waiting = sorted(range(len(asked)), key=lambda number: asked[number][3])
    rounds = 0
    number_of: dict[int, int] = {}
    while waiting or engine.in_flight or engine.num_waiting:
        while waiting and (asked[waiting[0]][3] <= rounds or not engine.in_flight):
            prompt, limit, sampling, _ = asked[waiting[0]]
            number_of[engine.submit(BatchRequest(prompt, limit, sampling))] = waiting.pop(0)
        for record in checked_step(engine):
            own = number_of[int(record.context.request_id[record.place])]
            texts.setdefault(own, []).extend(record.committed)
        assert len(engine.in_flight) <= engine.max_batch
        rounds += 1
    for request, own in number_of.items():
        assert list(engine.take(request).tokens) == texts[own]
    return texts


asked_lists = st.lists(
    st.tuples(
        st.one_of(
            st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=40),
            st.lists(st.integers(0, 3), min_size=1, max_size=20),
            st.just([5] * (CONTEXT - 2)),
        ),
        st.integers(1, 20),
        samplings(),
        st.integers(0, 6),
    ),
    min_size=1,
    max_size=5,
)


@pytest.mark.parametrize("spec", SPECS)
@settings(max_examples=4, deadline=None)
@given(
    asked=asked_lists,
    draft=st.sampled_from(DRAFTS),
    seed=st.integers(0, 3),
    ends=st.one_of(st.none(), st.integers(0, 19)),
    buckets=st.sampled_from([(), (4, 8, 16), (64,)]),
    max_batch=st.integers(1, 4),
)
def test_every_text_is_that_of_plain_decoding(
    spec: str,
    asked: list[Asked],
    draft: Draft,
    seed: int,
    ends: int | None,
    buckets: tuple[int, ...],
    max_batch: int,
) -> None:
    pair = tiny_pair(draft, seed)
    expected = [list(plain_text(pair, prompt, limit, sampling)) for prompt, limit, sampling, _ in asked]
    engine = batch_of(pair, spec, max_batch, row_buckets=buckets)
    # A token of the first text ends every text that it is in.
    stop = [] if ends is None else [expected[0][ends % len(expected[0])]]
    with end_token(pair, *stop):
        found = served(engine, asked)
    for number, text in enumerate(expected):
        whole = text[: text.index(stop[0]) + 1] if stop and stop[0] in text else text
        assert found[number] == whole


def test_a_request_is_decided_and_recorded_as_it_is_alone() -> None:
    pair = tiny_pair("other", seed=1)
    prompts = [PROMPT, INVENTIVE, [1, 2, 1, 2, 1], [9] * 11]
    sampling = Sampling(0.8, seed=4)
    for spec in ("topn:8x2", "static:2x3", "entropy"):
        engine, alone = batch_of(pair, spec, 3), engine_of(pair, spec)
        numbers = [engine.submit(BatchRequest(prompt, 14, sampling)) for prompt in prompts]
        found: dict[int, list[tuple[Any, ...]]] = {number: [] for number in numbers}
        while engine.in_flight or engine.num_waiting:
            for record in checked_step(engine):
                found[int(record.context.request_id[record.place])].append(told(record))
        for number, prompt in zip(numbers, prompts, strict=True):
            assert found[number] == [told(record) for record in alone.rounds(prompt, 14, sampling)]
            mine, theirs = engine.take(number), alone.generate(prompt, 14, sampling)
            for name in ("tokens", "finish", "accepted_lengths", "verified_nodes", "growths", "policy_calls"):
                assert getattr(mine, name) == getattr(theirs, name), name


def told(record: RoundRecord) -> tuple[Any, ...]:
    """What a request's record says of decisions and agreement."""
    forest, own = record.tree.forest, record.place
    rows = np.flatnonzero(forest.column("request") == own)
    place = {row: number for number, row in enumerate(rows.tolist())}
    columns = [forest.column(name)[rows].tolist() for name in ("token", "depth", "admitted", "grown", "drafted")]
    parents = [place.get(row, -1) for row in forest.column("parent")[rows].tolist()]
    context = record.context
    return (
        *columns,
        parents,
        record.tree.kept[rows].tolist(),
        record.walk.on_path[rows].tolist(),
        record.committed,
        record.accepted_length,
        record.draft_agrees,
        record.agrees_from,
        record.lookup_agrees,
        record.root_token,
        record.growth_tokens,
        record.levels,
        record.index,
        record.finish,
        int(context.position[own]),
        int(context.catch_up[own]),
    )


@pytest.mark.parametrize("draft", ["same", "pruned"])
def test_slots_hold_the_committed_texts_and_nothing_else(draft: Draft) -> None:
    pair = tiny_pair(draft, seed=1)
    engine = batch_of(pair, "random")
    assert engine._draft is not None and pair.draft is not None
    for number in range(5):
        engine.submit(BatchRequest([3, 7, 1, number], 10 + number, Sampling(1.0, seed=number)))
    while engine.in_flight or engine.num_waiting:
        checked_step(engine)
        for flying in engine._flight:
            assert flying.draft is not None
            text = flying.request.text
            caches = (
                (engine._target.model.cache, decoder_of(pair.target), len(text) - 1),
                (engine._draft.model.cache, pair.draft.model, flying.draft.text.length),
            )
            for cache, decoder, length in caches:
                with torch.no_grad():
                    fresh = decoder(input_ids=torch.tensor([text]), use_cache=True, **empty_cache(decoder))
                kept = getattr(fresh, cache_argument(decoder))
                for layer, expected in zip(cache.slot_layers, kept.layers, strict=True):
                    for mine, theirs in ((layer.keys, expected.keys), (layer.values, expected.values)):
                        torch.testing.assert_close(
                            mine[flying.slot, :, :length], theirs[0, :, :length], rtol=1e-4, atol=1e-5
                        )


def test_completions_come_in_order_and_share_the_time() -> None:
    pair = tiny_pair("same")
    engine = batch_of(pair, "chain:3,sources=draft", 2)
    requests = [BatchRequest(PROMPT, 6), BatchRequest(INVENTIVE, 12), BatchRequest([4], 3)]
    done = engine.generate_many(requests)
    assert [completion.tokens for completion in done] == [
        plain_text(pair, request.prompt, request.max_new_tokens, Sampling()) for request in requests
    ]
    parts = sum(each.draft_seconds + each.verify_seconds + each.policy_seconds for each in done)
    assert 0 < parts < sum(each.decode_seconds for each in done)
    assert parts == pytest.approx(
        engine._target.verify_seconds
        + (engine._draft.draft_seconds if engine._draft else 0.0)
        + sum(each.policy_seconds for each in done)
    )
    assert engine.in_flight == () and engine.num_waiting == 0
    assert engine.step() == []


def test_requests_may_leave_at_any_time() -> None:
    pair = tiny_pair("pruned")
    engine = batch_of(pair, "everything", 2)
    numbers = [engine.submit(BatchRequest([5, number], 20)) for number in range(4)]
    checked_step(engine)
    assert list(engine.in_flight) == numbers[:2]
    engine.cancel(numbers[0])  # in the first slot: its mate moves there
    engine.cancel(numbers[2])  # has not joined yet
    engine.cancel(99)
    checked_step(engine)
    assert list(engine.in_flight) == [numbers[1], numbers[3]]
    while engine.in_flight:
        checked_step(engine)
    for number in (numbers[1], numbers[3]):
        assert engine.take(number).tokens == plain_text(pair, [5, number], 20, Sampling())
    with pytest.raises(ParameterError, match="number must be that of a request that is over and was not taken, got 1"):
        engine.take(numbers[1])


def test_what_cannot_be_decoded_is_refused_and_leaves_nothing() -> None:
    engine = batch_of(tiny_pair(), "plain")
    with pytest.raises(PromptError, match="at least one token"):
        engine.generate_many([BatchRequest([1], 3), BatchRequest([], 3)])
    assert engine.num_waiting == 0 and engine.in_flight == ()
    with pytest.raises(ParameterError, match="max_new_tokens must be a whole number >= 1, got 0"):
        engine.submit(BatchRequest([1], 0))
    with pytest.raises(ParameterError, match="max_batch must be a whole number >= 1, got 0"):
        batch_of(tiny_pair(), "plain", 0)
    with pytest.raises(ParameterError, match="attention must be sdpa or split for several requests, got 'eager'"):
        batch_of(tiny_pair("pruned", attention="eager"), "plain")


def test_a_pass_that_raises_ends_its_batch_alone() -> None:
    pair = tiny_pair("none", seed=5)
    engine = batch_of(pair, "plain", 2)
    for number in range(3):
        engine.submit(BatchRequest([7, number], 5))
    checked_step(engine)
    head = pair.target.get_output_embeddings()
    before = head.weight.detach().clone()
    head.weight[:] = float("nan")
    try:
        with pytest.raises(ModelOutputError):
            engine.step()
    finally:
        head.weight[:] = before
    assert engine.in_flight == () and engine.num_waiting == 1
    while engine.num_waiting or engine.in_flight:
        checked_step(engine)
    assert engine.take(2).tokens == plain_text(pair, [7, 2], 5, Sampling())


class Picky(EverythingPolicy):
    """Cannot begin the second request, nor decide for it."""

    def __init__(self) -> None:
        super().__init__()
        self.known: set[int] = set()

    def begin(self, request: RequestInfo) -> None:
        if request.request_id == 1:
            raise ValueError("not this one")
        self.known.add(request.request_id)

    def expand(self, level: Level) -> Expansion:
        assert self.known >= set(level.context.request_id.tolist())
        return super().expand(level)

    def observe(self, outcome: RoundOutcome) -> None:
        assert self.known >= set(outcome.context.request_id.tolist())

    def finish(self, request_id: int, reason: str) -> None:
        self.known.discard(request_id)


@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
@pytest.mark.parametrize("limits", [(12, 4, 12), (4, 12, 6)])
def test_a_policy_that_cannot_begin_a_request_decides_for_the_others(limits: tuple[int, ...]) -> None:
    pair = tiny_pair("other")
    engine = batch_of(pair, Picky(), 3)
    for number, limit in enumerate(limits):
        engine.submit(BatchRequest([5, 2, number], limit))
    nodes: list[list[int]] = [[], [], []]
    while engine.in_flight or engine.num_waiting:
        records = checked_step(engine)
        for record in records:
            number = int(record.context.request_id[record.place])
            nodes[number].append(record.num_nodes)
            assert (record.suspended, record.fallback) == (number == 1, False)
            assert (record.policy_calls > 0, record.policy_ms > 0) == (number != 1, number != 1)
        spent = sum(record.policy_ms for record in records)
        assert spent == pytest.approx(engine.policy.round_ms)
    assert engine.policy.num_failures == 1
    for number, limit in enumerate(limits):
        completion = engine.take(number)
        assert completion.tokens == plain_text(pair, [5, 2, number], limit, Sampling())
        assert completion.suspensions == (completion.num_rounds if number == 1 else 0)
    assert max(nodes[1]) <= 8 < max(nodes[0] + nodes[2]), "the fallback keeps 8 nodes, the policy all"
