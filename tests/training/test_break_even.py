"""Break-even factors by hand; that the order flips there under replay stands in test_ab."""

from __future__ import annotations

import numpy as np
import pytest

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
