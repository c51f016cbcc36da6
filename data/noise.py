"""Stateless Gumbel noise: a pure function of seed, position and token, equal in numpy and torch bit for bit.

The 64-bit seed's halves, the position and the token are mixed into a 32-bit word one after the other, with a full
finaliser after each, so that neighbouring seeds, positions or tokens share nothing. The word h gives the uniform
u = (h + 0.5) / 2^32 in the open interval, the noise is -log(-log u) in float64, rounded once to float32.

The finaliser is two rounds of "xor with a right shift, multiply by an odd constant" and a last xor; each step can be
inverted, so different words never meet. All words are kept in 64-bit integers and masked to 32 bits after each
multiplication: a 64-bit product that wraps around keeps its low 32 bits right, signed or not, and that is what lets
torch, which has no unsigned arithmetic, do the same in int64. Right shifts only meet masked, non-negative words.

`best_perturbed` finds the tokens of the highest score plus noise without a logarithm for each of them: 32-bit words and
an upper bound of their noise, read off the bits of a float, leave a handful of tokens for the formula itself.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.errors import require

MASK = 0xFFFFFFFF
START = 0x9E3779B9  # the word before anything is mixed in: 2^32 over the golden ratio
FIRST_FACTOR = 0x7FEB352D  # odd factors and shifts of the finaliser: C. Wellons, "Prospecting for hash functions"
SECOND_FACTOR = 0x846CA68B
FIRST_SHIFT, SECOND_SHIFT, THIRD_SHIFT = 16, 15, 16
DIRECT_TOKENS = 512  # up to here the formula itself is as fast

LOG_2 = math.log(2.0)
# Float32 rounding of the bound is below 3e-5 (its terms are below 110); the rest is reserve.
BOUND_SLACK = 1e-4


def gumbel(seed: int, position: int, tokens: NDArray[Any]) -> NDArray[np.float32]:
    """Standard Gumbel noise of `tokens` (integer ids >= 0, any shape) at absolute `position`; float32, same shape."""
    ids = np.asarray(tokens)
    require(ids.dtype.kind in "iu", "tokens", "an integer array", ids.dtype.name)
    words = mix_steps(opening_word(seed, position), steps_of(ids.reshape(-1))).reshape(ids.shape)
    uniform = (words.astype(np.float64) + 0.5) * 2.0**-32
    noise: NDArray[np.float32] = (-np.log(-np.log(uniform))).astype(np.float32)
    return noise


def best_perturbed(
    scores: NDArray[np.float32], seed: int, position: int, count: int = 1, tokens: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Places [count] of the highest float32(score + noise), falling, and those sums [count]; ties: lowest place first.

    What the formula over all of them would give, bit for bit; fewer than `count` where `scores` [n] is shorter.

    Args:
        scores: without NaN; minus infinity is allowed.
        tokens: [n] ids of the scores; None: 0 .. n - 1.
    """
    count = min(count, len(scores))
    if len(scores) <= max(DIRECT_TOKENS, count):
        few = np.arange(len(scores), dtype=np.int64)
    else:
        word = opening_word(seed, position)
        bound = noise_bound(_vocabulary_steps(len(scores)) if tokens is None else steps_of(tokens), word)
        bound += scores  # rounding is monotone, so this is an upper bound of the rounded sum as well
        # The best by bound are nearly the best; whatever is bounded below the worst of them is out.
        first = np.asarray([bound.argmax()]) if count == 1 else np.argpartition(bound, -count)[-count:]
        few = np.flatnonzero(bound >= _perturbed(scores, first, seed, position, tokens).min())
    sums = _perturbed(scores, few, seed, position, tokens)
    best = np.argsort(-sums, kind="stable")[:count]
    return few[best], sums[best]


def _perturbed(
    scores: NDArray[np.float32], places: NDArray[np.int64], seed: int, position: int, tokens: NDArray[np.int64] | None
) -> NDArray[np.float32]:
    ids = places if tokens is None else tokens[places]
    return scores[places] + gumbel(seed, position, ids)


def noise_bound(steps: NDArray[np.uint32], word: int) -> NDArray[np.float32]:
    """An upper bound [n] of the noise behind opening `word`, less than 0.1 above it where the noise is above 3.

    With c = 2^32 - 1 - h, -log(-log u) <= -log(1 - u) = 32 log 2 - log(c + 0.5), and the bits of a float32 read as an
    integer are a lower bound of its logarithm, linear between powers of two.

    Args:
        steps: [n] tokens times `START`, modulo 2^32.
    """
    value = mix_steps(word, steps)
    np.invert(value, out=value)
    value >>= np.uint32(1)  # c / 2, which fits a signed integer
    half = value.view(np.int32).astype(np.float32)
    bound = half.view(np.int32).astype(np.float32)  # (log2(c / 2) + 127) x 2^23, or less
    bound *= np.float32(-LOG_2 * 2.0**-23)
    bound += np.float32(LOG_2 * (31 + 127) + BOUND_SLACK)
    return bound


def mix_steps(word: int, steps: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """What `mix` makes of opening `word` and the tokens behind `steps`, in 32-bit arithmetic, which wraps by itself."""
    value = steps + np.uint32(word)
    value ^= np.uint32(FIRST_FACTOR)
    scratch = value >> np.uint32(FIRST_SHIFT)
    value ^= scratch
    value *= np.uint32(FIRST_FACTOR)
    np.right_shift(value, np.uint32(SECOND_SHIFT), out=scratch)
    value ^= scratch
    value *= np.uint32(SECOND_FACTOR)
    np.right_shift(value, np.uint32(THIRD_SHIFT), out=scratch)
    value ^= scratch
    return value


@lru_cache(maxsize=4)
def _vocabulary_steps(count: int) -> NDArray[np.uint32]:
    """`steps_of` of the tokens 0 .. count - 1; a vocabulary's are used at every position."""
    steps = steps_of(np.arange(count, dtype=np.int64))
    steps.flags.writeable = False
    return steps


def steps_of(tokens: NDArray[Any]) -> NDArray[np.uint32]:
    """Tokens times `START`, modulo 2^32: the part of the mix that no position changes; same shape."""
    return tokens.astype(np.uint32) * np.uint32(START)


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
