"""Stateless Gumbel noise: a pure function of seed, position and token, equal in numpy and torch bit for bit.

The 64-bit seed's halves, the position and the token are mixed into a 32-bit word one after the other, with a full
finaliser after each, so that neighbouring seeds, positions or tokens share nothing. The word h gives the uniform
u = (h + 0.5) / 2^32 in the open interval, the noise is -log(-log u) in float64, rounded once to float32.

The finaliser is two rounds of "xor with a right shift, multiply by an odd constant" and a last xor; each step can be
inverted, so different words never meet. All words are kept in 64-bit integers and masked to 32 bits after each
multiplication: a 64-bit product that wraps around keeps its low 32 bits right, signed or not, and that is what lets
torch, which has no unsigned arithmetic, do the same in int64. Right shifts only meet masked, non-negative words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.errors import require

MASK = 0xFFFFFFFF
START = 0x9E3779B9  # the word before anything is mixed in: 2^32 over the golden ratio
FIRST_FACTOR = 0x7FEB352D  # odd factors and shifts of the finaliser: C. Wellons, "Prospecting for hash functions"
SECOND_FACTOR = 0x846CA68B
FIRST_SHIFT, SECOND_SHIFT, THIRD_SHIFT = 16, 15, 16


def gumbel(seed: int, position: int, tokens: NDArray[Any]) -> NDArray[np.float32]:
    """Standard Gumbel noise of `tokens` (integer ids >= 0, any shape) at absolute `position`; float32, same shape."""
    ids = np.asarray(tokens)
    require(ids.dtype.kind in "iu", "tokens", "an integer array", ids.dtype.name)
    words = mix(np.uint64(opening_word(seed, position)), ids.astype(np.uint64))
    uniform = (words.astype(np.float64) + 0.5) * 2.0**-32
    noise: NDArray[np.float32] = (-np.log(-np.log(uniform))).astype(np.float32)
    return noise


def opening_word(seed: int, position: int) -> int:
    """The 32-bit word of seed and position, that tokens are mixed into; the same for every library."""
    require(-(2**63) <= seed < 2**64, "seed", "a 64-bit integer", seed)
    require(0 <= position < 2**32, "position", "between 0 and 2^32 - 1", position)
    word = START
    for part in (seed & MASK, (seed >> 32) & MASK, position):
        word = _mix_one(word, part)
    return word


def mix(words: NDArray[np.uint64] | np.uint64, parts: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`parts` mixed into `words`, 32-bit values in uint64, elementwise."""
    mask = np.uint64(MASK)
    value = ((words + parts * np.uint64(START)) & mask) ^ np.uint64(FIRST_FACTOR)
    value ^= value >> np.uint64(FIRST_SHIFT)
    value = (value * np.uint64(FIRST_FACTOR)) & mask
    value ^= value >> np.uint64(SECOND_SHIFT)
    value = (value * np.uint64(SECOND_FACTOR)) & mask
    value ^= value >> np.uint64(THIRD_SHIFT)
    return np.asarray(value, dtype=np.uint64)


def _mix_one(word: int, part: int) -> int:
    """The same for two Python integers, without the cost of arrays."""
    value = ((word + part * START) & MASK) ^ FIRST_FACTOR
    value ^= value >> FIRST_SHIFT
    value = (value * FIRST_FACTOR) & MASK
    value ^= value >> SECOND_SHIFT
    value = (value * SECOND_FACTOR) & MASK
    return value ^ (value >> THIRD_SHIFT)
