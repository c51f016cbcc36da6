"""Single Python exercises, each with its own solution, from which the shown results are computed."""

from collections import Counter
from collections.abc import Callable
from itertools import accumulate, groupby, pairwise
from math import gcd, prod
from typing import Any

Solve = Callable[..., Any]

# Name, arguments with types, what to return, a solution, and the arguments of at least three cases.
SINGLES: tuple[tuple[str, str, str, Solve, tuple[tuple[Any, ...], ...]], ...] = (
    ("digit_sum", "n: int", "Return the sum of the decimal digits of n.", lambda n: sum(map(int, str(n))),
     ((123,), (90,), (7,))),
    ("minutes_of", "clock: str", "Turn a time such as '07:45' into minutes since midnight.",
     lambda c: int(c[:2]) * 60 + int(c[3:]), (("07:45",), ("00:10",), ("23:59",))),
    ("running_total", "amounts: list[int]", "Return the list of partial sums.", lambda a: list(accumulate(a)),
     (([1, 2, 3],), ([5, -5, 10],), ([],))),
    ("gap_sizes", "stops: list[int]", "Return the differences between neighbouring stops.",
     lambda s: [b - a for a, b in pairwise(s)], (([2, 5, 11],), ([4],), ([9, 7, 7],))),
    ("is_leap", "year: int", "Tell whether a year of the Gregorian calendar has 366 days.",
     lambda y: y % 4 == 0 and (y % 100 != 0 or y % 400 == 0), ((2024,), (1900,), (2000,))),
    ("initials", "name: str", "Return the first letters of a full name, each followed by a dot.",
     lambda n: "".join(w[0] + "." for w in n.split()), (("Ada Lovelace",), ("Jean Paul Marat",), ("Plato",))),
    ("interleave", "left: str, right: str",
     "Take letters from both texts in turns until the shorter one is used up.",
     lambda a, b: "".join(x + y for x, y in zip(a, b, strict=False)), (("abc", "123"), ("hi", "w"), ("", "x"))),
    ("common_divisor", "a: int, b: int", "Return the greatest number that divides both a and b.", gcd,
     ((12, 18), (7, 13), (100, 75))),
    ("change_for", "cents: int",
     "Return how many coins of 50, 20, 10, 5, 2 and 1 cents pay the amount with few coins, in that order.",
     lambda c: [c // 50, c % 50 // 20, c % 50 % 20 // 10, c % 10 // 5, c % 5 // 2, c % 5 % 2], ((88,), (40,), (3,))),
    ("collatz_steps", "n: int", "Halve even numbers and map odd n to 3n + 1; return the number of steps until 1.",
     lambda n: _collatz(n), ((1,), (6,), (27,))),
    ("word_lengths", "sentence: str", "Return the lengths of the words of a sentence.",
     lambda s: [len(w) for w in s.split()], (("to be or not",), ("one",), ("a bb ccc",))),
    ("most_common", "items: list[str]",
     "Return the entry that occurs most often; among equals the one that comes first.",
     lambda i: Counter(i).most_common(1)[0][0], ((["a", "b", "a"],), (["x"],), (["q", "r", "r", "q"],))),
    ("invert", "mapping: dict[str, int]", "Exchange keys and values.", lambda m: {v: k for k, v in m.items()},
     (({"a": 1},), ({"x": 3, "y": 4},), ({},))),
    ("merge_totals", "first: dict[str, int], second: dict[str, int]", "Add two dictionaries key by key.",
     lambda a, b: {k: a.get(k, 0) + b.get(k, 0) for k in [*a, *(k for k in b if k not in a)]},
     (({"a": 1}, {"a": 2}), ({}, {"b": 5}), ({"p": 1}, {"q": 1}))),
    ("runs", "text: str", "Shorten runs of equal letters to letter and count, so that 'aab' becomes 'a2b1'.",
     lambda t: "".join(f"{c}{len(list(g))}" for c, g in groupby(t)), (("aab",), ("zzzz",), ("abc",))),
    ("rotate", "items: list[int], steps: int",
     "Move the list to the right by so many places; what falls off comes in at the front.",
     lambda i, s: i[-s % len(i) :] + i[: -s % len(i)] if i else [],
     (([1, 2, 3, 4], 1), ([5, 6], 2), ([7, 8, 9], 4))),
    ("is_sorted", "numbers: list[int]", "Tell whether no number is followed by a smaller one.",
     lambda n: n == sorted(n), (([1, 2, 2],), ([3, 1],), ([],))),
    ("second_best", "scores: list[int]", "Return the second largest different score, or None.",
     lambda s: sorted(set(s))[-2] if len(set(s)) > 1 else None, (([4, 9, 9, 2],), ([5, 5],), ([1, 0],))),
    ("to_binary", "n: int", "Write a non-negative number in base two.", lambda n: f"{n:b}", ((5,), (0,), (255,))),
    ("roman_value", "numeral: str", "Return the value of a Roman numeral.", lambda r: _roman(r),
     (("XIV",), ("MCM",), ("VII",))),
    ("chunk", "items: list[int], size: int",
     "Split the list into pieces of the given size; the last may be shorter.",
     lambda i, s: [i[p : p + s] for p in range(0, len(i), s)], (([1, 2, 3, 4, 5], 2), ([1], 3), ([6, 7, 8], 3))),
    ("flat", "rows: list[list[int]]", "Join the rows to one list.", lambda r: [n for row in r for n in row],
     (([[1], [2, 3]],), ([[], [4]],), ([],))),
    ("columns_sum", "rows: list[list[int]]", "Return the sum of each column of a table.",
     lambda r: [sum(c) for c in zip(*r, strict=True)], (([[1, 2], [3, 4]],), ([[5]],), ([[1, 1, 1], [2, 2, 2]],))),
    ("diagonal", "grid: list[list[int]]", "Return the numbers on the diagonal from top left to bottom right.",
     lambda g: [g[i][i] for i in range(len(g))],
     (([[1, 2], [3, 4]],), ([[9]],), ([[1, 0, 0], [0, 2, 0], [0, 0, 3]],))),
    ("caesar", "text: str, shift: int", "Move every small letter on in the alphabet, from z back to a.",
     lambda t, s: "".join(chr((ord(c) - 97 + s) % 26 + 97) if c.islower() else c for c in t),
     (("abc", 1), ("xyz", 3), ("hi there", 13))),
    ("balanced", "text: str", "Tell whether round brackets open and close properly.", lambda t: _balanced(t),
     (("(a)(b)",), (")(",), ("((x)",))),
    ("anagrams", "a: str, b: str", "Tell whether two words consist of the same letters, whatever their case.",
     lambda a, b: sorted(a.lower()) == sorted(b.lower()), (("Listen", "silent"), ("cat", "dog"), ("Eat", "tea"))),
    ("title_case", "text: str", "Begin every word with a capital letter and leave the rest as it is.",
     lambda t: " ".join(w[:1].upper() + w[1:] for w in t.split()), (("the old man",), ("iPhone app",), ("x",))),
    ("product_of", "numbers: list[int]", "Return the product of all numbers; 1 for an empty list.", prod,
     (([2, 3, 4],), ([],), ([7, 0],))),
    ("closest", "numbers: list[int], goal: int",
     "Return the number nearest to the goal; the smaller one of two equally near.",
     lambda n, g: min(n, key=lambda x: (abs(x - g), x)), (([1, 8, 12], 9), ([4, 6], 5), ([-3], 100))),
    ("median", "numbers: list[int]", "Return the middle number of an odd number of numbers.",
     lambda n: sorted(n)[len(n) // 2], (([3, 1, 2],), ([9],), ([5, 5, 1, 8, 7],))),
    ("without_repeats", "items: list[int]", "Keep the first of all equal entries.", lambda i: list(dict.fromkeys(i)),
     (([1, 2, 1, 3],), ([4, 4, 4],), ([],))),
    ("pairs_with_sum", "numbers: list[int], total: int",
     "Count the pairs of places whose numbers add up to the total.",
     lambda n, t: sum(n[i] + n[j] == t for i in range(len(n)) for j in range(i)),
     (([1, 2, 3, 4], 5), ([2, 2, 2], 4), ([1], 2))),
    ("overlap", "a: tuple[int, int], b: tuple[int, int]", "Return the length that two intervals share.",
     lambda a, b: max(0, min(a[1], b[1]) - max(a[0], b[0])),
     (((1, 5), (3, 9)), ((0, 2), (2, 4)), ((1, 10), (4, 6)))),
    ("triangle_kind", "a: int, b: int, c: int", "Return 'equilateral', 'isosceles' or 'scalene'.",
     lambda *s: ("equilateral", "isosceles", "scalene")[len(set(s)) - 1], ((3, 3, 3), (5, 5, 8), (3, 4, 5))),
    ("grade", "points: int", "Return 'A' from 90 points, 'B' from 75, 'C' from 60, else 'F'.",
     lambda p: "A" if p >= 90 else "B" if p >= 75 else "C" if p >= 60 else "F", ((95,), (75,), (12,))),
    ("fizz", "n: int",
     "Return 'fizz' for multiples of 3, 'buzz' for those of 5, both joined for both, else the number as text.",
     lambda n: ("fizz" * (n % 3 == 0) + "buzz" * (n % 5 == 0)) or str(n), ((9,), (30,), (7,))),
    ("longest_word", "sentence: str", "Return the first of the longest words.", lambda s: max(s.split(), key=len),
     (("a tiny mouse ran",), ("big red car",), ("only",))),
    ("swap_ends", "items: list[int]", "Exchange the first and the last entry.",
     lambda i: [i[-1], *i[1:-1], i[0]] if len(i) > 1 else i, (([1, 2, 3],), ([4],), ([5, 6],))),
    ("is_palindrome", "text: str", "Tell whether the letters read the same backwards, without case and spaces.",
     lambda t: (u := t.replace(" ", "").lower()) == u[::-1], (("Never odd or even",), ("hello",), ("Anna",))),
    ("evens_first", "numbers: list[int]", "Put even numbers before odd ones and keep the order within both.",
     lambda n: sorted(n, key=lambda x: x % 2), (([3, 2, 1, 4],), ([5, 7],), ([6],))),
    ("acronym", "phrase: str", "Return the capital letters that begin the words of a phrase.",
     lambda p: "".join(w[0] for w in p.split()).upper(),
     (("as soon as possible",), ("random access memory",), ("work in progress",))),
    ("steps_to_zero", "n: int", "Halve an even number, take one from an odd one; return the steps to zero.",
     lambda n: n.bit_length() + n.bit_count() - 1 if n else 0, ((8,), (14,), (0,))),
    ("celsius", "fahrenheit: float", "Convert to degrees Celsius, rounded to one place.",
     lambda f: round((f - 32) / 1.8, 1), ((212.0,), (32.0,), (100.0,))),
    ("vote", "ballots: list[str]", "Return the names from most to fewest votes, equal ones in alphabetical order.",
     lambda b: sorted(set(b), key=lambda x: (-b.count(x), x)), ((["ann", "bob", "ann"],), (["z", "y"],), (["k"],))),
    ("mask", "number: str", "Replace all but the last four characters by '#'.",
     lambda n: "#" * (len(n) - 4) + n[-4:], (("1234567890",), ("4321",), ("99887",))),
)  # fmt: skip


def _collatz(n: int) -> int:
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def _roman(numeral: str) -> int:
    values = [{"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}[letter] for letter in numeral]
    return sum(-one if one < two else one for one, two in zip(values, [*values[1:], 0], strict=True))


def _balanced(text: str) -> bool:
    depths = list(accumulate((c == "(") - (c == ")") for c in text))
    return min(depths, default=0) >= 0 and (depths or [0])[-1] == 0
