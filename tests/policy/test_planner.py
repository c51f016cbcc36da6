"""The planner on hand-made cases whose best answers are known."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from treewise.data.cost import CostGrid
from treewise.data.errors import ParameterError
from treewise.policy.forest import Forest
from treewise.policy.hook import Nodes
from treewise.policy.planner import (
    PLANNED_ROWS,
    PRICED_NODES,
    Curves,
    Opening,
    PlannerSettings,
    Prices,
    choose_growths,
    draft_at_once,
    keep_rows,
    normalise_siblings,
    path_products,
    row_prices,
)


def prices(
    rate: float = 0.1,
    row_ms: float = 0.0,
    draft_ms: float = 1.0,
    token_ms: float = 0.0,
    call_ms: float = 0.0,
    verify: NDArray[np.float64] | None = None,
) -> Prices:
    grid = CostGrid((1, 101), (0,), ((draft_ms, draft_ms + 100 * token_ms),))
    curve = 20.0 + row_ms * np.arange(PRICED_NODES + 1.0) if verify is None else verify
    return Prices(rate, Curves.at(curve, grid, 0), call_ms)


def chain(nodes: int, drafted: int = 0) -> Nodes:
    """A root and a chain below it; the draft ran on the first `drafted` rows."""
    forest = Forest()
    forest.append(nodes + 1)
    forest.column("parent")[:] = np.arange(nodes + 1) - 1
    forest.column("depth")[:] = np.arange(nodes + 1)
    forest.column("drafted")[:drafted] = True
    missing = np.maximum(np.arange(nodes + 1) - drafted, 0)
    forest.column("draft_missing")[:] = missing
    return forest.view()


def test_survival_is_the_product_along_the_path() -> None:
    parent = np.asarray([-1, 0, 1, 2, 3, 4, 0, 6], dtype=np.int32)
    match = np.asarray([1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3])
    expected = [1.0, 0.9, 0.72, 0.504, 0.3024, 0.1512, 0.4, 0.12]
    np.testing.assert_allclose(path_products(match, parent, 5), expected)


def test_siblings_share_one_mass() -> None:
    parent = np.asarray([-1, 0, 0, 1, 1], dtype=np.int32)
    match = np.asarray([1.0, 0.9, 0.6, 0.5, 0.2])
    np.testing.assert_allclose(normalise_siblings(match, parent), [1.0, 0.6, 0.4, 0.5, 0.2])


@given(st.lists(st.floats(0.001, 0.999), min_size=1, max_size=30), st.integers(0, 2**31))
def test_survival_never_exceeds_the_parents(matches: list[float], seed: int) -> None:
    draw = np.random.default_rng(seed)
    parent = np.asarray([-1, *(draw.integers(0, place + 1) for place in range(len(matches)))], dtype=np.int32)
    match = normalise_siblings(np.asarray([1.0, *matches]), parent)
    survival = path_products(match, parent, len(matches))
    assert (survival[1:] < survival[parent[1:]] + 1e-15).all()
    totals = np.bincount(parent[1:], weights=match[1:])
    assert (totals <= 1 + 1e-12).all()


@given(
    st.lists(st.floats(0.001, 1.0), min_size=0, max_size=7),
    st.lists(st.floats(0.0, 30.0), min_size=7, max_size=7),
    st.floats(0.001, 0.2),
)
def test_kept_rows_are_the_best_of_all_sets(survival: list[float], steps: list[float], rate: float) -> None:
    """Against every subset, on any rising price curve."""
    curve = np.concatenate([[20.0], 20.0 + np.cumsum(steps), np.full(PRICED_NODES - 7, 1e6)])
    own = prices(rate, verify=curve)
    values = np.asarray(survival)
    chosen = keep_rows(values, np.arange(len(values)), own)

    def net(rows: NDArray[np.intp]) -> float:
        return float(values[rows].sum() - rate * curve[len(rows)])

    sets = itertools.chain.from_iterable(itertools.combinations(range(len(values)), n) for n in range(len(values) + 1))
    best = max(net(np.asarray(rows, dtype=np.intp)) for rows in sets)
    assert net(chosen) == pytest.approx(best, abs=1e-9)


def test_a_step_is_crossed_where_what_lies_behind_it_pays() -> None:
    """The first row costs 10 ms, three more are free: one alone does not pay, four do."""
    curve = np.concatenate([[20.0], np.full(4, 30.0), np.full(PRICED_NODES - 4, 500.0)])
    rows = np.arange(4)
    own = prices(0.1, verify=curve)
    assert len(keep_rows(np.asarray([0.5, 0.3, 0.2, 0.1]), rows, own)) == 4
    assert len(keep_rows(np.asarray([0.5, 0.2, 0.1, 0.1]), rows, own)) == 0
    assert len(keep_rows(np.asarray([0.5, 0.2, 0.1, 0.1]), rows, own, scale=0.8)) == 4


def test_rows_that_do_not_pay_alone_can_pay_together() -> None:
    """Three rows behind a step of 10 ms (1 token): .5 offered already, so two further rows take .5 and not 1."""
    curve = np.concatenate([[20.0], np.full(3, 30.0), np.full(PRICED_NODES - 3, 500.0)])
    own = prices(0.1, verify=curve)
    assert row_prices(np.asarray([0.5]), own)[:4].tolist() == pytest.approx([0.0, 0.5, 0.5, 1.0])
    assert row_prices(np.zeros(0), own)[:4].tolist() == pytest.approx([0.0, 1.0, 1.0, 1.0])
    assert row_prices(np.zeros(0), own, scale=0.5)[:2].tolist() == pytest.approx([0.0, 0.5])


@given(st.lists(st.floats(0.001, 1.0), max_size=12), st.floats(0.0, 5.0), st.floats(0.001, 0.2))
def test_row_prices_never_fall(survival: list[float], row_ms: float, rate: float) -> None:
    price = row_prices(np.asarray(survival), prices(rate, row_ms=row_ms))
    assert len(price) == PLANNED_ROWS + 1
    assert price[0] == 0.0
    assert (np.diff(price) >= -1e-12).all()
    assert (price <= rate * row_ms * np.arange(PLANNED_ROWS + 1) + 1e-9).all(), "never more than rows of their own"


def choose(gain: list[float], rows: list[int], forest: Nodes, own: Prices, **more: float) -> list[int]:
    """Growths where each row's survival is 1 and one level may be added."""
    deepest = int(more.get("deepest", forest.depth.max() + 1))
    survival, holds = np.ones(len(gain)), np.asarray(gain)
    price = row_prices(np.zeros(0), own)
    scale = more.get("scale", 1.0)
    args = (deepest, int(more.get("catch_up", 0)), price, own, scale)
    return sorted(choose_growths(survival, holds, np.asarray(rows, dtype=np.intp), forest, *args).tolist())


def star(leaves: int) -> Nodes:
    """A drafted root and its children."""
    forest = Forest()
    forest.append(leaves + 1)
    forest.column("parent")[1:] = 0
    forest.column("parent")[0] = -1
    forest.column("depth")[1:] = 1
    forest.column("drafted")[0] = True
    return forest.view()


@pytest.mark.parametrize(
    ("draft_ms", "token_ms", "row_ms", "expected"),
    [
        (1.0, 0.0, 0.0, [1, 2, 3, 4]),  # one price for all: all run
        (6.9, 0.0, 0.0, [1, 2, 3, 4]),  # .7 tokens at .1 each: just pays
        (7.1, 0.0, 0.0, []),  # just does not
        (1.0, 1.5, 0.0, [1, 2]),  # a token costs .15, worth .2 and more only
        (1.0, 0.0, 1.5, [1, 2]),  # the same through verified rows
        (500.0, 0.0, 0.0, []),
    ],
)
def test_growths_by_price(draft_ms: float, token_ms: float, row_ms: float, expected: list[int]) -> None:
    own = prices(draft_ms=draft_ms, token_ms=token_ms, row_ms=row_ms)
    gain = [0.0, 0.3, 0.2, 0.1, 0.1]
    assert choose(gain, [4, 3, 2, 1], star(4), own) == expected
    assert len(choose(gain, [4, 3, 2, 1], star(4), prices(draft_ms=0.0), scale=0.0)) == 4


def test_growing_on_can_make_a_growth_pay() -> None:
    """The first row behind a step of .8 tokens holds .6: one level loses, four levels add .6 + .36 + .216 + .13."""
    curve = np.concatenate([[20.0], np.full(8, 28.0), np.full(PRICED_NODES - 8, 500.0)])
    own = prices(draft_ms=0.5, verify=curve)
    assert choose([0.0, 0.6], [1], star(1), own, deepest=2) == []
    assert choose([0.0, 0.6], [1], star(1), own, deepest=5) == [1]


@pytest.mark.parametrize(
    ("token_ms", "catch_up", "expected"),
    [
        (0.0, 0, [1, 2, 3]),
        (1.5, 0, [1]),  # root and first node bring .9 for two tokens; further ones cost .15 and bring .1
        (1.5, 3, [1]),
        (1.5, 5, []),  # what the draft must catch up on eats the gain: .9 < .1 + .15 x 6
        (0.5, 5, [1, 2, 3]),
    ],
)
def test_missing_ancestors_cost_and_gain(
    token_ms: float, catch_up: int, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was drafted yet: growing below node 1 runs the root as well, which is where the gain is."""
    monkeypatch.setattr("treewise.policy.planner.PLANNED_LEVELS", 1)
    own = prices(draft_ms=1.0, token_ms=token_ms)
    forest = chain(3)
    survival = np.asarray([1.0, 0.5, 0.2, 0.2])
    holds = np.asarray([0.6, 0.6, 0.5, 0.5])
    args = (4, catch_up, np.zeros(PLANNED_ROWS + 1), own)
    chosen = choose_growths(survival, holds, np.arange(1, 4), forest, *args)
    assert sorted(chosen.tolist()) == expected


def test_a_carrier_without_gain_of_its_own_still_serves_the_root() -> None:
    assert choose([0.6, 0.0], [1], chain(1), prices()) == [1]
    assert choose([0.6, 0.0], [1], chain(1, drafted=1), prices()) == []
    assert choose([0.6, 0.0], [], chain(1), prices()) == []


ALONE = Opening(holds=0.5, first_match=0.0, carries=False, levels=8, catch_up=0)


@pytest.mark.parametrize(
    ("opening", "own", "expected"),
    [
        (ALONE, prices(draft_ms=1.0), True),
        (ALONE, prices(draft_ms=500.0), False),
        (ALONE, prices(draft_ms=1.0, row_ms=500.0), False),
        (replace(ALONE, holds=0.0), prices(draft_ms=0.0), False),
        (replace(ALONE, levels=0), prices(draft_ms=0.0), False),
        (replace(ALONE, catch_up=40), prices(draft_ms=1.0, token_ms=1.0), False),
        # A sure continuation carries the root along later: look up first.
        (replace(ALONE, first_match=0.9, carries=True), prices(draft_ms=1.0), False),
        # A doubtful one does not repay the level that waiting opens.
        (replace(ALONE, first_match=0.05, carries=True), prices(draft_ms=1.0, call_ms=1.0), True),
        # There is no room to grow below it.
        (replace(ALONE, first_match=0.9, carries=True, levels=1), prices(draft_ms=1.0), True),
        # Not to be drafted below, however likely.
        (replace(ALONE, first_match=0.9, carries=False), prices(draft_ms=1.0), True),
    ],
)
def test_openings(opening: Opening, own: Prices, expected: bool) -> None:
    assert draft_at_once(opening, own) is expected


def test_opening_scale_makes_drafting_dearer() -> None:
    own = prices(draft_ms=2.0)
    assert draft_at_once(ALONE, own)
    assert not draft_at_once(ALONE, own, scale=5.0)


def test_cheapest_row() -> None:
    curve = np.concatenate([[20.0, 26.0, 28.0], 28.0 + 3.0 * np.arange(1, PRICED_NODES - 1)])
    assert prices(verify=curve).curves.cheapest_row_ms == pytest.approx(2.0)
    assert prices(verify=-curve).curves.cheapest_row_ms == 0.0


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"growth_scale": -0.1}, "growth_scale must be finite and at least 0, got -0.1"),
        ({"prune_scale": float("inf")}, "prune_scale must be finite"),
        ({"opening_scale": float("nan")}, "opening_scale must be finite"),
        ({"rate_over_plain": 0.5}, "rate_over_plain must be between 1 and 100, got 0.5"),
        ({"sibling_normalise": 1}, "sibling_normalise must be true or false, got 1"),
    ],
)
def test_settings_have_rules(setting: dict[str, float], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        PlannerSettings(**setting)  # type: ignore[arg-type]


def test_settings_round_trip() -> None:
    settings = PlannerSettings(0.5, 0.7, 1.5, False, 2.0)
    assert PlannerSettings.from_json(settings.to_json()) == settings


def test_growths_beyond_the_curve_are_priced_by_the_grid() -> None:
    own = prices(draft_ms=1.0, token_ms=0.5, call_ms=0.25)
    tokens = np.asarray([1, 3, 101, 300])
    expected = [1.25, 2.25, 51.25, 150.75]
    assert own.draft_ms(tokens).tolist() == pytest.approx(expected)
    assert own.draft_ms(tokens[:2]).tolist() == pytest.approx(expected[:2])
    assert [own.growth_ms(count) for count in tokens.tolist()] == pytest.approx(expected)
