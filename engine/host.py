"""The one door between the host and the device: what is read together crosses together."""

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


def staged(values: NDArray[Any]) -> torch.Tensor:
    """`values` where a device can fetch them by itself: in memory of their own that stays where it is.

    Where there is no such device they are handed on as they are, and may not be written to.
    """
    made = torch.from_numpy(np.ascontiguousarray(values))
    return made.pin_memory() if torch.cuda.is_available() else made


def to_device(values: NDArray[Any], device: torch.device) -> torch.Tensor:
    """`values` on `device`, of the same shape and dtype; on a GPU without waiting for what it is doing.

    A plain copy from the host waits until the device has caught up, as a copy to it does. torch keeps the memory that
    this one is fetched from until it is over.
    """
    if device.type == "cpu":
        return torch.from_numpy(np.ascontiguousarray(values))
    return staged(values).to(device, non_blocking=True)


def fill(held: torch.Tensor, values: NDArray[Any]) -> None:
    """Write `values` into `held`, a tensor of the same shape that stays where it is; waits as `to_device` does."""
    held.copy_(torch.from_numpy(values) if held.device.type == "cpu" else staged(values), non_blocking=True)


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
