"""What the target ranked high behind one context, blended over the context's last one, two and three tokens.

Orders are blended like an interpolated language model: with weight w behind the longer context and p from the shorter
ones, (w q + p) / (w + 1) (Witten and Bell, "The zero-frequency problem", 1991, with one novel event a context).
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ORDERS = 3  # last tokens of the longest context
MAX_RECYCLED = 16
BITS = 21  # of one token in a packed context: three fit in 63
LAST = tuple((1 << BITS * order) - 1 for order in range(ORDERS + 1))  # masks that leave so many last tokens

Entry = tuple[float, Mapping[int, float]]  # occurrences, probability by token


@dataclass(frozen=True, slots=True)
class Recycled:
    """What is remembered behind one node, most probable first (ties: low ids first)."""

    order: int  # tokens of the longest known context; 0: nothing is known
    weight: float  # occurrences behind it, each of the request's own counted several times
    tokens: Sequence[int]
    probs: Sequence[float]  # the target's at temperature 1, blended over contexts, float32-rounded


NOTHING = Recycled(0, 0.0, (), ())


def pack(context: Sequence[int]) -> int:
    """One number for a context of one to `ORDERS` tokens; contexts of different lengths differ."""
    packed = 0
    for token in context:
        packed = (packed << BITS) | (token + 1)
    return packed


class Blend:
    """The distribution behind one context, blended over its orders; ranked when it is asked for."""

    __slots__ = ("_answer", "order", "probs", "weight")

    def __init__(self, order: int, weight: float, probs: Mapping[int, float]) -> None:
        self.order = order
        self.weight = weight
        self.probs = probs
        self._answer: Recycled | None = None if probs else NOTHING

    def behind(self, order: int, entry: Entry | None) -> Blend:
        """Blended with what is known behind `order` tokens, one more than here."""
        if entry is None:
            return self
        weight, here = entry
        # Below the shortest known context there is nothing to leave room for.
        keep = 1.0 / (weight + 1.0) if self.probs else 0.0
        gain = 1.0 - keep
        probs = {token: prob * keep for token, prob in self.probs.items()}
        for token, prob in here.items():
            probs[token] = probs.get(token, 0.0) + prob * gain
        return Blend(order, weight, probs)

    @property
    def answer(self) -> Recycled:
        """The `MAX_RECYCLED` most probable tokens."""
        if self._answer is None:
            probs = self.probs
            best = sorted(probs, key=probs.__getitem__, reverse=True)
            values = [probs[token] for token in best[: MAX_RECYCLED + 1]]
            if len(set(values)) < len(values):  # a tie: low ids first, at the price of slower comparisons
                best.sort(key=lambda token: (-probs[token], token))
                values = [probs[token] for token in best[:MAX_RECYCLED]]
            rounded = array("f", values[:MAX_RECYCLED])
            self._answer = Recycled(self.order, self.weight, tuple(best[:MAX_RECYCLED]), tuple(rounded))
        return self._answer


NO_BLEND = Blend(0, 0.0, {})
