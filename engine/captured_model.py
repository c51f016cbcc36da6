"""Static tree passes of one request recorded as CUDA graphs, one a row bucket."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from transformers import PreTrainedModel

from treewise.engine.random_tree import random_tree, tree_mask
from treewise.engine.recorded_passes import Recorder, Recordings
from treewise.engine.static_model import CAPACITY_BUCKETS, ROW_BUCKETS, StaticInputs, StaticModel
from treewise.engine.tree_model import TreeModel

CHECK_TOKENS = 24  # of text before the pass that is compared


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
        self._recordings: Recordings[int] | None = Recordings.on(self.device, recorder)
        self._is_recorded = False

    @property
    def captured_rows(self) -> tuple[int, ...]:
        """Row buckets that replay a recording."""
        return () if self._recordings is None else tuple(sorted(self._recordings.keys))

    @property
    def failures(self) -> dict[int, str]:
        """Row buckets that run eagerly, and why."""
        return {} if self._recordings is None else self._recordings.failures

    def reset(self, capacity: int | None = None) -> None:
        """Forget every slot; where buffers are new, every row bucket is recorded and compared."""
        grows = capacity is not None and capacity > self.capacity
        if grows and self._recordings is not None:
            self._recordings.clear()
        super().reset(capacity)
        if self._recordings is not None and (grows or not self._is_recorded):
            self._is_recorded = True
            for rows in reversed(self.row_buckets):
                self._record(rows, self._recordings)
            self.static_cache.wipe()
            self.cache.keep(0, ())

    def _pass(self, inputs: StaticInputs) -> torch.Tensor:
        made = None if self._recordings is None else self._recordings.replay(inputs.rows)
        return self.run_static(inputs) if made is None else made

    def _record(self, rows: int, recordings: Recordings[int]) -> None:
        """Record the bucket, behind some text."""
        rng = np.random.default_rng(rows)
        vocab_size = int(self.model.config.get_text_config().vocab_size)
        self.cache.keep(0, ())
        self.prefill(rng.integers(0, vocab_size, CHECK_TOKENS).tolist())
        base = self.cache.length
        try:
            recordings.record(
                rows,
                f"{rows} rows",
                rows,
                lambda: self.run_static(self._inputs_of(rows)),
                lambda: self._lay_out(rows, rng, vocab_size),
            )
        finally:
            self.static_cache.write_at(None)
            self.cache.keep(base, ())

    def _lay_out(self, rows: int, rng: np.random.Generator, vocab_size: int) -> torch.Tensor:
        """Lay out a pass over a random tree; what the eager pass makes of the same, [rows, width]."""
        base = self.cache.length
        depths, mask = tree_mask(random_tree(rows, rng), base)
        tokens = rng.integers(0, vocab_size, rows).astype(np.int32)
        positions = (base + depths).astype(np.int32)
        eager = TreeModel.forward(self, tokens, positions, mask).clone()
        self.cache.keep(base, ())
        inputs = self._fill(tokens, positions, mask)
        assert inputs is not None
        return eager
