"""A model whose tree passes have static shapes: rows padded to a bucket, over all slots of buffers of fixed size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from treewise.data.errors import ParameterError, require
from treewise.engine import host
from treewise.engine.split_attention import SPLIT_ATTENTION, KeySplit, shared_keys
from treewise.engine.static_cache import StaticTreeCache
from treewise.engine.tree_model import BoolMatrix, TreeModel

ROW_BUCKETS = (1, 2, 4, 8, 12, 16, 24, 36, 48, 64)
CAPACITY_BUCKETS = (512, 1024, 2048, 4096, 8192, 16384, 32768)  # tokens


def capacity_bucket(capacity: int) -> int:
    """Tokens that buffers for `capacity` tokens hold; beyond the last bucket just as many."""
    return next((size for size in CAPACITY_BUCKETS if size >= capacity), capacity)


def check_buckets(name: str, buckets: Sequence[int]) -> tuple[int, ...]:
    """Those `buckets`. Raises `ParameterError` unless they are ascending counts."""
    rising = all(after > before for before, after in zip((0, *buckets), buckets, strict=False))
    require(rising and len(buckets) > 0, name, "ascending counts >= 1", tuple(buckets))
    return tuple(buckets)


@dataclass(frozen=True, slots=True, eq=False)
class StaticInputs:
    """What a pass of one row bucket reads: tensors that stay where they are and are filled before each pass.

    The columns of `mask` are every slot; under split attention they are `tail` slots, listed in `numbers`, and every
    row sees all slots before them.
    """

    rows: int
    tail: int  # slots that the mask is about; 0: every slot
    numbers: torch.Tensor  # [3 * rows + tail + 1] int64: token ids, positions, places, tail slots, slots before those
    mask: torch.Tensor  # [1, 1, rows, slots or tail] bool

    def part(self, place: int) -> torch.Tensor:
        """Token ids, positions or places, [rows], as a view."""
        return self.numbers[place * self.rows : (place + 1) * self.rows]

    @property
    def tail_slots(self) -> torch.Tensor:
        """[tail], a view."""
        return self.numbers[3 * self.rows : 3 * self.rows + self.tail]

    @property
    def num_shared(self) -> torch.Tensor:
        """[1], a view."""
        return self.numbers[-1:]


class StaticModel(TreeModel):
    """Runs one request's tree rows in passes of static shape; the same numbers as `TreeModel`, up to rounding.

    A pass of more rows than the largest bucket, or of a mask that does not fit, runs as a `TreeModel`'s does.

    Args:
        row_buckets: rows that passes are padded to, ascending.
        tail_slack: under split attention, slots behind the shared ones that hold rows of earlier passes of a round.

    Raises:
        ParameterError: buckets out of order, or an attention kernel other than sdpa and split.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        num_layers: int,
        capacity: int = CAPACITY_BUCKETS[0],
        row_buckets: Sequence[int] = ROW_BUCKETS,
        tail_slack: int = 0,
    ) -> None:
        super().__init__(model, num_layers, 1)
        require(self.kernel in ("sdpa", SPLIT_ATTENTION), "attention", "sdpa or split in static passes", self.kernel)
        self.row_buckets = check_buckets("row_buckets", row_buckets)
        self._tail_slack = tail_slack
        self._inputs: dict[int, StaticInputs] = {}
        self.static_cache = self._allocate(capacity)

    def reset(self, capacity: int | None = None) -> None:
        """Forget every slot; where `capacity` asks for more, buffers of the next capacity bucket are allocated."""
        if capacity is not None and capacity > self.capacity:
            self.static_cache = self._allocate(capacity)
        self.static_cache.wipe()
        self.cache.keep(0, ())

    def forward(self, tokens: NDArray[np.int32], positions: NDArray[np.int32], mask: BoolMatrix) -> torch.Tensor:
        """Append rows and return hidden states or logits, [rows, width]; valid until the next pass.

        Args as those of `TreeModel.forward`.
        """
        inputs = self._fill(tokens, positions, mask)
        if inputs is None:
            return super().forward(tokens, positions, mask)
        end = self.cache.length + len(tokens)
        made = self._pass(inputs)
        self.static_cache.set_length(end)
        return made[: len(tokens)]

    @property
    def _slots(self) -> int:
        return self.static_cache.capacity

    def _allocate(self, capacity: int) -> StaticTreeCache:
        self.capacity = bucket = capacity_bucket(capacity)
        self._inputs.clear()
        # Dead rows need places of their own, behind the longest text.
        made = StaticTreeCache(self.num_layers, bucket + self.row_buckets[-1] + self._tail_slack)
        self.cache = made
        return made

    def _pass(self, inputs: StaticInputs) -> torch.Tensor:
        """Run what `inputs` say: [rows, width], dead rows included."""
        return self.run_static(inputs)

    @torch.inference_mode()
    def run_static(self, inputs: StaticInputs) -> torch.Tensor:
        """The forward pass itself, without a decision that depends on a number: [rows, width]."""
        attention = {}
        if inputs.tail:
            hidden = torch.arange(self._slots, device=self.device) >= inputs.num_shared
            attention["key_split"] = KeySplit(self._slots, inputs.tail_slots, hidden)
        arguments = {self._cache_argument: self.static_cache, **attention}
        self.static_cache.write_at(inputs.part(2))
        try:
            out = self.model(
                input_ids=inputs.part(0)[None],
                attention_mask=inputs.mask,
                position_ids=inputs.part(1)[None],
                use_cache=True,
                **arguments,
            )
        finally:
            self.static_cache.write_at(None)
        logits = getattr(out, "logits", None)
        return (out.last_hidden_state if logits is None else logits)[0]  # type: ignore[no-any-return]

    def _inputs_of(self, rows: int) -> StaticInputs:
        made = self._inputs.get(rows)
        if made is None:
            tail = rows + self._tail_slack if self.kernel == SPLIT_ATTENTION else 0
            numbers = torch.zeros(3 * rows + tail + 1, dtype=torch.int64, device=self.device)
            mask = torch.zeros((1, 1, rows, tail or self._slots), dtype=torch.bool, device=self.device)
            made = self._inputs[rows] = StaticInputs(rows, tail, numbers, mask)
        return made

    @torch.inference_mode()
    def _fill(self, tokens: NDArray[np.int32], positions: NDArray[np.int32], mask: BoolMatrix) -> StaticInputs | None:
        """Lay a pass out for its bucket, in two copies to the device; None where it fits none."""
        count, length = len(tokens), self.cache.length
        rows = next((bucket for bucket in self.row_buckets if bucket >= count), 0)
        if not rows or not self.static_cache.static_layers[0].is_initialized:
            return None
        if length + rows > self._slots:
            raise ParameterError(f"tokens in a static cache must be at most {self.capacity}, got {length + count}")
        inputs = self._inputs_of(rows)
        first = 0  # slot of the mask's first column
        if inputs.tail:
            first = min(shared_keys(mask), length, self._slots - inputs.tail)
            if length - first > self._tail_slack:
                return None
        numbers = np.zeros(len(inputs.numbers), dtype=np.int64)
        numbers[:count] = tokens
        numbers[rows : rows + count] = positions
        numbers[2 * rows : 3 * rows] = np.arange(length, length + rows)
        numbers[3 * rows : -1] = np.arange(first, first + inputs.tail)
        numbers[-1] = first
        seen = np.zeros(inputs.mask.shape[2:], dtype=np.bool_)
        seen[:count, : length + count - first] = mask[:, first:]
        dead = np.arange(count, rows)
        seen[dead, length + dead - first] = True  # so that their softmax is defined; nobody reads them
        host.fill(inputs.numbers, numbers)
        host.fill(inputs.mask, seen[None, None])
        return inputs
