"""The vLLM schedule: best chain length by batch size, its costs by hand, its ranges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.training.worlds import COST, World, dense_trace, manifest
from treewise.data.cost import CostGrid, CostProfile
from treewise.data.envelope import Envelope
from treewise.data.errors import CoverageError, ParameterError
from treewise.policy.hook import Deployment
from treewise.policy.registry import parse_policy
from treewise.training.export_vllm import BatchCost, VllmSchedule, export_vllm
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay import replay

ENVELOPE = Envelope(max_depth=5, draft_width=3, min_path_prior=0.001, min_grow_prior=0.001)
LONGEST = 5


def profile(name: str, row_ms: float, draft_ms: float = 0.1) -> CostProfile:
    """A pass of 10 ms and `row_ms` a row; a draft growth of `draft_ms`."""
    return CostProfile(
        name=name,
        verify=CostGrid((1, 64), (0,), ((10.0 + row_ms, 10.0 + 64.0 * row_ms),)),
        draft=CostGrid((1, 64), (0,), ((draft_ms, draft_ms),)),
        round_ms=0.5,
    )


@pytest.fixture(scope="module")
def trace() -> LoggedTrace:
    return dense_trace(World(seed=4, num_texts=3, answer_tokens=24), ENVELOPE)


def measured(*parts: tuple[int, CostProfile]) -> list[BatchCost]:
    return [BatchCost.measured(size, cost) for size, cost in parts]


def best(schedule: VllmSchedule) -> dict[int, int]:
    return {row.batch_size: row.tokens for row in schedule.rows if row.is_best}


def test_cheap_rows_take_long_chains_and_dear_rows_none(trace: LoggedTrace) -> None:
    costs = measured((1, profile("free", 0.0, 0.0)), (8, profile("dear", 200.0)))
    schedule = export_vllm([trace], costs, LONGEST)
    most = max(schedule.rows[: LONGEST + 1], key=lambda row: row.committed_per_round)
    assert most.tokens >= 3
    assert best(schedule) == {1: most.tokens, 8: 0}
    assert schedule.ranges == ((1, 1, most.tokens), (2, 8, 0))
    assert schedule.speculative_config({"method": "eagle"}) == {
        "method": "eagle",
        "num_speculative_tokens": most.tokens,
        "num_speculative_tokens_per_batch_size": [[1, 1, most.tokens], [2, 8, 0]],
    }


def test_the_best_is_the_fastest_by_hand(trace: LoggedTrace) -> None:
    cost = profile("middle", 1.5, 1.0)
    schedule = export_vllm([trace], measured((1, cost)), LONGEST)
    speeds = {0: 1000.0 / 12.0}  # 0.5 + 10 + 1.5 ms a token
    deployment: Deployment = trace.deployment(cost)
    for length in range(1, LONGEST + 1):
        policy = parse_policy(f"chain:{length},sources=draft")
        result = replay(policy, trace.requests, deployment)
        round_ms = 0.5 + 10.0 + 1.5 * (length + 1) + 1.0 * length  # the whole chain, wherever the log stopped
        speeds[length] = 1000.0 * float(result.committed_tokens.sum()) / (round_ms * len(result))
    assert {row.tokens: row.tokens_per_second for row in schedule.rows} == pytest.approx(speeds)
    assert best(schedule)[1] == max(speeds, key=lambda length: speeds[length])
    plain = schedule.rows[0]
    assert (plain.tokens, plain.committed_per_round, plain.ms_per_round, plain.speedup.value) == (0, 1.0, 12.0, 1.0)


def test_equal_neighbours_become_one_range_and_the_last_goes_on(trace: LoggedTrace) -> None:
    free, dear = profile("free", 0.0, 0.0), profile("dear", 200.0)
    costs = measured((16, dear), (1, free), (4, free), (8, dear))
    schedule = export_vllm([trace], costs, LONGEST, max_batch_size=512)
    longest = best(schedule)[1]
    assert schedule.ranges == ((1, 4, longest), (5, 512, 0))
    assert schedule.num_speculative_tokens == longest > 0


def test_where_nothing_pays_vllm_still_gets_a_positive_maximum(trace: LoggedTrace) -> None:
    schedule = export_vllm([trace], measured((4, profile("dear", 200.0))), LONGEST)
    assert schedule.ranges == ((1, 4, 0),)
    assert schedule.num_speculative_tokens == 1


def test_scaling_charges_the_rows_of_the_whole_batch() -> None:
    cost = profile("one", 1.0, 0.0)
    scaled = BatchCost.scaled(8, cost, 4)
    assert scaled.cost.verify_ms([1, 3, 5]).tolist() == cost.verify_ms([8, 24, 40]).tolist()
    assert scaled.measured_rows == 8.0
    assert "assumption" in scaled.words and "assumption" not in BatchCost.measured(8, cost).words


def test_rows_beyond_the_profile_are_marked(trace: LoggedTrace) -> None:
    cost = profile("one", 1.0)
    schedule = export_vllm([trace], [BatchCost.scaled(size, cost, LONGEST) for size in (1, 16)], LONGEST)
    assert [row.is_measured for row in schedule.rows if row.batch_size == 1] == [True] * (LONGEST + 1)
    assert [row.is_measured for row in schedule.rows if row.batch_size == 16] == [True] * 4 + [False] * 2


def test_the_lookup_pays_only_for_what_it_found(trace: LoggedTrace) -> None:
    cost = profile("rows", 5.0, 1e6)  # a draft that nobody could afford
    schedule = export_vllm([trace], measured((1, cost)), LONGEST, sources="lookup")
    result = replay(parse_policy(f"chain:{LONGEST},sources=lookup"), trace.requests, trace.deployment(cost))
    last = schedule.rows[-1]
    assert last.tokens == LONGEST
    assert last.ms_per_round == pytest.approx(0.5 + 10.0 + 5.0 * (1.0 + float(np.mean(result.verified_nodes))))


def test_no_policy_is_charged(trace: LoggedTrace) -> None:
    cost = profile("plain", 1.0)
    slow = replace(cost, policy_ms=1e6, level_ms=1e6)
    first = export_vllm([trace], measured((1, cost)), 2)
    assert export_vllm([trace], measured((1, slow)), 2).ranges == first.ranges
    assert first.rows[2].ms_per_round == pytest.approx(0.5 + 10.0 + 3.0 + 0.2)


def test_a_shallow_trace_is_refused(trace: LoggedTrace) -> None:
    with pytest.raises(CoverageError, match="depth 6 where the log ends at 5"):
        export_vllm([trace], measured((1, COST)), 6)


def test_a_live_trace_is_refused(trace: LoggedTrace) -> None:
    live = replace(trace, manifest=manifest("live", ENVELOPE, "chain:3"))
    with pytest.raises(CoverageError, match="must be dense"):
        export_vllm([live], measured((1, COST)), 3)


@pytest.mark.parametrize(
    ("sizes", "last", "message"),
    [
        ((), None, "costs must be at least one batch size"),
        ((4, 4), None, "costs must be one a batch size"),
        ((1, 8), 4, "max_batch_size must be at least 8"),
    ],
)
def test_bad_batch_sizes(trace: LoggedTrace, sizes: tuple[int, ...], last: int | None, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        export_vllm([trace], measured(*((size, COST) for size in sizes)), 2, max_batch_size=last)


def test_a_source_that_vllm_does_not_have_is_refused(trace: LoggedTrace) -> None:
    with pytest.raises(ParameterError, match="sources must be one of draft, lookup, got 'recycled'"):
        export_vllm([trace], measured((1, COST)), 3, sources="recycled")  # type: ignore[arg-type]


def test_a_batch_has_a_request() -> None:
    with pytest.raises(ParameterError, match="batch_size must be at least 1, got 0"):
        BatchCost.measured(0, COST)


def test_conforms_to_the_installed_vllm(trace: LoggedTrace) -> None:
    module = pytest.importorskip("vllm.v1.spec_decode.dynamic.utils")
    schedule = export_vllm([trace], measured((1, profile("free", 0.0, 0.0)), (8, profile("dear", 200.0))), LONGEST)
    config = schedule.speculative_config()
    dense = module.build_dynamic_sd_schedule_lookup(
        config["num_speculative_tokens_per_batch_size"], 16, config["num_speculative_tokens"]
    )
    assert list(dense)[1:] == [best(schedule)[1], *([0] * 15)]
