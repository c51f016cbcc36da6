"""Passes of static shape recorded as CUDA graphs, each checked against the eager pass before it is used.

A small pass of a large model is bound by launching its kernels from Python, not by running them; a graph is one launch.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

from treewise.data.errors import CaptureWarning

WARM_UPS = 3  # passes before a recording, in which kernels are chosen and workspaces allocated
# Largest difference to the eager pass, as a share of its largest number.
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 5e-2}


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A pass that can be run again: on whatever its inputs hold then, into the same output."""

    made: torch.Tensor  # [rows, width]
    replay: Callable[[], None]


Recorder = Callable[[Callable[[], torch.Tensor]], Recording]
Key = TypeVar("Key", bound=Hashable)


class GraphRecorder:
    """Records passes as CUDA graphs, which share one pool of memory: a pass's output is read before the next one."""

    def __init__(self, device: torch.device | None = None) -> None:
        self._device = device
        self._pool: Any = None
        self._graphs: weakref.WeakSet[torch.cuda.CUDAGraph] = weakref.WeakSet()  # in the pool

    def __call__(self, run: Callable[[], torch.Tensor]) -> Recording:
        """Record `run`, which must not wait for the device nor allocate on the host."""
        with torch.cuda.device(self._device):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(WARM_UPS):
                    run()
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            if not self._graphs:  # torch refuses a pool whose graphs are all gone
                self._pool = torch.cuda.graph_pool_handle()
            try:
                with torch.cuda.graph(graph, pool=self._pool):
                    made = run()
            except BaseException:
                self._graphs = weakref.WeakSet()  # nor is a pool good for more behind a recording that broke off
                raise
            self._graphs.add(graph)
        return Recording(made, graph.replay)


class Recordings(Generic[Key]):
    """Recordings by the shape of their pass, and why there is none where recording failed."""

    def __init__(self, recorder: Recorder) -> None:
        self.failures: dict[Key, str] = {}
        self._recorder = recorder
        self._made: dict[Key, Recording] = {}
        self._out: torch.Tensor | None = None  # [rows, width] of all recordings

    @classmethod
    def on(cls, device: torch.device, recorder: Recorder | None) -> Recordings[Key] | None:
        """Those of `recorder`; without one, of CUDA graphs on a device that has them, and else none."""
        if recorder is None and device.type == "cuda":
            recorder = GraphRecorder(device)
        return None if recorder is None else cls(recorder)

    @property
    def keys(self) -> tuple[Key, ...]:
        """Shapes that have a recording, in the order in which they were made."""
        return tuple(self._made)

    def clear(self) -> None:
        """Forget all of them: the buffers that they read and write are going to be others."""
        self._made.clear()
        self.failures.clear()
        self._out = None

    def replay(self, key: Key) -> torch.Tensor | None:
        """Run the pass of that shape again: [rows, width], valid until the next one; None where it is not recorded."""
        recording = self._made.get(key)
        if recording is None:
            return None
        recording.replay()
        return recording.made

    def record(
        self, key: Key, name: str, rows: int, run: Callable[[], torch.Tensor], lay_out: Callable[[], torch.Tensor]
    ) -> None:
        """Record `run` on one pass, and compare its replay with the eager pass on another.

        The output of all recordings is one tensor, so the one of most rows comes first. Where recording fails or the
        two differ, there is none, and a `CaptureWarning` says why.

        Args:
            name: of the pass, for people.
            rows: that `run` returns, dead ones included.
            lay_out: fills the inputs of `run` with another random pass, and returns what the eager pass makes of it,
                live rows only.
        """
        try:
            eager = lay_out()
            if self._out is None or len(self._out) < rows:
                self._out = eager.new_zeros((rows, eager.shape[1]))
            out = self._out[:rows]
            recording = self._recorder(lambda: out.copy_(run()))
            eager = lay_out()
            recording.replay()
            made = recording.made[: len(eager)]
            difference = float("inf")
            if torch.isfinite(made).all():
                difference = float((made - eager).abs().max() / eager.abs().max().clamp_min(1e-30))
        except (RuntimeError, TypeError, ValueError) as error:  # what torch raises where a pass cannot be recorded
            self._give_up(key, name, f"recording failed: {error}")
            return
        allowed = TOLERANCES[eager.dtype]
        if difference <= allowed:
            self._made[key] = recording
            return
        words = f"its replay differs from the eager pass by {difference:.1e}, more than {allowed:.0e}"
        self._give_up(key, name, words)

    def _give_up(self, key: Key, name: str, why: str) -> None:
        self.failures[key] = why
        warnings.warn(f"passes of {name} run eagerly: {why}", CaptureWarning, stacklevel=2)
