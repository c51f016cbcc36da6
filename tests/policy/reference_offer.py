"""Candidate rows on their way into the reference builder's forest."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from treewise.data.suffix import Continuations


@dataclass(frozen=True, slots=True)
class Offer:
    """Rows that were collected but not written yet; lists of one length, in the units of `Nodes`."""

    request: list[int]
    parent: list[int]
    depth: list[int]
    token: list[int]
    sources: list[int]
    prior: list[float]
    path_prior: list[float]
    match_length: list[float]
    count: list[float]
    share: list[float]
    age: list[float]
    rank: list[float]

    @classmethod
    def empty(cls) -> Offer:
        """No rows."""
        return cls(*([] for _ in fields(cls)))


def lookup_signals(known: Continuations, token: int) -> tuple[float, float, float, float, float]:
    """(match length, count, share, age, rank) of `token` below a node; age and rank are NaN where it is unknown."""
    if token in known.tokens:
        rank = list(known.tokens).index(token)
        return known.match_length, known.counts[rank], known.shares[rank], known.ages[rank], rank
    return known.match_length, 0.0, 0.0, np.nan, np.nan
