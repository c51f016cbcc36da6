"""The oracles: they know the path, or its right depth, and bound every policy."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tests.training.judged import judged_report, judged_trace
from tests.training.worlds import COST, as_trace
from treewise.policy.hook import FREE
from treewise.policy.registry import parse_policy
from treewise.training.ab import ORACLE
from treewise.training.ab_report import AbReport
from treewise.training.logged_trace import LoggedTrace
from treewise.training.oracle import DepthOracle, oracle_run
from treewise.training.replay import Replayer


@pytest.fixture
def trace() -> LoggedTrace:
    return judged_trace()


@pytest.fixture
def report() -> AbReport:
    return judged_report()


def test_nothing_beats_the_oracle(report: AbReport) -> None:
    for origin in report.profiles:
        *policies, oracle = report.select(origin.name)
        assert (oracle.policy, oracle.is_upper_bound) == (ORACLE, True)
        assert all(row.speedup.value < oracle.speedup.value and not row.is_upper_bound for row in policies)


def test_the_oracle_is_the_best_of_all_ways(trace: LoggedTrace) -> None:
    """Against every sequence of path lengths over the last positions of a text, priced one by one."""
    request = trace.requests[0]
    setting = trace.deployment(COST)
    start = request.end_position - 6
    nodes = request.shard.nodes

    def price(position: int, length: int) -> float:
        rows = request.node_rows(request.row_at(position))
        path = np.flatnonzero(nodes.survives[rows])[:length]
        if len(path) < length:
            return np.inf
        ms, drafted = COST.round_ms + float(COST.verify_ms(1 + length, position)), 0
        for depth, place in enumerate(path.tolist(), 1):
            if not nodes.sources[rows][place] & FREE:
                ms += float(COST.draft_ms(depth - drafted, position))
                drafted = depth
        return ms

    best = np.inf
    for lengths in itertools.product(range(4), repeat=5):
        position, ms = start, 0.0
        for length in lengths:
            if position >= request.end_position - 1:
                break
            ms += price(position, length)
            position += length + 1
        if position >= request.end_position - 1:
            best = min(best, ms)
    late = _from(trace, start)
    assert oracle_run(late.requests[0], setting).ms <= best + 1e-9
    deepest = max(int(nodes.survives[request.node_rows(request.row_at(p))].sum()) for p in range(start, start + 5))
    if deepest < 4:
        assert oracle_run(late.requests[0], setting).ms == pytest.approx(best)


def _from(trace: LoggedTrace, start: int) -> LoggedTrace:
    """The first request, its rounds before `start` taken for prompt."""
    request = trace.requests[0]
    shard = request.shard.take(np.asarray([row for position, row in request.rows.items() if position >= start]))
    prompts = np.full_like(shard.rounds.prompt_tokens, start + 1)
    return as_trace(replace(shard, rounds=replace(shard.rounds, prompt_tokens=prompts)), trace.manifest)


def test_a_depth_oracle_keeps_the_rounds_and_drops_what_lay_too_deep(report: AbReport) -> None:
    for row in report.rows:
        oracle = report.depth_oracle_of(row)
        if row.policy == ORACLE:
            assert oracle is None
            continue
        assert oracle is not None
        assert (oracle.rounds, oracle.tokens, oracle.is_upper_bound) == (row.rounds, row.tokens, True)
        assert oracle.nodes_per_round <= row.nodes_per_round and oracle.growths_per_round <= row.growths_per_round
        assert oracle.speedup.value >= row.speedup.value - 1e-12
        if row.policy.startswith("chain"):
            assert oracle.nodes_per_round == pytest.approx(row.tokens_per_round - 1.0, abs=0.1)  # one a token, no more
        assert oracle.speedup.value <= report.select(row.profile, row.task)[-1].speedup.value + 1e-12


def test_a_chain_at_the_right_depth_verifies_what_it_accepts(trace: LoggedTrace) -> None:
    oracle = DepthOracle()
    replayer = Replayer(parse_policy("chain:3,sources=draft"), trace.deployment(COST), oracle.watch)
    for request in trace.requests:
        replayer.run(request)
    result = replayer.result()
    cut = oracle.cut(result)
    assert cut.verified_nodes.tolist() == result.accepted_length.tolist()
    assert cut.growths.tolist() == result.accepted_length.tolist()
    calls = result.policy_calls - result.growths + result.accepted_length
    assert cut.policy_calls.tolist() == np.maximum(calls, 2).tolist()  # the opening level and the selection stay
    assert len(cut.growth_tokens) == cut.growth_offsets[-1] == result.accepted_length.sum()
    first = [result.growth_tokens[start] for start in result.growth_offsets[:-1][result.accepted_length > 0]]
    assert [cut.growth_tokens[start] for start in cut.growth_offsets[:-1][cut.growths > 0]] == first
