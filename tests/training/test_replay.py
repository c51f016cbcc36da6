"""Replay against a straightforward simulation of the live loop, on made-up worlds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.training.pruned_logs import LOG_ENDS
from tests.training.worlds import ALL, COST, HEAD, GrowAll, World, as_trace, dense_trace, manifest, simulate
from treewise.data.envelope import Envelope
from treewise.data.errors import CoverageError
from treewise.data.trace_schema import concatenate
from treewise.policy.hook import DRAFT, FREE, LOOKUP, RECYCLED, Expansion, Level, Reach, RoundOutcome, TreePolicy
from treewise.policy.registry import parse_policy
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay import Replayer, check_reach, replay
from treewise.training.replay_result import call_ms_of, modelled_ms, plain_ms

ENVELOPE = Envelope(max_depth=6, draft_width=4)
SPECS = (
    "plain", "chain:4", "chain:3,sources=draft", "chain:5,sources=lookup", "static:2x3", "topn:12x3",
    "topn:8x2,sources=draft", "topn:12x3,sources=both", "topn:12x3,sources=free", "chain:5,sources=recycled",
    "entropy", "cumulative", "frontier", "switch", "opt-tree:10x0.2", "feedback:12x4,probe_rounds=3",
)  # fmt: skip


@pytest.fixture(scope="module")
def world() -> World:
    return World(seed=5, num_texts=2, answer_tokens=30)


@pytest.fixture(scope="module")
def trace(world: World) -> LoggedTrace:
    return dense_trace(world, ENVELOPE)


@pytest.fixture(scope="module")
def hidden(world: World) -> LoggedTrace:
    return dense_trace(world, ENVELOPE, tokens_included=False)


@pytest.mark.parametrize("spec", SPECS)
def test_replay_is_the_live_loop(world: World, trace: LoggedTrace, spec: str) -> None:
    check_live_loop(world, trace, spec)


@pytest.mark.parametrize("sources", [LOOKUP | DRAFT, RECYCLED | DRAFT, FREE, LOOKUP, RECYCLED, DRAFT])
def test_a_log_of_fewer_sources_is_the_live_loop_without_the_others(world: World, sources: int) -> None:
    log = dense_trace(world, ENVELOPE, sources=sources)
    assert log.sources == sources
    assert bool(np.isnan(log.requests[0].shard.nodes.recycled_order).all()) == (not sources & RECYCLED)
    for spec in ("topn:12x3", "chain:4"):
        check_live_loop(world, log, spec)


def check_live_loop(world: World, trace: LoggedTrace, spec: str) -> None:
    setting = trace.deployment(COST)
    found = replay(parse_policy(spec), trace.requests, setting)
    policy = parse_policy(spec)
    policy.bind(setting)
    rounds = [done for text in world.texts for done in simulate(world, text, policy, setting)[0]]
    assert found.position.tolist() == [done.position for done in rounds]
    assert found.accepted_length.tolist() == [done.accepted_length for done in rounds]
    assert found.committed_tokens.tolist() == [len(done.committed) for done in rounds]
    assert found.verified_nodes.tolist() == [done.kept for done in rounds]
    assert found.growth_tokens.tolist() == [tokens for done in rounds for tokens in done.growth_tokens]
    assert found.policy_calls.tolist() == [done.policy_calls for done in rounds]


class Contexts(GrowAll):
    """Grows everything in every other round and remembers what it was told."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, ...]] = []

    def expand(self, level: Level) -> Expansion:
        context = level.context
        if level.index == 0:
            names = (
                "position", "generated_tokens", "remaining_tokens", "catch_up", "draft_agreement", "lookup_agreement",
                "accepted_recent", "last_accepted", "target_entropy", "target_margin", "temperature",
            )  # fmt: skip
            self.seen.append(tuple(float(getattr(context, name)[0]) for name in names))
        answer = super().expand(level)
        return answer if int(context.position[0]) % 2 else Expansion(answer.admit, np.zeros_like(answer.grow))


def test_contexts_are_those_of_the_live_loop(world: World, trace: LoggedTrace) -> None:
    offline, live = Contexts(), Contexts()
    setting = trace.deployment(COST)
    replay(offline, trace.requests, setting, batch_requests=1)  # it reads and keeps one request's values
    for text in world.texts:
        simulate(world, text, live, setting)
    np.testing.assert_array_equal(np.asarray(offline.seen), np.asarray(live.seen))
    assert max(row[3] for row in live.seen) > 0  # the draft had to catch up somewhere


class Watching(GrowAll):
    """Collects every column of every forest."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.outcomes: list[RoundOutcome] = []

    def expand(self, level: Level) -> Expansion:
        answer = super().expand(level)
        return Expansion(answer.admit, answer.grow & np.uint8(self.bits))

    def observe(self, outcome: RoundOutcome) -> None:
        self.outcomes.append(
            replace(
                outcome,
                nodes=replace(
                    outcome.nodes,
                    **{name: getattr(outcome.nodes, name).copy() for name in type(outcome.nodes).__dataclass_fields__},
                ),
            )
        )


@pytest.mark.parametrize("bits", range(1, ALL + 1))
def test_every_signal_is_that_of_the_live_loop(world: World, trace: LoggedTrace, bits: int) -> None:
    setting = trace.deployment(COST)
    offline, live = Watching(bits), Watching(bits)
    replay(offline, trace.requests, setting, batch_requests=1)  # it reads and keeps one request's values
    for text in world.texts:
        simulate(world, text, live, setting)
    assert len(offline.outcomes) == len(live.outcomes)
    for ours, theirs in zip(offline.outcomes, live.outcomes, strict=True):
        for name in type(ours.nodes).__dataclass_fields__:
            np.testing.assert_array_equal(getattr(ours.nodes, name), getattr(theirs.nodes, name), err_msg=name)
        np.testing.assert_array_equal(ours.match, theirs.match)
        np.testing.assert_array_equal(ours.on_path, theirs.on_path)
    if bits & FREE:
        sources = np.concatenate([outcome.nodes.sources[1:] for outcome in live.outcomes])
        assert ((sources & bits & FREE) > 0).any()
    if bits & LOOKUP:
        tokens = np.concatenate([outcome.nodes.token[1:] for outcome in live.outcomes])
        assert (tokens >= HEAD).any()  # some that the draft cannot say


@pytest.mark.parametrize("spec", SPECS)
def test_withheld_tokens_change_no_decision(hidden: LoggedTrace, trace: LoggedTrace, spec: str) -> None:
    assert (hidden.requests[0].text == -1).all()
    ours = replay(parse_policy(spec), hidden.requests, hidden.deployment(COST))
    theirs = replay(parse_policy(spec), trace.requests, trace.deployment(COST))
    np.testing.assert_array_equal(ours.digest, theirs.digest)
    np.testing.assert_array_equal(ours.committed_tokens, theirs.committed_tokens)


@pytest.mark.parametrize("spec", ["topn:12x3", "frontier", "entropy"])
def test_requests_do_not_touch_each_other(trace: LoggedTrace, spec: str) -> None:
    setting = trace.deployment(COST)
    together = replay(parse_policy(spec), trace.requests, setting)
    for place, request in enumerate(trace.requests):
        alone = replay(parse_policy(spec), [request], setting)
        np.testing.assert_array_equal(alone.digest, together.digest[together.request == place])


def test_a_result_is_the_same_on_every_run(trace: LoggedTrace) -> None:
    setting = trace.deployment(COST)
    one, two = (replay(parse_policy("topn:12x3"), trace.requests, setting) for _ in range(2))
    for name in type(one).__dataclass_fields__:
        if name != "policy_seconds":
            np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)


def test_every_round_is_priced_by_the_profile(trace: LoggedTrace) -> None:
    setting = replace(trace.deployment(COST), row_buckets=(1, 4, 16))
    result = replay(parse_policy("topn:12x3"), trace.requests, setting)
    found = modelled_ms(result, setting, call_ms=0.25)
    assert result.growths.max() > 1
    for row in range(len(result)):
        capacity = int(result.position[row])
        grown = result.growth_tokens[result.growth_offsets[row] : result.growth_offsets[row + 1]]
        expected = (
            COST.round_ms
            + float(COST.verify_ms(setting.padded_rows(1 + int(result.verified_nodes[row])), capacity))
            + float(COST.draft_ms(grown, capacity).sum())
            + 0.25 * int(result.policy_calls[row])
        )
        assert found[row] == pytest.approx(expected)


def test_plain_decoding_pays_one_row_a_token_and_no_policy(trace: LoggedTrace) -> None:
    request = trace.requests[0]
    positions = range(request.first_position, request.end_position - 1)
    assert plain_ms(request, COST) == pytest.approx(sum(COST.plain_ms(position) for position in positions))
    assert len(positions) == request.num_tokens


def test_a_timed_policy_is_charged_its_own_calls() -> None:
    class Timed(GrowAll):
        call_ms = 1.5

    assert call_ms_of(Timed(), COST) == 1.5
    assert call_ms_of(GrowAll(), COST) == COST.policy_ms


class Failing(GrowAll):
    """Raises at every second level."""

    def expand(self, level: Level) -> Expansion:
        if level.index == 1:
            raise ValueError("no")
        return super().expand(level)


def test_a_failing_policy_is_contained_as_in_the_live_loop(trace: LoggedTrace) -> None:
    with pytest.warns(RuntimeWarning, match="Failing failed"):
        result = replay(Failing(), trace.requests[:1], trace.deployment(COST))
    assert result.fallback.any()
    assert result.committed_tokens.sum() == trace.requests[0].num_tokens


class Reaching(GrowAll):
    """May ask for more than it is told to."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    @property
    def reach(self) -> Reach:
        return self._reach


@pytest.mark.parametrize(
    ("reach", "message"),
    [
        (Reach(7, 4), "policy x may ask for nodes of depth 7 where the log ends at 6"),
        (Reach(6, 5), "policy x may ask for 5 draft candidates below a node where the log holds 4"),
    ],
)
def test_a_policy_that_reaches_further_is_refused(trace: LoggedTrace, reach: Reach, message: str) -> None:
    with pytest.raises(CoverageError, match=message):
        check_reach(Reaching(reach), trace.deployment(COST), "x")
    check_reach(Reaching(Reach(6, 4)), trace.deployment(COST), "x")


def test_an_envelope_wider_than_the_log_is_refused(trace: LoggedTrace) -> None:
    with pytest.raises(CoverageError, match=r"trace world is narrower than the envelope asked for: max_depth 9 > 6"):
        trace.deployment(COST, Envelope(max_depth=9, draft_width=4))
    assert trace.deployment(COST, ENVELOPE).envelope == ENVELOPE


@pytest.mark.parametrize(("writer", "policy", "message"), LOG_ENDS)
def test_a_pruned_log_says_where_it_ends(world: World, writer: str, policy: str, message: str) -> None:
    live = live_trace(world, parse_policy(writer), writer)
    with pytest.raises(CoverageError, match=message):
        replay(parse_policy(policy), live.requests, live.deployment(COST))


def live_trace(world: World, policy: TreePolicy, spec: str) -> LoggedTrace:
    """A live trace of the world under `policy`."""
    setting = dense_trace(world, ENVELOPE, world.texts[:1]).deployment(COST, ENVELOPE)
    policy.bind(setting)
    shards = [simulate(world, text, policy, setting)[1] for text in world.texts]
    return as_trace(concatenate(shards), manifest("live", ENVELOPE, spec))


def test_replayer_can_be_fed_piece_by_piece(trace: LoggedTrace) -> None:
    replayer = Replayer(parse_policy("chain:3"), trace.deployment(COST))
    for request in trace.requests:
        replayer.run(request)
    whole = replay(parse_policy("chain:3"), trace.requests, trace.deployment(COST))
    np.testing.assert_array_equal(replayer.result().digest, whole.digest)
    assert replayer.result().num_requests == len(trace.requests)
