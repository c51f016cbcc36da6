"""Python exercises: functions to complete from signature and docstring, or to write so that assertions hold."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from treewise.data.own_prompts.python_singles import SINGLES

Numbers = Sequence[int]
_NUMBERS: dict[str, tuple[str, Callable[[int], bool]]] = {
    "even": ("even numbers", lambda n: n % 2 == 0),
    "odd": ("odd numbers", lambda n: n % 2 == 1),
    "negative": ("negative numbers", lambda n: n < 0),
    "two_digit": ("numbers with exactly two digits", lambda n: 10 <= abs(n) <= 99),
    "threefold": ("multiples of three", lambda n: n % 3 == 0),
    "square": ("perfect squares", lambda n: n >= 0 and round(n**0.5) ** 2 == n),
    "prime": ("prime numbers", lambda n: n > 1 and all(n % d for d in range(2, n))),
    "mirrored": ("non-negative numbers that read the same backwards", lambda n: str(n) == str(n)[::-1]),
}
_NUMBER_JOBS: dict[str, tuple[str, Callable[[Numbers, Numbers], Any]]] = {
    "count": ("Return how many {things} the list holds.", lambda found, all_: len(found)),
    "sum": ("Return the sum of the {things} in the list; 0 if there are none.", lambda found, all_: sum(found)),
    "keep": ("Return a new list with only the {things}, in their order.", lambda found, all_: list(found)),
    "drop": ("Return the list without its {things}.", lambda found, all_: [n for n in all_ if n not in found]),
    "largest": (
        "Return the largest of the {things}, or None if there are none.",
        lambda found, all_: max(found, default=None),
    ),
    "first": (
        "Return the position of the first of the {things}, or -1.",
        lambda found, all_: all_.index(found[0]) if found else -1,
    ),
    "double": (
        "Return the list with the {things} doubled and everything else as it is.",
        lambda found, all_: [2 * n if n in found else n for n in all_],
    ),
    "share": (
        "Return the share of {things} among all numbers, rounded to two places.",
        lambda found, all_: round(len(found) / len(all_), 2),
    ),
}
_LETTERS: dict[str, tuple[str, Callable[[str], bool]]] = {
    "vowels": ("vowels", lambda c: c.lower() in "aeiou"),
    "digits": ("digits", str.isdigit),
    "capitals": ("capital letters", str.isupper),
    "spaces": ("spaces", lambda c: c == " "),
    "consonants": ("consonants", lambda c: c.isalpha() and c.lower() not in "aeiou"),
    "marks": ("punctuation marks", lambda c: not c.isalnum() and c != " "),
}
_LETTER_JOBS: dict[str, tuple[str, Callable[[str, Callable[[str], bool]], Any]]] = {
    "count": ("Count the {things} in the text.", lambda t, p: sum(map(p, t))),
    "remove": ("Remove all {things} from the text.", lambda t, p: "".join(c for c in t if not p(c))),
    "star": (
        "Replace each of the {things} in the text by a star.",
        lambda t, p: "".join("*" if p(c) else c for c in t),
    ),
    "places": ("List the positions of the {things} in the text.", lambda t, p: [i for i, c in enumerate(t) if p(c)]),
    "last": (
        "Return the last one of the {things} in the text, or an empty string.",
        lambda t, p: ([""] + [c for c in t if p(c)])[-1],
    ),
    "longest_run": (
        "Return the length of the longest stretch of the text that has no {things}.",
        lambda t, p: max(map(len, "".join("\0" if p(c) else c for c in t).split("\0"))),
    ),
}
_WORDS: dict[str, tuple[str, Callable[[str], bool]]] = {
    "long": ("words with more than four letters", lambda w: len(w) > 4),
    "short": ("words with at most three letters", lambda w: len(w) <= 3),
    "vowel": ("words that begin with a vowel", lambda w: w[0] in "aeiou"),
    "ending": ("words that end with the letter n", lambda w: w.endswith("n")),
    "paired": ("words with two equal letters in a row", lambda w: any(a == b for a, b in pairwise(w))),
}
_WORD_JOBS: dict[str, tuple[str, Callable[[list[str], list[str]], Any]]] = {
    "count": ("Count the {things} in the sentence.", lambda found, all_: len(found)),
    "list": ("List the {things} of the sentence in alphabetical order.", lambda found, all_: sorted(found)),
    "join": ("Join the {things} of the sentence with hyphens.", lambda found, all_: "-".join(found)),
    "reverse": (
        "Turn round the letters of the {things} and leave other words alone.",
        lambda f, a: " ".join(w[::-1] if w in f else w for w in a),
    ),
    "capitals": (
        "Write the {things} of the sentence in capital letters.",
        lambda f, a: " ".join(w.upper() if w in f else w for w in a),
    ),
    "lengths": (
        "Map each of the {things} in the sentence to its length.",
        lambda found, all_: {w: len(w) for w in found},
    ),
}
_NUMBER_LISTS = (
    [3, 8, -5, 12, 9, 44], [7, 11, 16, 25, -2, 30], [121, 6, 6, -9, 13], [100, 4, 55, 2, -13, 81, 27], [1, 0,
    36, 49, 50],
    [-8, -3, 17, 22, 99, 101], [5, 10, 15, 20, 64], [33, 19, 8, -21, 2], [12], [9, 18, -44, 23, 31, 77],
)  # fmt: skip
_TEXTS = (
    "Room 12, Floor 3", "hello world", "A quick Test!", "Rain, rain and 2 umbrellas", "NASA sent 4 rovers.",
    "open-source", "b2b or b2c?",
    "Why not 7 or 8?", "xyz", "Eleven Red Apples", "it's 5 o'clock", "MIXED case, twice", "queue",
)  # fmt: skip
_SENTENCES = (
    "an apple and a green pear", "seven birds began to sing", "the moon is full again",
    "all eggs fell on the floor", "rain in spring",
    "our kitten sleeps in a basket", "one small open window", "men run and children follow", "ice on every river",
    "we keep bees in the garden",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Exercise:
    """A function to write and what it returns."""

    name: str
    arguments: str  # with their types
    returns: str
    job: str
    cases: tuple[tuple[str, str], ...]  # argument and result, as Python writes them

    def stub(self, rng: random.Random) -> str:
        """Signature and docstring with two examples."""
        shown = "\n".join(f"    >>> {self.name}({given})\n    {result}" for given, result in rng.sample(self.cases, 2))
        return f'def {self.name}({self.arguments}) -> {self.returns}:\n    """{self.job}\n\n{shown}\n    """\n'

    def checks(self, rng: random.Random) -> str:
        """Three assertions."""
        return "\n".join(f"assert {self.name}({given}) == {result}" for given, result in rng.sample(self.cases, 3))


def exercises() -> list[Exercise]:
    """Every exercise, in a fixed order."""
    made: list[Exercise] = []
    for kind, (things, test) in _NUMBERS.items():
        for verb, (job, solve) in _NUMBER_JOBS.items():
            results = [(str(given), repr(solve([n for n in given if test(n)], given))) for given in _NUMBER_LISTS]
            made.append(_exercise(f"{verb}_{kind}", "numbers: list[int]", job.format(things=things), results))
    for kind, (things, letter) in _LETTERS.items():
        for verb, (job, change) in _LETTER_JOBS.items():
            results = [(repr(given), repr(change(given, letter))) for given in _TEXTS]
            made.append(_exercise(f"{verb}_{kind}", "text: str", job.format(things=things), results))
    for kind, (things, word) in _WORDS.items():
        for verb, (job, pick) in _WORD_JOBS.items():
            split = [(given, given.split()) for given in _SENTENCES]
            results = [(repr(given), repr(pick([w for w in words if word(w)], words))) for given, words in split]
            made.append(_exercise(f"{verb}_{kind}_words", "sentence: str", job.format(things=things), results))
    for name, arguments, job, solution, cases in SINGLES:
        results = [(", ".join(map(repr, case)), repr(solution(*case))) for case in cases]
        made.append(_exercise(name, arguments, job, results))
    return made


def _exercise(name: str, arguments: str, job: str, results: list[tuple[str, str]]) -> Exercise:
    kinds = {"'": "str", '"': "str", "[": "list", "{": "dict", "N": "int | None", "T": "bool", "F": "bool"}
    number = "float" if any("." in result for _, result in results) else "int"
    found = {kinds.get(result[0], number) for _, result in results}
    returns = "int | None" if "int | None" in found else found.pop()
    return Exercise(name, arguments, returns, job, tuple(results))


@dataclass(frozen=True, slots=True)
class PythonExercises:
    """The exercises, each in three forms: a bare stub, a stub with a request, a request with assertions."""

    def draw(self, seed: str, shared: Mapping[str, tuple[str, ...]]) -> list[list[str]]:
        """One list of prompts a form."""
        forms: list[list[str]] = [[], [], []]
        for exercise in exercises():
            rng = random.Random(f"{seed}/{exercise.name}")
            forms[0].append(exercise.stub(rng))
            forms[1].append("Complete this Python function and explain it briefly.\n\n" + exercise.stub(rng))
            forms[2].append(
                f"Write a Python function `{exercise.name}`. {exercise.job} These assertions have to hold:\n\n"
                + exercise.checks(rng)
            )
        for place, form in enumerate(forms):
            random.Random(f"{seed}/{place}").shuffle(form)
        return forms
