"""The survey against figures worked out by hand, and against the rounds that it counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.training.worlds import COST, World, dense_trace, manifest
from treewise.data.cost import CostProfile
from treewise.data.envelope import Envelope
from treewise.data.errors import ParameterError, TraceError
from treewise.policy.outcome import Walk
from treewise.policy.plain import PlainPolicy
from treewise.policy.registry import parse_policy
from treewise.policy.round import RoundTree
from treewise.training.contender import Contender
from treewise.training.logged import LoggedRequest
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay import Replayer
from treewise.training.replay_result import modelled_ms, plain_ms
from treewise.training.survey import ALL, Survey, survey
from treewise.training.survey_counts import COLUMNS, FIGURES, SurveyCounts
from treewise.training.survey_grid import SurveyGrid

ENVELOPE = Envelope(max_depth=5, draft_width=4)
GRID = SurveyGrid(widths=(2, 3), depths=(2, 4))
POLICIES = ("topn:8x2", "entropy:max_depth=5", PlainPolicy())


@pytest.fixture(scope="module")
def trace() -> LoggedTrace:
    return dense_trace(World(seed=3, num_texts=4, answer_tokens=26), ENVELOPE)


@pytest.fixture(scope="module")
def found(trace: LoggedTrace) -> Survey:
    return survey([trace], COST, POLICIES, GRID)


@pytest.mark.parametrize("spec", [*GRID.chains, *GRID.trees, "topn:8x2", "entropy:max_depth=5", "plain"])
def test_figures_are_those_of_the_rounds(trace: LoggedTrace, found: Survey, spec: str) -> None:
    """Rounds are watched one by one and counted anew, nodes that reached a decision by their parents."""
    seen: list[tuple[int, int, int]] = []

    def watch(request: LoggedRequest, position: int, tree: RoundTree, walk: Walk) -> None:
        kept = np.flatnonzero(tree.kept)[1:]
        last = position + int(walk.accepted_length[0]) + 1 >= request.end_position  # nothing is said behind the text
        tip = int(np.flatnonzero(walk.on_path)[-1])
        parents = tree.forest.column("parent")[kept]
        decided = walk.on_path[parents] & ~((parents == tip) & last)
        seen.append((int(walk.accepted_length[0]), len(kept), int(decided.sum())))

    deployment = trace.deployment(COST)
    replayer = Replayer(parse_policy(spec), deployment, watch)
    for request in trace.requests:
        replayer.run(request)
    accepted, nodes, decided = np.asarray(seen).sum(axis=0)
    tokens, rounds = sum(request.num_tokens for request in trace.requests), len(seen)
    ms = modelled_ms(replayer.result(), deployment, 0.0 if spec == "plain" else COST.policy_ms).sum()
    expected = {
        "accepted": accepted / rounds,
        "with_bonus": tokens / rounds,
        "nodes": nodes / rounds,
        "on_path": accepted / nodes if nodes else np.nan,
        "decided": decided / nodes if nodes else np.nan,
        "calls_saved": (tokens - rounds) / tokens,
        "growths": replayer.result().growths.sum() / rounds,
        "speedup": sum(plain_ms(request, COST) for request in trace.requests) / ms,
    }
    for name, value in expected.items():
        assert found.figure(name, spec).value == pytest.approx(value, nan_ok=True), name
    lengths = np.bincount([length for length, _, _ in seen], minlength=6) / rounds
    np.testing.assert_allclose(found.length_shares(spec)[:, 0], lengths)
    assert found.length_shares(spec)[:, 0].sum() == pytest.approx(1.0)
    assert (found.figure("drafting", spec).value > 0.0) == (spec != "plain")


def test_plain_decoding_saves_nothing(found: Survey) -> None:
    assert found.figure("speedup", "plain").value == pytest.approx(1.0)
    assert found.figure("calls_saved", "plain").value == 0.0
    assert found.figure("with_bonus", "plain").value == 1.0
    assert np.isnan(found.figure("on_path", "plain").value)
    assert found.most_accepted("plain") == 0


def test_deeper_and_wider_accepts_no_less_per_round_of_text(found: Survey) -> None:
    heat = found.heat("accepted")
    assert heat.shape == (3, 2)
    assert heat[0, 0] == found.figure("accepted", "chain:2").value
    assert heat[2, 1] == found.figure("accepted", "static:3x4").value
    assert heat[2, 1] > heat[0, 0]


def by_hand(contender: Contender) -> SurveyCounts:
    """Three requests of two prompts and two tasks; the first chain has figures of its own, others verify nothing."""
    is_chain = contender.name == "chain:2"
    columns = {name: np.zeros(3) for name in COLUMNS}
    columns["tokens"] = np.asarray([10.0, 10.0, 6.0])
    columns["plain_ms"] = np.asarray([100.0, 100.0, 60.0])
    columns["rounds"] = np.asarray([5.0, 4.0, 6.0]) if is_chain else columns["tokens"]
    columns["saved"] = columns["tokens"] - columns["rounds"]
    columns["accepted"] = np.asarray([5.0, 6.0, 0.0]) if is_chain else np.zeros(3)
    columns["nodes"] = np.asarray([10.0, 8.0, 12.0]) if is_chain else np.zeros(3)
    columns["decided"] = np.asarray([9.0, 8.0, 6.0]) if is_chain else np.zeros(3)
    columns["growths"] = np.asarray([10.0, 8.0, 12.0]) if is_chain else np.zeros(3)
    columns["draft_ms"] = np.asarray([10.0, 8.0, 12.0]) if is_chain else np.zeros(3)
    columns["ms"] = np.asarray([65.0, 52.0, 78.0]) if is_chain else columns["plain_ms"]
    lengths = np.zeros((3, 6))
    lengths[:, 0] = columns["rounds"]
    if is_chain:
        lengths[:, :3] = [[2, 1, 2], [0, 2, 2], [6, 0, 0]]
    tasks, prompts = np.asarray(["zoo", "zoo", "code"]), np.asarray(["a", "b", "c"])
    return SurveyCounts(prompts, tasks, columns, lengths)


def hand_survey(trace: LoggedTrace) -> Survey:
    def count(
        traces: Sequence[LoggedTrace],
        cost: CostProfile,
        contender: Contender,
        longest: int,
        advance: Callable[[int], None] | None = None,
    ) -> SurveyCounts:
        assert longest == 5
        return by_hand(contender)

    return survey([trace], COST, (), GRID, count=count)


def test_figures_by_hand(trace: LoggedTrace) -> None:
    found = hand_survey(trace)
    assert found.tasks == (ALL, "code", "zoo")  # kinds that are known come first
    assert found.prompts.tolist() == [3, 1, 2]
    assert found.tokens.tolist() == [26, 6, 20]
    expected = {
        "zoo": (11 / 9, 20 / 9, 2.0, 11 / 18, 17 / 18, 11 / 20, 2.0, 18 / 117, 200 / 117),
        "code": (0.0, 1.0, 2.0, 0.0, 0.5, 0.0, 2.0, 12 / 78, 60 / 78),
        ALL: (11 / 15, 26 / 15, 2.0, 11 / 30, 23 / 30, 11 / 26, 2.0, 30 / 195, 260 / 195),
    }
    for task, values in expected.items():
        for figure, value in zip(FIGURES, values, strict=True):
            assert found.figure(figure.name, "chain:2", task).value == pytest.approx(value), (task, figure.name)
    np.testing.assert_allclose(found.length_shares("chain:2", "zoo")[:3, 0], [2 / 9, 3 / 9, 4 / 9])
    assert found.most_accepted("chain:2") == 2
    zoo = found.figure("accepted", "chain:2", "zoo")
    assert (zoo.low, zoo.high) == pytest.approx((1.0, 1.5))  # either prompt twice
    assert np.isnan(found.figure("accepted", "chain:2", "code").low)  # one prompt has no interval
    assert np.isnan(found.figure("on_path", "static:2x2").value)  # it verified nothing


def test_the_fastest_is_by_task(trace: LoggedTrace) -> None:
    found = hand_survey(trace)
    assert found.fastest(GRID.chains, "zoo") == "chain:2"
    assert found.fastest(GRID.chains, "code") == "chain:4"
    assert found.fastest(["nope"]) == ""
    assert found.highlights("zoo") == ("chain:2", "static:2x2")


def test_what_the_trace_does_not_cover_is_left_out_and_named(trace: LoggedTrace) -> None:
    grid = SurveyGrid(widths=(4, 5), depths=(3, 6))
    steps: list[int] = []
    found = survey([trace], COST, ["plain"], grid, advance=steps.append)
    assert found.policies == ("chain:3", "static:4x3", "plain")  # the entropy rule may go 8 deep
    reasons = {one.policy: one.why for one in found.uncovered}
    assert reasons["chain:6"] == (
        "policy chain:6 may ask for nodes of depth 6 where the log ends at 5: use a trace with a wider envelope"
    )
    assert "may keep 5 nodes below a node where the log holds 4" in reasons["static:5x3"]
    assert set(reasons) == {"chain:6", "static:4x6", "static:5x3", "static:5x6", "entropy"}
    heat = found.heat("speedup")
    np.testing.assert_array_equal(np.isnan(heat), [[False, True], [False, True], [True, True]])
    assert sum(steps) == 8 * len(trace.requests)
    assert found.to_json()["uncovered"][0]["policy"] in reasons


@pytest.mark.parametrize(("sources", "width"), [("lookup", 3), ("recycled", 4), ("free", 7)])
def test_free_sources_bound_the_width_by_what_they_offer(trace: LoggedTrace, sources: str, width: int) -> None:
    grid = SurveyGrid(widths=(width, width + 1), depths=(2,), sources=sources)  # type: ignore[arg-type]
    found = survey([trace], COST, (), grid)
    assert found.policies[:2] == (f"chain:2,sources={sources}", f"static:{width}x2,sources={sources}")
    assert f"static:{width + 1}x2,sources={sources}" in {one.policy for one in found.uncovered}
    assert found.figure("drafting", found.policies[1]).value == 0.0


def test_a_trace_without_the_source_covers_nothing() -> None:
    trace = dense_trace(World(seed=3, num_texts=1, answer_tokens=12), ENVELOPE, sources=1)
    with pytest.raises(ParameterError, match="policies must hold one that the traces cover, got none"):
        survey([trace], COST, (), SurveyGrid(widths=(2,), depths=(2,), sources="draft"))


def test_the_envelope_for_a_grid_covers_it() -> None:
    assert SurveyGrid().envelope() == Envelope()
    wide = SurveyGrid(widths=(2, 9), depths=(3, 12)).envelope()
    assert (wide.max_depth, wide.draft_width) == (12, 9)
    trace = dense_trace(World(seed=1, num_texts=1, answer_tokens=10), SurveyGrid((2,), (9,)).envelope())
    assert not survey([trace], COST, (), SurveyGrid((2,), (9,))).uncovered


def test_traces_are_joined_and_few_prompts_are_warned_of(trace: LoggedTrace, found: Survey) -> None:
    halves = [trace.of_prompts([request.prompt_id]) for request in trace.requests]
    again = survey(halves, COST, POLICIES, GRID)
    np.testing.assert_allclose(again.values, found.values)
    assert len(again.acceptance) == 4
    assert found.warnings == ("traces hold 4 prompts: below 20 the intervals are too narrow",)
    assert found.acceptance == ("acceptance from trace world of pair world+law",)
    assert found.milliseconds.name == "world"


def test_a_policy_of_the_grid_counts_once(trace: LoggedTrace) -> None:
    found = survey([trace], COST, ["chain:2", "entropy"], GRID)
    assert found.policies == (*GRID.chains, *GRID.trees)
    assert [one.policy for one in found.uncovered] == ["entropy"]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda trace: [replace(trace, manifest=manifest("live", ENVELOPE, "plain"))], TraceError, "must be dense"),
        (lambda trace: [replace(trace, requests=())], TraceError, "must hold at least one request"),
        (lambda trace: [trace, trace], TraceError, "traces must hold a prompt once"),
        (lambda trace: [], ParameterError, "traces must be at least one"),
    ],
)
def test_traces_are_checked(
    trace: LoggedTrace, change: Callable[[LoggedTrace], list[LoggedTrace]], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        survey(change(trace), COST, (), GRID)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"widths": ()}, "widths must be ascending"),
        ({"widths": (3, 2)}, "widths must be ascending"),
        ({"widths": (1, 2)}, "widths must be between 2 and 64"),
        ({"depths": (0, 2)}, "depths must be between 1 and 64"),
        ({"depths": (3, 65)}, "depths must be between 1 and 64"),
    ],
)
def test_grids_are_checked(values: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        SurveyGrid(**values)  # type: ignore[arg-type]


def test_unknown_names_are_refused(found: Survey) -> None:
    with pytest.raises(ParameterError, match="figure must be one of"):
        found.figure("speed", "plain")
    with pytest.raises(ParameterError, match="policy must be one of"):
        found.figure("speedup", "chain:9")
    with pytest.raises(ParameterError, match="task must be one of"):
        found.heat("speedup", "poem")
