"""Forms: prompt templates whose slots are filled from word lists, drawn without writing all combinations out."""

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

# `{food}` or, for a second and different value of the same list, `{food2}`; `{Food}` is `{food}` at the
# start of a sentence, for values that begin with a letter; `{3..9}` and `{10..90/5}` are numbers.
_SLOT = re.compile(r"\{(?:(?P<name>[A-Za-z][a-z_]*?)(?P<copy>\d?)|(?P<low>\d+)\.\.(?P<high>\d+)(?:/(?P<step>\d+))?)\}")
_DEPTH = 4  # values that hold slots, whose values hold slots, and so on
_ARTICLE = re.compile(r"\b([Aa])\(n\) (?=([\"'*]?\w))")


def items(text: str) -> tuple[str, ...]:
    """The entries of a list written as `one; two; three`, over as many lines as it takes."""
    return tuple(entry for entry in (" ".join(part.split()) for part in text.split(";")) if entry)


def lines(text: str) -> tuple[str, ...]:
    """The entries of a list with one entry a line; the mark ¶ in an entry stands for a line break.

    A backslash at the end of a line of source goes on in the next one; runs of spaces count as one.
    """
    return tuple(" ".join(line.split()).replace("¶", "\n") for line in text.splitlines() if line.strip())


@dataclass(frozen=True, slots=True)
class Forms:
    """Templates of one kind; up to `each` distinct prompts are drawn from every template.

    Braces that name no list and no range of numbers stay, so templates may hold JSON or code. Values may hold slots
    themselves. `a(n)` becomes `a` or `an` by the letter that follows.
    """

    templates: tuple[str, ...]
    each: int
    slots: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def draw(self, seed: str, shared: Mapping[str, tuple[str, ...]]) -> list[list[str]]:
        """One list of prompts a template; a template's own draws do not depend on the other templates."""
        lists = {**shared, **self.slots}
        return [_Drawing(f"{seed}/{template}", lists).texts(template, self.each) for template in self.templates]


def unfilled(text: str, lists: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The slots of `text` that a list or a range of numbers could still fill."""
    return [found.group() for found in _SLOT.finditer(text) if found["low"] or found["name"].lower() in lists]


@dataclass(frozen=True, slots=True)
class _Drawing:
    """The draws of one template: every slot goes through its list in an order of its own."""

    seed: str
    lists: Mapping[str, tuple[str, ...]]
    decks: dict[str, list[str]] = field(default_factory=dict)  # by slot, shuffled when first met

    def texts(self, template: str, count: int) -> list[str]:
        return list(dict.fromkeys(self._fill(template, turn) for turn in range(count)))

    def _fill(self, template: str, turn: int) -> str:
        rng = random.Random(f"{self.seed}/{turn}")
        chosen: dict[str, str] = {}

        def value(found: re.Match[str]) -> str:
            if found["low"]:
                return str(rng.randrange(int(found["low"]), int(found["high"]) + 1, int(found["step"] or 1)))
            name, slot = found["name"].lower(), found.group().lower()
            if name not in self.lists:
                return found.group()
            if slot not in chosen:
                chosen[slot] = self._next(slot, name, turn, chosen)
            text = chosen[slot]
            return text if found["name"].islower() else text[:1].upper() + text[1:]

        text = template
        for _ in range(_DEPTH):
            text = _SLOT.sub(value, text)
        return _ARTICLE.sub(_article, text)

    def _next(self, slot: str, name: str, turn: int, chosen: Mapping[str, str]) -> str:
        if slot not in self.decks:
            self.decks[slot] = list(self.lists[name])
            random.Random(f"{self.seed}/{slot}").shuffle(self.decks[slot])
        deck = self.decks[slot]
        fresh = (deck[(turn + step) % len(deck)] for step in range(len(deck)))
        return next((text for text in fresh if text not in chosen.values()), deck[turn % len(deck)])


def _article(found: re.Match[str]) -> str:
    vowel = found[2].lstrip("\"'*").lower() in set("aeiou")
    return found[1] + ("n " if vowel else " ")
