"""Counts of nodes against the replay that they count."""

from __future__ import annotations

import numpy as np
import pytest

from tests.training.test_explain import Scoring
from tests.training.worlds import COST, World, dense_trace
from treewise.data.envelope import Envelope
from treewise.data.errors import ParameterError
from treewise.policy.registry import parse_policy
from treewise.training.contest import Contender
from treewise.training.logged_trace import LoggedTrace
from treewise.training.node_use import SOURCE_NAMES, node_use, reliability
from treewise.training.replay import replay

ENVELOPE = Envelope(max_depth=6, draft_width=4)


@pytest.fixture(scope="module")
def trace() -> LoggedTrace:
    return dense_trace(World(seed=5, num_texts=2, answer_tokens=30), ENVELOPE)


@pytest.mark.parametrize(
    "spec", ["topn:12x3", "entropy", "chain:3", "chain:3,sources=lookup", "topn:8x2,sources=free", "plain"]
)
def test_counts_are_those_of_the_replay(trace: LoggedTrace, spec: str) -> None:
    result = replay(parse_policy(spec), trace.requests, trace.deployment(COST))
    found = node_use([trace], COST, Contender.of(spec), "shown")
    assert found.policy == "shown"
    assert found.rounds == len(result)
    np.testing.assert_array_equal(found.accepted_length, np.bincount(result.accepted_length, minlength=7))
    np.testing.assert_array_equal(found.verified_rows, np.bincount(1 + result.verified_nodes))
    for use in (found.by_depth, found.by_rank, found.by_source):
        assert use.kept.sum() == result.verified_nodes.sum()
        assert use.accepted.sum() == result.accepted_length.sum()
        assert (use.accepted <= use.kept).all()
    deep_enough = [(result.accepted_length >= depth).sum() for depth in range(1, 7)]
    assert found.by_depth.accepted[1:].tolist() == deep_enough
    assert found.model is None


def test_sources_are_told_apart(trace: LoggedTrace) -> None:
    used = {
        sources: {
            name
            for name, kept in zip(SOURCE_NAMES, node_use([trace], COST, contender(sources)).by_source.kept, strict=True)
            if kept
        }
        for sources in ("lookup", "recycled", "free", "draft", "all")
    }
    assert used == {
        "lookup": {"lookup"},
        "recycled": {"recycled"},
        "free": {"lookup", "recycled", "both free"},
        "draft": {"draft"},
        "all": set(SOURCE_NAMES),
    }


def contender(sources: str) -> Contender:
    return Contender.of(f"topn:8x2,sources={sources}")


def test_traces_are_summed(trace: LoggedTrace) -> None:
    halves = [trace.of_prompts([request.prompt_id]) for request in trace.requests]
    whole, parts = (node_use(given, COST, Contender.of("topn:12x3")) for given in ([trace], halves))
    np.testing.assert_array_equal(whole.by_rank.kept, parts.by_rank.kept)
    np.testing.assert_array_equal(whole.prior.happened, parts.prior.happened)


def test_a_scoring_policy_has_a_curve_of_its_own(trace: LoggedTrace) -> None:
    found = node_use([trace], COST, Contender.of(Scoring()))
    assert found.model is not None
    np.testing.assert_array_equal(found.model.stated, np.full(10, 0.5))
    assert found.model.count.sum() == found.prior.count.sum() > 100
    shares = [curve.happened @ curve.count for curve in (found.model, found.prior)]
    assert shares[0] == pytest.approx(shares[1])  # the same candidates, in other bins


def test_a_reliability_curve_of_known_probabilities() -> None:
    rng = np.random.default_rng(3)
    stated = rng.random(20_000)
    match = (rng.random(20_000) < stated**2).astype(np.float64)
    found = reliability(stated, match, bins=5)
    assert found.count.tolist() == [4000] * 5
    np.testing.assert_allclose(found.stated, [0.1, 0.3, 0.5, 0.7, 0.9], atol=0.02)
    # The mean of p squared over a bin of width .2; false alarm below 1e-6 a bin (standard error at most 0.008).
    np.testing.assert_allclose(found.happened, found.stated**2 + 0.04 / 12, atol=0.04)


def test_few_candidates_make_few_bins() -> None:
    found = reliability(np.asarray([0.9, 0.1]), np.asarray([1.0, 0.0]))
    assert found.stated.tolist() == [0.1, 0.9]
    assert found.happened.tolist() == [0.0, 1.0]
    assert reliability(np.zeros(0), np.zeros(0)).count.size == 0


def test_no_trace_is_refused() -> None:
    with pytest.raises(ParameterError, match="traces must be at least one"):
        node_use([], COST, Contender.of("plain"))
