"""What passes of a model cost by rows, capacity and the way they are run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel

from treewise.data.cost import CostGrid
from treewise.engine.captured_model import CapturedModel
from treewise.engine.passes import EAGER, tree_model_of
from treewise.engine.profile import rising
from treewise.engine.random_tree import random_tree, tree_mask
from treewise.engine.recorded_passes import GraphRecorder
from treewise.engine.split_attention import use_attention
from treewise.engine.static_cache import StaticTreeCache
from treewise.engine.tree_model import TreeModel, settle

QUARTERS = (0.25, 0.5, 0.75)


@dataclass(frozen=True, slots=True)
class CurveCell:
    """One measured pass."""

    passes: str  # eager, static or captured
    attention: str  # sdpa or split
    capacity: int  # tokens in the cache before the pass
    rows: int
    ms: float  # median
    spread: float  # interquartile range over the median
    ran_as: str  # how it ran: a bucket whose recording failed runs eagerly


@dataclass(frozen=True, slots=True)
class CurvePlan:
    """What is measured of one model."""

    rows: tuple[int, ...]  # ascending
    capacities: tuple[int, ...]  # tokens
    repeats: int = 15
    seed: int = 0


def measure_capacity(
    model: PreTrainedModel,
    decoder: PreTrainedModel,
    num_layers: int,
    plan: CurvePlan,
    capacity: int,
    passes: str,
    attention: str,
    finish: Callable[[torch.Tensor], object] = lambda made: made,
) -> list[CurveCell]:
    """Passes of `model` over random trees behind `capacity` tokens, medians over interleaved repeats.

    Args:
        decoder: the model without its head, for the prefill.
        finish: what a pass's output goes through, as a draft's goes through its head; timed as well.
    """
    use_attention([model], attention)
    rng = np.random.default_rng(plan.seed)
    vocab_size = int(model.config.get_text_config().vocab_size)
    room = capacity if passes != EAGER else capacity + plan.rows[-1] + 1
    runner = tree_model_of(passes, model, num_layers, row_buckets=plan.rows, capacity=room)
    runner.reset()
    runner.prefill(rng.integers(0, vocab_size, capacity).tolist(), decoder)
    times: list[list[float]] = [[] for _ in plan.rows]
    for repeat in range(plan.repeats + 1):  # the first warms up
        for place, rows in enumerate(plan.rows):
            depths, mask = tree_mask(random_tree(rows, rng), capacity)
            tokens = rng.integers(0, vocab_size, rows).astype(np.int32)
            positions = (capacity + depths).astype(np.int32)
            began = time.perf_counter()
            made = runner.forward(tokens, positions, mask)
            finish(made)
            settle(made)
            if repeat:
                times[place].append((time.perf_counter() - began) * 1e3)
            runner.cache.keep(capacity, ())
    cells = []
    for rows, taken in zip(plan.rows, times, strict=True):
        low, median, high = np.quantile(taken, QUARTERS).tolist()
        ran_as = passes
        if isinstance(runner, CapturedModel) and rows not in runner.captured_rows:
            ran_as = EAGER if runner.device.type == "cuda" else "static"
        cells.append(CurveCell(passes, attention, capacity, rows, median, (high - low) / median, ran_as))
    return cells


@torch.inference_mode()
def unmasked_ms(model: PreTrainedModel, num_layers: int, capacity: int, repeats: int) -> float:
    """Median milliseconds of one token over `capacity` slots that it sees all of, without a mask: decoding's floor.

    Replayed from a CUDA graph where there are such; nothing has to be laid out for it.
    """
    use_attention([model], "sdpa")
    cache = StaticTreeCache(num_layers, capacity)
    runner = TreeModel(model, num_layers)
    runner.cache = cache
    runner.prefill([0])  # allocates the buffers
    ids = torch.zeros((1, 1), dtype=torch.int64, device=runner.device)
    place = torch.full((1, 1), capacity - 1, dtype=torch.int64, device=runner.device)
    cache.write_at(place[0])

    def run() -> torch.Tensor:
        arguments = {runner._cache_argument: cache}
        out = model(input_ids=ids, attention_mask=None, position_ids=place, use_cache=True, **arguments)
        return out.logits  # type: ignore[no-any-return]

    play: Callable[[], object] = run
    if runner.device.type == "cuda":
        recording = GraphRecorder(runner.device)(run)
        play = recording.replay
    taken = []
    for repeat in range(repeats + 1):
        began = time.perf_counter()
        play()
        settle(ids)
        if repeat:
            taken.append((time.perf_counter() - began) * 1e3)
    return float(np.median(taken))


def grid_of(cells: Sequence[CurveCell]) -> CostGrid:
    """The cost grid of the cells of one way to run passes, made to rise with the rows."""
    rows = tuple(sorted({cell.rows for cell in cells}))
    capacities = tuple(sorted({cell.capacity for cell in cells}))
    ms = {(cell.capacity, cell.rows): cell.ms for cell in cells}
    table = [rising(np.asarray([ms[capacity, count] for count in rows])) for capacity in capacities]
    return CostGrid(rows, capacities, tuple(tuple(line.tolist()) for line in table))


def ways(on_gpu: bool) -> Iterator[tuple[str, str]]:
    """(passes, attention) that are worth comparing on a device."""
    for attention in ("sdpa", "split"):
        yield EAGER, attention
        yield ("captured" if on_gpu else "static"), attention
