"""What a recogniser of tasks reads off a prompt: terms of words and of characters, the same in training and online."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from itertools import pairwise

HEAD_CHARACTERS, TAIL_CHARACTERS = 1500, 500  # of a long prompt; a task is named at its beginning or its end
NUM_OPENING, NUM_CLOSING = 4, 4  # first and last words that count as such too
CHARACTER_RUNS = (2, 3, 4)  # lengths, within words and their edges
_WORD = re.compile(r"\w+")
_DIGIT = re.compile(r"\d")
_CODE = re.compile(r"[{}\[\]<>=_`]")


def words(text: str) -> list[str]:
    """Words and pairs of neighbouring words, the opening and closing words once more by their place, and the shape."""
    text = _clean(text)
    found = _WORD.findall(text)
    terms = found + [f"{first} {second}" for first, second in pairwise(found)]
    terms += [f"^{'' if place else 0}{word}" for place, word in enumerate(found[:NUM_OPENING])]
    terms += [f"${word}" for word in found[-NUM_CLOSING:]]
    return terms + list(_shape(text))


def characters(text: str) -> list[str]:
    """Runs of neighbouring characters, a blank standing for the edge of a word."""
    terms: list[str] = []
    for word in _clean(text).split():
        edged = f" {word} "
        for length in CHARACTER_RUNS:
            terms += [edged[start : start + length] for start in range(len(edged) - length + 1)]
    return terms


READERS: dict[str, Callable[[str], list[str]]] = {"words": words, "characters": characters}


def _clean(text: str) -> str:
    """Head and tail in lower case, every digit a 0: which number it is says nothing of the task."""
    if len(text) > HEAD_CHARACTERS + TAIL_CHARACTERS:
        text = f"{text[:HEAD_CHARACTERS]} {text[-TAIL_CHARACTERS:]}"
    return _DIGIT.sub("0", text.lower())


def _shape(text: str) -> Iterator[str]:
    """Length, lines, numbers and signs of code, each by powers of two; whether it asks."""
    counts = {"long": len(text), "lines": text.count("\n"), "digits": text.count("0"), "code": len(_CODE.findall(text))}
    for name, count in counts.items():
        if count:
            yield f"#{name} {int(math.log2(count))}"
    yield "#asks" if text.rstrip().endswith("?") else "#tells"
