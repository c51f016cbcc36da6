"""Static tree passes recorded as CUDA graphs, one a row bucket, each checked against the eager pass before it is used.

A small pass of a large model is bound by launching its kernels from Python, not by running them; a graph is one launch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel

from treewise.data.errors import CaptureWarning
from treewise.engine.random_tree import random_tree, tree_mask
from treewise.engine.static_model import CAPACITY_BUCKETS, ROW_BUCKETS, StaticInputs, StaticModel
from treewise.engine.tree_model import TreeModel

WARM_UPS = 3  # passes before a recording, in which kernels are chosen and workspaces allocated
CHECK_TOKENS = 24  # of text before the pass that is compared
# Largest difference to the eager pass, as a share of its largest number.
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 5e-2}


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A pass that can be run again: on whatever its inputs hold then, into the same output."""

    made: torch.Tensor  # [rows, width]
    replay: Callable[[], None]


Recorder = Callable[[Callable[[], torch.Tensor]], Recording]


class GraphRecorder:
    """Records passes as CUDA graphs, which share one pool of memory: a pass's output is read before the next one."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Callable[[], torch.Tensor]) -> Recording:
        """Record `run`, which must not wait for the device nor allocate on the host."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                run()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            made = run()
        return Recording(made, graph.replay)


class CapturedModel(StaticModel):
    """Runs tree rows by replaying recorded passes, where recording one worked and agreed with the eager pass.

    Recording is done for every row bucket when buffers are allocated: at the first `reset`, and at one that asks for
    a larger capacity bucket. A bucket whose recording fails or differs runs eagerly from then on, with a
    `CaptureWarning` that says why. Without a recorder, and a device that has graphs, every pass is a static eager one.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        num_layers: int,
        capacity: int = CAPACITY_BUCKETS[0],
        row_buckets: Sequence[int] = ROW_BUCKETS,
        tail_slack: int = 0,
        recorder: Recorder | None = None,
    ) -> None:
        super().__init__(model, num_layers, capacity, row_buckets, tail_slack)
        self._recorder = recorder
        if recorder is None and self.device.type == "cuda":
            self._recorder = GraphRecorder()
        self._recordings: dict[int, Recording] = {}
        self._is_recorded = False
        self.failures: dict[int, str] = {}  # row bucket -> why it runs eagerly

    @property
    def captured_rows(self) -> tuple[int, ...]:
        """Row buckets that replay a recording."""
        return tuple(sorted(self._recordings))

    def reset(self, capacity: int | None = None) -> None:
        """Forget every slot; where buffers are new, every row bucket is recorded and compared."""
        grows = capacity is not None and capacity > self.capacity
        if grows:
            self._recordings.clear()
        super().reset(capacity)
        if self._recorder is not None and (grows or not self._is_recorded):
            self._is_recorded = True
            for rows in self.row_buckets:
                self._record(rows, self._recorder)
            self.cache.keep(0, ())

    def _pass(self, inputs: StaticInputs) -> torch.Tensor:
        recording = self._recordings.get(inputs.rows)
        if recording is None:
            return self.run_static(inputs)
        recording.replay()
        return recording.made

    def _record(self, rows: int, recorder: Recorder) -> None:
        """Record the bucket on one pass, and compare its replay with the eager pass on another."""
        self.failures.pop(rows, None)
        rng = np.random.default_rng(rows)
        vocab_size = int(self.model.config.get_text_config().vocab_size)
        self.cache.keep(0, ())
        self.prefill(rng.integers(0, vocab_size, CHECK_TOKENS).tolist())
        base = self.cache.length
        try:
            inputs, _ = self._random_pass(rows, rng, vocab_size)
            recording = recorder(lambda: self.run_static(inputs))
            _, eager = self._random_pass(rows, rng, vocab_size)
            recording.replay()
            made = recording.made
            if not torch.isfinite(made).all():
                difference = float("inf")
            else:
                difference = float((made - eager).abs().max() / eager.abs().max().clamp_min(1e-30))
        except (RuntimeError, TypeError, ValueError) as error:  # what torch raises where a pass cannot be recorded
            self._give_up(rows, f"recording failed: {error}")
            return
        finally:
            self.static_cache.write_at(None)
            self.cache.keep(base, ())
        allowed = TOLERANCES[self.dtype]
        if difference <= allowed:
            self._recordings[rows] = recording
        else:
            self._give_up(rows, f"its replay differs from the eager pass by {difference:.1e}, more than {allowed:.0e}")

    def _random_pass(self, rows: int, rng: np.random.Generator, vocab_size: int) -> tuple[StaticInputs, torch.Tensor]:
        """Inputs of a pass over a random tree, and what the eager pass makes of the same, [rows, width]."""
        base = self.cache.length
        depths, mask = tree_mask(random_tree(rows, rng), base)
        tokens = rng.integers(0, vocab_size, rows).astype(np.int32)
        positions = (base + depths).astype(np.int32)
        eager = TreeModel.forward(self, tokens, positions, mask).clone()
        self.cache.keep(base, ())
        inputs = self._fill(tokens, positions, mask)
        assert inputs is not None
        return inputs, eager

    def _give_up(self, rows: int, why: str) -> None:
        self._recordings.pop(rows, None)
        self.failures[rows] = why
        warnings.warn(f"passes of {rows} rows run eagerly: {why}", CaptureWarning, stacklevel=2)
