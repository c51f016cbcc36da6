"""Passes of several requests in static shapes, and recordings of them: the numbers of the eager pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.engine.test_static_model import model_of, record
from treewise.data.errors import CaptureWarning, ParameterError
from treewise.engine.captured_slot_model import CapturedSlotModel
from treewise.engine.passes import slot_model_of
from treewise.engine.random_tree import random_tree, tree_mask
from treewise.engine.recorded_passes import Recording
from treewise.engine.shapes import random_model
from treewise.engine.slot_cache import SlotCache
from treewise.engine.slot_model import SlotModel
from treewise.engine.slot_rows import SlotRows, SlotShape, shapes_of
from treewise.engine.static_model import CAPACITY_BUCKETS
from treewise.engine.static_slot_model import (
    MOST_ROWS,
    StaticSlotModel,
    row_buckets_up_to,
    slot_buckets_up_to,
)
from treewise.engine.tree_model import TreeModel

SLOTS = 3
ROWS = (2, 4, 8, 16)


def random_rows(count: int, start: int, rng: np.random.Generator, hides: bool = False) -> SlotRows:
    """A random tree behind `start` places; `hides`: some of the last places before it are seen by some rows only."""
    depths, mask = tree_mask(random_tree(count, rng), start)
    if hides:
        mask[:, start - 6 : start - 1] &= rng.random((count, 5)) < 0.5
    return SlotRows(rng.integers(0, 64, count).astype(np.int32), (start + depths).astype(np.int32), mask, start)


def follow_eager(runner: SlotModel, rounds: int = 6, hides: bool = False, most: int = 9) -> float:
    """Largest difference to a request alone in an eager pass, over rounds of some of `SLOTS` texts with rollbacks."""
    rng = np.random.default_rng(7)
    alone = [TreeModel(random_model("tiny", runner.dtype), 2) for _ in range(SLOTS)]
    lengths, worst = [30, 11, 47], 0.0
    for slot, length in enumerate(lengths):
        text = rng.integers(0, 64, length).tolist()
        alone[slot].prefill(text)
        runner.reserve(length)
        runner.prefill(slot, text)
    for _ in range(rounds):
        chosen = sorted(rng.choice(SLOTS, size=int(rng.integers(1, SLOTS + 1)), replace=False).tolist())
        parts = {slot: random_rows(int(rng.integers(1, most)), lengths[slot], rng, hides) for slot in chosen}
        made, done, kept = runner.forward(parts), 0, []
        for slot, part in parts.items():
            count = len(part.tokens)
            expected = alone[slot].forward(part.tokens, part.positions, part.mask)
            worst = max(worst, float((made[done : done + count] - expected).abs().max()))
            done += count
            own = sorted(rng.choice(count, size=int(rng.integers(1, min(count, 4) + 1)), replace=False).tolist())
            places = [lengths[slot] + row for row in own]
            alone[slot].cache.keep(lengths[slot], places)
            kept.append((slot, lengths[slot], places))
            lengths[slot] += len(own)
        runner.cache.keep(kept, runner.device)
        runner.cache.check_integrity()
    return worst


@pytest.mark.parametrize("attention", ["sdpa", "split"])
@pytest.mark.parametrize("hides", [False, True])
def test_eager_passes_of_several_requests_are_exact(attention: str, hides: bool) -> None:
    assert follow_eager(SlotModel(model_of(attention), 2, SLOTS, 8), hides=hides) <= 1e-12


@pytest.mark.parametrize("attention", ["sdpa", "split"])
@pytest.mark.parametrize("slack", [0, 12])
def test_static_passes_are_exact(attention: str, slack: int) -> None:
    runner = StaticSlotModel(model_of(attention), 2, SLOTS, 100, row_buckets=ROWS, tail_slack=slack)
    taken: list[SlotShape | None] = []
    found = runner.shape_for

    def noted(needed: SlotShape) -> SlotShape | None:
        taken.append(found(needed))
        return taken[-1]

    runner.shape_for = noted  # type: ignore[method-assign]
    assert follow_eager(runner, 14, hides=slack > 0, most=12) <= 1e-12
    assert {shape.slots for shape in taken if shape} >= {1, SLOTS} and len(set(taken)) > 4
    assert None in taken  # too many rows for the buckets
    assert runner.cache.capacity == CAPACITY_BUCKETS[0]


@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 1e-4), (torch.bfloat16, 0.5)])
def test_static_passes_in_other_precisions(dtype: torch.dtype, within: float) -> None:
    assert follow_eager(StaticSlotModel(model_of("split", dtype), 2, SLOTS, 100, row_buckets=ROWS)) <= within


@pytest.mark.parametrize("attention", ["sdpa", "split"])
def test_recorded_passes_are_exact(attention: str) -> None:
    runner = CapturedSlotModel(model_of(attention), 2, SLOTS, 100, (1, SLOTS), (4, 24), recorder=record)
    assert follow_eager(runner) <= 1e-12
    assert set(runner.captured_shapes) == set(runner.shapes) and not runner.failures


def test_a_longer_text_makes_the_buffers_grow_and_the_others_keep_theirs() -> None:
    calls: list[int] = []

    def counting(run: Callable[[], torch.Tensor]) -> Recording:
        calls.append(1)
        return record(run)

    runner = CapturedSlotModel(model_of(), 2, 2, 100, (2,), (2, 8), recorder=counting)
    eager, rng = TreeModel(random_model("tiny", torch.float64), 2), np.random.default_rng(3)
    text = rng.integers(0, 64, 40).tolist()
    eager.prefill(text)
    runner.reserve(100)
    runner.prefill(0, text)
    assert len(calls) == len(runner.shapes) > 0
    runner.reserve(300)
    assert len(calls) == len(runner.shapes)
    runner.reserve(CAPACITY_BUCKETS[0] + 1)  # in the middle of the first text
    assert len(calls) == 2 * len(runner.shapes) and runner.cache.capacity == CAPACITY_BUCKETS[1]
    part = random_rows(6, 40, rng)
    made = runner.forward({0: part})[:6]
    assert float((made - eager.forward(part.tokens, part.positions, part.mask)).abs().max()) <= 1e-12
    # nobody reserved so much: a pass that needs more places gets them
    runner.forward({0: random_rows(6, CAPACITY_BUCKETS[1] - 3, rng)})
    assert runner.cache.capacity == CAPACITY_BUCKETS[2] and len(calls) == 3 * len(runner.shapes)


@pytest.mark.parametrize("fails_in", ["_prepare", "copy_from"])
def test_without_memory_for_a_longer_text_the_others_keep_theirs(
    fails_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    runner = CapturedSlotModel(model_of(), 2, 2, 100, (2,), (2, 8), recorder=record)
    eager, rng = TreeModel(random_model("tiny", torch.float64), 2), np.random.default_rng(3)
    text = rng.integers(0, 64, 40).tolist()
    eager.prefill(text)
    runner.reserve(100)
    runner.prefill(0, text)
    with monkeypatch.context() as patch, pytest.raises(torch.OutOfMemoryError):
        patch.setattr(CapturedSlotModel if fails_in == "_prepare" else SlotCache, fails_in, full)
        runner.reserve(CAPACITY_BUCKETS[0] + 1)
    assert runner.cache.capacity == CAPACITY_BUCKETS[0] and runner.captured_shapes == ()
    part = random_rows(6, 40, rng)
    expected = eager.forward(part.tokens, part.positions, part.mask)
    assert float((runner.forward({0: part})[:6] - expected).abs().max()) <= 1e-12
    runner.reserve(CAPACITY_BUCKETS[0] + 1)  # there is memory again
    assert set(runner.captured_shapes) == set(runner.shapes) and runner.cache.capacity == CAPACITY_BUCKETS[1]
    assert float((runner.forward({0: part})[:6] - expected).abs().max()) <= 1e-12


def test_recordings_that_differ_or_fail_are_not_used() -> None:
    def stale(run: Callable[[], torch.Tensor]) -> Recording:
        return Recording(run().clone(), lambda: None)

    def broken(run: Callable[[], torch.Tensor]) -> Recording:
        run()
        raise RuntimeError("operation not permitted when stream is capturing")

    for recorder, words in ((stale, "its replay differs from the eager pass"), (broken, "recording failed: operation")):
        runner = CapturedSlotModel(model_of(), 2, SLOTS, 100, (3,), (8,), recorder=recorder)
        with pytest.warns(CaptureWarning, match=rf"passes of 8 rows, \d+ of a request at most, 3 requests .*{words}"):
            runner.reserve(10)
        assert runner.captured_shapes == () and set(runner.failures) == set(runner.shapes)
        assert follow_eager(runner, 4) <= 1e-12


def test_what_recording_leaves_behind_is_wiped() -> None:
    runner = CapturedSlotModel(model_of(), 2, SLOTS, 100, (3,), (8,), recorder=record)
    runner.reserve(10)
    assert all(float(layer.keys.abs().max()) == 0.0 for layer in runner.cache.slot_layers)


def test_nothing_is_recorded_on_a_cpu() -> None:
    runner = slot_model_of("captured", model_of(), 2, SLOTS)
    assert isinstance(runner, CapturedSlotModel)
    runner.reserve(10)
    assert runner.captured_shapes == () and runner.failures == {}
    assert type(slot_model_of("eager", model_of(), 2, SLOTS)) is SlotModel


def test_buckets() -> None:
    assert (
        slot_buckets_up_to(1) == (1,) and slot_buckets_up_to(4) == (1, 2, 4) and slot_buckets_up_to(6) == (1, 2, 4, 6)
    )
    assert row_buckets_up_to(1) == (1, 2, 4, 8, 16, 32, 64)
    assert row_buckets_up_to(4) == (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256)
    shapes = list(shapes_of(slot_buckets_up_to(4), row_buckets_up_to(4), MOST_ROWS, 0, 512))
    assert len(shapes) == len(set(shapes)) < 40
    runner = StaticSlotModel(model_of(), 2, 4)
    assert list(runner.shapes) == shapes
    needed = SlotShape(0, 1, 1, 1, 1, 20)
    for slots in range(1, 5):
        for most in (1, 3, 8, 9, 64):
            for rows in (most, most + slots - 1, most * slots):
                found = runner.shape_for(replace(needed, slots=slots, rows=rows, most=most, tail=most))
                assert found is not None and found.rows < max(2 * rows, 2 * slots) and found.slots < 2 * slots
    assert runner.shape_for(replace(needed, rows=257)) is None and runner.shape_for(replace(needed, tail=65)) is None


def test_settings_that_cannot_be() -> None:
    model = model_of()
    with pytest.raises(ParameterError, match="row_buckets must be ascending counts >= 1, got \\(4, 4\\)"):
        StaticSlotModel(model, 2, 2, row_buckets=(4, 4))
    with pytest.raises(ParameterError, match="slot_buckets must be up to the batch's 3 requests, got \\(1, 2\\)"):
        StaticSlotModel(model, 2, 3, slot_buckets=(1, 2))
    with pytest.raises(ParameterError, match="passes must be one of eager, static, captured, got 'graph'"):
        slot_model_of("graph", model, 2, 2)
    model.config._attn_implementation = "eager"
    with pytest.raises(ParameterError, match="attention must be sdpa or split for several requests, got 'eager'"):
        StaticSlotModel(model, 2, 2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("attention", ["sdpa", "split"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cuda_graphs_are_the_eager_pass(attention: str, dtype: torch.dtype) -> None:
    from treewise.engine.split_attention import use_attention

    model = random_model("tiny", dtype, "cuda")
    use_attention([model], attention)
    runner = CapturedSlotModel(model, 2, SLOTS, 100, row_buckets=ROWS)
    runner.reserve(100)
    assert set(runner.captured_shapes) == set(runner.shapes) and not runner.failures
