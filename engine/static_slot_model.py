"""Several requests in passes of static shape: buckets of requests, of rows and of capacity, over one cache."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from treewise.data.errors import require
from treewise.engine.slot_cache import SlotCache
from treewise.engine.slot_model import SlotModel
from treewise.engine.slot_rows import Parts, SlotInputs, SlotShape, shapes_of
from treewise.engine.static_model import CAPACITY_BUCKETS, capacity_bucket, check_buckets

MOST_ROWS = (1, 8, 64)  # rows of one request that attention has room for
_FINE_UP_TO = 64  # rows of a pass beyond which a pass is bound by computing: from there two buckets an octave


def slot_buckets_up_to(num_slots: int) -> tuple[int, ...]:
    """Counts of requests that passes are padded to: the powers of two, and `num_slots`."""
    return (*(1 << power for power in range((num_slots - 1).bit_length())), num_slots)


def row_buckets_up_to(num_slots: int) -> tuple[int, ...]:
    """Rows of all requests that passes are padded to."""
    largest, rows, found = num_slots * MOST_ROWS[-1], 1, [1]
    while rows < largest:
        if rows >= _FINE_UP_TO:
            found.append(rows + rows // 2)
        rows *= 2
        found.append(rows)
    return tuple(found)


class StaticSlotModel(SlotModel):
    """Runs rows of several requests in passes of static shape; the same numbers as `SlotModel`, up to rounding.

    A pass of more rows, or of one request with more rows, than the buckets have, or of a mask that does not fit, runs
    as a `SlotModel`'s does. Requests that go on keep their text when a longer one makes the buffers grow.

    Args:
        slot_buckets: requests that passes are padded to, ascending; empty: `slot_buckets_up_to(num_slots)`.
        row_buckets: rows of a whole pass that it is padded to, ascending; empty: `row_buckets_up_to(num_slots)`.
        tail_slack: places behind those that all rows of a request see which hold rows of earlier passes of a round.

    Raises:
        ParameterError: buckets out of order or for fewer requests than there are slots, or an attention kernel other
            than sdpa and split.
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
    ) -> None:
        super().__init__(model, num_layers, num_slots, capacity_bucket(capacity))
        self.slot_buckets = check_buckets("slot_buckets", slot_buckets or slot_buckets_up_to(num_slots))
        enough = self.slot_buckets[-1] == num_slots
        require(enough, "slot_buckets", f"up to the batch's {num_slots} requests", self.slot_buckets)
        self.row_buckets = check_buckets("row_buckets", row_buckets or row_buckets_up_to(num_slots))
        self._tail_slack = tail_slack
        self._inputs: dict[SlotShape, SlotInputs] = {}
        self.shapes: tuple[SlotShape, ...]
        self._adopt(self.cache)

    def reserve(self, capacity: int) -> None:
        """See `SlotModel`: where the buffers are smaller, those of the next capacity bucket take over."""
        if capacity > self.cache.capacity:
            self._grow(capacity)

    def prefill(self, slot: int, tokens: Sequence[int], decoder: PreTrainedModel | None = None) -> None:
        """Write the first committed `tokens` of the text in `slot`; `decoder`: the model without its head."""
        self.reserve(len(tokens))
        super().prefill(slot, tokens, decoder)

    def forward(self, parts: Parts, padded_rows: int = 0) -> torch.Tensor:
        """See `SlotModel`; dead rows fill the bucket, whatever `padded_rows`."""
        needed = SlotShape.of(parts)
        self.reserve(needed.width)
        shape = self.shape_for(needed)
        if shape is None:
            return super().forward(parts, padded_rows)
        inputs = self._inputs_of(shape)
        inputs.fill(parts, self.cache.capacity)
        return self._pass(inputs)

    def shape_for(self, needed: SlotShape) -> SlotShape | None:
        """The smallest shape of the buckets that has room for `needed`; None: no one has."""
        slots = next(bucket for bucket in self.slot_buckets if bucket >= needed.first + needed.slots)
        return next(
            (
                shape
                for shape in self.shapes
                if shape.slots == slots
                and shape.rows >= needed.rows
                and shape.most >= needed.most
                and shape.tail >= needed.tail
            ),
            None,
        )

    def _adopt(self, cache: SlotCache) -> None:
        """Go on with the buffers of `cache`; nothing that was made for others stays."""
        self.cache = cache
        self._inputs.clear()
        made = shapes_of(self.slot_buckets, self.row_buckets, MOST_ROWS, self._tail_slack, cache.capacity)
        self.shapes = tuple(made)

    def _grow(self, capacity: int) -> None:
        old = self.cache
        self._adopt(SlotCache(self.num_layers, old.num_slots, capacity_bucket(capacity)))
        try:
            self._prepare()
            self.cache.copy_from(old)
        except BaseException:
            self._adopt(old)  # without the memory for more, requests that go on keep their text
            raise

    def _prepare(self) -> None:
        """Make passes over the new and empty buffers ready; what is written to them is of no matter."""

    def _pass(self, inputs: SlotInputs) -> torch.Tensor:
        """Run what `inputs` say: [rows, width], dead rows included."""
        return self.run_slots(inputs)

    def _inputs_of(self, shape: SlotShape) -> SlotInputs:
        made = self._inputs.get(shape)
        if made is None:
            made = self._inputs[shape] = SlotInputs.empty(shape, self.device)
        return made
