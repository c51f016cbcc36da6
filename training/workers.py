"""The same work in several processes: parts go out in order, answers come back in order."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, TypeAlias, TypeVar

from treewise.data.errors import TreewiseError, WorkerError, require

Part = TypeVar("Part")
Answer = TypeVar("Answer")
Advance: TypeAlias = Callable[[int], None]  # told how many more steps are done
Job: TypeAlias = Callable[[Advance], Callable[[Part], Answer]]  # makes, in any process, what does one part

ROUNDS_A_WORKER = 40_000  # of batched replay, below which a process costs more time than it saves
ROUNDS_ALONE = 1_000  # the same of requests that are replayed one after the other
_STEPS, _ANSWER, _ERROR = "steps", "answer", "error"  # what a worker says


def usable_cores() -> int:
    """Cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def worth_starting(rounds: int, in_batches: bool = True, cores: int = 0) -> int:
    """Workers for `rounds` of replay: one for each of `cores` (0: all of them), as far as there is enough to do."""
    return max(1, min(cores or usable_cores(), rounds // (ROUNDS_A_WORKER if in_batches else ROUNDS_ALONE)))


def run_parts(
    job: Job[Part, Answer], parts: Sequence[Part], workers: int, advance: Advance | None = None
) -> list[Answer]:
    """The answers to `parts`, in order, by as many `workers` as there are parts at most.

    One worker is this process. Others are new ones, which get `job` and the parts by pickling: a program that starts
    any must guard its main module (`if __name__ == "__main__"`). `advance` is told of steps as they are done. Raises
    `ParameterError` where `workers` is below 1, the `TreewiseError` of the first part that has one, and `WorkerError`
    where a worker died.
    """
    require(workers >= 1, "workers", "at least 1", workers)
    told: Advance = advance or (lambda count: None)
    count = min(workers, len(parts))
    if count <= 1:
        work = job(told)
        return [work(part) for part in parts]
    # A fresh interpreter: threads of the numeric libraries do not survive a fork.
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    try:
        for _ in range(count):
            mine, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(job, theirs), daemon=True)
            process.start()
            theirs.close()
            pipes.append(mine)
            processes.append(process)
        return _collect(pipes, parts, told)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()
        for pipe in pipes:
            pipe.close()


def _collect(pipes: Sequence[Connection], parts: Sequence[Part], advance: Advance) -> list[Any]:
    answers: dict[int, Any] = {}
    errors: dict[int, TreewiseError] = {}
    under_way: dict[Connection, int] = {}
    waiting = list(range(len(parts)))[::-1]
    try:
        for pipe in pipes:
            under_way[pipe] = waiting.pop()
            pipe.send(parts[under_way[pipe]])
        while under_way:
            ready = wait(list(under_way))
            for pipe in [one for one in under_way if one in ready]:
                kind, value = pipe.recv()
                if kind == _STEPS:
                    advance(value)
                    continue
                place = under_way.pop(pipe)
                (errors if kind == _ERROR else answers)[place] = value
                if waiting and not errors:
                    under_way[pipe] = waiting.pop()
                    pipe.send(parts[under_way[pipe]])
    except (EOFError, ConnectionError):  # it closed its end, or left a part in it unread
        raise WorkerError("a worker process died, perhaps for want of memory: try fewer workers") from None
    if errors:
        raise errors[min(errors)]
    return [answers[place] for place in range(len(parts))]


def _serve(job: Job[Any, Any], pipe: Connection) -> None:
    """A worker: parts in, answers out, until it is ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the process that started it, which ends this one
    work: Callable[[Any], Any] | None = None
    while True:
        try:
            part = pipe.recv()
        except EOFError:
            return
        try:
            work = work or job(lambda count: pipe.send((_STEPS, count)))
            answer = (_ANSWER, work(part))
        except TreewiseError as error:
            answer = (_ERROR, error)
        pipe.send(answer)
