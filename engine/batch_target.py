"""The target, live, for several requests: one forward pass a round over all roots and trees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from transformers import PreTrainedModel

from treewise.engine.draft_model import decoder_layers, decoder_of
from treewise.engine.live_target import verify_rows
from treewise.engine.pass_timer import PassTimer
from treewise.engine.passes import EAGER, slot_model_of
from treewise.engine.slot_rows import SlotRows
from treewise.policy.hook import Int32Array
from treewise.policy.round import RoundTree


class BatchTarget:
    """Verifies the trees of several requests. Between rounds each slot holds its committed tokens before the root."""

    def __init__(
        self,
        model: PreTrainedModel,
        num_slots: int,
        passes: str = EAGER,
        slot_buckets: Sequence[int] = (),
        row_buckets: Sequence[int] = (),
    ) -> None:
        """`passes`: how they are run, see `treewise.engine.passes`; the buckets: what static ones are padded to."""
        self._decoder = decoder_of(model)
        layers = len(decoder_layers(self._decoder))
        self.model = slot_model_of(passes, model, layers, num_slots, slot_buckets=slot_buckets, row_buckets=row_buckets)
        self._timer = PassTimer(self.model.device)
        self.num_passes = 0
        self._first: list[int] = []  # [requests] the first row of each in the last pass
        self.places: Int32Array = np.zeros(0, dtype=np.int32)  # [forest rows] row of the last pass, -1: it did not run

    @property
    def verify_seconds(self) -> float:
        """Of all passes so far."""
        return self._timer.seconds

    def begin(self, slot: int, prompt: Sequence[int], capacity: int) -> None:
        """Prefill every prompt token but the last, which is the first root.

        `capacity`: tokens of its text when it is over, and of the trees behind it.
        """
        self.model.reserve(capacity)
        self.model.prefill(slot, prompt[:-1], self._decoder)

    def verify(
        self, tree: RoundTree, slots: Sequence[int], roots: Int32Array, positions: Int32Array, padded_rows: int
    ) -> torch.Tensor:
        """Logits [pass rows, vocabulary] of roots and kept rows, then of dead ones; `places` says where each is.

        Args:
            slots: [requests] of the cache, in any order.
            roots, positions: [requests] last committed tokens and their absolute positions.
            padded_rows: rows to run, dead ones included.
        """
        self._timer.start()
        kept = np.flatnonzero(tree.kept)
        owner = tree.forest.column("request")[kept]
        counts = np.bincount(owner, minlength=len(slots))
        by_slot = np.argsort(slots)
        before = np.zeros(len(slots), dtype=np.int64)
        before[by_slot] = np.cumsum(counts[by_slot]) - counts[by_slot]
        self._first = before.tolist()
        parts: dict[int, SlotRows] = {}
        self.places = np.full(tree.forest.num_rows, -1, dtype=np.int32)
        for request, (slot, root, position) in enumerate(zip(slots, roots.tolist(), positions.tolist(), strict=True)):
            rows = kept[owner == request]
            tokens, depths, mask = verify_rows(tree, rows, root, position, 0)
            parts[slot] = SlotRows(tokens, (position + depths).astype(np.int32), mask, position)
            self.places[rows] = self._first[request] + np.arange(len(rows))
        logits = self.model.forward(parts, padded_rows)
        self.num_passes += 1
        self._timer.stop()
        return logits

    def commit(self, slots: Sequence[int], positions: Int32Array, paths: Sequence[Sequence[int]]) -> None:
        """Keep the roots and the accepted paths (forest rows, root first); everything else of the trees goes."""
        kept = [
            (slot, position, [position + int(self.places[row]) - first for row in path])
            for slot, position, first, path in zip(slots, positions.tolist(), self._first, paths, strict=True)
        ]
        self.model.cache.keep(kept, self.model.device)

    def forget(self) -> None:
        """Forget every request: what a pass that failed has written would reach those that come."""
        self.model.cache.wipe()

    def take_over(self, slot: int, other: int, length: int) -> None:
        """Move the request of the slot `other`, of `length` committed tokens before the root, to `slot`."""
        self.model.cache.take_over(slot, other, length)
