"""The diagnosis of a made-up world under costs at which trees pay, and at which nothing does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.training.judged import EXAMPLE, judged_trace
from tests.training.test_findings import LIVE
from tests.training.worlds import World, dense_trace
from treewise.data.cost import CostGrid, CostProfile
from treewise.data.envelope import Envelope
from treewise.data.errors import CoverageError, ParameterError, PolicySpecError, TraceError
from treewise.policy.hook import FREE
from treewise.training.ab import ab
from treewise.training.contest import oracle_tally
from treewise.training.crossed_choice import Choices
from treewise.training.diagnose import FAMILIES, SMALL_GRID, Trial, diagnose, grid_of, try_grid
from treewise.training.diagnosis import Diagnosis
from treewise.training.tune import GRIDS, grid

SERIAL = CostProfile(
    name="serial",
    verify=CostGrid((1, 64), (0,), ((10.0, 640.0),)),
    draft=CostGrid((1, 64), (0,), ((10.0, 640.0),)),
    policy_ms=0.1,
)


FEW = frozenset(("chain:2,sources=all", "chain:2,sources=free", "topn:8x2,sources=all", "topn:8x1,sources=free"))


@pytest.fixture(scope="module", autouse=True)
def few_settings() -> Iterator[None]:
    """A smaller grid: the whole one takes seconds a trial."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("treewise.training.diagnose.SMALL_GRID", FEW)
        yield


@pytest.fixture(scope="module")
def trial() -> Trial:
    return try_grid(judged_trace(), EXAMPLE)


@pytest.fixture(scope="module")
def found(trial: Trial) -> Diagnosis:
    return diagnose(trial)


def named(found: Diagnosis) -> dict[str, str]:
    """Status by finding."""
    return {finding.name: finding.status for finding in found.findings}


def test_the_small_grid_is_a_part_of_the_large_one() -> None:
    known = {spec for family in FAMILIES for spec in (*GRIDS[family], *grid(family, FREE))}
    assert known >= SMALL_GRID > FEW


def test_trees_pay_where_width_is_cheap(found: Diagnosis) -> None:
    assert found.is_worth_it
    assert found.verdict.startswith(f"worth it: modelled {found.speedup} times as fast")
    assert found.policy == found.advised.spec
    assert found.speedup.low > 1.0
    speeds = [row.speedup for row in found.tried]
    assert speeds == sorted(speeds, reverse=True)
    assert found.advised.speedup >= found.speedup.value - 1e-12  # left-out prompts cannot choose better
    assert found.ceiling.value > found.speedup.value
    assert found.reached == pytest.approx((found.speedup.value - 1.0) / (found.ceiling.value - 1.0))
    assert named(found)["serial verification"] == "fine"
    assert named(found)["accepted length"] == "fine"


def test_one_prompt_settles_nothing(found: Diagnosis) -> None:
    lonely = replace(found, speedup=replace(found.speedup, low=float("nan"), high=float("nan")))
    assert not lonely.is_worth_it
    assert lonely.verdict.startswith("one prompt cannot tell, so plain decoding until more do: modelled")


def test_speeds_are_those_of_an_ab(trial: Trial, found: Diagnosis) -> None:
    report = ab([judged_trace()], [EXAMPLE], [found.advised.spec])
    assert report.rows[0].speedup.value == pytest.approx(found.advised.speedup)
    assert report.rows[0].tokens_per_round == pytest.approx(found.advised.tokens_per_round)
    assert report.rows[1].speedup.value == pytest.approx(found.ceiling.value)
    oracle = oracle_tally(judged_trace(), EXAMPLE)
    assert oracle.columns["tokens"].sum() == found.tokens


def test_nothing_pays_where_rows_run_one_behind_another() -> None:
    found = diagnose(try_grid(judged_trace(), SERIAL))
    assert not found.is_worth_it
    assert found.verdict.startswith("plain decoding is as fast, as far as these prompts tell: modelled 1.000")
    assert found.advised.spec == "plain"
    assert found.policy in FEW  # what guesses is looked at nevertheless
    status = named(found)
    assert [status[name] for name in ("serial verification", "serial drafting", "verify slope")] == ["fires"] * 3
    assert status["draft gain"] == "fires"


def test_a_setting_in_use_is_what_is_looked_at() -> None:
    found = diagnose(try_grid(judged_trace(), SERIAL, "static:3x3"))
    assert found.policy == "static:3x3"
    assert named(found)["accepted length"] == "fires"
    assert found.advised.spec != "static:3x3"
    assert all(row.spec != "static:3x3" for row in found.tried)
    with pytest.raises(CoverageError, match="static:3x9"):
        try_grid(judged_trace(), SERIAL, "static:3x9")
    with pytest.raises(PolicySpecError):
        try_grid(judged_trace(), SERIAL, "nonsense")


def test_the_advised_settings_live_speed_has_the_last_word(trial: Trial) -> None:
    live = replace(LIVE, policy=trial.advised, speedup=0.9, advised_speedup=0.9)
    found = diagnose(trial, live)
    assert not found.is_worth_it
    assert found.verdict.startswith("plain decoding is as fast: live it is 0.90 times that, though")
    assert named(found)["model of time"] == "fires"
    fine = diagnose(trial, replace(live, speedup=found.advised.speedup, advised_speedup=found.advised.speedup))
    assert fine.is_worth_it
    assert named(fine)["model of time"] == "fine"
    other = diagnose(trial, replace(LIVE, policy="chain:9", speedup=0.8, advised_speedup=1.2))  # a bad setting in use
    assert other.is_worth_it
    assert named(other)["model of time"] == "unknown"


def test_a_mix_of_tasks_fires_where_they_differ_enough(trial: Trial) -> None:
    from treewise.training.findings import Limits

    (spread,) = [one for one in diagnose(trial).findings if one.name == "mix of tasks"]
    assert spread.figure is not None
    assert spread.figure >= 1.0
    assert (" on copy" in spread.words) and (" on chat" in spread.words)
    low, high = (diagnose(trial, limits=Limits(task_spread=spread.figure + step)) for step in (-1e-6, 1e-6))
    assert (named(low)["mix of tasks"], named(high)["mix of tasks"]) == ("fires", "fine")
    one = diagnose(try_grid(judged_trace().of_task("copy"), EXAMPLE))
    assert named(one)["mix of tasks"] == "unknown"


def test_without_a_draft_there_is_nothing_to_say_of_it() -> None:
    world = World(seed=5, num_texts=3, answer_tokens=20)
    trace = dense_trace(world, Envelope(max_depth=4, draft_width=3), sources=FREE)
    found = diagnose(try_grid(trace, EXAMPLE))
    assert found.attribution is None
    assert not {"draft share", "draft gain", "draft agreement", "serial drafting"} & set(named(found))
    assert set(grid_of(trace, EXAMPLE)) <= {"plain", *(spec for family in FAMILIES for spec in grid(family, FREE))}
    plain = diagnose(try_grid(trace, EXAMPLE, "plain"))
    assert (plain.policy, named(plain)["accepted length"]) == ("plain", "fine")


def test_a_live_trace_is_refused() -> None:
    trace = judged_trace()
    live = replace(trace, manifest=replace(trace.manifest, kind="live"))
    with pytest.raises(TraceError, match="must be dense, got a live one"):
        try_grid(live, EXAMPLE)
    with pytest.raises(ParameterError, match="tallies must be at least one"):
        Choices.of({})
