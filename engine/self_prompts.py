"""Prompts that a target writes itself: it goes on with a user's turn of which only the first words are given.

After Magpie (arXiv 2406.08464), with openers: a small target left alone with an empty turn mostly says rubbish.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from treewise.data.errors import PromptError, require
from treewise.data.own_prompts.openers import OPENERS
from treewise.data.whole_file import check_place, write_whole
from treewise.engine.batch_decode import DecodeRow, decode_batch
from treewise.engine.pair import Pair

SPLIT = "self"
MIN_WORDS = 5
MIN_LATIN_SHARE = 0.9  # of the letters
MIN_FRESH_SHARE = 0.5  # of the words that are not a repetition, in texts of REPEATED_WORDS and more
REPEATED_WORDS = 20
TRIES_A_PROMPT = 20  # a target that wastes more than that has nothing to say
_HOLE = "\N{OBJECT REPLACEMENT CHARACTER}"
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")


@dataclass(frozen=True, slots=True)
class SelfPromptSettings:
    """How a target is asked for prompts."""

    temperature: float = 0.7
    max_new_tokens: int = 100  # behind the opener; a turn that has not ended by then is dropped
    batch_rows: int = 96
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.temperature > 0, "temperature", "> 0", self.temperature)
        require(self.max_new_tokens >= 1, "max_new_tokens", ">= 1", self.max_new_tokens)
        require(self.batch_rows >= 1, "batch_rows", ">= 1", self.batch_rows)
        require(self.seed >= 0, "seed", ">= 0", self.seed)


@dataclass(frozen=True, slots=True)
class SelfPrompt:
    """One prompt and where it comes from; a line of the file, which `read_prompts` reads like any other."""

    id: str  # names the text
    task: str  # the opener's
    split: str
    prompt: str
    opener: str
    attempt: int
    temperature: float
    max_new_tokens: int
    seed: int
    target_sha256: str


@dataclass(frozen=True, slots=True)
class SelfPromptReport:
    """What came of one run."""

    prompts: tuple[SelfPrompt, ...]  # in the file
    tried: int  # turns begun in this run
    dropped: dict[str, int]  # in this run, by fault

    @property
    def by_task(self) -> dict[str, int]:
        """How many prompts of the file belong to each task."""
        return dict(sorted(Counter(entry.task for entry in self.prompts).items()))


def openings(seed: int) -> Iterator[tuple[str, str]]:
    """Task and opener of attempt 0, 1, 2, ...: tasks take turns, each goes through its openers in shuffled rounds."""
    rounds = 0
    decks: dict[str, list[str]] = {task: [] for task in OPENERS}
    while True:
        for task, openers in OPENERS.items():
            if not decks[task]:
                decks[task] = list(openers)
                random.Random(f"{seed}/{task}/{rounds}").shuffle(decks[task])
            yield task, decks[task].pop()
        rounds += 1


def opened_turn(pair: Pair, opener: str) -> tuple[int, ...]:
    """Token ids of a conversation that stops behind `opener`, in the middle of the user's turn."""
    if not getattr(pair.tokenizer, "chat_template", None):
        return tuple(pair.tokenizer(opener)["input_ids"])
    message = [{"role": "user", "content": _HOLE}]
    before = pair.tokenizer.apply_chat_template(message, tokenize=False).partition(_HOLE)[0]
    return tuple(pair.tokenizer(before + opener, add_special_tokens=False)["input_ids"])


def fault_of(text: str) -> str:
    """Why `text` is no prompt to keep: `short`, `script` or `repeats`; empty where it may be kept."""
    words = [word.casefold() for word in _WORD.findall(text)]
    if len(words) < MIN_WORDS:
        return "short"
    letters = [letter for letter in text if letter.isalpha()]
    # The Latin blocks and their accents end below U+0250.
    latin = sum(letter < "\u0250" for letter in letters)
    if "\N{REPLACEMENT CHARACTER}" in text or latin < MIN_LATIN_SHARE * len(letters):
        return "script"
    fours = Counter(zip(words, words[1:], words[2:], words[3:], strict=False))
    stuck = len(words) >= REPEATED_WORDS and len(set(words)) < MIN_FRESH_SHARE * len(words)
    return "repeats" if stuck or max(fours.values(), default=0) > 2 else ""


def likeness(text: str) -> str:
    """What prompts share that count as one: their words, whatever their case and punctuation."""
    return " ".join(_WORD.findall(text.casefold()))


def write_self_prompts(
    pair: Pair,
    out: Path,
    count: int,
    settings: SelfPromptSettings,
    *,
    without: Iterable[str] = (),
    report: Callable[[int, int], None] = lambda kept, tried: None,
) -> SelfPromptReport:
    """Bring the file `out` to `count` prompts, none of them like another or like a text of `without`.

    What `out` holds is kept and continued. It is written anew behind every batch, so a stopped run loses one batch.
    Stops early after `TRIES_A_PROMPT` attempts for each prompt that was lacking.

    Raises:
        PromptError: `out` holds something else, or prompts made by another target or under other settings.
    """
    require(count >= 1, "count", ">= 1", count)
    check_place(out)
    sha256 = pair.description.target_sha256
    prompts = _stored(out, settings, sha256)
    known = {likeness(text) for text in without} | {likeness(entry.prompt) for entry in prompts}
    attempt = prompts[-1].attempt + 1 if prompts else 0
    turns = openings(settings.seed)
    for _ in range(attempt):
        next(turns)
    tried, limit = 0, TRIES_A_PROMPT * (count - len(prompts))
    dropped: Counter[str] = Counter()
    while len(prompts) < count and tried < limit:
        batch = [next(turns) for _ in range(settings.batch_rows)]
        rows = [
            DecodeRow(opened_turn(pair, opener), settings.temperature, [settings.seed, attempt + place, 2])
            for place, (_, opener) in enumerate(batch)
        ]
        ends = set(pair.eos_token_ids)
        spoken = decode_batch(pair.target, rows, max_new_tokens=settings.max_new_tokens, eos_ids=pair.eos_token_ids)
        for place, ((task, opener), ids) in enumerate(zip(batch, spoken, strict=True)):
            text = (opener + pair.tokenizer.decode([token for token in ids if token not in ends])).strip()
            fault = "endless" if ids[-1] not in ends else fault_of(text) or ("known" if likeness(text) in known else "")
            if fault:
                dropped[fault] += 1
            elif len(prompts) < count:
                known.add(likeness(text))
                name = f"{SPLIT}/{task}/{hashlib.sha256(text.encode()).hexdigest()[:12]}"
                way = (settings.temperature, settings.max_new_tokens, settings.seed, sha256)
                prompts.append(SelfPrompt(name, task, SPLIT, text, opener, attempt + place, *way))
        attempt += len(batch)
        tried += len(batch)
        write_whole(out, "".join(json.dumps(asdict(entry), ensure_ascii=False) + "\n" for entry in prompts))
        report(len(prompts), tried)
    return SelfPromptReport(tuple(prompts), tried, dict(sorted(dropped.items())))


def _stored(out: Path, settings: SelfPromptSettings, target_sha256: str) -> list[SelfPrompt]:
    """The prompts that `out` holds already."""
    try:
        text = out.read_text(encoding="utf-8") if out.exists() else ""
    except UnicodeDecodeError as error:
        raise PromptError(f"{out}: text must be UTF-8, got byte {error.object[error.start : error.end]!r}") from error
    if not text:  # also what a run leaves that has kept nothing yet
        return []
    prompts = []
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        try:
            entry = SelfPrompt(**json.loads(line))
        except (ValueError, TypeError) as error:
            raise PromptError(f"{out}:{number}: line must be a prompt of this command, got {line[:60]!r}") from error
        made = (entry.temperature, entry.max_new_tokens, entry.seed, entry.target_sha256)
        asked = (settings.temperature, settings.max_new_tokens, settings.seed, target_sha256)
        if made != asked:
            raise PromptError(f"{out}:{number}: settings and target must be {asked}, got {made}")
        prompts.append(entry)
    return prompts
