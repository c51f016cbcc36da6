"""Texts that are there already, as dense traces: answers of this engine, or logs of another one.

A text at temperature 0 is as good a source as decoding itself where it is what the target says. One teacher-forced pass
tells at how many positions that holds: other arithmetic moves a near-tie now and then, another model or prompt template
moves far more, and then acceptance on the text would say nothing about this target.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from treewise.data.envelope import Envelope, PriorTable
from treewise.data.errors import PromptError
from treewise.data.prompt_set import Prompt
from treewise.data.stored_json import parse_object, short
from treewise.data.trace_claims import PromptClaims
from treewise.data.trace_writer import TraceWriter
from treewise.engine.collect import CollectSettings, Progressed, build_manifest
from treewise.engine.dense import KnownText, grow_dense, target_logits
from treewise.engine.pair import Pair, encode_prompt
from treewise.engine.sampling import Sampling
from treewise.policy.draft_ranking import PLAIN, resolve_ranking

MIN_OWN_SHARE = 0.98  # of a file's completion tokens that the target itself would say, at temperature 0
DEFAULT_TASK = "text"
_FIELDS = ("id", "task", "prompt", "prompt_ids", "completion", "completion_ids", "seed")


@dataclass(frozen=True, slots=True)
class TextRecord:
    """One line of a file of texts: a prompt and a completion, each as words or as token ids."""

    id: str
    task: str
    prompt: str | tuple[int, ...]  # words go through the pair's chat template, ids are taken as they are
    completion: str | tuple[int, ...]
    seed: int | None = None  # of treewise's own noise above temperature 0; None where another engine drew the text


@dataclass(frozen=True, slots=True)
class OwnShare:
    """How much of some completions the target itself would say."""

    said: int  # completion tokens that are the target's most probable one there
    tokens: int

    @property
    def share(self) -> float:
        """Share of the completion tokens."""
        return self.said / max(self.tokens, 1)


def read_texts(path: str | Path) -> tuple[TextRecord, ...]:
    """The texts of a JSON Lines file.

    Every line is an object with the string `id`, `prompt` (a string) or `prompt_ids` (token ids), `completion` or
    `completion_ids`, and optionally the string `task` and the whole number `seed`. Raises `PromptError`, which names
    file, line, rule and value.
    """
    place = Path(path)
    if not place.is_file():
        raise PromptError(f"texts must be an existing file, got {str(place)!r}")
    try:
        content = place.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise PromptError(f"{place}: text must be UTF-8: {error}") from error
    found: dict[str, TextRecord] = {}
    for number, line in enumerate(content.removesuffix("\n").split("\n"), start=1):
        record = _record(line, f"{place}:{number}")
        if record.id in found:
            raise PromptError(f"{place}:{number}: id must be unique, got {record.id!r} again")
        found[record.id] = record
    return tuple(found.values())


def known_texts(pair: Pair, records: Sequence[TextRecord], settings: CollectSettings) -> tuple[KnownText, ...]:
    """The texts in token ids. Completions are cut behind the end of text, and at `settings.max_new_tokens`.

    Raises `PromptError` where a prompt leaves no room in the context, a completion is empty or an id is no token.
    """
    found: list[KnownText] = []
    for record in records:
        ids = encode_prompt(pair, record.prompt) if isinstance(record.prompt, str) else list(record.prompt)
        said = record.completion
        tokens = pair.tokenizer.encode(said, add_special_tokens=False) if isinstance(said, str) else list(said)
        size = pair.description.vocab_size
        strays = [token for token in (*ids, *tokens) if not 0 <= token < size]
        if strays:
            raise PromptError(f"text {record.id!r} must hold token ids below {size}, got {strays[0]}")
        if not ids or not tokens:
            raise PromptError(f"text {record.id!r} must hold a prompt and a completion, got an empty one")
        if len(ids) >= pair.max_context_tokens:
            rule = f"shorter than the target's context of {pair.max_context_tokens} tokens"
            raise PromptError(f"prompt {record.id!r} must be {rule}, got {len(ids)}")
        sampling = Sampling(settings.temperature, seed=record.seed or 0)
        text = known_text(pair, Prompt(record.id, record.task, ""), ids, tokens, settings.max_new_tokens, sampling)
        found.append(replace(text, seed=0 if settings.temperature == 0.0 else record.seed))
    return tuple(found)


def known_text(
    pair: Pair, prompt: Prompt, ids: Sequence[int], tokens: Sequence[int], max_new_tokens: int, sampling: Sampling
) -> KnownText:
    """The text of one answer as the engine would have committed it: cut behind its end token and at the limit."""
    limit = min(max_new_tokens, pair.max_context_tokens - len(ids))  # as the engine counts
    answer = list(tokens)[:limit]
    ends = [place for place, token in enumerate(answer) if token in pair.eos_token_ids]
    if ends:
        answer = answer[: ends[0] + 1]
    finish = "eos" if ends else "length"
    return KnownText(
        prompt.id, prompt.task, tuple(ids), tuple(answer), limit, finish, sampling.temperature, sampling.seed
    )


@torch.inference_mode()
def own_share(
    pair: Pair, texts: Sequence[KnownText], advance: Callable[[str], None] = lambda prompt_id: None
) -> OwnShare:
    """At how many positions of the completions the target's most probable token is the text's, teacher-forced."""
    said = tokens = 0
    for text in texts:
        whole = (*text.prompt, *text.completion)
        first = len(text.prompt) - 1
        best = target_logits(pair, whole[:-1])[first:].argmax(-1).tolist()
        said += sum(mine == theirs for mine, theirs in zip(best, text.completion, strict=True))
        tokens += len(text.completion)
        advance(text.prompt_id)
    return OwnShare(said, tokens)


def check_texts(
    pair: Pair,
    texts: Sequence[KnownText],
    settings: CollectSettings,
    min_own_share: float = MIN_OWN_SHARE,
    advance: Callable[[str], None] = lambda prompt_id: None,
) -> OwnShare | None:
    """Whether replay on `texts` can be exact; None above temperature 0, where one text cannot tell.

    Raises `PromptError` where the draft's candidates are to be ranked by noise whose seed a text does not say, and, at
    temperature 0, where the target itself would say fewer than `min_own_share` of the tokens.
    """
    if settings.temperature > 0.0:
        ranking = resolve_ranking(settings.ranking, settings.temperature)
        unknown = [text.prompt_id for text in texts if text.seed is None]
        if pair.draft is not None and ranking != PLAIN and unknown:
            raise PromptError(
                f"ranking must be {PLAIN} above temperature 0 for texts whose noise is not known, got {ranking} and "
                f"no seed for {unknown[0]!r} ({len(unknown)} of {len(texts)} texts): pass `--ranking {PLAIN}`, or give "
                "each text the seed that treewise drew it with"
            )
        return None
    found = own_share(pair, texts, advance)
    if found.share < min_own_share:
        raise PromptError(
            f"completions must be what the target says, in at least {min_own_share:.1%} of their tokens, got "
            f"{found.share:.1%} ({found.said:,} of {found.tokens:,}): another model, another chat template or sampled "
            "text; acceptance on it would say nothing about this target. `--accept-foreign` takes it all the same"
        )
    return found


def collect_texts(
    pair: Pair,
    texts: Sequence[KnownText],
    folder: Path,
    envelope: Envelope,
    prior_table: PriorTable,
    settings: CollectSettings,
    own: OwnShare | None = None,
    progressed: Progressed | None = None,
) -> int:
    """Write a dense trace of `texts`, grown to `envelope` widened. Returns as `collect_live`.

    `own` goes into the manifest: a trace says how far its texts are the target's own.
    """
    wide = envelope.widened()
    manifest = build_manifest(pair, (), wide, prior_table, settings, None)
    hashes = {"texts": texts_sha256(texts)}
    if own is not None:
        hashes["own_share"] = f"{own.said}/{own.tokens}"
    writer = TraceWriter(folder, replace(manifest, input_hashes=hashes), settings.shard_rounds)
    with PromptClaims(folder) as claims, writer:
        for text in [*texts] * 2:  # as in a live collection
            if not claims.take(text.prompt_id):
                continue
            sampling = Sampling(
                text.temperature,
                settings.top_k,
                settings.top_p,
                text.seed or 0,
                settings.min_p,
                settings.typical_p,
            )
            writer.add(*grow_dense(pair, text, wide, prior_table, sampling=sampling, ranking=settings.ranking))
            if progressed:
                progressed(text.prompt_id, len(text.completion))
    return len(texts) - claims.taken


def texts_sha256(texts: Sequence[KnownText]) -> str:
    """SHA-256, in hex, over ids, prompts and completions in their order."""
    digest = hashlib.sha256()
    for text in texts:
        line = json.dumps([text.prompt_id, text.task, text.prompt, text.completion, text.seed])
        digest.update(line.encode("ascii") + b"\n")
    return digest.hexdigest()


def _record(line: str, place: str) -> TextRecord:
    value = parse_object(line, f"{place}: line", PromptError)
    if unknown := sorted(set(value) - set(_FIELDS)):
        raise PromptError(f"{place}: line must hold no fields but {', '.join(_FIELDS)}, got {unknown[0]!r}")
    for name in ("id", "task"):
        given = value.get(name, DEFAULT_TASK if name == "task" else None)
        if not isinstance(given, str) or not given.strip():
            raise PromptError(f"{place}: {name} must be a non-empty string, got {short(given)}")
    seed = value.get("seed")
    if seed is not None and not (_is_whole(seed) and 0 <= seed < 2**63):
        raise PromptError(f"{place}: seed must be a whole number between 0 and 2**63 - 1, got {short(seed)}")
    return TextRecord(
        id=value["id"],
        task=value.get("task", DEFAULT_TASK),
        prompt=_words_or_ids(value, "prompt", place),
        completion=_words_or_ids(value, "completion", place),
        seed=seed,
    )


def _words_or_ids(value: dict[str, Any], name: str, place: str) -> str | tuple[int, ...]:
    words, ids = value.get(name), value.get(f"{name}_ids")
    if (words is None) == (ids is None):
        raise PromptError(f"{place}: line must hold either {name} or {name}_ids, got {short(sorted(value))}")
    if ids is not None:
        if not (isinstance(ids, list) and ids and all(_is_whole(token) for token in ids)):
            raise PromptError(f"{place}: {name}_ids must be a list of token ids, got {short(ids)}")
        return tuple(ids)
    if not isinstance(words, str) or not words:
        raise PromptError(f"{place}: {name} must be a non-empty string, got {short(words)}")
    try:
        words.encode("utf-8")
    except UnicodeEncodeError as error:
        raise PromptError(f"{place}: {name} must be encodable as UTF-8, got {short(words)}") from error
    return words


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
