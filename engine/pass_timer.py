"""Seconds that passes take, without waiting for the device between a pass and what is launched behind it."""

from __future__ import annotations

import time
from typing import Any

import torch


class PassTimer:
    """Sums the time from each `start` to when the device has done what was launched before the `stop` behind it.

    On a GPU the moments are noted by the device itself. `seconds` waits for the last of them, so it is read where the
    host has waited for the device anyway.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._on_gpu = device.type == "cuda"
        self._open: list[tuple[Any, Any]] = []  # events of passes that may still run
        self._began: Any = None
        self._seconds = 0.0

    def start(self) -> None:
        """A pass is about to be laid out and launched."""
        self._began = self._moment()

    def stop(self) -> None:
        """All of it is launched."""
        ended = self._moment()
        if self._on_gpu:
            self._open.append((self._began, ended))
        else:
            self._seconds += ended - self._began

    @property
    def seconds(self) -> float:
        """Of all passes so far."""
        for began, ended in self._open:
            ended.synchronize()
            self._seconds += began.elapsed_time(ended) / 1e3
        self._open.clear()
        return self._seconds

    def reset(self) -> None:
        """Forget what was timed."""
        self._open.clear()
        self._seconds = 0.0

    def _moment(self) -> Any:
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event
