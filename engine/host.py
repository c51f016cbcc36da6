"""The one door from the device to the host: what is read together crosses together."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


def to_host(values: torch.Tensor) -> NDArray[Any]:
    """`values` in numpy, of the same shape and dtype; a view where they are on the host already.

    Every copy waits until the device has caught up, so a decoding round affords one a level and one at its end. All
    modules of the live path read through this function, as `host.to_host`, so that a test can count.
    """
    return np.asarray(values.detach().cpu().numpy())


def read_together(*values: torch.Tensor) -> list[NDArray[np.float32]]:
    """Some tensors of one device in one copy, each as float32 of its own shape.

    Whole numbers stay exact up to 2^24, which every column of a model's head is below.
    """
    packed = to_host(torch.cat([value.reshape(-1).to(torch.float32) for value in values]))
    parts, first = [], 0
    for value in values:
        parts.append(packed[first : first + value.numel()].reshape(tuple(value.shape)))
        first += value.numel()
    return parts
