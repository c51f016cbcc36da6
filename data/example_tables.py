"""Two example tables of tree speculation on large models, and the drafting time that they leave unsaid.

The figures were supplied with the project; nobody here measured them. A step is one verify pass and the drafting before
it. Convention: `speed-up = tokens per step x plain pass / step`, so a step takes `tokens per step x plain pass /
speed-up`, and whatever of that is not its verify pass counts as drafting: draft passes, the policy, sampling, caches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

MS_HALF, RATIO_HALF = 0.05, 0.005  # half of the last digit that milliseconds, and tokens and speed-ups, are given to


@dataclass(frozen=True, slots=True)
class Span:
    """A figure and what the rounding of its inputs leaves open."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"

    def per(self, count: int) -> Span:
        """One of `count` equal parts."""
        return Span(self.value / count, self.low / count, self.high / count)

    def to_json(self) -> dict[str, float]:
        """A JSON-ready mapping."""
        return {name: round(value, 6) for name, value in asdict(self).items()}

    def overlaps(self, other: Span) -> bool:
        """Whether one figure can be both."""
        return self.low <= other.high and other.low <= self.high


@dataclass(frozen=True, slots=True)
class ExampleRow:
    """One strategy as a table has it."""

    strategy: str
    spec: str  # of our policy of the same kind
    rows: int  # of the verify pass, as the table counts them
    verify_ms: float
    tokens_per_step: float
    speedup: float | None  # over plain decoding; None: not given
    task: str = ""  # "": not said
    passes: int | None = None  # of the draft in a step, one a level; None where the depth is not said
    drafted: int | None = None  # tokens that those passes run in all


@dataclass(frozen=True, slots=True)
class ExampleTable:
    """The rows of one table; `name` is that of the built-in cost profile made from it."""

    name: str
    device: str
    pair: str
    rows: tuple[ExampleRow, ...]
    given_plain_ms: float | None  # of a pass of one row; None: not given

    @property
    def curve(self) -> tuple[tuple[int, float], ...]:
        """(rows, milliseconds) of the verify passes that are given, ascending."""
        return tuple(sorted({(row.rows, row.verify_ms) for row in self.rows}))

    @property
    def plain_ms(self) -> float:
        """Milliseconds of a pass of one row: as given, else the line through the two narrowest passes, carried on."""
        if self.given_plain_ms is not None:
            return self.given_plain_ms
        (narrow, ms), (wide, wide_ms) = self.curve[:2]
        return ms - (wide_ms - ms) / (wide - narrow) * (narrow - 1)

    @property
    def plain_bounds(self) -> Span:
        """What the plain pass can be: given, or from where no drafting is negative to what the narrowest pass takes."""
        if self.given_plain_ms is not None:
            return Span(self.plain_ms, self.plain_ms - MS_HALF, self.plain_ms + MS_HALF)
        least = max(row.verify_ms * row.speedup / row.tokens_per_step for row in self.rows if row.speedup is not None)
        return Span(self.plain_ms, least, self.curve[0][1])

    def step_ms(self, row: ExampleRow) -> Span | None:
        """Milliseconds of a step of `row`; None where its speed-up is not given."""
        if row.speedup is None:
            return None
        half = MS_HALF if self.given_plain_ms is not None else 0.0  # else the plain pass is a convention
        low = (row.tokens_per_step - RATIO_HALF) * (self.plain_ms - half) / (row.speedup + RATIO_HALF)
        high = (row.tokens_per_step + RATIO_HALF) * (self.plain_ms + half) / (row.speedup - RATIO_HALF)
        return Span(row.tokens_per_step * self.plain_ms / row.speedup, low, high)

    def drafting_ms(self, row: ExampleRow) -> Span | None:
        """Milliseconds of a step that are not its verify pass; None where the speed-up is not given."""
        step = self.step_ms(row)
        if step is None:
            return None
        verify = row.verify_ms
        return Span(step.value - verify, step.low - verify - MS_HALF, step.high - verify + MS_HALF)

    def most_speedup(self, row: ExampleRow) -> float:
        """Speed-up if drafting took no time."""
        return row.tokens_per_step * self.plain_ms / row.verify_ms

    def speedup_at(self, row: ExampleRow, drafting_ms: float) -> float:
        """Speed-up if drafting took so long."""
        return row.tokens_per_step * self.plain_ms / (row.verify_ms + drafting_ms)

    def expected_speedup(self, row: ExampleRow) -> float | None:
        """Speed-up of a row without one, if its step drafts as long as the same strategy's others do on average."""
        same = [self.drafting_ms(other) for other in self.rows if other.strategy == row.strategy]
        known = [span.value for span in same if span is not None]
        return self.speedup_at(row, sum(known) / len(known)) if known else None

    @property
    def pass_ms(self) -> float:
        """Milliseconds of one draft pass by the chains, whose passes run one token each; mean over their rows."""
        spans = [(self.drafting_ms(row), row.passes) for row in self.rows if row.passes and row.passes == row.drafted]
        found = [span.per(passes).value for span, passes in spans if span is not None and passes is not None]
        return sum(found) / len(found)


def faults(table: ExampleTable, row: ExampleRow) -> tuple[str, ...]:
    """Why `row` cannot be, in words; nothing where it can."""
    found = []
    if row.passes is not None and row.tokens_per_step - RATIO_HALF > row.passes + 1:
        found.append(f"{row.tokens_per_step:.2f} tokens a step from {row.passes} levels, which give at most one more")
    drafting = table.drafting_ms(row)
    if drafting is not None and drafting.high < 0.0:
        found.append(f"its verify pass alone takes {-drafting.value:.2f} ms longer than the whole step")
    return tuple(found)


def level_match(row: ExampleRow) -> float | None:
    """Share of levels that match, the same at every level, at which `row` commits its tokens; None without a depth.

    Solves `1 + m + m^2 + ... + m^levels = tokens per step`.
    """
    if not row.passes or not 1.0 <= row.tokens_per_step <= row.passes + 1:
        return None
    low, high = 0.0, 1.0
    while high - low > 1e-9:
        middle = (low + high) / 2.0
        tokens = math.fsum(middle**level for level in range(row.passes + 1))
        low, high = (middle, high) if tokens < row.tokens_per_step else (low, middle)
    return (low + high) / 2.0


def contradictions(table: ExampleTable) -> tuple[str, ...]:
    """What rows of `table` cannot have in common, in words: one price of a draft pass, of a drafted token."""
    found = []
    parts = {"draft pass": [row.passes for row in table.rows], "drafted token": [row.drafted for row in table.rows]}
    for what, counts in parts.items():
        known = []
        for row, count in zip(table.rows, counts, strict=True):
            span = table.drafting_ms(row)
            if count and span is not None:
                known.append((row, span.per(count), count))
        apart = _furthest(known)
        if apart is not None:
            (cheap, low, fewer), (dear, high, more) = apart
            found.append(
                f"no one price of a {what} fits; '{cheap.strategy}' leaves {low} ms for each of {fewer}, "
                f"'{dear.strategy}' {high} ms for each of {more}"
            )
    return tuple(found)


_Priced = tuple[ExampleRow, Span, int]


def _furthest(known: Sequence[_Priced]) -> tuple[_Priced, _Priced] | None:
    """The cheapest and the dearest of `known`, where they differ by more than rounding."""
    if len(known) < 2:
        return None
    ordered = sorted(known, key=lambda part: part[1].value)
    return None if ordered[0][1].overlaps(ordered[-1][1]) else (ordered[0], ordered[-1])


A100_70B = ExampleTable(
    name="example-a100-70b",
    device="A100, 70B target (example)",
    pair="a 70B target with a small draft (example)",
    given_plain_ms=24.5,
    rows=(
        ExampleRow("plain", "plain", 1, 24.5, 1.00, 1.00),
        ExampleRow("chain of 5", "chain:5", 5, 26.2, 2.15, 1.82, passes=5, drafted=5),
        ExampleRow("entropy rule, budget 48", "entropy:max_nodes=48", 36, 28.1, 4.25, 2.94),
        ExampleRow("cumulative threshold", "cumulative", 68, 38.6, 4.12, 2.24),
        ExampleRow("static, 3 wide, 4 deep", "static:3x4", 120, 58.4, 4.82, 1.58, passes=4, drafted=1 + 3 + 9 + 27),
    ),
)
_CHAIN, _TREE = ("chain of 5", "chain:5", 5, 12.4), ("tree of 16", "topn:16x4", 16, 13.8)
H800_67B = ExampleTable(
    name="example-h800-67b",
    device="H800, 67B target (example)",
    pair="a 67B target with a small draft (example)",
    given_plain_ms=None,
    rows=(
        ExampleRow(*_CHAIN, 2.18, 1.62, "code", passes=5, drafted=5),
        ExampleRow(*_TREE, 4.25, 2.84, "code"),
        ExampleRow(*_CHAIN, 1.85, 1.38, "mathematics", passes=5, drafted=5),
        ExampleRow(*_TREE, 3.80, 2.55, "mathematics"),
        ExampleRow(*_CHAIN, 2.82, None, "chat", passes=5, drafted=5),
        ExampleRow(*_TREE, 4.92, None, "chat"),
    ),
)
TABLES = (A100_70B, H800_67B)
