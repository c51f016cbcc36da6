"""The target's own answers to prompts: what a draft is distilled from, kept in resumable shards."""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import save
from transformers import PreTrainedModel

from treewise.data.errors import SchemaVersionError, ShardError, require
from treewise.data.prompt_set import Prompt
from treewise.engine.batch_decode import DecodeRow, decode_with_states
from treewise.engine.hub import write_atomically

ANSWER_SCHEMA_VERSION = 1
ANSWER_SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("prompt_id", pa.string()),
        ("task", pa.string()),
        ("sample", pa.int32()),
        ("temperature", pa.float32()),
        ("prompt_ids", pa.list_(pa.int32())),
        ("answer_ids", pa.list_(pa.int32())),
    ],
    metadata={"schema_version": str(ANSWER_SCHEMA_VERSION)},
)


@dataclass(frozen=True, slots=True)
class AnswerSettings:
    """How answers are made; one answer a prompt and sample round."""

    num_samples: int = 6  # rounds over all prompts; half of the first two rounds is greedy
    max_new_tokens: int = 160
    batch_rows: int = 96
    temperature_low: float = 0.7
    temperature_high: float = 1.0
    seed: int = 0
    greedy: bool = False  # one greedy answer a prompt and nothing else: what an exam asks for

    def __post_init__(self) -> None:
        require(self.num_samples >= 1, "num_samples", ">= 1", self.num_samples)
        require(self.max_new_tokens >= 1, "max_new_tokens", ">= 1", self.max_new_tokens)
        require(self.batch_rows >= 1, "batch_rows", ">= 1", self.batch_rows)
        require(not self.greedy or self.num_samples == 1, "num_samples", "1 where greedy", self.num_samples)
        ordered = 0 < self.temperature_low <= self.temperature_high
        require(ordered, "temperature_low", "> 0 and <= temperature_high", self.temperature_low)


@dataclass(frozen=True, slots=True)
class AnswerJob:
    """One answer to make; `key` is the hash of everything that decides its text."""

    key: str
    prompt: Prompt
    prompt_ids: tuple[int, ...]
    sample: int
    temperature: float


@dataclass(frozen=True, slots=True)
class Answer:
    """One stored answer."""

    key: str
    prompt_id: str
    task: str
    sample: int
    temperature: float
    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]


def answer_jobs(
    prompts: Sequence[Prompt],
    encode: Callable[[str], Sequence[int]],
    target_sha256: str,
    settings: AnswerSettings,
) -> list[list[AnswerJob]]:
    """All answers to make, as batches: round after round, prompts of like length together, batches shuffled.

    Greedy answers go to one half of the prompts in the first round and to the other half in the second; everything
    else is sampled at a temperature drawn per answer.
    """
    encoded = [(prompt, tuple(encode(prompt.text))) for prompt in prompts]
    batches: list[list[AnswerJob]] = []
    for sample in range(settings.num_samples):
        jobs = [_job(prompt, ids, sample, target_sha256, settings) for prompt, ids in encoded]
        jobs.sort(key=lambda job: (len(job.prompt_ids), job.key))
        round_batches = [jobs[i : i + settings.batch_rows] for i in range(0, len(jobs), settings.batch_rows)]
        order = np.random.default_rng([settings.seed, sample]).permutation(len(round_batches))
        batches.extend(round_batches[i] for i in order)
    return batches


def _job(
    prompt: Prompt, prompt_ids: tuple[int, ...], sample: int, target_sha256: str, settings: AnswerSettings
) -> AnswerJob:
    name = zlib.crc32(prompt.id.encode())
    if settings.greedy or (sample < 2 and name % 2 == sample):
        temperature = 0.0
    else:
        generator = np.random.default_rng([settings.seed, sample, name])
        temperature = round(float(generator.uniform(settings.temperature_low, settings.temperature_high)), 3)
    decides = [target_sha256, prompt_ids, temperature, settings.max_new_tokens]
    if temperature > 0:
        decides += [settings.seed, sample]
    key = hashlib.sha256(json.dumps(decides).encode()).hexdigest()
    return AnswerJob(key, prompt, prompt_ids, sample, temperature)


def make_answers(
    model: PreTrainedModel,
    batches: Sequence[Sequence[AnswerJob]],
    folder: Path,
    settings: AnswerSettings,
    *,
    eos_ids: Sequence[int],
    worker: int = 0,
    num_workers: int = 1,
) -> Iterator[list[Answer]]:
    """Make the answers that `folder` does not hold yet, one shard a batch, and yield each batch as it is stored.

    The target's states on them are kept beside each shard (`states_path`).

    Worker `w` of `n` takes every n-th batch. A killed worker loses the batch it was decoding, nothing else.
    """
    require(0 <= worker < num_workers, "worker", "in [0, num_workers)", worker)
    known = {answer.key for answer in read_answers(folder)}
    for batch in batches[worker::num_workers]:
        todo = [job for job in batch if job.key not in known]
        if not todo:
            continue
        rows = [DecodeRow(job.prompt_ids, job.temperature, _noise_seed(job, settings)) for job in todo]
        texts, states = decode_with_states(model, rows, max_new_tokens=settings.max_new_tokens, eos_ids=eos_ids)
        answers = [
            Answer(job.key, job.prompt.id, job.prompt.task, job.sample, job.temperature, job.prompt_ids, tuple(ids))
            for job, ids in zip(todo, texts, strict=True)
        ]
        write_answers(folder, answers, states)
        yield answers


def _noise_seed(job: AnswerJob, settings: AnswerSettings) -> list[int]:
    return [settings.seed, job.sample, zlib.crc32(job.prompt.id.encode()), 1]


def write_answers(folder: Path, answers: Sequence[Answer], states: Sequence[torch.Tensor] = ()) -> Path:
    """Store answers as one atomic shard, named by the content of its keys, and before it their states, if given."""
    columns = {name: [getattr(answer, name) for answer in answers] for name in ANSWER_SCHEMA.names}
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns, schema=ANSWER_SCHEMA), buffer)
    name = hashlib.sha256("".join(columns["key"]).encode()).hexdigest()[:16]
    path = folder / f"answers-{name}.parquet"
    if states:
        write_atomically(states_path(path), save({"states": torch.cat(list(states))}))
    write_atomically(path, buffer.getvalue())
    return path


def states_path(shard: Path) -> Path:
    """Where the hidden states of one answer shard lie."""
    return shard.with_name(shard.name.replace("answers-", "states-")).with_suffix(".safetensors")


def answer_shards(folder: Path) -> list[Path]:
    """The answer shards of a folder, in name order."""
    return sorted(folder.glob("answers-*.parquet"))


def read_answers(folder: Path) -> list[Answer]:
    """All stored answers of a folder, by key, each once; errors as in `read_shard`."""
    found = {answer.key: answer for path in answer_shards(folder) for answer in read_shard(path)}
    return [found[key] for key in sorted(found)]


def read_shard(path: Path) -> list[Answer]:
    """The answers of one shard.

    Raises:
        ShardError: the shard cannot be read.
        SchemaVersionError: it was written by another treewise.
    """
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise ShardError(f"{path} cannot be read ({error}); delete it, its answers will be made again") from error
    version = (table.schema.metadata or {}).get(b"schema_version", b"none").decode()
    if version != str(ANSWER_SCHEMA_VERSION):
        raise SchemaVersionError(str(path), version, ANSWER_SCHEMA_VERSION, "delete the shard")
    answers = []
    for row in table.to_pylist():
        row["prompt_ids"], row["answer_ids"] = tuple(row["prompt_ids"]), tuple(row["answer_ids"])
        answers.append(Answer(**row))
    return answers
