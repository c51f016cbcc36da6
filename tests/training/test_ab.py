"""The A/B and its refusals."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.policy.rank_tables import rank_table, write_rank_table
from tests.policy.recognisers import write_table
from tests.training.judged import ENVELOPE, EXAMPLE, SPECS, judged_report, judged_trace, judged_world
from tests.training.worlds import COST, GrowAll, World, as_trace, dense, dense_trace, manifest, simulate
from treewise.data.errors import CoverageError, ParameterError, PolicySpecError, TraceError
from treewise.data.trace_reader import TraceReader
from treewise.data.trace_schema import concatenate
from treewise.data.trace_writer import TraceWriter
from treewise.policy.hook import Reach
from treewise.policy.registry import parse_policy
from treewise.policy.task_table import TaskTable
from treewise.training.ab import ORACLE, ab, contenders_of, trained_on_judged
from treewise.training.ab_report import AbReport
from treewise.training.contest import WatchedDeployment
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay import replay
from treewise.training.replay_result import call_ms_of, modelled_ms, plain_ms


@pytest.fixture
def world() -> World:
    return judged_world()


@pytest.fixture
def trace() -> LoggedTrace:
    return judged_trace()


@pytest.fixture
def report() -> AbReport:
    return judged_report()


@pytest.mark.parametrize("cost", [COST, EXAMPLE], ids=lambda cost: cost.name)
@pytest.mark.parametrize("place", range(len(SPECS)))
def test_figures_are_those_of_a_replay(trace: LoggedTrace, report: AbReport, cost: object, place: int) -> None:
    assert cost is COST or cost is EXAMPLE
    profile = COST if cost is COST else EXAMPLE
    row = report.select(profile.name)[place]
    setting = trace.deployment(profile)
    policy = parse_policy(SPECS[place])
    result = replay(policy, trace.requests, setting)
    ms = modelled_ms(result, setting, call_ms_of(policy, profile)).sum()
    tokens = sum(request.num_tokens for request in trace.requests)
    assert (row.policy, row.rounds, row.tokens, row.prompts) == (SPECS[place], len(result), tokens, 4)
    assert row.ms == pytest.approx(ms)
    assert row.speedup.value == pytest.approx(sum(plain_ms(request, profile) for request in trace.requests) / ms)
    assert row.nodes_per_round == pytest.approx(result.verified_nodes.mean())
    assert row.growths_per_round == pytest.approx(result.growths.mean())
    assert row.calls_per_round == pytest.approx(result.policy_calls.mean())
    assert row.speedup.low <= row.speedup.value <= row.speedup.high


def test_the_first_policy_is_the_one_compared_against(report: AbReport) -> None:
    first, *others = report.select(COST.name)
    assert first.ratio is None
    for row in others:
        assert row.ratio is not None
        assert row.ratio.value == pytest.approx(row.speedup.value / first.speedup.value)


def test_tasks_add_up(report: AbReport) -> None:
    assert report.tasks == ["chat", "copy"]
    for place, whole in enumerate(report.select(COST.name)):
        parts = [report.select(COST.name, task)[place] for task in report.tasks]
        assert sum(part.tokens for part in parts) == whole.tokens
        assert sum(part.ms for part in parts) == pytest.approx(whole.ms)


def test_every_modelled_figure_names_both_origins(report: AbReport) -> None:
    assert report.acceptance == ("acceptance from trace world of pair world+law",)
    words = [origin.words for origin in report.profiles]
    assert words[1] == "milliseconds from profile example-a100-70b (A100, 70B target (example), unknown, unverified)"
    rows = list(csv.DictReader(io.StringIO(report.to_csv())))
    assert len(rows) == len(report.rows) + len(report.depth_oracles)
    assert {row["acceptance"] for row in rows} == set(report.acceptance)
    assert {row["milliseconds"] for row in rows} == set(words)


def test_a_cost_that_nobody_read_is_noticed(trace: LoggedTrace) -> None:
    for spec, expected in (("topn:8x2", False), ("frontier", True)):
        watched = WatchedDeployment.of(trace.deployment(COST))
        replay(parse_policy(spec), trace.requests[:1], watched)
        assert watched.cost_was_read is expected


class Deep(GrowAll):
    """Wants more than the log holds."""

    @property
    def reach(self) -> Reach:
        return Reach(9, 1)


def test_a_narrow_trace_is_refused(trace: LoggedTrace) -> None:
    with pytest.raises(CoverageError, match="policy Deep may ask for nodes of depth 9 where the log ends at 5"):
        ab([trace], [COST], [Deep()])
    with pytest.raises(CoverageError, match="policy chain:7 may ask for nodes of depth 7"):
        ab([trace], [COST], ["plain", "chain:7"])


def test_a_policy_object_may_be_compared(trace: LoggedTrace) -> None:
    found = ab([trace], [COST], [parse_policy("plain"), parse_policy("chain:2")])
    assert found.policies == ("plain", "chain:2")


def test_a_live_trace_speaks_for_its_own_policy_only(world: World, trace: LoggedTrace) -> None:
    setting = trace.deployment(COST, ENVELOPE)
    policy = parse_policy("chain:3")
    policy.bind(setting)
    shard = concatenate([simulate(world, text, policy, setting)[1] for text in world.texts])
    live = as_trace(shard, manifest("live", ENVELOPE, "chain:3"))
    message = "is a live trace of policy chain:3: .* it cannot say what plain would have done; use a dense trace"
    with pytest.raises(CoverageError, match=message):
        ab([live], [COST], ["chain:length=3", "plain"])
    found = ab([live], [COST], ["chain:length=3"])
    dense = ab([trace], [COST], ["chain:3"])
    assert found.rows[0].rounds == dense.rows[0].rounds
    assert ORACLE not in {row.policy for row in found.rows}


def test_arguments_are_checked(trace: LoggedTrace) -> None:
    with pytest.raises(ParameterError, match="policies must be each named once"):
        ab([trace], [COST], ["plain", "plain"])
    with pytest.raises(ParameterError, match="policies must be at least one, got 0"):
        ab([trace], [COST], [])
    with pytest.raises(ParameterError, match="costs must be at least one profile, got 0"):
        ab([trace], [], ["plain"])
    with pytest.raises(ParameterError, match="costs must be profiles of different names, got"):
        ab([trace], [COST, COST], ["plain"])
    with pytest.raises(ParameterError, match=r"margin must be at least 0 and below 1, got 1\.0"):
        ab([trace], [COST], ["plain", "chain:2"], margin=1.0)
    other = replace(trace, manifest=replace(trace.manifest, pair={"target": "b", "draft": None}))
    with pytest.raises(CoverageError, match=r"must be of one pair, got world\+law in world and b\+none in world"):
        ab([trace, other], [COST], ["plain"])


def test_a_lossy_trace_is_refused(trace: LoggedTrace) -> None:
    lossy = replace(trace, manifest=replace(trace.manifest, verification="threshold:0.45"))
    with pytest.raises(
        TraceError, match=r"verification of trace world must be 'exact' for replay.*got 'threshold:0.45'"
    ):
        ab([lossy], [COST], ["plain"])


def test_several_traces_are_pooled(world: World, trace: LoggedTrace, report: AbReport) -> None:
    halves = [dense_trace(world, ENVELOPE, world.texts[:2]), dense_trace(world, ENVELOPE, world.texts[2:])]
    pooled = ab(halves, [COST, EXAMPLE], SPECS)
    assert [replace(row, ms=round(row.ms, 6)) for row in pooled.rows] == [
        replace(row, ms=round(row.ms, 6)) for row in report.rows
    ]


def test_a_trace_named_twice_is_refused(trace: LoggedTrace) -> None:
    with pytest.raises(TraceError, match="traces must hold a prompt once"):
        ab([trace, trace], [COST], ["plain"])


def test_a_prompt_that_was_logged_twice_counts_once(world: World, trace: LoggedTrace) -> None:
    shard = dense(world, world.texts[0], ENVELOPE.widened())
    twice = as_trace(concatenate([shard, shard]), trace.manifest)
    assert [request.prompt_id for request in twice.requests] == [trace.requests[0].prompt_id]


def test_policies_are_checked_without_a_trace() -> None:
    with pytest.raises(PolicySpecError, match="policy must be one of"):
        contenders_of(["plain", "nope"])
    with pytest.raises(ParameterError, match="policies must be each named once"):
        contenders_of(["plain", "plain"])
    (again,) = contenders_of(contenders_of(["chain:2"]))
    assert again.name == "chain:2"


def test_only_the_other_policies_are_judged_and_each_family_is_counted(report: AbReport) -> None:
    for row in report.rows:
        if row.policy in (SPECS[0], ORACLE):
            assert row.judgement is None and row.verdict == ""
        else:
            assert row.judgement is not None
            assert row.judgement.comparisons == (3 if row.task == "" else 3 * 2)
            assert row.judgement.verdict.kind == "undecided"  # four prompts, and one or two a task
            assert "too few" in row.verdict


def test_an_adjusted_interval_is_no_narrower_than_its_own(report: AbReport) -> None:
    for row in report.select(EXAMPLE.name):
        if row.judgement is not None:
            assert row.ratio is not None
            assert row.judgement.interval.value == row.ratio.value
            assert row.judgement.interval.low <= row.ratio.low or row.judgement.interval.low == 1.0
            assert row.judgement.interval.high >= row.ratio.high or row.judgement.interval.high == 1.0


def test_a_plan_needs_more_prompts_for_less_difference(report: AbReport) -> None:
    wide, narrow = report.plan(0.1), report.plan(0.01)
    assert [row.policy for row in wide if row.profile == COST.name and row.task == ""] == list(SPECS[1:])
    for big, small in zip(wide, narrow, strict=True):
        if big.prompts == 1:
            assert big.prompts_needed is None and np.isnan(big.log_spread)
        else:
            assert big.prompts_needed is not None and small.prompts_needed is not None
            assert small.prompts_needed >= big.prompts_needed


def test_prompts_that_were_tuned_on_and_few_prompts_are_warned_of(trace: LoggedTrace) -> None:
    half = replace(trace, requests=trace.requests[1:3])
    found = ab([trace], [COST], ["plain"], tuned_on=[half])
    assert found.warnings == (
        "traces hold 4 prompts: below 20 the intervals are too narrow",
        "2 of 4 judged prompts were tuned on as well (prompt-1, prompt-2): their figures flatter",
    )
    other = replace(trace, requests=trace.requests[3:])
    assert len(ab([half], [COST], ["plain"], tuned_on=[other]).warnings) == 1


def test_a_policy_trained_on_a_judged_trace_is_warned_of(world: World, tmp_path: Path) -> None:
    shard = dense(world, world.texts[0], ENVELOPE.widened())
    with TraceWriter(tmp_path / "judged", manifest("dense", ENVELOPE.widened())) as writer:
        writer.add(shard.rounds, shard.nodes)
    content = TraceReader(tmp_path / "judged").content_hash()

    class Trained(GrowAll):
        """Carries what a bundle would."""

        spec = "trained"
        bundle = SimpleNamespace(provenance={"traces": {"somewhere else": content}})

    ranks = write_rank_table(tmp_path / "ranks.json", replace(rank_table(), origin=(f"somewhere else {content}",)))
    rows = tmp_path / "rows.json"
    TaskTable({"unknown": "plain"}, fitted={"traces": [f"somewhere else {content}"]}).save(rows)
    contenders = contenders_of(["plain", Trained(), f"sequoia:{ranks}", f"by-task:{rows}"])
    lines = trained_on_judged(contenders, [tmp_path / "judged"])
    for contender, line in zip(contenders[1:], lines, strict=True):
        assert line.startswith(f"{contender.name} was trained on") and str(tmp_path / "judged") in line
    assert trained_on_judged(contenders[:1], [tmp_path / "judged"]) == []


def test_labels_in_place_of_a_recognisers_words_are_warned_of(trace: LoggedTrace, tmp_path: Path) -> None:
    spec = f"by-task:{write_table(tmp_path)}"
    (_, line) = ab([trace], [COST], [spec, "plain"]).warnings
    assert line == (
        f"{spec} is told the prompts' labels in {trace.name}, live what its recogniser makes of them: "
        "`treewise tasks tell`"
    )
    told = replace(trace, manifest=replace(trace.manifest, input_hashes={"recogniser": "ab"}))
    assert len(ab([told], [COST], [spec]).warnings) == 1
