"""Break-even factors, by hand and under replay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.training.judged import EXAMPLE, judged_report, judged_trace
from treewise.data.cost import CostGrid, CostProfile
from treewise.training.ab import ab
from treewise.training.break_even import break_even
from treewise.training.tally import TALLY_COLUMNS, Tally


def tally(ms: float, draft_ms: float, slope_ms: float, tokens: float = 100.0, reads_costs: bool = False) -> Tally:
    """One request."""
    columns = {name: np.zeros(1) for name in TALLY_COLUMNS}
    columns |= {"tokens": np.asarray([tokens]), "ms": np.asarray([ms])}
    columns |= {"draft_ms": np.asarray([draft_ms]), "slope_ms": np.asarray([slope_ms])}
    return Tally(np.asarray(["p"]), np.asarray(["t"]), np.asarray([1000.0]), columns, reads_costs)


def test_factors_by_hand() -> None:
    # plain: 1000 ms. policy: 600 + 100 f + 50 s: equal at f = 3.5 with s = 1, at s = 6 with f = 1.
    found = break_even("here", "plain", tally(1000.0, 0.0, 0.0), "chain", tally(750.0, 100.0, 50.0))
    assert found.ratio == pytest.approx(1000.0 / 750.0)
    assert found.draft_factor == pytest.approx(3.5)
    assert found.verify_factor == pytest.approx(6.0)
    assert found.held == ()
    assert found.words() == (
        "chain and plain change places where draft growths cost 3.50 times as much; "
        "where verify rows beyond the first cost 6.00 times as much"
    )


def test_unequal_tokens_are_weighed() -> None:
    found = break_even("here", "a", tally(1000.0, 0.0, 0.0, 100.0), "b", tally(750.0, 100.0, 0.0, 50.0))
    assert found.ratio == pytest.approx(2.0 / 3.0)
    assert found.draft_factor is None  # free drafts would not save it: 650 ms for half of the tokens
    assert found.verify_factor is None


def test_what_touches_both_alike_flips_nothing() -> None:
    found = break_even("here", "a", tally(900.0, 100.0, 30.0), "b", tally(800.0, 100.0, 60.0, reads_costs=True))
    assert found.draft_factor is None
    assert found.verify_factor == pytest.approx((870.0 - 740.0) / (60.0 - 30.0))
    assert found.held == ("b",)
    assert found.words().endswith("; b read the costs and are held to what they decided")
    assert "at no price of draft growths" in found.words()


def _scaled(cost: CostProfile, draft: float = 1.0, verify: float = 1.0) -> CostProfile:
    """`cost` with its draft growths, or its verify passes beyond one row, so many times as dear."""
    rows = tuple(tuple(row[0] + verify * (ms - row[0]) for ms in row) for row in cost.verify.ms)
    tokens = tuple(tuple(draft * ms for ms in row) for row in cost.draft.ms)
    return replace(
        cost,
        name=f"{cost.name} x {draft:.3f} x {verify:.3f}",
        verify=CostGrid(cost.verify.counts, cost.verify.capacities, rows),
        draft=CostGrid(cost.draft.counts, cost.draft.capacities, tokens),
    )


def test_the_order_flips_at_the_break_even_factors() -> None:
    trace, report, checked = judged_trace(), judged_report(), 0
    ratios = {(row.profile, row.policy): row.ratio.value for row in report.rows if row.task == "" and row.ratio}
    for found in report.break_even:
        assert found.held == (("frontier",) if found.policy == "frontier" else ())
        assert found.ratio == pytest.approx(ratios[found.profile, found.policy])
        if found.held or found.profile != EXAMPLE.name:
            continue
        for name in ("draft", "verify"):
            factor = getattr(found, f"{name}_factor")
            if factor is None:
                continue
            costs = [_scaled(EXAMPLE, **{name: factor * part}) for part in (0.98, 1.0, 1.02)]
            again = ab([trace], costs, [found.first, found.policy])
            below, at, above = (row.ratio.value for row in again.rows if row.task == "" and row.ratio and row.judgement)
            assert at == pytest.approx(1.0, abs=1e-6)
            assert (below - 1.0) * (above - 1.0) < 0.0
            checked += 1
    assert checked >= 2
