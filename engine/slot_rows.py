"""Rows of several requests in one pass: what its shape is, and the tensors that it reads.

Rows of all requests are one sequence to every part of a model but attention: there they are laid out by request, each
over its own slot of the cache. Every row of a request sees the committed tokens of its slot; the mask is about the few
places behind those, so that what goes to the device does not grow with the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from treewise.engine import host
from treewise.engine.split_attention import shared_keys
from treewise.engine.tree_model import BoolMatrix


@dataclass(frozen=True, slots=True)
class SlotRows:
    """One slot's part of a pass."""

    tokens: NDArray[np.int32]  # [rows]
    positions: NDArray[np.int32]  # [rows] absolute
    mask: BoolMatrix  # [rows, start + rows] the places that each sees
    start: int  # places written before

    def __len__(self) -> int:
        return len(self.tokens)


Parts = Mapping[int, SlotRows]  # slot -> its rows


@dataclass(frozen=True, slots=True)
class SlotShape:
    """Everything that the sizes of a pass's tensors depend on."""

    first: int  # slot
    slots: int  # in attention, from `first` on
    rows: int  # of all slots together, dead ones included
    most: int  # of one slot
    tail: int  # places of each slot that the mask is about
    width: int  # places of each slot that are seen at all

    def __str__(self) -> str:
        return f"{self.rows} rows, {self.most} of a request at most, {self.slots} requests"

    @classmethod
    def of(cls, parts: Parts, padded_rows: int = 0) -> SlotShape:
        """Just what `parts` need, with at least `padded_rows` rows."""
        first, counts = min(parts), [len(part.tokens) for part in parts.values()]
        ends = [part.start + count for part, count in zip(parts.values(), counts, strict=True)]
        return cls(
            first=first,
            slots=max(parts) - first + 1,
            rows=max(sum(counts), padded_rows),
            most=max(counts),
            tail=max(end - first_masked(part) for end, part in zip(ends, parts.values(), strict=True)),
            width=max(ends),
        )


def first_masked(part: SlotRows) -> int:
    """The place from which on not every row of `part` sees every place."""
    return min(shared_keys(part.mask), part.start)


def shapes_of(
    slot_buckets: Sequence[int], row_buckets: Sequence[int], most_buckets: Sequence[int], slack: int, width: int
) -> Iterator[SlotShape]:
    """Every shape of these buckets that a pass can need, for each count of slots the smallest first.

    A pass over some count of slots is at least one row for each slot above the next smaller count, and a shape whose
    rows would also fit a smaller one is left out. `slack`: places of the mask beyond the rows of the pass.
    """
    fewer = 0
    for slots in slot_buckets:
        below = max((rows for rows in row_buckets if rows <= fewer), default=0)
        for rows in (rows for rows in row_buckets if rows > fewer):
            less = 0
            for most in most_buckets:
                if below < slots * most and less < rows:
                    yield SlotShape(0, slots, rows, most, min(most + slack, width), width)
                less = most
            below = rows
            if rows >= slots * most_buckets[-1]:
                break
        fewer = slots


@dataclass(frozen=True, slots=True, eq=False)
class SlotInputs:
    """What a pass of one shape reads: tensors that stay where they are and can be filled again."""

    shape: SlotShape
    numbers: torch.Tensor  # [5 * rows + slots * (most + 1)] int64, see the properties
    mask: torch.Tensor  # [slots, most, tail] bool: which tail places a row sees

    @classmethod
    def empty(cls, shape: SlotShape, device: torch.device) -> SlotInputs:
        """Tensors of that shape."""
        numbers = torch.zeros(5 * shape.rows + shape.slots * (shape.most + 1), dtype=torch.int64, device=device)
        mask = torch.zeros((shape.slots, shape.most, shape.tail), dtype=torch.bool, device=device)
        return cls(shape, numbers, mask)

    def _part(self, place: int) -> torch.Tensor:
        return self.numbers[place * self.shape.rows : (place + 1) * self.shape.rows]

    @property
    def tokens(self) -> torch.Tensor:
        """[rows], a view like all others."""
        return self._part(0)

    @property
    def positions(self) -> torch.Tensor:
        """[rows] absolute."""
        return self._part(1)

    @property
    def slots(self) -> torch.Tensor:
        """[rows] the slot of each row, counted from the shape's first."""
        return self._part(2)

    @property
    def places(self) -> torch.Tensor:
        """[rows] where each row's keys and values are written."""
        return self._part(3)

    @property
    def seats(self) -> torch.Tensor:
        """[rows] each row's place in the layout of attention, [slots * most]."""
        return self._part(4)

    @property
    def sitters(self) -> torch.Tensor:
        """[slots * most] the row in each seat; where nobody sits, any."""
        return self.numbers[5 * self.shape.rows : -self.shape.slots]

    @property
    def firsts(self) -> torch.Tensor:
        """[slots, 1] the first tail place; every row of the slot sees all before it."""
        return self.numbers[-self.shape.slots :][:, None]

    def tail_places(self) -> torch.Tensor:
        """[slots, tail] the places that the mask is about."""
        return self.firsts + torch.arange(self.shape.tail, device=self.numbers.device)

    def shared(self) -> torch.Tensor:
        """[slots, width] bool: the places that every row of a slot sees."""
        return torch.arange(self.shape.width, device=self.numbers.device) < self.firsts

    def whole_mask(self) -> torch.Tensor:
        """[slots, 1, most, width] bool: all places that a row sees."""
        shape = self.shape
        whole = self.shared()[:, None].expand(-1, shape.most, -1).clone()
        places = self.tail_places()[:, None].expand(-1, shape.most, -1)
        return whole.scatter_(2, places, self.mask)[:, None]

    @torch.inference_mode()
    def fill(self, parts: Parts, nowhere: int) -> None:
        """Lay `parts` out, slot by slot, in two copies to the device; dead rows follow, and write to place `nowhere`.

        The parts must fit the shape.
        """
        shape = self.shape
        order = sorted(parts)
        counts = [len(parts[slot].tokens) for slot in order]
        total = sum(counts)
        assert total <= shape.rows and max(counts) <= shape.most
        numbers = np.zeros(len(self.numbers), dtype=np.int64)
        tokens, positions, slots, places, seats = numbers[: 5 * shape.rows].reshape(5, shape.rows)
        sitters, firsts = numbers[5 * shape.rows : -shape.slots], numbers[-shape.slots :]
        mask = np.zeros((shape.slots, shape.most, shape.tail), dtype=np.bool_)
        mask[:, :, 0] = True  # where nobody sits, something is seen, so that the softmax is defined
        done = 0
        for slot, count in zip(order, counts, strict=True):
            part, own = parts[slot], slot - shape.first
            rows = slice(done, done + count)
            done += count
            first = min(first_masked(part), shape.width - shape.tail)
            seen = part.mask[:, first:]
            tokens[rows], positions[rows] = part.tokens, part.positions
            slots[rows], firsts[own] = own, first
            places[rows] = np.arange(part.start, part.start + count)
            seats[rows] = np.arange(own * shape.most, own * shape.most + count)
            mask[own, :count, : seen.shape[1]] = seen
            mask[own, :count, seen.shape[1] :] = False
        sitters[seats[:total]] = np.arange(total)
        places[total:] = nowhere
        host.fill(self.numbers, numbers)
        host.fill(self.mask, mask)
