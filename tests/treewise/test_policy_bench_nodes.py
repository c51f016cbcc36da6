"""Verified nodes against accepted length: what is interpolated, what is tuned, and what an interval is of."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tests.policy.models import ENVELOPE, tiny_bundle
from tests.training.worlds import World, dense_trace
from treewise.data.cost import CostProfile
from treewise.policy.hook import DRAFT, FREE
from treewise.policy_bench_cell import per_round, shown
from treewise.policy_bench_nodes import SIZES, NodeCurve, SavedNodes, compare_nodes, node_curve, nodes_at
from treewise.policy_bench_plan import Condition
from treewise.policy_bench_store import ReplayStore, key_of
from treewise.training.statistics import point
from treewise.training.tally import TALLY_COLUMNS, Tally

CONDITION = Condition("default", 0.0)
EXAMPLE = CostProfile.load("example-a100-70b")
PROMPTS = 20


def tally(accepted: float, nodes: float, spread: float = 0.0) -> Tally:
    """Ten rounds of every prompt; `spread` moves nodes from some prompts to others."""
    columns = {name: np.zeros(PROMPTS) for name in TALLY_COLUMNS}
    columns["rounds"] += 10.0
    columns["tokens"] += 10.0 * (1.0 + accepted)
    columns["nodes"] += 10.0 * nodes * (1.0 + spread * np.cos(np.pi * np.arange(PROMPTS)))
    names = np.asarray([f"p{number:02d}" for number in range(PROMPTS)])
    return Tally(names, np.full(PROMPTS, "chat"), np.full(PROMPTS, 1.0), columns)


def compared(reach: float = 2.0) -> NodeCurve:
    """Top-N verifies 4 nodes for 1 token and 12 for 1.5; the priced curve 2 for 1 and 10 for `reach`."""
    found = {
        "topn:4x1": tally(1.0, 4.0),
        "topn:12x1": tally(1.5, 12.0),
        "a": tally(1.0, 2.0, 0.5),
        "b": tally(reach, 10.0),
        "c": tally(2.0, 16.0),
        "d": tally(1.25, 10.0),
    }
    chosen = {4: "topn:4x1", 12: "topn:12x1"}
    return compare_nodes(CONDITION, chosen, found, (("a", "b"), ("c",), ("d",)), 2000)


def test_nodes_are_linear_between_neighbouring_settings() -> None:
    nodes = nodes_at(np.asarray([0.0, 0.5, 1.5, 2.0, 2.1]), np.asarray([1.0, 2.0]), np.asarray([2.0, 10.0]))
    np.testing.assert_allclose(nodes, [0.0, 1.0, 6.0, 10.0, np.nan])
    past = nodes_at(np.asarray([1.5, 2.5]), np.asarray([1.0, 2.0, 2.0]), np.asarray([2.0, 10.0, 11.0]), beyond=True)
    np.testing.assert_allclose(past, [6.0, 15.0])
    dented = nodes_at(np.asarray([1.5]), np.asarray([1.0, 0.9, 2.0]), np.asarray([2.0, 3.0, 10.0]))
    np.testing.assert_allclose(dented, [6.5])  # a setting that brings less is passed over


def test_every_curve_is_read_at_the_length_of_topn() -> None:
    found = compared()
    assert found.prompts == PROMPTS
    first, second = found.points
    assert (first.accepted, first.nodes, first.priced, first.limited, first.prior) == (1.0, 4.0, 2.0, 8.0, 8.0)
    assert (second.priced, second.limited) == (6.0, 12.0)
    assert math.isnan(second.prior)  # 1.5 is never reached
    assert first.saved.value == second.saved.value == 0.5 == found.saved.value
    assert found.limited.value == pytest.approx((-1.0 + 0.0) / 2.0)
    assert first.saved.low < 0.5 < first.saved.high  # prompts differ there
    assert found.lowest is first


def test_a_length_that_is_not_reached_is_no_saving() -> None:
    found = compared(reach=1.2)
    assert math.isnan(found.points[1].saved.value) and math.isnan(found.saved.value)
    assert found.lowest is found.points[1]


def test_a_draw_of_prompts_is_a_choice_of_requests() -> None:
    rng = np.random.default_rng(1)
    singles, curve = (np.sort(rng.integers(5, 50, (PROMPTS, 3, 3)), axis=1).astype(float) for _ in range(2))
    singles[:, :, 0], curve[:, :, 0] = singles[:, :, 1] * 1.2, curve[:, :, 1] * np.asarray([1.1, 1.3, 1.6])
    whole = SavedNodes(singles, curve)
    times = np.zeros((1, PROMPTS))
    times[0, [2, 5]] = (2.0, 1.0)
    again = SavedNodes(singles[[2, 2, 5]], curve[[2, 2, 5]])
    assert whole.value(times)[0] == pytest.approx(point(again))
    assert whole.by_prompt.shape == (PROMPTS, 18)


def test_topn_of_each_size_is_tuned_for_length_and_the_bundle_is_asked_for_both_kinds(tmp_path: Path) -> None:
    trace = dense_trace(World(seed=5, num_texts=3, answer_tokens=16), ENVELOPE)
    stores = [ReplayStore(trace, tmp_path / f"{name}.jsonl") for name in ("train", "judge")]
    learned = f"learned:{tiny_bundle().save(tmp_path / 'bundle')}"
    found = node_curve(CONDITION, (stores[0], stores[1]), DRAFT | FREE, EXAMPLE, learned, 2000)
    assert [one.size for one in found.points] == list(SIZES)
    tried = {depth: f"topn:4x{depth},sources=all" for depth in (1, 2, 3, 4)}
    lengths = stores[0].tallies(DRAFT | FREE, [EXAMPLE], tried.values())
    longest = max(tried.values(), key=lambda spec: per_round(lengths[0, spec], "tokens"))
    assert found.points[1].spec == longest
    judged = stores[1].tallies(DRAFT | FREE, [EXAMPLE], [longest, f"{learned},nodes=4"])
    assert found.points[1].nodes == pytest.approx(per_round(judged[0, longest], "nodes"))
    assert per_round(judged[0, f"{learned},nodes=4"], "nodes") <= 4.0


def test_a_bundle_with_a_price_is_another_policy(tmp_path: Path) -> None:
    learned = f"learned:{tiny_bundle().save(tmp_path / 'bundle')}"
    keys = {key_of(spec, 7, "x") for spec in (learned, f"{learned},nodes=4", f"{learned},least=0.1")}
    assert len(keys) == 3
    assert {key.policy.partition(" ")[0] for key in keys} == {"learned"}
    assert shown(f"{learned},nodes=4") == "learned:DIR,nodes=4"


def test_a_resample_that_ends_short_keeps_the_interval() -> None:
    # Tokens, rounds, nodes: the second prompt alone accepts 1.0, while the curve there ends at 0.9.
    singles = np.asarray([[[30.0, 20.0, 40.0]], [[40.0, 20.0, 40.0]]])
    curve = np.asarray([[[34.0, 20.0, 30.0]], [[38.0, 20.0, 30.0]]])
    saved = SavedNodes(singles, curve)
    drawn = saved.value(np.asarray([[1.0, 1.0], [0.0, 2.0]]))
    assert np.isfinite(drawn).all() and drawn[1] < drawn[0]
    assert np.isnan(SavedNodes(singles, curve - [4.0, 0.0, 0.0]).value(np.asarray([[1.0, 1.0]]))).all()
