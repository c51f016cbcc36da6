"""Findings: every one fires and does not, on figures by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from treewise.data.cost import CostGrid, CostProfile
from treewise.data.errors import ParameterError
from treewise.training.cost_findings import (
    context_cost,
    cost_findings,
    serial_drafting,
    serial_verification,
    verify_slope,
)
from treewise.training.draft_findings import (
    LEAST_GUESSES,
    context_acceptance,
    draft_agreement,
    draft_temperature,
    fitted_temperature,
)
from treewise.training.findings import Finding, Limits
from treewise.training.policy_findings import LiveShares, accepted_length, draft_share, live_findings, overhead
from treewise.training.positions import Positions
from treewise.training.tally import TALLY_COLUMNS, Tally

LIMITS = Limits()


def profile(
    verify: tuple[float, ...], counts: tuple[int, ...] = (1, 4, 16), draft: tuple[float, float] = (1.0, 1.1)
) -> CostProfile:
    """Verify passes of `counts` rows, drafts of 1 and 4 tokens, one capacity."""
    return CostProfile("made", CostGrid(counts, (0,), (verify,)), CostGrid((1, 4), (0,), (draft,)), policy_ms=0.1)


def said(found: Finding) -> tuple[Any, str]:
    """Figure and status."""
    return found.figure, found.status


def test_a_finding_fires_outside_its_band_and_nowhere_else() -> None:
    def status(figure: float | None, low: float | None, high: float | None) -> str:
        return Finding("x", figure, "words", "cure", low, high).status

    assert [status(figure, 1.0, 2.0) for figure in (0.99, 1.0, 2.0, 2.01)] == ["fires", "fine", "fine", "fires"]
    assert [status(figure, None, 2.0) for figure in (-9.0, 2.01)] == ["fine", "fires"]
    assert [status(figure, None, 2.0) for figure in (None, float("nan"))] == ["unknown", "unknown"]
    found = Finding("x", 3.0, "words", "cure", 1.0, 2.0)
    assert (found.rule, found.to_json()["figure"]) == ("1 to 2", 3.0)
    assert Finding("x", float("nan"), "words", "cure", high=2.0).to_json()["figure"] is None
    with pytest.raises(ParameterError, match="low must be a number where high is none"):
        Finding("x", 1.0, "words", "cure")


def test_verify_slope() -> None:
    flat, steep = (
        verify_slope(profile((10.0, 10.5, 14.0)), 0, LIMITS),
        verify_slope(profile((10.0, 12.0, 16.0)), 0, LIMITS),
    )
    assert said(flat) == (pytest.approx(1.4), "fine")
    assert said(steep) == (pytest.approx(1.6), "fires")
    narrow = verify_slope(profile((10.0, 11.0), counts=(1, 8)), 0, LIMITS)
    assert narrow.status == "unknown"
    assert "at most 8 rows; 16 are needed" in narrow.words


def test_serial_passes() -> None:
    serial = profile((10.0, 39.0, 160.0), draft=(2.0, 7.0))  # 39 of 40, 7 of 8
    together = profile((10.0, 12.0, 15.0), draft=(2.0, 2.4))  # 12 of 40, 2.4 of 8
    for make, figures in ((serial_verification, (0.975, 0.3)), (serial_drafting, (0.875, 0.3))):
        fires, fine = make(serial, 0, LIMITS), make(together, 0, LIMITS)
        assert said(fires) == (pytest.approx(figures[0]), "fires")
        assert said(fine) == (pytest.approx(figures[1]), "fine")
    assert "of 4 passes of one row 40.00" in serial_verification(serial, 0, LIMITS).words
    names = [found.name for found in cost_findings(together, 0, has_draft=False, limits=LIMITS)]
    assert names == ["verify slope", "serial verification", "context: cost"]


def test_context_cost() -> None:
    long = replace(profile((10.0, 10.0, 10.0)), verify=CostGrid((1, 16), (128, 4096), ((10.0, 11.0), (12.0, 13.0))))
    assert said(context_cost(long, LIMITS)) == (pytest.approx(1.2), "fine")
    longer = replace(long, verify=CostGrid((1, 16), (128, 4096), ((10.0, 11.0), (13.0, 14.0))))
    assert context_cost(longer, LIMITS).status == "fires"
    assert "behind 128 tokens, 13.00 behind 4,096" in context_cost(longer, LIMITS).words
    assert context_cost(profile((10.0, 10.0, 10.0)), LIMITS).status == "unknown"


def positions(
    first: list[int], stated: float = 0.5, right: list[int] | None = None, run: list[int] | None = None
) -> Positions:
    """One prompt."""
    count = len(first)
    nothing = np.full(count, np.nan)
    return Positions(
        prompt_id=np.full(count, "a"),
        task=np.full(count, "chat"),
        place=np.arange(count),
        text_tokens=np.full(count, count),
        context_tokens=100 + np.arange(count),
        entropy_bits=np.full(count, 1.0),
        first=np.asarray(first, dtype=np.float64),
        width=nothing,
        any_source=nothing,
        run=nothing,
        any_run=np.asarray(run if run is not None else [1] * count, dtype=np.float64),
        stated=np.full(count, stated),
        right=np.asarray(right if right is not None else first, dtype=np.float64),
        draft_entropy_bits=np.full(count, 2.0),
    )


def test_a_draft_that_never_agrees() -> None:
    never, rarely = (
        draft_agreement(positions([0] * 24 + [1]), LIMITS),
        draft_agreement(positions([0] * 18 + [1]), LIMITS),
    )
    assert said(never) == (pytest.approx(0.04), "fires")
    assert said(rarely) == (pytest.approx(1 / 19), "fine")


def test_the_fitted_temperature_by_hand() -> None:
    # Odds of .9 are 9; right in three of four means odds of 3 = 9^(1/2).
    assert fitted_temperature(np.full(400, 0.9), np.asarray([1.0, 1.0, 1.0, 0.0] * 100)) == pytest.approx(2.0)
    # Odds of .75 are 3; right in nine of ten means odds of 9 = 3^2.
    assert fitted_temperature(np.full(100, 0.75), np.asarray([1.0] * 90 + [0.0] * 10)) == pytest.approx(0.5)
    assert fitted_temperature(np.full(9, 0.9), np.zeros(9)) == pytest.approx(20.0)  # the end of what is looked at


def test_temperature_mismatch() -> None:
    def of(stated: float, right: int) -> Finding:
        spread = [(place + 1) * right // 400 - place * right // 400 for place in range(400)]
        return draft_temperature(positions([0] * 400, stated, spread), LIMITS)

    assert said(of(0.9, 300)) == (pytest.approx(2.0), "fires")  # too sharp
    assert of(0.75, 360).status == "fires"  # too flat
    assert of(0.75, 300).figure == pytest.approx(1.0)
    assert of(0.75, 300).status == "fine"
    assert "stated 0.900, right 0.750, ECE 0.15" in of(0.9, 300).words
    assert "entropy of the draft 2.00 bits, of the target 1.00" in of(0.9, 300).words
    few = draft_temperature(positions([1] * (LEAST_GUESSES - 1)), LIMITS)
    assert (few.status, few.words) == ("unknown", "99 guesses, 100 are needed")


def test_context_acceptance() -> None:
    fading = context_acceptance(positions([1] * 5, run=[4, 4, 9, 3, 3]), LIMITS)  # the middle one is in no half
    steady = context_acceptance(positions([1] * 4, run=[2, 3, 3, 2]), LIMITS)
    assert said(fading) == (pytest.approx(0.75), "fires")
    assert said(steady) == (pytest.approx(1.0), "fine")
    assert "contexts of 100 to 103 tokens" in steady.words
    assert context_acceptance(positions([1] * 4, run=[0, 0, 1, 1]), LIMITS).status == "unknown"


def tally(**columns: float) -> Tally:
    """One request of 100 tokens whose plain decoding takes 1000 ms."""
    values = {name: np.asarray([columns.get(name, 0.0)]) for name in TALLY_COLUMNS}
    values["tokens"] = np.asarray([100.0])
    return Tally(np.asarray(["p"]), np.asarray(["t"]), np.asarray([1000.0]), values)


def test_accepted_length_is_held_against_what_pays_for_its_rounds() -> None:
    # 50 rounds of 16 ms are 1.6 plain passes each: they have to accept .6, and accept 1.
    pays = accepted_length("chain:2", tally(rounds=50, ms=800), profile((10.0, 11.0, 15.0)), LIMITS)
    assert said(pays) == (1.0, "fine")
    assert pays.low == pytest.approx(0.6)
    dear = accepted_length("chain:2", tally(rounds=50, ms=1100), profile((10.0, 11.0, 15.0)), LIMITS)
    assert said(dear) == (1.0, "fires")
    assert dear.low == pytest.approx(1.2)


LIVE = LiveShares("chain:2", 4, 200, 2.0, 1.4, 1.4, 0.3, 0.01, 0.04, 0.0, 0)


def test_draft_share_is_the_live_one_where_it_ran() -> None:
    rounds = tally(rounds=50, ms=800, draft_ms=400, growths=100)
    modelled = draft_share("chain:2", rounds, None, LIMITS)
    assert said(modelled) == (0.5, "fires")
    assert "2.00 growths a round" in modelled.words
    live = draft_share("chain:2", rounds, LIVE, LIMITS)
    assert said(live) == (0.3, "fine")
    assert draft_share("chain:2", rounds, replace(LIVE, policy="topn:8x1"), LIMITS).figure == 0.5


def test_overhead() -> None:
    priced = replace(profile((10.0, 11.0, 15.0)), round_ms=0.5, level_ms=0.2)
    rounds = tally(rounds=50, ms=800, calls=200)  # 20 ms of calls, 25 of rounds, 100 levels of 20 in all
    policy, outside = overhead("chain:2", rounds, priced, None, LIMITS)
    assert said(policy) == (pytest.approx(20 / 800), "fires")
    assert said(outside) == (pytest.approx(65 / 800), "fires")
    policy, outside = overhead("chain:2", rounds, priced, LIVE, LIMITS)
    assert (said(policy), said(outside)) == ((0.01, "fine"), (0.04, "fine"))
    _, outside = overhead("chain:2", rounds, profile((10.0, 11.0, 15.0)), None, LIMITS)
    assert (outside.status, outside.words) == ("unknown", "profile made has no price for it")


def test_live_findings() -> None:
    assert [found.status for found in live_findings(LIVE, 1.4, LIMITS)] == ["fine"] * 3
    bad = replace(LIVE, fallback_share=0.02, differing=1, speedup=1.0)
    assert [found.status for found in live_findings(bad, 1.4, LIMITS)] == ["fires"] * 3
    assert [found.status for found in live_findings(None, float("nan"), LIMITS)] == ["unknown"] * 3
    assert live_findings(LIVE, float("nan"), LIMITS)[2].status == "unknown"
