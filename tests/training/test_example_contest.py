"""The example tables' strategies on our own traces."""

from __future__ import annotations

import pytest

from tests.training.worlds import COST, World, dense_trace
from treewise.data.cost import CostProfile
from treewise.data.envelope import Envelope
from treewise.data.errors import ParameterError
from treewise.data.example_tables import A100_70B, H800_67B
from treewise.policy.hook import FREE
from treewise.policy.registry import parse_policy
from treewise.training.ab import ab
from treewise.training.example_contest import (
    ALL_SOURCES,
    BOUND,
    DRAFT_ALONE,
    LEARNED,
    ExampleReport,
    derive_only,
    play_examples,
    profiles_for,
    strategy_specs,
)

DEEP = Envelope(max_depth=8, draft_width=4)


@pytest.fixture(scope="module")
def report() -> ExampleReport:
    trace = dense_trace(World(seed=7, num_texts=2, answer_tokens=16), DEEP)
    return play_examples([trace], [COST], learned="frontier")  # any policy may stand there


def test_every_table_has_its_own_strategies_and_a_further_profile_has_all(report: ExampleReport) -> None:
    first, second = report.strategies(A100_70B.name), report.strategies(H800_67B.name)
    assert first == [*(row.strategy for row in A100_70B.rows), LEARNED, BOUND]
    assert second == ["plain", "chain of 5", "tree of 16", LEARNED, BOUND]
    assert set(report.strategies("world")) == {*first, *second}


def test_figures_are_those_of_an_ab(report: ExampleReport) -> None:
    trace = dense_trace(World(seed=7, num_texts=2, answer_tokens=16), DEEP)
    cost = CostProfile.load(H800_67B.name)
    alone, everything = ab([trace], [cost], ["topn:16x4,sources=draft", "topn:16x4"]).select(cost.name)[:2]
    for sources, row in ((DRAFT_ALONE, alone), (ALL_SOURCES, everything)):
        found = report.of(cost.name, "tree of 16", sources)
        assert found is not None
        assert found.result.tokens_per_round == row.tokens_per_round
        assert found.result.speedup == row.speedup
    plain = report.of(cost.name, "plain")
    assert plain is not None
    assert plain.result.speedup.value == pytest.approx(1.0)
    assert report.of(cost.name, "plain", DRAFT_ALONE) is None


def test_specs_are_policies() -> None:
    assert strategy_specs(has_draft=True)[1] == ("chain of 5", "draft", "chain:5,sources=draft")
    assert ("cumulative threshold", "draft", "cumulative:sources=draft") in strategy_specs(has_draft=True)
    for _, _, spec in strategy_specs(has_draft=True):
        parse_policy(spec)


def test_without_a_draft_only_all_sources_are_replayed() -> None:
    trace = dense_trace(World(seed=7, num_texts=2, answer_tokens=14), DEEP, sources=FREE)
    assert {one.sources for one in play_examples([trace]).played} == {ALL_SOURCES}


def test_a_profile_with_a_tables_name_is_refused() -> None:
    with pytest.raises(ParameterError, match="names that differ from the tables'"):
        profiles_for([CostProfile.load(A100_70B.name)])
    assert [cost.name for cost in profiles_for([])] == [A100_70B.name, H800_67B.name]


def test_the_tables_alone_need_no_trace() -> None:
    found = derive_only()
    assert found.played == ()
    row = found.to_json()["tables"][0]["rows"][1]
    assert (row["strategy"], row["drafting_ms"]["value"]) == ("chain of 5", 2.742308)
