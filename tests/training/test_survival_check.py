"""What a replay says about stated survival, about repetition, and about sources that are taken away."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.training.worlds import COST, World, dense_trace
from treewise.data.envelope import Envelope
from treewise.data.errors import ParameterError
from treewise.policy.hook import DRAFT, FREE, LOOKUP
from treewise.training.contest import Contender, contest, oracle_tally
from treewise.training.logged_trace import LoggedTrace
from treewise.training.survival_check import check_survival, compare_survival, stated_survival
from treewise.training.text_repetition import repeated_share, repeated_shares, within
from treewise.training.tune import reachable_specs


@pytest.fixture(scope="module")
def trace() -> LoggedTrace:
    return dense_trace(World(seed=11, num_texts=3, answer_tokens=24), Envelope(max_depth=4, draft_width=3))


def test_stated_survival_is_set_beside_the_text(trace: LoggedTrace) -> None:
    stated, happened = stated_survival(trace, COST, Contender.of("topn:8x2"))
    assert len(stated) == len(happened) > 100
    assert set(happened.tolist()) == {0.0, 1.0}
    assert stated.min() >= 0.05
    assert happened[stated > 0.5].mean() > happened[stated < 0.2].mean()
    check = check_survival([trace], COST, Contender.of("topn:8x2"))
    assert check.nodes == len(stated)
    assert check.stated == pytest.approx(stated.mean())
    assert check.ece > 0.0


def test_calibrated_survival_has_no_error() -> None:
    rng = np.random.default_rng(0)
    stated = rng.uniform(0.05, 1.0, 200_000)
    happened = (rng.uniform(size=len(stated)) < stated).astype(np.float64)
    assert compare_survival([(stated, happened)]).ece < 0.01
    assert compare_survival([(stated, np.zeros(len(stated)))]).ece == pytest.approx(stated.mean())
    assert np.isnan(compare_survival([]).ece)


def test_a_log_without_tokens_is_refused(trace: LoggedTrace) -> None:
    bare = replace(trace, manifest=replace(trace.manifest, tokens_included=False))
    with pytest.raises(ParameterError, match="trace must be logged with token ids"):
        stated_survival(bare, COST, Contender.of("plain"))


def test_fewer_sources_leave_the_oracle_less(trace: LoggedTrace) -> None:
    speeds = []
    for sources in (0, LOOKUP, FREE, DRAFT | FREE):
        part = replace(trace, sources=sources)
        oracle = oracle_tally(part, COST)
        speeds.append(float(oracle.plain_ms.sum() / oracle.columns["ms"].sum()))
        found = contest(part, [COST], [Contender.of("topn:8x2")])[0, "topn:8x2"]
        assert found.columns["ms"].sum() >= oracle.columns["ms"].sum() - 1e-6
    assert speeds[0] == pytest.approx(1.0)
    assert speeds == sorted(speeds)
    assert speeds[0] < speeds[1] < speeds[3]
    assert oracle_tally(replace(trace, sources=FREE), COST).columns["growths"].sum() == 0


def test_settings_that_ask_for_the_same_count_once(trace: LoggedTrace) -> None:
    everything, _ = reachable_specs([trace], COST, ["chain", "topn"])
    drafting, _ = reachable_specs([replace(trace, sources=DRAFT)], COST, ["chain", "topn"])
    free, _ = reachable_specs([replace(trace, sources=LOOKUP)], COST, ["chain", "topn", "switch"])
    assert {"chain:2,sources=all", "chain:2,sources=draft", "chain:2,sources=free"} <= set(everything)
    assert "chain:2,sources=all" in drafting
    assert not any("sources=draft" in spec or "sources=free" in spec for spec in drafting)
    assert set(free.values()) == {"chain", "topn"}
    assert not any("sources=lookup" in spec for spec in free)


def test_repeated_ngrams_are_counted() -> None:
    assert repeated_share(range(20)) == 0.0
    assert repeated_share([1, 2] * 10, 2) == pytest.approx(1.0 - 2 / 19)
    assert repeated_share([1, 2, 3], 8) == 0.0
    with pytest.raises(ParameterError, match="length must be >= 1, got 0"):
        repeated_share([1], 0)


def test_subsets_are_nested(trace: LoggedTrace) -> None:
    shares = repeated_shares(trace.requests)
    assert len(shares) == len(trace.requests)
    given = np.asarray([0.0, 0.3, 0.9, np.nan])
    assert within(given, "all").tolist() == [True] * 4
    assert within(given, "non-degenerate").tolist() == [True, True, False, False]
    assert within(given, "strict").tolist() == [True, False, False, False]
    with pytest.raises(ParameterError, match="subset must be one of all, non-degenerate, strict, got 'most'"):
        within(given, "most")
