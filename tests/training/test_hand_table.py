"""Fitting a hand table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from treewise.data.envelope import Envelope, PriorTable
from treewise.data.errors import ParameterError
from treewise.policy.features import FEATURES
from treewise.policy.hand_table import TableBins
from treewise.training.hand_table import SHRINK_ROWS, fit_hand_table
from treewise.training.rows import Dataset, GrowthRows, MatchRows, TreeRows

NAN = float("nan")
BINS = TableBins(draft=(0.5,), match=(1.0,), recycled=(0.5,), agreement=(0.5,))


def rows(*parts: tuple[int, int, float, float]) -> Dataset:
    """Rows, matches among them, draft's probability and match length of each part; the lookup's share is 1."""
    count = sum(part[0] for part in parts)
    x = np.full((count, len(FEATURES)), np.nan, dtype=np.float32)
    label = np.zeros(count, dtype=np.int8)
    start = 0
    for number, hits, prob, match in parts:
        own = slice(start, start + number)
        x[own, FEATURES.index("draft_log_prob")] = np.log(prob)
        x[own, FEATURES.index("lookup_match_length")] = match
        x[own, FEATURES.index("lookup_share")] = 1.0
        label[start : start + hits] = 1
        start += number
    whole = np.zeros(count, dtype=np.int32)
    match_rows = MatchRows(x, label, np.ones(count, dtype=np.float32), whole, x[:, 0], whole.astype(np.uint8))
    nothing = np.zeros(0)
    growth = GrowthRows(nothing, nothing, nothing, nothing)  # type: ignore[arg-type]
    trees = TreeRows(nothing, nothing, nothing, nothing, nothing)  # type: ignore[arg-type]
    return Dataset(("p",), ("chat",), match_rows, growth, trees, Envelope(), PriorTable(), count, 0)


def test_many_rows_give_their_own_rate_and_none_the_coarser_one() -> None:
    found = fit_hand_table(rows((4000, 1000, 0.2, 0.0), (4000, 3000, 0.9, 3.0)), BINS, ("here",))
    assert found.match[1, 0, 0, 0] == pytest.approx(0.25, abs=0.01)
    assert found.match[2, 1, 0, 1] == pytest.approx(0.75, abs=0.01)
    assert found.match[0, 0, 0, 0] == pytest.approx(0.5, abs=1e-6)  # nothing without the draft: the rate of all
    assert found.match[2, 0, 2, 0] == pytest.approx(0.75, abs=0.01)  # nothing there: the draft bin's rate
    assert (found.prompts, found.rows, found.origin) == (1, 8000, ("here",))


def test_few_rows_are_drawn_towards_the_coarser_table() -> None:
    few = int(SHRINK_ROWS)
    found = fit_hand_table(rows((10_000, 5000, 0.2, 0.0), (few, few, 0.2, 3.0)), BINS)
    assert found.match[1, 0, 0, 0] < found.match[1, 1, 0, 1] < 0.9


def test_a_surer_draft_never_means_less() -> None:
    found = fit_hand_table(rows((500, 400, 0.2, 0.0), (500, 100, 0.9, 0.0)), BINS)
    assert (np.diff(found.match[1:], axis=0) >= -1e-12).all()
    assert found.match[1, 0, 0, 0] == pytest.approx(0.5, abs=0.01)


def test_no_rows_are_refused() -> None:
    empty = rows((1, 0, 0.5, 0.0))
    bare = replace(empty.match, x=empty.match.x[:0], label=empty.match.label[:0], weight=empty.match.weight[:0])
    with pytest.raises(ParameterError, match="rows must be at least one row, got 0"):
        fit_hand_table(replace(empty, match=bare))
