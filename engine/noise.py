"""The torch twin of `treewise.data.noise`: the same Gumbel noise, bit for bit, on the device of the tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from treewise.data.errors import require
from treewise.data.noise import (
    FIRST_FACTOR,
    FIRST_SHIFT,
    MASK,
    SECOND_FACTOR,
    SECOND_SHIFT,
    START,
    THIRD_SHIFT,
    mix_steps,
    opening_word,
    steps_of,
)
from treewise.engine import host


def gumbel(seed: int, position: int, tokens: Tensor) -> Tensor:
    """Standard Gumbel noise of `tokens` (int64 ids >= 0, any shape) at absolute `position`; float32, same shape."""
    require(tokens.dtype == torch.int64, "tokens", "an int64 tensor", tokens.dtype)
    word = opening_word(seed, position)
    if tokens.device.type == "cpu":  # numpy has unsigned 32-bit arithmetic, which is several times as fast
        flat = mix_steps(word, steps_of(tokens.numpy().reshape(-1)))
        words = torch.from_numpy(flat.astype(np.float64)).reshape(tokens.shape)
    else:
        words = _mix(word, tokens).to(torch.float64)
    uniform = words.add_(0.5).mul_(2.0**-32)
    return uniform.log_().neg_().log_().neg_().to(torch.float32)


def gumbel_rows(places: Sequence[tuple[int, int]], tokens: Tensor) -> Tensor:
    """`gumbel` of `tokens` [n] at each of `places` (seed, position): [places, n] float32, in one go on their device."""
    require(tokens.dtype == torch.int64 and tokens.ndim == 1, "tokens", "an int64 vector", tokens.dtype)
    opened = np.asarray([opening_word(seed, position) for seed, position in places], dtype=np.int64)
    words = host.to_device(opened, tokens.device)
    uniform = _mix(words[:, None], tokens).to(torch.float64).add_(0.5).mul_(2.0**-32)
    return uniform.log_().neg_().log_().neg_().to(torch.float32)


def _mix(word: int | Tensor, parts: Tensor) -> Tensor:
    """`parts` mixed into `word`; 32-bit values in int64, whose products wrap around with their low 32 bits right."""
    value = ((word + parts * START) & MASK) ^ FIRST_FACTOR
    value = value ^ (value >> FIRST_SHIFT)
    value = (value * FIRST_FACTOR) & MASK
    value = value ^ (value >> SECOND_SHIFT)
    value = (value * SECOND_FACTOR) & MASK
    return value ^ (value >> THIRD_SHIFT)
