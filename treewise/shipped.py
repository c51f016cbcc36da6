"""The dense traces that ship with treewise, and a policy trained on a part of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from treewise.data.errors import TraceError, require

if TYPE_CHECKING:
    from treewise.data.cost import CostProfile
    from treewise.training.fit import TrainSettings
    from treewise.training.logged_trace import LoggedTrace
    from treewise.training.report import TrainReport

ASSETS = "assets"
TRACES = "traces-smollm2-135m"
TRAIN, JUDGE = "train", "judge"  # folders of a trace that comes dealt; their prompts share no template
ALSO_TRAIN = f"{TRAIN}-*"  # folders beside them with further conditions to train on, such as another temperature
HELD_OUT_OF = 3  # elsewhere, one prompt in so many is held out of training, task by task


@dataclass(frozen=True, slots=True)
class SplitTrace:
    """A dense trace whose prompts are dealt to training and to judgement, task by task."""

    train: LoggedTrace
    held_out: LoggedTrace
    content_hash: str  # of the trace that holds the training part
    also_train: tuple[LoggedTrace, ...] = ()  # the same kind of prompts under other conditions
    also_hashes: tuple[str, ...] = ()  # of their content

    @property
    def train_hash(self) -> str:
        """Hash of the training part: that of its traces, and which prompts were taken."""
        ids = [request.prompt_id for request in self.train.requests]
        parts = [self.content_hash, *ids, *self.also_hashes]
        return hashlib.sha256("\n".join(parts).encode("utf-8")).hexdigest()


def shipped_traces() -> Path:
    """Folder of the traces of the default pair. Raises `TraceError` where this install has none."""
    folder = Path(str(resources.files("treewise.data"))) / ASSETS / TRACES
    if not folder.is_dir():
        raise TraceError(f"traces must be in {folder}, got an install without them; name a folder of traces")
    return folder


def split_trace(folder: Path) -> SplitTrace:
    """The dense trace in `folder`, dealt to training and to judgement.

    Where it has the folders `train` and `judge`, as the shipped one, they are taken as they are, and so is every
    `train-...` beside them: those are trained on too, but nothing is tuned or judged on them. Else every third
    prompt of each task is held out, in the order of a hash of their ids; such prompts may resemble those trained on.
    Raises `TraceError` where there are too few prompts to train on and to judge, or where the trace is live.
    """
    if (folder / TRAIN).is_dir() and (folder / JUDGE).is_dir():
        also = sorted(folder.glob(ALSO_TRAIN))
        return SplitTrace(
            _open_dense(folder / TRAIN),
            _open_dense(folder / JUDGE),
            _content_hash(folder / TRAIN),
            tuple(_open_dense(place) for place in also),
            tuple(_content_hash(place) for place in also),
        )
    trace = _open_dense(folder)
    by_task: dict[str, list[str]] = {}
    for request in trace.requests:
        prompts = by_task.setdefault(request.task, [])
        if request.prompt_id not in prompts:
            prompts.append(request.prompt_id)
    train: list[str] = []
    held_out: list[str] = []
    for task in sorted(by_task):
        ordered = sorted(by_task[task], key=lambda prompt: hashlib.sha256(prompt.encode("utf-8")).hexdigest())
        for place, prompt in enumerate(ordered):
            # The first of a task is trained on, so a task of one or two prompts is never judged unseen.
            (held_out if place % HELD_OUT_OF == HELD_OUT_OF - 1 else train).append(prompt)
    if len(train) < 3 or not held_out:
        raise TraceError(f"trace {folder} must hold 3 prompts to train on and 1 to judge, got {len(train)} to train on")
    return SplitTrace(trace.of_prompts(train), trace.of_prompts(held_out), _content_hash(folder))


def spread(trace: LoggedTrace, prompts: int) -> LoggedTrace:
    """At most `prompts` prompts of `trace`, its tasks taking turns."""
    require(prompts >= 1, "prompts", ">= 1", prompts)
    queues: dict[str, list[str]] = {}
    for request in trace.requests:
        queue = queues.setdefault(request.task, [])
        if request.prompt_id not in queue:
            queue.append(request.prompt_id)
    longest = max(len(queue) for queue in queues.values())
    turns = [queue[place] for place in range(longest) for queue in queues.values() if place < len(queue)]
    return trace.of_prompts(turns[:prompts])


def train_part(
    split: SplitTrace,
    cost: CostProfile,
    out: Path,
    settings: TrainSettings | None = None,
    command: str = "",
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> TrainReport:
    """Train on the training part of `split` and write the bundle to `out`. Raises as `treewise.train` does."""
    from treewise.training.fit import NamedTrace, train_on

    also = [NamedTrace(trace, found) for trace, found in zip(split.also_train, split.also_hashes, strict=True)]
    return train_on([NamedTrace(split.train, split.train_hash), *also], cost, out, settings, command, progress)


def _open_dense(folder: Path) -> LoggedTrace:
    from treewise.training.logged_trace import open_trace

    trace = open_trace(folder)
    if trace.manifest.kind != "dense":
        raise TraceError(f"trace {folder} must be dense, got a {trace.manifest.kind} one")
    return trace


def _content_hash(folder: Path) -> str:
    from treewise.data.trace_reader import TraceReader

    return TraceReader(folder).content_hash()
