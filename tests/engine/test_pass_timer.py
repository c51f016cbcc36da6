"""A timer of passes that does not wait between a pass and what is launched behind it."""

from __future__ import annotations

import time

import pytest
import torch

from treewise.engine.pass_timer import PassTimer


def test_on_a_cpu_it_is_a_clock() -> None:
    timer = PassTimer(torch.device("cpu"))
    for _ in range(2):
        timer.start()
        time.sleep(0.01)
        timer.stop()
    assert 0.02 <= timer.seconds < 1.0
    timer.reset()
    assert timer.seconds == 0.0


def test_on_a_gpu_it_waits_only_when_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []

    class Event:
        made = 0

        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing
            self.number, Event.made = Event.made, Event.made + 1

        def record(self, stream: object) -> None:
            assert stream == "the device's"

        def synchronize(self) -> None:
            waited.append(self.number)

        def elapsed_time(self, other: Event) -> float:
            return 500.0 * (other.number - self.number)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "the device's")
    timer = PassTimer(torch.device("cuda"))
    for _ in range(2):
        timer.start()
        timer.stop()
    assert waited == []
    assert timer.seconds == timer.seconds == 1.0 and waited == [1, 3]
