"""Static and recorded passes of several requests, whoever joins and leaves: the texts of plain decoding."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from torch import nn

from tests.engine.driving import INVENTIVE, PROMPT
from tests.engine.test_batch import Asked, batch_of, served
from tests.engine.test_static_model import record
from tests.engine.tiny import RandomPolicy, end_token, example_cost, lax_settings, pair_of, plain_text, tiny_model
from treewise.data.errors import ModelOutputError, ParameterError
from treewise.engine.batch import BatchEngine, BatchRequest
from treewise.engine.captured_slot_model import CapturedSlotModel
from treewise.engine.decode import Engine
from treewise.engine.draft_model import prune_layers
from treewise.engine.pair import Pair
from treewise.engine.recorded_passes import Recordings
from treewise.engine.sampling import Sampling
from treewise.engine.split_attention import use_attention
from treewise.engine.static_model import CAPACITY_BUCKETS
from treewise.engine.static_slot_model import StaticSlotModel

WAYS = [(passes, attention) for passes in ("eager", "static", "captured") for attention in ("sdpa", "split")]
FEW = {"slot_buckets": (3,), "row_buckets": (3, 24)}


def pair_with(attention: str, context: int = 64, dtype: torch.dtype = torch.float64) -> Pair:
    """A pair of models of its own, since kernel and dtype are set in place; the draft is the target less a layer."""
    target = nn.Module.to(tiny_model.__wrapped__(3, context=context), dtype)
    draft = prune_layers(target, [1], "0" * 64)
    use_attention([target, draft.model], attention)
    return pair_of(target, draft)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recordings on the CPU, of passes that are run again."""
    real = Recordings.on
    monkeypatch.setattr(Recordings, "on", lambda device, recorder: real(device, recorder or record))


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(
    ("passes", "attention", "dtype"),
    [*((*way, torch.float64) for way in WAYS), (*WAYS[-1], torch.float32)],
)
def test_every_text_is_that_of_plain_decoding(passes: str, attention: str, dtype: torch.dtype) -> None:
    warm = Sampling(0.8, seed=4)
    asked: list[Asked] = [
        (PROMPT, 14, Sampling(), 0),
        (INVENTIVE, 9, warm, 0),
        ([4], 3, warm, 0),
        ([5] * 62, 20, Sampling(), 1),  # up to the end of the context
        ([1, 2, 1, 2, 1], 12, replace(warm, top_k=6, seed=9), 3),
    ]
    pair = pair_with("sdpa", dtype=dtype)
    expected = [list(plain_text(pair, prompt, limit, sampling)) for prompt, limit, sampling, _ in asked]
    stop = expected[0][7]
    pair = pair_with(attention, dtype=dtype)
    with end_token(pair, stop):
        engine = batch_of(pair, "random", 3, passes=passes, **(FEW if passes == "captured" else {}))
        found = served(engine, asked)
        nodes = engine.deployment.row_buckets
    for number, text in enumerate(expected):
        assert found[number] == (text[: text.index(stop) + 1] if stop in text else text)
    assert bool(nodes) == (passes != "eager")
    if passes == "captured":
        for model in (engine._target.model, engine._draft and engine._draft.model):
            assert isinstance(model, CapturedSlotModel)
            assert set(model.captured_shapes) == set(model.shapes) and not model.failures


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(("passes", "attention"), [("static", "split"), ("captured", "sdpa")])
def test_a_longer_request_that_joins_makes_the_buffers_grow(passes: str, attention: str) -> None:
    prompts = [PROMPT, [number % 23 for number in range(290)], INVENTIVE]
    pair = pair_with("sdpa", 400)
    expected = [plain_text(pair, prompt, 10, Sampling()) for prompt in prompts]
    pair = pair_with(attention, 400)
    engine = batch_of(pair, "topn:4x2", 2, passes=passes, slot_buckets=(2,), row_buckets=(12,))
    numbers = [engine.submit(BatchRequest(prompts[0], 10))]
    engine.step()
    assert engine._target.model.cache.capacity == CAPACITY_BUCKETS[0]
    numbers += [engine.submit(BatchRequest(prompt, 10)) for prompt in prompts[1:]]
    while engine.in_flight or engine.num_waiting:
        engine.step()
        engine.check_integrity()
    assert engine._target.model.cache.capacity == CAPACITY_BUCKETS[1]
    assert [engine.take(number).tokens for number in numbers] == expected


def test_rows_are_those_that_ran() -> None:
    pair = pair_with("sdpa")
    engine = batch_of(pair, "chain:2", 4, passes="static")
    for number in range(3):
        engine.submit(BatchRequest([5, number], 6))
    records = engine.step()
    kept = sum(record.num_nodes for record in records) + len(records)
    assert records[0].verify_rows == engine.deployment.padded_rows(kept) >= kept
    assert isinstance(engine._target.model, StaticSlotModel)


@contextmanager
def broken(pair: Pair) -> Iterator[None]:
    """Let every number that the target computes be none."""
    weight = pair.target.get_parameter("model.embed_tokens.weight")
    before = weight.detach().clone()
    weight[:] = float("nan")
    try:
        yield
    finally:
        weight[:] = before


def test_what_a_failed_pass_wrote_reaches_nobody() -> None:
    """Static passes see every place, masked or not: a number that is not finite would come through."""
    pair = pair_with("sdpa")
    settings = lax_settings(passes="static")
    engine = BatchEngine(pair, RandomPolicy(1), example_cost(), settings, max_batch=2)
    for number in range(3):
        engine.submit(BatchRequest([7, number], 6))
    engine.step()
    with broken(pair), pytest.raises(ModelOutputError):
        engine.step()
    while engine.in_flight or engine.num_waiting:
        engine.step()
    expected = plain_text(pair, [7, 2], 6, Sampling())
    assert engine.take(2).tokens == expected
    alone = Engine(pair, RandomPolicy(1), example_cost(), settings)
    with broken(pair), pytest.raises(ModelOutputError):
        alone.generate(PROMPT, 6)
    assert alone.generate([7, 2], 6).tokens == expected


def test_what_is_refused() -> None:
    pair = pair_with("sdpa")
    with pytest.raises(ParameterError, match="passes must be one of eager, static, captured, got 'graph'"):
        batch_of(pair, "plain", passes="graph")
    with pytest.raises(ParameterError, match="slot_buckets must be up to the batch's 3 requests, got \\(2,\\)"):
        batch_of(pair, "plain", 3, passes="static", slot_buckets=(2,))


def test_engines_may_share_what_they_hold_one_after_the_other() -> None:
    pair = pair_with("sdpa")
    first = batch_of(pair, "everything", 2, passes="static")
    settings = lax_settings(passes="static")
    second = BatchEngine(pair, RandomPolicy(3), example_cost(), settings, 2, shares=first)
    for engine in (first, second, first):
        engine.submit(BatchRequest(PROMPT, 8))
        while engine.in_flight or engine.num_waiting:
            engine.step()
            engine.check_integrity()
    assert first.take(0).tokens == second.take(0).tokens == first.take(1).tokens
    assert second._target is first._target
    for engine in (first, second):
        engine.submit(BatchRequest(PROMPT, 8))
    first.step()
    with pytest.raises(
        ParameterError, match="shares must be an engine with 0 requests in flight while this one steps, got 1"
    ):
        second.step()
    with pytest.raises(ParameterError, match="shares must be an engine of the same pair, settings and max_batch"):
        BatchEngine(pair, RandomPolicy(3), example_cost(), settings, 3, shares=first)
