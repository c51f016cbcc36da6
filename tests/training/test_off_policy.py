"""Estimates from logs of pruned trees against exact replay on dense traces of the same prompts: a known truth."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.training.burst_world import BURST_COST
from tests.training.judged import EXAMPLE, judged_trace
from tests.training.pruned_logs import drawn, pruned
from tests.training.stretch_world import EXPLORER, GREEDY, POLICIES, greedy_log, routed_log, truth
from tests.training.worlds import COST
from treewise.data.errors import CoverageError, ParameterError
from treewise.training.ab import ab
from treewise.training.estimate import estimate, is_estimate
from treewise.training.estimate_report import EstimateReport, EstimateRow
from treewise.training.off_policy import DirectMethod, RatioOf, SelfNormalizedInversePropensity, estimated
from treewise.training.statistics import interval, point

DIRECT, WEIGHTED = "direct method", "inverse propensity"
STATIC = POLICIES[2]
PROMPTS = 60


def row_of(report: EstimateReport, policy: object, estimator: str) -> EstimateRow:
    name = policy if isinstance(policy, str) else GREEDY
    rows = report.select(BURST_COST.name)
    (found,) = (row for row in rows if (row.policy, row.estimator) == (name, estimator))
    return found


def holds(row: EstimateRow) -> bool:
    return row.speedup.low <= truth()[row.policy] <= row.speedup.high


def test_a_greedy_log_flatters_what_grows_further_and_exploration_mends_that() -> None:
    naive = estimate([greedy_log(0, 48)], [BURST_COST], POLICIES[:2], imputations=2)
    mended = estimate([greedy_log(0, 48, 0.3)], [BURST_COST], POLICIES[1:], imputations=2)
    wrong, right = (row_of(report, EXPLORER, DIRECT) for report in (naive, mended))
    assert wrong.speedup.low > truth()[EXPLORER] and not holds(wrong)
    assert wrong.ratio is not None and wrong.ratio.low > 1.0 > truth()[EXPLORER] / truth()[GREEDY]
    assert holds(right) and holds(row_of(mended, EXPLORER, WEIGHTED)) and holds(row_of(mended, STATIC, DIRECT))
    assert right.imputed_share is not None and right.imputed_share > 0.1
    own = row_of(naive, GREEDY, DIRECT)  # what it did itself is known, whatever it asked
    assert own.imputed_share == 0.0 and own.ratio is None and holds(own)


@pytest.mark.slow
def test_intervals_hold_the_truth_in_most_seeds_where_logs_explore() -> None:
    """12 sets of prompts; an interval of 95 % holds the truth in fewer than 9 with probability below 0.3 %.

    On four of them, without exploration, what the greedy policy never asked is lent by what it did ask.
    """
    rows: dict[tuple[str, str, float], list[EstimateRow]] = {}
    for seed in range(12):
        for explored, imputations in ((0.0, 4), (0.3, 3)) if seed < 4 else ((0.3, 3),):
            log = greedy_log(seed, PROMPTS, explored)
            report = estimate([log], [BURST_COST], POLICIES[:2], imputations=imputations)
            for row in report.select(BURST_COST.name):
                rows.setdefault((row.policy, row.estimator, explored), []).append(row)
    for policy in (EXPLORER, GREEDY):
        for estimator in (DIRECT, WEIGHTED):
            assert sum(map(holds, rows[policy, estimator, 0.3])) >= 9, rows
    naive, mended = (
        np.mean([row.speedup.value for row in rows[EXPLORER, DIRECT, explored]]) / truth()[EXPLORER]
        for explored in (0.0, 0.3)
    )
    assert sum(map(holds, rows[EXPLORER, DIRECT, 0.0])) <= 2, rows
    assert naive > 1.08 and abs(mended - 1.0) < 0.04, (naive, mended)


def test_routing_in_place_of_drawing_is_wrong_and_the_weights_cannot_tell() -> None:
    """The explorer gets the easy prompts at a constant propensity: what is said of it is said of easy prompts."""
    report = estimate([routed_log(0, 100, 0.3)], [BURST_COST], POLICIES[:2], imputations=1)
    row = row_of(report, EXPLORER, WEIGHTED)
    assert row.speedup.low > truth()[EXPLORER]
    assert row.effective_prompts == pytest.approx(30.0)


def test_formulas() -> None:
    weight, ms, plain = np.asarray([2.0, 0.0, 4.0]), np.asarray([1.0, 1.0, 3.0]), np.asarray([3.0, 9.0, 6.0])
    weighted = SelfNormalizedInversePropensity(weight, ms, plain)
    assert point(weighted) == pytest.approx((2 * 3 + 4 * 6) / (2 * 1 + 4 * 3))
    assert weighted.effective_prompts == pytest.approx(36.0 / 20.0)
    other = SelfNormalizedInversePropensity(np.asarray([0.0, 1.0, 0.0]), ms, plain)
    assert point(RatioOf(weighted, other)) == pytest.approx(30.0 / 14.0 / 9.0)
    several = np.asarray([[1.0, 2.0], [3.0, 2.0]])
    direct = DirectMethod(several, np.full((2, 2), 6.0))
    assert direct.by_prompt.tolist() == [[2.0, 6.0], [2.0, 6.0]]
    assert point(direct) == pytest.approx(3.0)
    assert direct.log_noise == pytest.approx(np.sqrt(1.5 * np.log([2.0, 12.0 / 5.0]).var(ddof=1)), abs=1.0)
    assert DirectMethod(several[:1], several[:1]).log_noise == 0.0


def test_intervals() -> None:
    rng = np.random.default_rng(0)
    ms = rng.uniform(1.0, 2.0, size=(1, 40))
    plain = np.full((1, 40), 3.0)
    alone = DirectMethod(ms, plain)
    assert estimated(alone) == interval(alone)
    noisy = DirectMethod(np.concatenate([0.9 * ms, ms, 1.1 * ms]), np.repeat(plain, 3, axis=0))
    assert estimated(noisy).low < estimated(alone).low < estimated(alone).high < estimated(noisy).high
    one = np.zeros(40)
    one[0] = 1.0
    assert np.isnan(estimated(SelfNormalizedInversePropensity(one, ms[0], plain[0])).low)
    assert np.isnan(estimated(DirectMethod(ms[:, :1], plain[:, :1])).high)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DirectMethod(np.ones(3), np.ones(3)), "ms must be at least one prompt on the last of 2 axes"),
        (lambda: DirectMethod(np.ones((2, 3)), np.ones((1, 3))), "baseline must be of shape"),
        (
            lambda: SelfNormalizedInversePropensity(np.zeros(2), np.ones(2), np.ones(2)),
            "weight must be >= 0, once above",
        ),
        (lambda: SelfNormalizedInversePropensity(np.ones(3), np.ones(2), np.ones(2)), "weight must be of shape"),
    ],
)
def test_shapes_are_checked(make: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make()


def test_a_report_names_estimator_and_origins_and_judges_nothing() -> None:
    deciders = drawn(5, 4, 0.5, ["chain:4"])
    log = pruned(judged_trace(), "topn:8x2", deciders)
    names = {explorer for explorer, _ in deciders}
    assert names == {"", "chain:4"}
    report = estimate([log], [COST], ["topn:8x2", "chain:4", "static:2x2"], imputations=2)
    assert report.writers == ("chain:4", "topn:8x2")
    value = report.to_json()
    assert value["exact"] is False and "judgement" not in str(value)
    estimators = [(row["policy"], row["estimator"]) for row in value["rows"] if row["task"] == ""]
    assert estimators == [
        ("topn:8x2", DIRECT),
        ("topn:8x2", WEIGHTED),
        ("chain:4", DIRECT),
        ("chain:4", WEIGHTED),
        ("static:2x2", DIRECT),
    ]
    assert {row["task"] for row in value["rows"]} == {"", "chat", "copy"}
    lines = list(csv.DictReader(io.StringIO(report.to_csv())))
    assert len(lines) == len(report.rows) and {line["exact"] for line in lines} == {"False"}
    assert all("acceptance from trace world" in line["acceptance"] for line in lines)
    assert report.warnings == ("traces hold 4 prompts: below 20 the intervals are too narrow",)


def test_traces_of_one_name_lend_to_themselves_alone() -> None:
    log = pruned(judged_trace(), "topn:8x2")
    parts = [log.only([0, 1]), log.only([2, 3])]
    renamed = [parts[0], replace(parts[1], name="other")]
    rows = [estimate(traces, [COST], ["chain:4"], imputations=2).to_json()["rows"] for traces in (parts, renamed)]
    assert rows[0] == rows[1]


def test_requests_weigh_by_the_inverse_of_their_propensities() -> None:
    log = pruned(judged_trace(), "topn:8x2", [("chain:4", 0.5), ("chain:4", 0.25), ("", 0.5), ("", 0.75)])
    rows = [row for row in estimate([log], [COST], ["chain:4"], imputations=1).rows if row.task == ""]
    assert rows[1].estimator == WEIGHTED
    assert rows[1].effective_prompts == pytest.approx((2 + 4) ** 2 / (2**2 + 4**2))


def test_a_policy_that_reads_prices_is_estimated_directly_under_others() -> None:
    log = pruned(judged_trace(), "topn:8x2", [*[("", 0.5)] * 3, ("frontier", 0.5)])
    report = estimate([log], [COST, EXAMPLE], ["frontier"], imputations=1)
    found = [(row.profile, row.estimator) for row in report.rows if row.task == ""]
    assert found == [(COST.name, DIRECT), (COST.name, WEIGHTED), (EXAMPLE.name, DIRECT)]
    nodes = [row.nodes_per_round for row in report.rows if row.task == "" and row.estimator == DIRECT]
    assert nodes[0] != nodes[1]
    assert nodes[1] == estimate([log], [EXAMPLE], ["frontier"], imputations=1).rows[0].nodes_per_round
    assert report.warnings[1:] == (
        f"frontier reads prices, and asks under those of {EXAMPLE.name} for more than it logged: no estimate from the "
        "requests that it decided",
    )


def test_who_wrote_the_log_is_replayed_and_others_are_estimated() -> None:
    dense = judged_trace()
    log = pruned(dense, "topn:8x2", [("", 0.5), ("chain:4", 0.5), ("", 0.5), ("", 0.5)])
    assert not is_estimate([log], ["topn:8x2"]) and not is_estimate([dense], ["chain:4"])
    assert is_estimate([log], ["topn:8x2", "chain:4"])
    own = ab([log], [COST], ["topn:8x2"]).select(COST.name)[0]
    assert own.requests == 3  # the explored one is another policy's
    with pytest.raises(CoverageError, match="traces must be live for an estimate, got world"):
        estimate([dense], [COST], ["chain:4"])
    with pytest.raises(CoverageError, match="policy chain:9 may ask for nodes of depth 9 where the log ends at 5"):
        estimate([log], [COST], ["chain:9"])
