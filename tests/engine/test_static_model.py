"""Passes of static shape, and recordings of them: the logits of the eager pass."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from treewise.data.errors import CaptureWarning, ParameterError
from treewise.engine.captured_model import CapturedModel
from treewise.engine.passes import tree_model_of
from treewise.engine.random_tree import random_tree, tree_mask
from treewise.engine.recorded_passes import Recording
from treewise.engine.shapes import random_model
from treewise.engine.split_attention import use_attention
from treewise.engine.static_model import CAPACITY_BUCKETS, StaticModel
from treewise.engine.tree_model import TreeModel

BUCKETS = (1, 4, 8, 16)


def record(run: Callable[[], torch.Tensor]) -> Recording:
    """What stands for a CUDA graph here: a pass that is run again into the same output."""
    made = run().clone()

    def replay() -> None:
        made.copy_(run())

    return Recording(made, replay)


def model_of(attention: str = "sdpa", dtype: torch.dtype = torch.float64) -> PreTrainedModel:
    model = random_model("tiny", dtype)
    use_attention([model], attention)
    return model


def follow_eager(runner: TreeModel, rounds: int = 12, hides: bool = False) -> tuple[float, set[int]]:
    """Largest difference to eager passes over `rounds` trees with rollbacks between them, and the counts of rows."""
    eager, rng = TreeModel(random_model("tiny", runner.dtype), 2), np.random.default_rng(7)
    runs, worst, counts = (eager, runner), 0.0, set()
    for run in runs:
        run.reset()
        run.prefill(list(range(30)))
    for _ in range(rounds):
        rows, base = int(rng.integers(1, 19)), eager.cache.length
        depths, mask = tree_mask(random_tree(rows, rng), base)
        if hides:
            mask[:, base - 6 : base - 1] &= rng.random((rows, 5)) < 0.5
        tokens = rng.integers(0, 64, rows).astype(np.int32)
        made = [run.forward(tokens, (base + depths).astype(np.int32), mask) for run in runs]
        worst = max(worst, float((made[0] - made[1]).abs().max()))
        kept = sorted(rng.choice(rows, size=int(rng.integers(1, min(rows, 4) + 1)), replace=False).tolist())
        for run in runs:
            run.cache.keep(base, [base + row for row in kept])
            run.cache.check_integrity()
        assert eager.cache.length == runner.cache.length
        counts.add(rows)
    return worst, counts


@pytest.mark.parametrize("attention", ["sdpa", "split"])
@pytest.mark.parametrize("slack", [0, 12])
def test_static_passes_are_exact(attention: str, slack: int) -> None:
    runner = StaticModel(model_of(attention), 2, 100, BUCKETS, slack)
    worst, counts = follow_eager(runner, hides=slack > 0)
    assert worst <= 1e-12
    assert max(counts) > BUCKETS[-1] and min(counts) < 4  # beyond the last bucket, and padded
    assert runner.capacity == CAPACITY_BUCKETS[0]


@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 1e-4), (torch.bfloat16, 0.5)])
def test_static_passes_in_other_precisions(dtype: torch.dtype, within: float) -> None:
    assert follow_eager(StaticModel(model_of("split", dtype), 2, 100, BUCKETS))[0] <= within


@pytest.mark.parametrize("attention", ["sdpa", "split"])
def test_recorded_passes_are_exact(attention: str) -> None:
    runner = CapturedModel(model_of(attention), 2, 100, BUCKETS, recorder=record)
    assert follow_eager(runner)[0] <= 1e-12
    assert runner.captured_rows == BUCKETS and not runner.failures


def test_a_larger_capacity_is_recorded_anew() -> None:
    calls: list[int] = []

    def counting(run: Callable[[], torch.Tensor]) -> Recording:
        calls.append(1)
        return record(run)

    runner = CapturedModel(model_of(), 2, 64, (1, 8), recorder=counting)
    runner.reset(100)
    runner.reset(300)
    assert len(calls) == 2
    runner.reset(CAPACITY_BUCKETS[0] + 1)
    assert len(calls) == 4 and runner.capacity == CAPACITY_BUCKETS[1]
    assert follow_eager(runner, 4)[0] <= 1e-12


def test_a_recording_that_differs_is_not_used() -> None:
    def stale(run: Callable[[], torch.Tensor]) -> Recording:
        return Recording(run().clone(), lambda: None)  # a graph that ignores its inputs

    runner = CapturedModel(model_of(), 2, 64, (1, 8), recorder=stale)
    with pytest.warns(CaptureWarning, match=r"passes of \d rows run eagerly: its replay differs from the eager pass"):
        runner.reset()
    assert runner.captured_rows == () and set(runner.failures) == {1, 8}
    assert follow_eager(runner, 4)[0] <= 1e-12


def test_a_recording_that_fails_is_told() -> None:
    def broken(run: Callable[[], torch.Tensor]) -> Recording:
        run()
        raise RuntimeError("operation not permitted when stream is capturing")

    runner = CapturedModel(model_of(), 2, 64, (4,), recorder=broken)
    with pytest.warns(CaptureWarning, match="recording failed: operation not permitted"):
        runner.reset()
    assert runner.failures[4].startswith("recording failed")
    assert follow_eager(runner, 4)[0] <= 1e-12


def test_nothing_is_recorded_on_a_cpu() -> None:
    runner = tree_model_of("captured", model_of(), 2)
    assert isinstance(runner, CapturedModel)
    runner.reset()
    assert runner.captured_rows == () and not runner.failures


def test_settings_that_cannot_be() -> None:
    model = model_of()
    with pytest.raises(ParameterError, match="row_buckets must be ascending counts >= 1"):
        StaticModel(model, 2, 64, (4, 4))
    with pytest.raises(ParameterError, match="passes must be one of eager, static, captured, got 'graph'"):
        tree_model_of("graph", model, 2)
    model.config._attn_implementation = "eager"
    with pytest.raises(ParameterError, match="attention must be sdpa or split in static passes, got 'eager'"):
        StaticModel(model, 2)


def test_a_text_beyond_the_buffers_is_refused() -> None:
    runner = StaticModel(model_of(), 2, 40000, (1, 4))  # beyond the last bucket: just as large
    assert runner.capacity == 40000
    runner = StaticModel(model_of(), 2, 512, (1, 4))
    runner.prefill(list(range(64)) * 8)
    one = np.zeros(1, dtype=np.int32)
    for length in range(512, 516):
        runner.forward(one, one + length, np.ones((1, length + 1), dtype=np.bool_))
    with pytest.raises(ParameterError, match="tokens in a static cache must be at most 512, got 517"):
        runner.forward(one, one + 516, np.ones((1, 517), dtype=np.bool_))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("attention", ["sdpa", "split"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cuda_graphs_are_the_eager_pass(attention: str, dtype: torch.dtype) -> None:
    model = random_model("tiny", dtype, "cuda")
    use_attention([model], attention)
    runner = CapturedModel(model, 2, 100, BUCKETS)
    runner.reset()
    assert runner.captured_rows == BUCKETS and not runner.failures
