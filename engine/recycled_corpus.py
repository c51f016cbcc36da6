"""Making a corpus of recycled guesses: what a target ranked high at every position of its own stored answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from treewise.data.errors import CorpusError, require
from treewise.data.prompt_set import Prompt, prompts_sha256
from treewise.data.recycled import MAX_VOCABULARY, ORDERS, TOP, RecycledCorpus, pack
from treewise.engine.answer_mark import check_mark
from treewise.engine.answers import Answer, read_answers
from treewise.engine.distill_run import target_notice
from treewise.engine.draft_model import decoder_of
from treewise.engine.pair import Pair, encode_prompt
from treewise.engine.teacher import PASS_TOKENS, length_batches, pad_right
from treewise.engine.top_guesses import TopGuesses, top_guesses

HEAD_ROWS = 512  # positions whose logits are held at once
MIN_OCCURRENCES = 2  # of a context of two or three tokens; a single one is kept from its first


def answers_to(pair: Pair, prompts: Sequence[Prompt], folder: Path) -> list[Answer]:
    """The stored answers in `folder` to these very prompts, told by their text, by key; answers to others stay out.

    Raises:
        CorpusError: there is none, or one holds a token that the target does not have.
        PairError: the folder is marked for another target.
        ShardError, SchemaVersionError: a shard cannot be read.
    """
    check_mark(folder, pair.description)
    asked = {tuple(encode_prompt(pair, prompt.text)) for prompt in prompts}
    stored = read_answers(folder)
    found = [answer for answer in stored if answer.answer_ids and answer.prompt_ids in asked]
    if not found:
        raise CorpusError(
            f"answers must be a folder with answers to these {len(prompts)} prompts, as `treewise distill` leaves it, "
            f"got {str(folder)!r} with {len(stored)} answers, none of them to one of these"
        )
    size = pair.description.vocab_size
    highest = max(max(answer.answer_ids) for answer in found)
    if highest >= size:
        raise CorpusError(f"answers must be of target {pair.description.target!r} with {size} tokens, got id {highest}")
    return found


def answers_sha256(answers: Sequence[Answer]) -> str:
    """SHA-256, in hex, over the token ids of prompts and answers in the given order."""
    digest = hashlib.sha256()
    for answer in answers:
        digest.update(json.dumps([answer.prompt_ids, answer.answer_ids]).encode("ascii") + b"\n")
    return digest.hexdigest()


def make_corpus(
    pair: Pair,
    answers: Sequence[Answer],
    prompts: Sequence[Prompt],
    *,
    states: Mapping[tuple[int, ...], torch.Tensor] | None = None,
    min_occurrences: int = MIN_OCCURRENCES,
    command: str = "",
    report: Callable[[int, int], None] = lambda answers, tokens: None,
) -> RecycledCorpus:
    """A corpus from what the pair's target said over prompts and answers, in one teacher-forced pass where need be.

    At every position that predicts an answer's token, the `TOP` most probable tokens (temperature 1, unwarped) count
    behind the last one, two and three tokens. A token's probability behind a context is its mean over the context's
    occurrences, 0 wherever it was not among the best.

    Args:
        answers: from `answers_to`, to `prompts`, whose hash is kept.
        states: by text, prompt and answer, the target's final states that were kept while it answered
            (`teacher.kept_states`), [tokens, hidden_size]: with them only its head runs.
        min_occurrences: how often a context of two or three tokens must occur to be kept.
        command: kept in the corpus's provenance.
        report: told how many answers, and how many answer tokens, each pass took.

    Raises:
        CorpusError: `states` are of another target.
        ParameterError: a setting out of its range, or no answer token at all.
    """
    identity = pair.description
    size = identity.vocab_size
    require(size < MAX_VOCABULARY, "vocab_size", f"below {MAX_VOCABULARY}", size)
    require(min_occurrences >= 1, "min_occurrences", ">= 1", min_occurrences)
    require(any(answer.answer_ids for answer in answers), "answers", "texts with at least one token", len(answers))
    contexts = np.concatenate([_contexts(answer) for answer in answers])
    said = _pass_over(pair, answers, states or {}, report)
    parts = [
        _mean_guesses(contexts[:, place], said, 1 if place == 0 else min_occurrences, size) for place in range(ORDERS)
    ]
    # A longer context packs into a higher number than any shorter one: the parts follow one another in order.
    packed, occurrences, lengths, tokens, probs = (np.concatenate(column) for column in zip(*parts, strict=True))
    provenance = {
        "notice": target_notice(identity.target),
        "command": command,
        "prompts_sha256": prompts_sha256(prompts),
        "answers_sha256": answers_sha256(answers),
        "target": identity.target,
        "target_sha256": identity.target_sha256,
        "answers": len(answers),
        "answer_tokens": len(contexts),
        "min_occurrences": min_occurrences,
        "torch": torch.__version__,
    }
    return RecycledCorpus(
        contexts=packed,
        occurrences=occurrences.astype(np.int32),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        tokens=tokens.astype(np.int32),
        probs=probs,
        vocab_size=size,
        tokenizer_sha256=identity.tokenizer_sha256,
        provenance=provenance,
    )


def _contexts(answer: Answer) -> NDArray[np.int64]:
    """[answer tokens, ORDERS] packed contexts that predict each token, 0 where the text is shorter than the context."""
    text = answer.prompt_ids + answer.answer_ids
    ends = range(len(answer.prompt_ids), len(text))
    rows = [[pack(text[end - order : end]) if end >= order else 0 for order in range(1, ORDERS + 1)] for end in ends]
    return np.asarray(rows, dtype=np.int64).reshape(-1, ORDERS)


@torch.inference_mode()
def _pass_over(
    pair: Pair,
    answers: Sequence[Answer],
    states: Mapping[tuple[int, ...], torch.Tensor],
    report: Callable[[int, int], None],
) -> TopGuesses:
    """What the target ranks highest where it predicts each answer token, answer by answer."""
    decoder = decoder_of(pair.target)
    # Where the target predicts an answer's tokens, [answer tokens, hidden_size] each.
    found = [states.get(answer.prompt_ids + answer.answer_ids) for answer in answers]
    predicting = [
        rows if rows is None else rows[len(answer.prompt_ids) - 1 : -1]
        for answer, rows in zip(answers, found, strict=True)
    ]
    unread = [index for index, rows in enumerate(predicting) if rows is None]
    texts = [torch.tensor(answers[index].prompt_ids + answers[index].answer_ids) for index in unread]
    for batch in length_batches([len(text) for text in texts], PASS_TOKENS):
        ids = pad_right([texts[place] for place in batch]).to(pair.target.device)
        # Right padding needs no mask under causal attention: nothing real looks at it.
        hidden = decoder(input_ids=ids, use_cache=False).last_hidden_state.cpu()
        for row, place in enumerate(batch):
            answer = answers[unread[place]]
            kept = hidden[row, len(answer.prompt_ids) - 1 : len(texts[place]) - 1]
            predicting[unread[place]] = kept.to(torch.float16)  # as those that are kept while it answers
    return _ranked(pair, [rows for rows in predicting if rows is not None], report)


def _ranked(pair: Pair, states: Sequence[torch.Tensor], report: Callable[[int, int], None]) -> TopGuesses:
    # In blocks of one size whatever the answers' lengths: logits of many sizes between small results that stay would
    # leave the heap in holes, gigabytes of them.
    head = pair.target.get_output_embeddings()
    width = head.weight.shape[1]
    for rows in states:
        if rows.shape[1] != width:
            raise CorpusError(f"states must be {width} wide, as this target's are, got {rows.shape[1]}")
    said: list[TopGuesses] = []
    block: list[torch.Tensor] = []
    for index, rows in enumerate(states):
        block.append(rows)
        if sum(map(len, block)) >= HEAD_ROWS or index == len(states) - 1:
            hidden = torch.cat(block).to(pair.target.device, pair.target.dtype)
            said.extend(top_guesses(head(piece)) for piece in hidden.split(HEAD_ROWS))
            report(len(block), len(hidden))
            block = []
    return TopGuesses(np.concatenate([piece.tokens for piece in said]), np.concatenate([p.probs for p in said]))


def _mean_guesses(
    contexts: NDArray[np.int64], said: TopGuesses, min_occurrences: int, vocab_size: int
) -> tuple[NDArray[Any], ...]:
    """Contexts of one order, ascending, with occurrences and entries; and the entries' tokens and mean probabilities.

    `contexts` [positions] may hold 0 for none. Probabilities are rounded through float16, which halves the file.
    """
    known, place, occurrences = np.unique(contexts, return_inverse=True, return_counts=True)
    kept = (occurrences >= min_occurrences) & (known > 0)
    rows = np.flatnonzero(kept[place])
    keys = (place[rows, None].astype(np.int64) * vocab_size + said.tokens[rows]).ravel()
    pairs, of_pair = np.unique(keys, return_inverse=True)
    sums = np.bincount(of_pair.ravel(), weights=said.probs[rows].ravel().astype(np.float64), minlength=len(pairs))
    where, tokens = np.divmod(pairs, vocab_size)
    means = (sums / occurrences[where]).clip(max=1.0).astype(np.float16).astype(np.float32)
    order = np.lexsort((tokens, -means, where))
    where, tokens, means = where[order], tokens[order], means[order]
    rank = np.arange(len(where)) - np.searchsorted(where, where)
    best = (rank < TOP) & (means > 0.0)  # what rounds to nothing is no guess
    lengths = np.bincount(where[best], minlength=len(known))[kept]
    return known[kept], occurrences[kept], lengths, tokens[best], means[best]
