"""Static passes of several requests recorded as CUDA graphs, one a shape."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from transformers import PreTrainedModel

from treewise.engine.captured_model import CHECK_TOKENS
from treewise.engine.random_tree import random_tree, tree_mask
from treewise.engine.recorded_passes import Recorder, Recordings
from treewise.engine.slot_cache import SlotCache
from treewise.engine.slot_model import SlotModel
from treewise.engine.slot_rows import SlotInputs, SlotRows, SlotShape
from treewise.engine.static_model import CAPACITY_BUCKETS
from treewise.engine.static_slot_model import StaticSlotModel


class CapturedSlotModel(StaticSlotModel):
    """Runs rows of several requests by replaying recorded passes, where one was recorded and agreed with the eager one.

    Every shape is recorded and compared when buffers are new: at the first `reserve`, and when they grow. A shape whose
    recording fails or differs runs eagerly from then on, with a `CaptureWarning` that says why. Without a recorder, and
    a device that has graphs, every pass is a static eager one.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        num_layers: int,
        num_slots: int,
        capacity: int = CAPACITY_BUCKETS[0],
        slot_buckets: Sequence[int] = (),
        row_buckets: Sequence[int] = (),
        tail_slack: int = 0,
        recorder: Recorder | None = None,
    ) -> None:
        self._recordings: Recordings[SlotShape] | None = None
        super().__init__(model, num_layers, num_slots, capacity, slot_buckets, row_buckets, tail_slack)
        self._recordings = Recordings.on(self.device, recorder)
        self._is_recorded = False

    @property
    def captured_shapes(self) -> tuple[SlotShape, ...]:
        """Shapes that replay a recording."""
        return () if self._recordings is None else self._recordings.keys

    @property
    def failures(self) -> dict[SlotShape, str]:
        """Shapes that run eagerly, and why."""
        return {} if self._recordings is None else self._recordings.failures

    def reserve(self, capacity: int) -> None:
        """See `StaticSlotModel`; where buffers are new, every shape is recorded and compared."""
        super().reserve(capacity)
        if not self._is_recorded:
            self._prepare()
            self.cache.wipe()

    def _adopt(self, cache: SlotCache) -> None:
        super()._adopt(cache)
        if self._recordings is not None:
            self._recordings.clear()

    def _prepare(self) -> None:
        self._is_recorded = True
        if self._recordings is None:
            return
        rng = np.random.default_rng(0)
        vocab_size = int(self.model.config.get_text_config().vocab_size)
        for slot in range(self.cache.num_slots):
            SlotModel.prefill(self, slot, rng.integers(0, vocab_size, CHECK_TOKENS).tolist())
        # memory of the largest serves the others
        for shape in sorted(self.shapes, key=lambda shape: shape.rows, reverse=True):
            run = partial(self.run_slots, self._inputs_of(shape))
            self._recordings.record(shape, str(shape), shape.rows, run, partial(self._lay_out, shape, rng, vocab_size))

    def _pass(self, inputs: SlotInputs) -> torch.Tensor:
        made = None if self._recordings is None else self._recordings.replay(inputs.shape)
        return self.run_slots(inputs) if made is None else made

    def _lay_out(self, shape: SlotShape, rng: np.random.Generator, vocab_size: int) -> torch.Tensor:
        """Lay out a pass over random trees; what the eager pass makes of the same, [live rows, width]."""
        parts: dict[int, SlotRows] = {}
        spare = shape.rows - min(shape.rows, shape.slots)
        for slot in range(min(shape.rows, shape.slots)):
            count = 1 + min(spare, shape.most - 1)
            spare -= count - 1
            depths, mask = tree_mask(random_tree(count, rng), CHECK_TOKENS)
            tokens = rng.integers(0, vocab_size, count).astype(np.int32)
            parts[slot] = SlotRows(tokens, (CHECK_TOKENS + depths).astype(np.int32), mask, CHECK_TOKENS)
        eager = SlotModel.forward(self, parts)
        self._inputs_of(shape).fill(parts, self.cache.capacity)
        return eager
