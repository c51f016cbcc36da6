"""Many requests at once against one at a time: the same result, to the digest of every round."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.policy.models import tiny_bundle
from tests.training.batch_traces import (
    ENVELOPE,
    SPECS,
    OneMinded,
    check_batched,
    check_same,
    covers,
    policy_of,
    trace,
)
from tests.training.pruned_logs import LOG_ENDS
from tests.training.worlds import COST, GrowAll, World, as_trace, manifest, simulate
from treewise.data.cost import CostGrid
from treewise.data.errors import CoverageError, ParameterError
from treewise.data.trace_schema import concatenate
from treewise.policy.draft_ranking import BOTH, PLAIN, RANKINGS
from treewise.policy.hook import (
    Expansion,
    Level,
    TreePolicy,
)
from treewise.policy.learned import LearnedPolicy
from treewise.policy.registry import parse_policy
from treewise.training.logged import LoggedRequest
from treewise.training.logged_trace import open_trace
from treewise.training.replay import Replayer, replay

SHIPPED = Path(__file__).parents[2] / "data" / "assets" / "traces-smollm2-135m"


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    spec=st.sampled_from([*SPECS, "learned"]),
    seed=st.integers(0, 2),
    ranking=st.sampled_from(RANKINGS),
    tokens_included=st.booleans(),
    batch_requests=st.integers(2, 5),
)
def test_a_batch_changes_nothing(
    spec: str, seed: int, ranking: str, tokens_included: bool, batch_requests: int
) -> None:
    def make() -> TreePolicy:
        return policy_of(spec)

    log = trace(seed, ranking, tokens_included)
    if ranking != PLAIN and not covers(make, log):
        with pytest.raises(CoverageError):
            replay(make(), log.requests, log.deployment(COST), batch_requests=batch_requests)
        return
    check_batched(make, log, batch_requests)


@pytest.mark.parametrize("name", ["judge", "train-t1"])
def test_machine_code_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    log = open_trace(SHIPPED / name).groups()[0]
    assert log.manifest.ranking == (PLAIN if name == "judge" else BOTH)
    few, setting = log.requests[:3], log.deployment(COST)
    alone = replay(parse_policy("cumulative"), few, setting, batch_requests=1)
    monkeypatch.setattr(Replayer, "_alone", None)  # nothing is handed back
    check_same(replay(parse_policy("cumulative"), few, setting), alone)
    monkeypatch.setattr("treewise.training.batch_free.uses_compiled", lambda choice: False)
    check_same(replay(parse_policy("cumulative"), few, setting), alone)


def test_machine_code_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    growth = pytest.importorskip("treewise.training.compiled_growth")
    monkeypatch.setattr(growth, "_FIRST_ROOM", 1)
    check_batched(lambda: parse_policy("topn:12x3"), trace(), 4)


class Counted(LearnedPolicy):
    """Counts its calls."""

    calls = 0

    def expand(self, level: Level) -> Expansion:
        self.calls += 1
        return super().expand(level)


@pytest.mark.parametrize("scorer", ["flat", "onnx", "lightgbm"])
def test_a_learned_policy_is_asked_for_many_requests_at_once(scorer: str) -> None:
    log = trace()
    setting = replace(log.deployment(COST), row_buckets=(1, 4, 16))
    one, many = Counted(tiny_bundle(), scorer), Counted(tiny_bundle(), scorer)  # type: ignore[arg-type]
    alone = replay(one, log.requests, setting, batch_requests=1)
    check_same(replay(many, log.requests, setting), alone)
    assert many.calls < 0.8 * one.calls


@pytest.mark.parametrize("batch_requests", [1, 2, 64])
def test_every_request_advances_once(batch_requests: int) -> None:
    done: list[str] = []
    log = trace()
    replay(GrowAll(), log.requests, log.deployment(COST), lambda: done.append("all"), batch_requests)
    replay(OneMinded(), log.requests, log.deployment(COST), lambda: done.append("one"), batch_requests)
    assert done == ["all"] * len(log.requests) + ["one"] * len(log.requests)


def test_a_watched_replay_sees_every_round_alone() -> None:
    log = trace()
    seen: list[tuple[str, int]] = []
    replayer = Replayer(
        GrowAll(), log.deployment(COST), lambda request, position, *_: seen.append((request.prompt_id, position))
    )
    replayer.run_all(log.requests)
    result = replayer.result()
    assert seen == list(zip(result.prompt_id[result.request].tolist(), result.position.tolist(), strict=True))


def test_recorded_suspensions_are_obeyed() -> None:
    world = World(seed=1, num_texts=3, answer_tokens=26)
    setting = trace(1).deployment(COST, ENVELOPE)
    policy = parse_policy("topn:8x2")  # the fallback of a contained policy
    policy.bind(setting)
    live = concatenate([simulate(world, text, policy, setting)[1] for text in world.texts])
    suspended = (live.rounds.request == 1) & (live.rounds.round >= 2)
    log = as_trace(
        replace(live, rounds=replace(live.rounds, suspended=suspended)), manifest("live", ENVELOPE, "topn:8x2")
    )
    assert [request.was_suspended for request in log.requests] == [False, True, False]
    result = check_batched(lambda: parse_policy("topn:8x2"), log, 3)
    np.testing.assert_array_equal(result.policy_calls == 0, suspended)


@pytest.mark.parametrize(("writer", "policy", "message"), LOG_ENDS)
def test_a_pruned_log_says_where_it_ends(writer: str, policy: str, message: str) -> None:
    world = World(seed=1, num_texts=3, answer_tokens=26)
    setting = trace(1).deployment(COST, ENVELOPE)
    wrote = parse_policy(writer)
    wrote.bind(setting)
    live = concatenate([simulate(world, text, wrote, setting)[1] for text in world.texts])
    log = as_trace(live, manifest("live", ENVELOPE, writer))
    check_batched(lambda: parse_policy(writer), log, 3)
    with pytest.raises(CoverageError, match=message):
        replay(parse_policy(policy), log.requests, log.deployment(COST))


def test_a_log_of_plain_decoding_holds_no_nodes() -> None:
    world = World(seed=1, num_texts=3, answer_tokens=26)
    setting, plain = trace(1).deployment(COST, ENVELOPE), parse_policy("plain")
    plain.bind(setting)
    live = concatenate([simulate(world, text, plain, setting)[1] for text in world.texts])
    assert len(live.nodes) == 0
    log = as_trace(live, manifest("live", ENVELOPE, "plain"))
    result = check_batched(lambda: parse_policy("plain"), log, 3)
    assert len(result) == len(live.rounds)


def test_requests_of_several_shards_are_replayed_in_order() -> None:
    parts = [trace(seed) for seed in (0, 1, 2)]
    requests: list[LoggedRequest] = [request for part in parts for request in part.requests]
    setting = parts[0].deployment(COST)
    check_same(
        replay(parse_policy("topn:12x3"), requests, setting),
        replay(parse_policy("topn:12x3"), requests, setting, batch_requests=1),
    )


def test_prices_by_capacity_are_those_of_each_request() -> None:
    cost = replace(COST, draft=CostGrid((1, 8), (8, 32, 64), ((0.4, 1.5), (1.2, 1.9), (2.2, 4.9))))
    log = trace(2)
    for spec in ("frontier", "learned"):
        alone = replay(policy_of(spec), log.requests, log.deployment(cost), batch_requests=1)
        check_same(replay(policy_of(spec), log.requests, log.deployment(cost)), alone)


def test_a_batch_holds_at_least_one_request() -> None:
    with pytest.raises(ParameterError, match="batch_requests must be at least 1, got 0"):
        replay(GrowAll(), trace().requests, trace().deployment(COST), batch_requests=0)
