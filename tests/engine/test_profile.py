"""Measuring a cost profile on a tiny pair: its shape, its words, and that nothing is left behind."""

from dataclasses import replace

import numpy as np
import pytest

from tests.engine.tiny import tiny_pair
from treewise.data.cost import CostProfile
from treewise.data.errors import ParameterError
from treewise.engine.profile import ProfileMeter, ProfileSettings, measure_profile, rising
from treewise.engine.random_tree import random_tree, tree_mask

QUICK = ProfileSettings(verify_rows=(1, 3), draft_tokens=(1, 2), capacities=(4, 9), repeats=3, round_tokens=3)


@pytest.mark.parametrize("draft", ["pruned", "none"])
def test_a_profile_holds_every_measured_cell(draft: str) -> None:
    told: list[str] = []
    pair = tiny_pair("pruned" if draft == "pruned" else "none")
    profile = measure_profile(pair, QUICK, measured=told.append, name="quick")
    assert (profile.name, profile.pair, profile.dtype, profile.attention) == ("quick", pair.name, "float64", "sdpa")
    assert (profile.verify.counts, profile.verify.capacities) == ((1, 3), (4, 9))
    assert all(value > 0 for row in profile.verify.ms for value in row)
    if draft == "none":
        assert float(profile.draft_ms(5)) == 0.0
    else:
        assert profile.draft.counts == (1, 2)
        assert all(value > 0 for row in profile.draft.ms for value in row)
    assert profile.policy_ms > 0 and profile.round_ms > 0
    assert set(profile.versions) == {"torch", "transformers", "treewise"}
    assert profile.verified and "median of 3" in profile.origin
    assert profile.spread["verify"] >= 0
    assert told[-1] == "rounds" and len(told) >= 9
    assert CostProfile.from_json(profile.to_json()) == profile


def test_random_trees_are_trees() -> None:
    parents = random_tree(40, np.random.default_rng(1))
    assert parents[0] == -1 and (parents[1:] < np.arange(1, 40)).all() and (parents[1:] >= 0).all()
    depths, mask = tree_mask(parents, 3)
    assert mask[:, :3].all() and depths[0] == 0
    for row in range(40):
        path, above = [row], int(parents[row])
        while above >= 0:
            path.append(above)
            above = int(parents[above])
        assert sorted(path) == (np.flatnonzero(mask[row]) - 3)[3:].tolist()
        assert depths[row] == len(path) - 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"repeats": 2}, "repeats must be >= 3, got 2"),
        ({"verify_rows": (1,)}, "verify_rows must be at least two counts"),
        ({"draft_tokens": (1,)}, "draft_tokens must be at least two counts"),
    ],
)
def test_settings_out_of_range(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        ProfileSettings(**settings)  # type: ignore[arg-type]


def test_a_step_down_that_noise_does_not_explain_stays() -> None:
    meter = ProfileMeter(tiny_pair("none"), replace(QUICK, verify_rows=(1, 2, 3, 4), capacities=(4,)))
    for _ in range(3):
        meter.repeat()
    # 2 rows cost more than 3, far beyond what either varies; 4 cost as much as 3, with one hiccup.
    meter._verify._cells = [[[1.0, 1.1, 1.2], [5.0, 5.1, 5.2], [3.0, 3.1, 3.2], [3.0, 3.05, 13.05]]]
    grid, spread = meter._verify.table()
    assert grid.ms[0] == pytest.approx((1.1, 5.05, 3.15, 4.075), abs=1e-9)
    assert spread > 0
    assert rising(np.asarray([1.0, 5.0, 3.0, 4.0])).tolist() == [1.0, 4.0, 4.0, 4.5]
    slower, _ = meter._verify.table(with_hiccups=True)
    total, expected = 3 * (1.1 + 5.1 + 3.1) + 19.1, 3 * (1.1 + 5.1 + 3.1 + 3.05)
    assert np.asarray(slower.ms) == pytest.approx(np.asarray(grid.ms) * total / expected)


def test_every_cell_is_timed_whatever_comes_first() -> None:
    meter = ProfileMeter(tiny_pair("pruned"), QUICK)
    for _ in range(4):
        meter.repeat()
    meter.decode(1)
    assert meter.profile("x", with_hiccups=True).origin == "measured on this machine, median of 3, hiccups added"
    for grid in (meter._verify, meter._draft):
        assert grid is not None
        assert {len(cell) for row in grid._cells for cell in row} == {3}
