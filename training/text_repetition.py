"""How much a text repeats itself: small models loop, and guesses from the text itself then win by little merit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from treewise.data.errors import require
from treewise.policy.hook import BoolArray
from treewise.training.logged import LoggedRequest

NGRAM_TOKENS = 8
SUBSETS: dict[str, float] = {"all": 1.0, "non-degenerate": 0.5, "strict": 0.1}  # most repeated n-grams, as a share


def repeated_share(tokens: Sequence[int], length: int = NGRAM_TOKENS) -> float:
    """Share of the n-grams of `length` tokens that occurred before in `tokens`; 0 where there is none.

    Raises `ParameterError` on a length below 1.
    """
    require(length >= 1, "length", ">= 1", length)
    seen: set[tuple[int, ...]] = set()
    text = tuple(tokens)
    count = len(text) - length + 1
    for start in range(count):
        seen.add(text[start : start + length])
    return 1.0 - len(seen) / count if count > 0 else 0.0


def repeated_shares(requests: Sequence[LoggedRequest]) -> NDArray[np.float64]:
    """`repeated_share` of each request's continuation, [requests]; NaN where the log left its tokens out."""
    shares = [repeated_share(r.text.tolist()) if r.tokens_included else np.nan for r in requests]
    return np.asarray(shares, dtype=np.float64)


def within(shares: NDArray[np.float64], subset: str) -> BoolArray:
    """Which continuations are of the subset, [requests]. Raises `ParameterError` on another name."""
    require(subset in SUBSETS, "subset", f"one of {', '.join(SUBSETS)}", subset)
    if SUBSETS[subset] == 1.0:
        return np.ones(len(shares), dtype=np.bool_)
    return np.asarray(shares <= SUBSETS[subset])  # unknown: in none
