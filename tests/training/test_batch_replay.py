"""Many requests at once against one at a time: the same result, to the digest of every round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.policy.models import tiny_bundle
from tests.training.worlds import ALL, COST, GrowAll, World, as_trace, dense, manifest, simulate
from treewise.data.cost import CostGrid
from treewise.data.envelope import Envelope
from treewise.data.errors import CoverageError, ParameterError
from treewise.data.trace_schema import TraceShard, concatenate
from treewise.policy.contain import ContainedPolicy
from treewise.policy.draft_ranking import PLAIN, RANKINGS
from treewise.policy.hook import (
    BoolArray,
    Expansion,
    ForestView,
    Level,
    RequestInfo,
    RoundContext,
    RoundOutcome,
    State,
    TreePolicy,
)
from treewise.policy.learned import LearnedPolicy
from treewise.policy.registry import parse_policy
from treewise.training.logged import LoggedRequest
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay import Replayer, replay
from treewise.training.replay_result import ReplayResult

ENVELOPE = Envelope(max_depth=6, draft_width=4)
SPECS = (
    "plain", "chain:4", "chain:3,sources=draft", "chain:5,sources=lookup", "static:2x3", "topn:12x3",
    "topn:8x2,sources=draft", "topn:12x3,sources=both", "topn:12x3,sources=free", "chain:5,sources=recycled",
    "entropy", "cumulative", "frontier", "switch",
)  # fmt: skip


def policy_of(spec: str) -> TreePolicy:
    return LearnedPolicy(tiny_bundle(), "flat") if spec == "learned" else parse_policy(spec)


@cache
def shard(seed: int, sources: int = ALL) -> TraceShard:
    world = World(seed=seed, num_texts=4, answer_tokens=30)
    return concatenate([dense(world, text, ENVELOPE.widened(), sources) for text in world.texts])


def with_noise(plain: TraceShard, seed: int) -> TraceShard:
    """What the draft would draw, made up: perturbed probabilities and their ranks among the siblings."""
    nodes, rng = plain.nodes, np.random.default_rng(seed)
    knows = ~np.isnan(nodes.draft_prob)
    drawn = np.where(knows, rng.random(len(nodes)), np.nan).astype(np.float32)
    parents = np.where(nodes.parent > 0, plain.parent_rows(), -1 - plain.round_rows())
    order = np.lexsort((-drawn, parents))
    first = np.concatenate([[True], parents[order][1:] != parents[order][:-1]])
    places = np.arange(len(nodes))
    ranks = np.empty(len(nodes), dtype=np.float32)
    ranks[order] = places - np.maximum.accumulate(np.where(first, places, 0))
    ranks[~knows] = np.nan
    return replace(
        plain, nodes=replace(nodes, draft_drawn_prob=drawn, draft_drawn_rank=ranks, draft_gap=(drawn * 3).astype("f4"))
    )


@cache
def trace(seed: int = 0, ranking: str = PLAIN, tokens_included: bool = True, sources: int = ALL) -> LoggedTrace:
    plain = shard(seed, sources)
    noisy = plain if ranking == PLAIN else with_noise(plain, seed)
    conditions = replace(manifest("dense", ENVELOPE.widened()), ranking=ranking)
    return as_trace(noisy, conditions, tokens_included)


def check_same(ours: ReplayResult, theirs: ReplayResult) -> None:
    for name in type(ours).__dataclass_fields__:
        if name != "policy_seconds":
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), err_msg=name)


def check_batched(make: Callable[[], TreePolicy], log: LoggedTrace, batch_requests: int) -> ReplayResult:
    """One at a time is the reference. Returns the batched result."""
    setting = log.deployment(COST)
    alone = replay(make(), log.requests, setting, batch_requests=1)
    together = replay(make(), log.requests, setting, batch_requests=batch_requests)
    check_same(together, alone)
    return together


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


def covers(make: Callable[[], TreePolicy], log: LoggedTrace) -> bool:
    """Whether the log, whose noise is made up, holds what the policy asks for."""
    try:
        replay(make(), log.requests, log.deployment(COST), batch_requests=1)
    except CoverageError:
        return False
    return True


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


class Fickle(GrowAll):
    """Raises in the call named, for one request."""

    state: State = "request"

    def __init__(self, failing: str, number: int = 1) -> None:
        self.failing, self.number = failing, number
        self.seen: dict[int, int] = {}  # request -> tokens

    def begin(self, request: RequestInfo) -> None:
        self.seen[request.request_id] = 0
        self._maybe("begin", request.request_id == self.number)

    def expand(self, level: Level) -> Expansion:
        self._maybe("expand", self._is_due(level.context) and level.index == 1)
        return super().expand(level)

    def select(self, forest: ForestView) -> BoolArray:
        self._maybe("select", self._is_due(forest.context))
        seen = np.asarray([self.seen[own] for own in forest.context.request_id.tolist()])
        return np.asarray(forest.nodes.depth <= seen[forest.nodes.request] % 3 + 1)

    def observe(self, outcome: RoundOutcome) -> None:
        for place, request in enumerate(outcome.context.request_id.tolist()):
            self.seen[request] += int(outcome.accepted_length[place]) + 1
            self._maybe("observe", request == self.number and 3 <= self.seen[request] <= 6)

    def finish(self, request_id: int, reason: str) -> None:
        self._maybe("finish", request_id == self.number)

    def _is_due(self, context: RoundContext) -> bool:
        return self.number in context.request_id and 3 <= self.seen[self.number] <= 6

    def _maybe(self, call: str, fails: bool) -> None:
        if fails and self.failing == call:
            raise ValueError(f"no {call}")


@pytest.mark.parametrize("failing", ["begin", "expand", "select", "observe", "finish", "nothing"])
@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_failure_touches_only_its_own_request(failing: str, number: int) -> None:
    log = trace()
    setting = log.deployment(COST)
    one, many, sound = (
        ContainedPolicy(Fickle(name, number), time_limit_ms=np.inf, is_quiet=True)
        for name in (failing, failing, "nothing")
    )
    alone = replay(one, log.requests, setting, batch_requests=1)
    together = replay(many, log.requests, setting, batch_requests=3)
    check_same(together, alone)
    assert (many.num_failures, many.num_fallbacks, many.num_suspensions) == (
        one.num_failures, one.num_fallbacks, one.num_suspensions,
    )  # fmt: skip
    assert (one.num_failures > 0) == (failing != "nothing")
    untouched = replay(sound, log.requests, setting)
    others = untouched.request != number
    np.testing.assert_array_equal(untouched.digest[others], together.digest[together.request != number])


class OneMinded(GrowAll):
    """Decides for all requests by the first one's position: not a policy for batches."""

    def expand(self, level: Level) -> Expansion:
        answer = super().expand(level)
        return answer if int(level.context.position[0]) % 2 else Expansion(answer.admit, np.zeros_like(answer.grow))


class Mindful(GrowAll):
    """Remembers over requests."""

    state: State = "session"

    def __init__(self) -> None:
        self.seen = 0
        self.sizes: set[int] = set()

    def expand(self, level: Level) -> Expansion:
        self.sizes.add(len(level.context.request_id))
        answer = super().expand(level)
        return answer if self.seen % 3 else Expansion(answer.admit, np.zeros_like(answer.grow))

    def observe(self, outcome: RoundOutcome) -> None:
        self.seen += int(outcome.accepted_length.sum()) + 1


def test_a_policy_that_mixes_requests_up_is_replayed_alone() -> None:
    check_batched(OneMinded, trace(), 4)


def test_a_session_is_replayed_in_the_logs_order() -> None:
    policies: list[Mindful] = []

    def make() -> Mindful:
        policies.append(Mindful())
        return policies[-1]

    check_batched(make, trace(), 4)
    assert policies[1].sizes == {1}


class Sizes(GrowAll):
    """Remembers the batch it was told of, and the one it saw."""

    def __init__(self) -> None:
        self.told: set[int] = set()
        self.seen: set[int] = set()

    def expand(self, level: Level) -> Expansion:
        self.told.add(level.context.batch_size)
        self.seen.add(len(level.context.request_id))
        return super().expand(level)


def test_policies_are_told_the_logs_batch() -> None:
    policy = Sizes()
    replay(policy, trace().requests, trace().deployment(COST), batch_requests=3)
    assert policy.told == {1}
    assert max(policy.seen) == 3


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


@pytest.mark.parametrize(
    ("writer", "policy", "message"),
    [
        ("chain:2,sources=free", "topn:8x2", "prompt-0, round 0: the log did not draft at path depth 0"),
        ("chain:2,sources=draft", "topn:8x2", "prompt-0, round 0: the log did not ask the lookup at path depth 0"),
        (
            "chain:2,sources=both",
            "topn:8x2",
            "prompt-0, round 0: the log did not ask for recycled guesses at path depth 0",
        ),
        ("topn:8x3,sources=draft", "plain", "prompt-0: the log holds no round at position"),
    ],
)
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
