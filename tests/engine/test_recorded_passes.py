"""CUDA graphs in pools of memory, by rules of torch's that a stand-in keeps: a pool lives as long as its graphs."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
import torch

from treewise.engine.recorded_passes import WARM_UPS, GraphRecorder, Recording


class Graph:
    """Stands for `torch.cuda.CUDAGraph`."""

    def replay(self) -> None:
        """Nothing is run."""


class Stream:
    """Stands for `torch.cuda.Stream`."""

    def wait_stream(self, other: Stream) -> None:
        """Nothing is awaited."""


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> dict[int, weakref.WeakSet[Graph]]:
    """The graphs of each pool that was handed out, as torch counts them."""
    found: dict[int, weakref.WeakSet[Graph]] = {}

    @contextmanager
    def capture(graph: Graph, pool: int) -> Iterator[None]:
        if pool in found and not found[pool]:
            raise RuntimeError("it->second->use_count > 0 INTERNAL ASSERT FAILED")
        found.setdefault(pool, weakref.WeakSet())
        yield
        found[pool].add(graph)

    handles = iter(range(100))
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: next(handles))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    for name in ("device", "stream"):
        monkeypatch.setattr(torch.cuda, name, lambda which: nullcontext())
    return found


def test_recordings_share_one_pool_until_the_last_is_gone(pools: dict[int, weakref.WeakSet[Graph]]) -> None:
    recorder, runs = GraphRecorder(), []

    def run() -> torch.Tensor:
        runs.append(1)
        return torch.zeros(1)

    held: list[Recording] = [recorder(run), recorder(run)]
    assert len(runs) == 2 * (WARM_UPS + 1)
    assert {pool: len(graphs) for pool, graphs in pools.items()} == {0: 2}
    held.pop()
    held.append(recorder(run))
    assert {pool: len(graphs) for pool, graphs in pools.items()} == {0: 2}
    held.clear()  # the buffers grow
    held.append(recorder(run))
    assert {pool: len(graphs) for pool, graphs in pools.items()} == {0: 0, 1: 1}


def test_a_recording_that_breaks_off_leaves_its_pool_to_those_before(pools: dict[int, weakref.WeakSet[Graph]]) -> None:
    recorder, asked = GraphRecorder(), iter([True] * (2 * WARM_UPS + 1))

    def run() -> torch.Tensor:
        if next(asked, None) is None:
            raise RuntimeError("operation not permitted when stream is capturing")
        return torch.zeros(1)

    held = [recorder(run)]
    with pytest.raises(RuntimeError, match="not permitted"):
        recorder(run)
    held.append(recorder(lambda: torch.zeros(1)))
    assert {pool: len(graphs) for pool, graphs in pools.items()} == {0: 1, 1: 1}
