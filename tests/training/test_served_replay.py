"""Requests served side by side, from a log: counts, prices, and what one budget for all of them brings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.training.batch_traces import ENVELOPE, check_same, policy_of, trace
from tests.training.world_law import EOS
from tests.training.worlds import COST, HEAD, Text, World, dense_trace
from treewise.data.cost import CALL_GROWTH, CostGrid, CostProfile
from treewise.data.errors import ParameterError
from treewise.policy.hook import DRAFT
from treewise.policy.registry import parse_policy
from treewise.training.replay import replay
from treewise.training.replay_result import modelled_ms
from treewise.training.served_replay import ServedRounds, replay_served


@pytest.mark.parametrize("spec", ["topn:8x2", "frontier", "topn:8x2,budget=batch"])
def test_a_batch_of_one_is_ordinary_replay(spec: str) -> None:
    log = trace()
    setting = log.deployment(COST)
    alone = replay(policy_of(spec), log.requests, setting, batch_requests=1)
    served = replay_served(policy_of(spec), log.requests, setting, 1)
    check_same(served.result, alone)
    assert served.total_ms == pytest.approx(modelled_ms(alone, setting, COST.policy_ms).sum())
    assert served.tokens_per_ms == pytest.approx(alone.committed_tokens.sum() / served.total_ms)
    assert served.tokens_per_request_round == pytest.approx(alone.committed_tokens.sum() / len(alone))
    assert served.nodes_per_request_round == pytest.approx(alone.verified_nodes.mean())


def test_decisions_that_read_no_mates_are_those_of_requests_alone() -> None:
    log = trace()
    setting = log.deployment(COST)
    advanced: list[int] = []
    served = replay_served(policy_of("topn:8x2"), log.requests, setting, 3, lambda: advanced.append(1))
    check_same(served.result, replay(policy_of("topn:8x2"), log.requests, setting))
    assert len(advanced) == len(log.requests)
    rounds = served.rounds
    assert int(rounds.requests.max()) == 3
    assert int(rounds.requests.sum()) == len(served.result)
    assert int(rounds.committed_tokens.sum()) == int(served.result.committed_tokens.sum())
    assert int(rounds.rows.sum()) == len(served.result) + int(served.result.verified_nodes.sum())
    assert int(rounds.growth_tokens.sum()) == int(served.result.growth_tokens.sum())
    assert len(rounds.growth_tokens) == int(rounds.growths.sum()) < int(served.result.growths.sum())


def test_a_pass_is_priced_as_a_whole() -> None:
    cost = CostProfile(
        "steps", CostGrid((1, 8, 16), (0,), ((10.0, 10.0, 26.0),)), CostGrid((1, 11), (0,), ((1.0, 2.0),)),
        policy_ms=0.1, round_ms=0.5, level_ms=0.2,
    )  # fmt: skip
    column = np.asarray
    rounds = ServedRounds(
        requests=column([2, 1], dtype=np.int32),
        rows=column([12, 3], dtype=np.int32),
        capacity=column([40, 40], dtype=np.int32),
        committed_tokens=column([5, 2], dtype=np.int32),
        levels=column([3, 1], dtype=np.int32),
        growths=column([2, 0], dtype=np.int32),
        growth_tokens=column([6, 11], dtype=np.int32),
        members=column([0, 1, 1], dtype=np.int32),
        member_tokens=column([3, 2, 2], dtype=np.int32),
    )
    setting = replace(trace().deployment(cost), row_buckets=(4, 16))
    expected = [26.0 + 1.5 + 2.0 + 0.1 * (1 + CALL_GROWTH) * 4 + 2 * (0.5 + 0.2 * 2), 10.0 + 0.1 * 2 + 0.5]
    np.testing.assert_allclose(rounds.milliseconds(setting, cost.policy_ms), expected)
    with pytest.raises(ParameterError, match=r"deployment\.cost must be a profile of whole passes"):
        rounds.milliseconds(replace(setting, cost=cost.shared_by(2)), 0.1)


def mixed_world(requests: int = 12, tokens: int = 32, stretch: int = 8) -> tuple[World, list[Text]]:
    """Texts drawn from the draft's own law, which is sure of low tokens and of no others, in stretches of either."""
    world = World(seed=5, num_texts=1)
    world._laws.clear()
    world.logits[:, :10] *= 2.0
    world.logits[:, 10:] *= 0.2
    world.logits[:, :10, 10:] -= 30.0
    world.logits[:, 10:, :10] -= 30.0
    world.logits[:, :, EOS] -= 30.0
    texts = []
    for number in range(requests):
        line = world.rng.integers(0, EOS, size=4).tolist()
        for place in range(tokens):
            if place % stretch == 0:
                is_low = (place // stretch + number) % 2
                line.append(int(world.rng.integers(*((0, 10) if is_low else (10, EOS)))))
            else:
                law = world.probs(line).astype(np.float64)
                line.append(int(world.rng.choice(HEAD, p=law / law.sum())))
        texts.append(Text(f"t{number}", "chat", tuple(line[:4]), tuple(line[4:]), tokens))
    return world, texts


def test_one_small_budget_beats_equal_ones_on_mixed_requests() -> None:
    """As many nodes, spent where they are surest, bring more tokens, and so more of them a millisecond."""
    world, texts = mixed_world()
    log = dense_trace(world, ENVELOPE, texts, sources=DRAFT)
    setting = log.deployment(COST)
    equal = replay_served(parse_policy("topn:1x3"), log.requests, setting, 6)
    shared = replay_served(parse_policy("topn:1x3,budget=batch"), log.requests, setting, 6)
    assert shared.tokens_per_request_round > 1.04 * equal.tokens_per_request_round
    assert shared.tokens_per_ms > 1.04 * equal.tokens_per_ms
    assert shared.nodes_per_request_round <= 1.0 + 1e-9


def test_a_batch_holds_at_least_one_request() -> None:
    with pytest.raises(ParameterError, match="max_batch must be >= 1, got 0"):
        replay_served(parse_policy("plain"), trace().requests, trace().deployment(COST), 0)
