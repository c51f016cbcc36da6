"""What the page says first: which policy is the fastest, and what the judgements allow to say of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from treewise.training.ab_report import AbRow

Standing: TypeAlias = Literal["better", "worse", "undecided"]


@dataclass(frozen=True, slots=True)
class Headline:
    """The verdict on the first policy."""

    standing: Standing  # of the first policy beside the fastest of the others
    words: str
    others: tuple[str, ...]  # one line for each comparison


def headline(rows: Sequence[tuple[str, AbRow]]) -> Headline:
    """From the rows of all tasks under one profile, (name, row), the first policy first.

    Says no more than the rows' judgements, which hold together: those of the other policies against the first.
    """
    name, first = rows[0]
    plain = f"{name} runs at {first.speedup} times the speed of plain decoding"
    rivals = [(rival, row) for rival, row in rows[1:] if row.judgement is not None]
    if not rivals:
        return Headline("undecided", plain, ())
    best, row = max(rivals, key=lambda pair: pair[1].speedup.value)
    assert row.judgement is not None
    kind = row.judgement.verdict.kind
    if kind == "worse":
        standing: Standing = "better"
        words = f"{name} is the fastest; {best}, the next, is {row.verdict}"
    elif kind == "better":
        standing = "worse"
        words = f"{best} is the fastest: than {name} it is {row.verdict}"
    else:
        standing = "undecided"
        words = f"{best} against {name}: {row.verdict}"
    lines = [plain]
    for rival, other in rivals:
        assert other.judgement is not None
        lines.append(f"{rival} is {other.judgement.interval} times as fast as {name}: {other.verdict}")
    return Headline(standing, words, tuple(lines))
