"""The draft model, live, for several requests: one forward pass a growth for all that grow."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from treewise.engine.draft_head import DraftHead, Voice
from treewise.engine.draft_model import DraftModel
from treewise.engine.drafted_text import DraftedText, DraftRows, pick
from treewise.engine.passes import EAGER, TAIL_SLACK, slot_model_of
from treewise.engine.sampling import Sampling
from treewise.policy.hook import BoolArray, DraftGuesses, Int32Array, Nodes


@dataclass(slots=True)
class DraftSlot:
    """One request's place in the draft's cache."""

    slot: int
    text: DraftedText
    voice: Voice


class BatchDraft:
    """The draft source of a round of several requests; `open` says which.

    Each slot of its cache holds committed tokens, and within a round the rows that were drafted; it may lag.
    """

    def __init__(
        self,
        draft: DraftModel,
        vocab_size: int,
        width: int,
        num_slots: int,
        passes: str = EAGER,
        slot_buckets: Sequence[int] = (),
        row_buckets: Sequence[int] = (),
    ) -> None:
        """`passes`: how they are run, see `treewise.engine.passes`; the buckets: what static ones are padded to."""
        self.head = DraftHead(draft, vocab_size, width)
        self.model = slot_model_of(
            passes,
            draft.model,
            draft.num_layers,
            num_slots,
            slot_buckets=slot_buckets,
            row_buckets=row_buckets,
            tail_slack=TAIL_SLACK,
        )
        self.draft_seconds = 0.0
        self.num_growths = 0
        self.num_unhealthy = 0  # nodes whose logits were not finite
        self.growths: list[list[int]] = []  # of this round: tokens that each growth ran for each request, [requests]
        self._flight: Sequence[DraftSlot] = ()

    def begin(self, slot: int, prompt: Sequence[int], capacity: int, sampling: Sampling, ranking: str) -> DraftSlot:
        """Run every prompt token but the last, as replay assumes whatever the policy.

        `capacity`: tokens of its text when it is over, and of the trees behind it.
        """
        self.model.reserve(capacity)
        self.model.prefill(slot, prompt[:-1])
        return DraftSlot(slot, DraftedText(prompt, len(prompt) - 1), Voice(sampling, ranking))

    def open(self, flight: Sequence[DraftSlot]) -> None:
        """Begin a round of the requests `flight`, in the order of the forest's roots; they hold the first slots."""
        self._flight = flight
        self.growths = []

    def in_vocab(self, tokens: Int32Array) -> BoolArray:
        """Which of `tokens` [n] the draft's head can say."""
        return self.head.in_vocab(tokens)

    def grow(self, nodes: Nodes, rows: Int32Array, extra_rows: Int32Array, extra_tokens: Int32Array) -> DraftGuesses:
        """Run forest `rows` (parents first), and before them the committed tokens that their slots lack."""
        began = time.perf_counter()
        owner = nodes.request[rows]
        at = np.zeros(len(rows), dtype=np.int32)  # places of `rows` among all that run
        counts, done = [0] * len(self._flight), 0
        parts: dict[int, DraftRows] = {}
        growing: list[DraftSlot] = []
        # the pass runs slot by slot
        for request, own in sorted(enumerate(self._flight), key=lambda item: item[1].slot):
            mine = np.flatnonzero(owner == request)
            if mine.size:
                part = parts[own.slot] = own.text.plan(nodes, rows[mine])
                at[mine] = done + part.num_late + np.arange(len(mine))
                counts[request] = len(part)
                done += len(part)
                growing.append(own)
        hidden = self.model.forward(parts)[:done]  # without dead rows
        below = np.concatenate([part.positions for part in parts.values()]) + 1
        voices = [(own.voice, len(parts[own.slot])) for own in growing]
        said = self.head.read(hidden, below.astype(np.int32), at[extra_rows], extra_tokens, voices)
        tokens, done = said.tokens[:, 0].tolist(), 0
        for own in growing:
            part = parts[own.slot]
            own.text.note(part, tokens[done : done + len(part)])
            done += len(part)
        self.growths.append(counts)
        self.num_growths += 1
        self.num_unhealthy += int(np.isnan(said.entropy).sum())
        self.draft_seconds += time.perf_counter() - began
        return pick(said, at)

    def commit(self, paths: Sequence[Sequence[int]], committed: Sequence[Sequence[int]]) -> None:
        """Keep the drafted parts of the round's paths (forest rows, root first); each text grows by `committed`."""
        kept = [
            (own.slot, *own.text.commit(path, tokens))
            for own, path, tokens in zip(self._flight, paths, committed, strict=True)
        ]
        self.model.cache.keep(kept, self.model.device)

    def forget(self) -> None:
        """Forget every request: what a pass that failed has written would reach those that come."""
        self.model.cache.wipe()

    def take_over(self, slot: int, other: DraftSlot) -> None:
        """Move the request `other` to `slot`."""
        self.model.cache.take_over(slot, other.slot, other.text.seen)
        other.slot = slot
