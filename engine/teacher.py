"""What the target computed at every position of its answers: final hidden states, kept or made in one more pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from transformers import PreTrainedModel

from treewise.data.errors import ShardError, require
from treewise.engine.answers import Answer, answer_shards, read_shard, states_path
from treewise.engine.draft_model import decoder_of
from treewise.engine.hub import write_atomically

PASS_TOKENS = 4096  # padded tokens in one teacher-forced pass


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """One text to learn from."""

    key: str  # of the answer
    prompt_id: str
    task: str
    temperature: float
    sample: int
    token_ids: torch.Tensor  # [tokens] int64, prompt and answer
    states: torch.Tensor  # [tokens, hidden_size] float16: the target's state that predicts the next token
    num_prompt_tokens: int

    @property
    def num_answer_tokens(self) -> int:
        """Tokens that the target said."""
        return len(self.token_ids) - self.num_prompt_tokens


def record_states(
    model: PreTrainedModel, folder: Path, *, worker: int = 0, num_workers: int = 1
) -> Iterator[tuple[Path, int, int]]:
    """Record the states of every answer shard that has none, one atomic file a shard; yields path, texts, tokens."""
    require(0 <= worker < num_workers, "worker", "in [0, num_workers)", worker)
    for shard in answer_shards(folder)[worker::num_workers]:
        if not states_path(shard).is_file():
            answers = read_shard(shard)
            states = torch.cat(_pass_over(model, answers))
            write_atomically(states_path(shard), save({"states": states}))
            yield states_path(shard), len(answers), len(states)


@torch.inference_mode()
def _pass_over(model: PreTrainedModel, answers: Sequence[Answer]) -> list[torch.Tensor]:
    decoder = decoder_of(model)
    texts = [torch.tensor(answer.prompt_ids + answer.answer_ids) for answer in answers]
    found: dict[int, torch.Tensor] = {}
    for batch in length_batches([len(text) for text in texts], PASS_TOKENS):
        ids = pad_right([texts[index] for index in batch]).to(model.device)
        # Right padding needs no mask under causal attention: nothing real looks at it.
        hidden = decoder(input_ids=ids, use_cache=False).last_hidden_state.to(torch.float16).cpu()
        for row, index in enumerate(batch):
            found[index] = hidden[row, : len(texts[index])]
    return [found[index] for index in range(len(texts))]


def length_batches(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Indices grouped by like length, each group at most `batch_tokens` when padded (a longer text goes alone)."""
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if not batches or (len(batches[-1]) + 1) * lengths[index] > batch_tokens:
            batches.append([])
        batches[-1].append(index)
    return batches


def pad_right(texts: Sequence[torch.Tensor]) -> torch.Tensor:
    """[texts, longest] token ids, zeros behind the shorter ones."""
    return torch.nn.utils.rnn.pad_sequence(list(texts), batch_first=True)


def read_lessons(folder: Path) -> list[Lesson]:
    """Every answer whose states are recorded, in the shards' order, each key once.

    Raises:
        ShardError: a states file cannot be read, or does not fit its answers.
    """
    lessons: dict[str, Lesson] = {}
    for shard in answer_shards(folder):
        path = states_path(shard)
        if not path.is_file():
            continue
        answers = read_shard(shard)
        lengths = [len(answer.prompt_ids) + len(answer.answer_ids) for answer in answers]
        try:
            states = load_file(path)["states"]
        except (OSError, KeyError, SafetensorError) as error:
            raise ShardError(f"{path} cannot be read ({error}); delete it, it will be recorded again") from error
        if len(states) != sum(lengths):
            raise ShardError(f"{path} must hold {sum(lengths)} positions, got {len(states)}; delete it")
        ends = np.cumsum(lengths)
        for answer, end, length in zip(answers, ends, lengths, strict=True):
            ids = torch.tensor(answer.prompt_ids + answer.answer_ids)
            piece = states[int(end) - length : int(end)]
            lesson = Lesson(
                answer.key,
                answer.prompt_id,
                answer.task,
                answer.temperature,
                answer.sample,
                ids,
                piece,
                len(answer.prompt_ids),
            )
            lessons.setdefault(answer.key, lesson)
    return list(lessons.values())


def kept_states(folder: Path) -> dict[tuple[int, ...], torch.Tensor]:
    """By text, prompt and answer, [tokens, hidden_size] float16 states; errors as in `read_lessons`.

    Not by key: two shards may hold one key, and texts that rounding made differ.
    """
    return {tuple(lesson.token_ids.tolist()): lesson.states for lesson in read_lessons(folder)}
