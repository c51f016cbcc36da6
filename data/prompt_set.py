"""Prompt sets: JSON Lines files of prompts with an id, a task kind and a split."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from treewise.data.errors import PromptError, require
from treewise.data.stored_json import parse_object, short

OWN_SPLITS = ("distill", "policy", "demo", "judge")  # the packaged ones
DRAWN_SPLIT = "distill-more"  # expanded when it is asked for by name
SELF_SPLIT = "self"  # what `treewise self-prompts` had the default target write


@dataclass(frozen=True, slots=True)
class Prompt:
    """One single-turn prompt, before any chat template."""

    id: str  # unique within its set
    task: str  # knowledge, reasoning, creative, structured, instruction, translation, summarization, rag, chat, ...
    text: str  # what the user says
    split: str = ""  # empty when the file names none
    tests: str = ""  # Python that passes where the answer's code is right; empty when the file brings none


def read_prompts(path: str | Path) -> tuple[Prompt, ...]:
    """The prompts of a JSON Lines file, or of all `*.jsonl` files of a folder in the order of their names.

    Every line is an object with the strings `id`, `task` and `prompt`, and optionally `split` and, where the prompt
    asks for Python, `tests`: a string, or a list of lines such as `assert f(2) == 4`. Other fields are ignored. Raises
    `PromptError`, which names file, line, rule and value, for a missing, undecodable, empty or malformed file and for
    an id that occurs twice.
    """
    path = Path(path)
    if path.is_dir():
        files = sorted(path.glob("*.jsonl"))
        if not files:
            raise PromptError(f"{path}: folder must hold at least one .jsonl file, got none")
    elif path.is_file():
        files = [path]
    else:
        raise PromptError(f"path must be an existing prompt file or folder, got {str(path)!r}")
    return _unique(item for file in files for item in _decode(file.read_bytes(), str(file)))


def own_prompts(split: str | None = None) -> tuple[Prompt, ...]:
    """The project's own prompts: those of one split, or of all packaged splits where it is None.

    `distill`, `policy`, `demo` and `judge` are packaged and never change: what ships was made from them. `distill-more`
    is drawn from forms and word lists, `self` was written by the default target behind openers of this project; a
    prompt's id in these two names its text. Raises `ParameterError`.
    """
    known = (*OWN_SPLITS, DRAWN_SPLIT, SELF_SPLIT)
    require(split is None or split in known, "split", f"None or one of {', '.join(known)}", split)
    if split == DRAWN_SPLIT:
        from treewise.data.more_prompts import more_records

        drawn = (Prompt(entry["id"], entry["task"], entry["prompt"], DRAWN_SPLIT) for entry in more_records())
        return tuple(drawn)
    name = "self.jsonl" if split == SELF_SPLIT else "own.jsonl"
    packaged = resources.files("treewise.data").joinpath("prompts", name)
    prompts = _unique(_decode(packaged.read_bytes(), f"treewise.data/prompts/{name}"))
    return prompts if split is None else tuple(prompt for prompt in prompts if prompt.split == split)


def prompts_sha256(prompts: Iterable[Prompt]) -> str:
    """SHA-256, in hex, over every field of the prompts in the given order."""
    digest = hashlib.sha256()
    for prompt in prompts:
        # JSON keeps the fields apart: no two different sets share their bytes.
        values = [prompt.id, prompt.task, prompt.text, prompt.split]
        line = json.dumps([*values, prompt.tests] if prompt.tests else values)
        digest.update(line.encode("ascii") + b"\n")
    return digest.hexdigest()


def _decode(content: bytes, name: str) -> Iterator[tuple[str, Prompt]]:
    """Pairs of `file:line` and prompt; at least one, or `PromptError`."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        bad = content[error.start : error.end]
        raise PromptError(f"{name}:{number}: text must be UTF-8, got byte {bad!r}") from error
    if not text.strip():
        raise PromptError(f"{name}: file must hold at least one prompt, got none")
    # Not str.splitlines, which would also split at the line separators that JSON strings may contain.
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        place = f"{name}:{number}"
        yield place, _prompt(parse_object(line, f"{place}: line", PromptError), place)


def _prompt(record: dict[str, object], place: str) -> Prompt:
    """The prompt of one decoded line."""
    values: dict[str, str] = {}
    for field in ("id", "task", "prompt"):
        value = record.get(field)
        if not isinstance(value, str) or not value.strip():
            raise PromptError(f"{place}: {field} must be a non-empty string, got {short(value)}")
        values[field] = value
    split = record.get("split", "")
    if not isinstance(split, str):
        raise PromptError(f"{place}: split must be a string, got {short(split)}")
    try:
        values["prompt"].encode("utf-8")
    except UnicodeEncodeError as error:
        # JSON can spell half of a surrogate pair, which no tokenizer accepts.
        raise PromptError(f"{place}: prompt must be encodable as UTF-8, got {short(values['prompt'])}") from error
    return Prompt(values["id"], values["task"], values["prompt"], split, _tests(record.get("tests"), place))


def _tests(value: object, place: str) -> str:
    """The field `tests` as one text; empty where it is missing or null."""
    lines: list[object] = value if isinstance(value, list) else [] if value is None else [value]
    texts = [line for line in lines if isinstance(line, str)]
    if len(texts) < len(lines):
        raise PromptError(f"{place}: tests must be a string or a list of strings, got {short(value)}")
    return "\n".join(texts)


def _unique(placed: Iterable[tuple[str, Prompt]]) -> tuple[Prompt, ...]:
    """The prompts, after a check that no id occurs twice."""
    places: dict[str, str] = {}
    prompts: list[Prompt] = []
    for place, prompt in placed:
        if prompt.id in places:
            raise PromptError(f"{place}: id must be unique, got {prompt.id!r} again after {places[prompt.id]}")
        places[prompt.id] = place
        prompts.append(prompt)
    return tuple(prompts)


def in_turns(prompts: Iterable[Prompt], count: int) -> tuple[Prompt, ...]:
    """At most `count` of `prompts`, their tasks taking turns."""
    queues: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        queues.setdefault(prompt.task, []).append(prompt)
    longest = max((len(queue) for queue in queues.values()), default=0)
    turns = [queue[place] for place in range(longest) for queue in queues.values() if place < len(queue)]
    return tuple(turns[:count])
