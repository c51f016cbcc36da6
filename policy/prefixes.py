"""Best-first rows of every request of a round as one table, and how many of each request's first ones pay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treewise.policy.hook import Float32Array

IndexArray = NDArray[np.intp]
Float64Array = NDArray[np.float64]
_MOST_SHORT = 1 << 16  # numbers that 16 bits hold, which numpy sorts in one pass over each byte
# Rows up to which two stable sorts take less than one integer's making, and the bits that one has for a row's number.
_SORTED_ALONE, _ROW_BITS = 512, 20


@dataclass(frozen=True, slots=True)
class Ranked:
    """Rows request by request, those of most worth first; ties as they were."""

    rows: IndexArray  # [n] forest rows
    owner: NDArray[np.integer]  # [n] the request of each, ascending
    place: IndexArray  # [n] of each within its request
    counts: IndexArray  # [requests]

    @classmethod
    def of(
        cls, rows: IndexArray, worth: Float64Array | Float32Array, request: NDArray[np.integer], requests: int
    ) -> Ranked:
        """Rank `rows`, ascending, by `worth` [all rows]; `request` [all rows] is below `requests`."""
        order = _order(worth[rows], request[rows], requests)
        rows = rows[order]
        owner = request[rows]
        counts = np.bincount(owner, minlength=requests)
        place = np.arange(len(rows)) - (counts.cumsum() - counts)[owner]
        return cls(rows, owner, place, counts)

    def first(self, most: int) -> Ranked:
        """The first `most` rows of each request."""
        inside = self.place < most
        return Ranked(self.rows[inside], self.owner[inside], self.place[inside], np.minimum(self.counts, most))

    def of_owners(self, owners: IndexArray) -> Ranked:
        """The same of `owners` only, ascending, numbered by their places; all others must have no rows."""
        return Ranked(self.rows, owners.searchsorted(self.owner), self.place, self.counts[owners])

    def table(self, values: Float64Array | Float32Array) -> Float64Array:
        """`values` [n] by request and place, [requests, most]; minus infinity where a request has no more rows."""
        table = np.full((len(self.counts), int(self.counts.max(initial=0))), -np.inf)
        table[self.owner, self.place] = values
        return table


def _order(worth: Float64Array | Float32Array, owner: NDArray[np.integer], requests: int) -> IndexArray:
    """Places by `owner`, by falling `worth`, by number."""
    count = len(worth)
    if not _SORTED_ALONE < count <= 1 << _ROW_BITS:
        best = (-worth).argsort(kind="stable")
        short = owner[best]
        return best[(short.astype(np.uint16) if requests <= _MOST_SHORT else short).argsort(kind="stable")]
    # Places of like worth share a step, and one integer says request, step and place: two unstable sorts, each faster.
    best = (-worth).argsort()
    falling = worth[best]
    step = np.zeros(count, dtype=np.int64)
    (falling[1:] != falling[:-1]).cumsum(out=step[1:])
    keys = (owner[best].astype(np.int64) << 2 * _ROW_BITS) + (step << _ROW_BITS) + best
    keys.sort()
    return keys & ((1 << _ROW_BITS) - 1)


def best_prefixes(gains: Float64Array, prefix_ms: Float64Array, tokens_per_ms: Float64Array) -> IndexArray:
    """`treewise.policy.budget.best_prefix` of every request at its own rate, [requests].

    `gains` [requests, n] are minus infinity behind a request's last row; `prefix_ms` is [requests, n + 1].
    """
    totals = np.zeros((len(gains), gains.shape[1] + 1))
    gains.cumsum(axis=1, out=totals[:, 1:])
    totals -= tokens_per_ms[:, None] * prefix_ms
    return np.asarray(totals.argmax(axis=1))
