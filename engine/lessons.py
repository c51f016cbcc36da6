"""Collecting lessons: the target's answers and its states on them, by several single-threaded processes."""

from __future__ import annotations

import json
import multiprocessing
import queue
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from treewise.data.errors import PairError, require
from treewise.data.prompt_set import Prompt
from treewise.engine.answer_mark import keep_mark
from treewise.engine.answers import AnswerJob, AnswerSettings, answer_jobs, make_answers
from treewise.engine.hub import write_atomically
from treewise.engine.pair import Pair, encode_prompt, load_pair
from treewise.engine.teacher import Lesson, read_lessons, record_states

POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class LessonProgress:
    """What one worker just stored."""

    worker: int
    stage: str  # answers, or states
    num_texts: int
    num_tokens: int


def planned_answers(pair: Pair, prompts: Sequence[Prompt], settings: AnswerSettings) -> list[list[AnswerJob]]:
    """The batches of answers that `collect_lessons` makes."""
    return answer_jobs(prompts, lambda text: encode_prompt(pair, text), pair.description.target_sha256, settings)


def collect_lessons(
    pair: Pair,
    prompts: Sequence[Prompt],
    folder: Path,
    settings: AnswerSettings,
    *,
    num_workers: int = 1,
    report: Callable[[LessonProgress], None] = lambda progress: None,
) -> list[Lesson]:
    """Make what `folder` lacks and read everything asked for; what other settings left there stays and is not read.

    With one worker the pair's own target decodes; with more, each worker is a process that loads it again and
    computes on one thread, which beats one process on many.

    Raises:
        PairError: a worker process died, or `folder` holds another target's answers.
    """
    require(num_workers >= 1, "num_workers", ">= 1", num_workers)
    keep_mark(folder, pair.description)
    batches = planned_answers(pair, prompts, settings)
    if num_workers == 1:
        for progress in _work(pair, batches, folder, settings, 0, 1):
            report(progress)
    else:
        _in_processes(pair, batches, folder, settings, num_workers, report)
    wanted = {job.key for batch in batches for job in batch}
    return [lesson for lesson in read_lessons(folder) if lesson.key in wanted]


def ready_lessons(
    pair: Pair,
    prompts: Sequence[Prompt],
    folder: Path,
    chosen: Path,
    *,
    report: Callable[[LessonProgress], None] = lambda progress: None,
) -> list[Lesson]:
    """Every answer to `prompts` that `folder` already holds, whatever the settings it was made under.

    States that are lacking are recorded, no answer is made. A prompt is known by its text: lessons carry the id and
    task that it has now.

    Args:
        chosen: keeps which answers these are: while it exists, later calls return the same lessons whatever answers
            have arrived and whatever became of the prompts, so that a stopped training goes on. Remove it to choose
            anew.

    Raises:
        PairError: `chosen` cannot be read, or `folder` holds another target's answers.
    """
    keep_mark(folder, pair.description)
    stored: list[Lesson] = []
    if chosen.is_file():
        try:
            names = json.loads(chosen.read_text(encoding="utf-8"))
            kept = {str(key): (str(name), str(task)) for key, (name, task) in names.items()}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise PairError(f"{chosen} cannot be read ({error}); delete it to choose answers anew") from error
        stored = [lesson for lesson in read_lessons(folder) if lesson.key in kept]
    else:
        for _, texts, tokens in record_states(pair.target, folder):
            report(LessonProgress(0, "states", texts, tokens))
        known = {tuple(encode_prompt(pair, prompt.text)): (prompt.id, prompt.task) for prompt in prompts}
        kept = {}
        for lesson in read_lessons(folder):
            asked = tuple(lesson.token_ids[: lesson.num_prompt_tokens].tolist())
            if asked in known:
                kept[lesson.key] = known[asked]
                stored.append(lesson)
        if kept:
            write_atomically(chosen, json.dumps(kept).encode())
    return [replace(lesson, prompt_id=kept[lesson.key][0], task=kept[lesson.key][1]) for lesson in stored]


def _work(
    pair: Pair,
    batches: Sequence[Sequence[AnswerJob]],
    folder: Path,
    settings: AnswerSettings,
    worker: int,
    num_workers: int,
) -> Iterator[LessonProgress]:
    kinds = {"worker": worker, "num_workers": num_workers}
    for answers in make_answers(pair.target, batches, folder, settings, eos_ids=pair.eos_token_ids, **kinds):
        tokens = sum(len(answer.answer_ids) for answer in answers)
        yield LessonProgress(worker, "answers", len(answers), tokens)
    # Two workers may meet at one shard while the other still makes answers; both then write the same bytes.
    for _, texts, tokens in record_states(pair.target, folder, **kinds):
        yield LessonProgress(worker, "states", texts, tokens)


def _in_processes(
    pair: Pair,
    batches: Sequence[Sequence[AnswerJob]],
    folder: Path,
    settings: AnswerSettings,
    num_workers: int,
    report: Callable[[LessonProgress], None],
) -> None:
    spawning = multiprocessing.get_context("spawn")
    done: multiprocessing.Queue[LessonProgress] = spawning.Queue()
    dtype = str(pair.target.dtype).removeprefix("torch.")
    target = pair.description.target
    workers = [
        spawning.Process(
            target=_process, args=(target, dtype, batches, folder, settings, worker, num_workers, done), daemon=True
        )
        for worker in range(num_workers)
    ]
    for process in workers:
        process.start()
    try:
        while any(process.is_alive() for process in workers):
            _drain(done, report, wait_s=POLL_S)
        _drain(done, report, wait_s=0.0)
    finally:
        for process in workers:
            process.terminate()
            process.join()
    died = [process.exitcode for process in workers if process.exitcode != 0]
    if died:
        raise PairError(
            f"{len(died)} of {num_workers} answer workers failed (exit codes {died}); finished batches stay"
        )
    # A shard that one worker finished after the other had looked for it still lacks its states.
    for _, texts, tokens in record_states(pair.target, folder):
        report(LessonProgress(0, "states", texts, tokens))


def _drain(
    done: multiprocessing.Queue[LessonProgress], report: Callable[[LessonProgress], None], *, wait_s: float
) -> None:
    while True:
        try:
            report(done.get(timeout=wait_s) if wait_s else done.get_nowait())
        except queue.Empty:
            return


def _process(
    target: str,
    dtype: str,
    batches: Sequence[Sequence[AnswerJob]],
    folder: Path,
    settings: AnswerSettings,
    worker: int,
    num_workers: int,
    done: multiprocessing.Queue[LessonProgress],
) -> None:
    torch.set_num_threads(1)
    pair = load_pair(target, None, dtype=getattr(torch, dtype))
    for progress in _work(pair, batches, folder, settings, worker, num_workers):
        done.put(progress)
