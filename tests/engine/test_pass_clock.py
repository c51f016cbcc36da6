"""The clock inside forward passes."""

from __future__ import annotations

import time

import pytest

from tests.engine.tiny import Draft, example_cost, lax_settings, tiny_pair
from treewise.engine.decode import Engine
from treewise.engine.pass_clock import ClockedPair, PassClock
from treewise.policy.registry import parse_policy


def test_nested_passes_count_once_and_by_when_they_began() -> None:
    clock = PassClock()
    clock.enter()
    clock.enter()
    time.sleep(0.01)
    clock.leave()
    clock.leave()
    whole = clock.seconds_since(0.0)
    assert 0.01 <= whole < 0.5
    later = time.perf_counter()
    assert clock.seconds_since(later) == 0.0
    clock.enter()
    clock.leave()
    assert 0.0 < clock.seconds_since(later) < whole
    clock.reset()
    assert clock.seconds_since(0.0) == 0.0


@pytest.mark.parametrize("kind", ["none", "pruned", "cut"])
def test_an_engine_decodes_the_same_under_the_clock(kind: Draft) -> None:
    pair = tiny_pair(kind)
    expected = Engine(pair, parse_policy("topn:8x3"), example_cost(), lax_settings()).generate([1, 2, 3, 1, 2], 16)
    with ClockedPair(pair) as clocked:
        engine = Engine(clocked.pair, parse_policy("topn:8x3"), example_cost(), lax_settings())
        answer = engine.generate([1, 2, 3, 1, 2], 16)
        inside = clocked.clock.seconds_since(engine.decode_began)
        assert answer.tokens == expected.tokens
        assert 0.0 < inside < answer.decode_seconds
        # The engine's own clocks are around these passes, the prefill's left out.
        assert inside <= answer.draft_seconds + answer.verify_seconds
        assert inside < clocked.clock.seconds_since(0.0) or kind == "none"
    assert not pair.target._forward_hooks
    assert not pair.target._forward_pre_hooks
    if pair.draft is not None:
        assert not pair.draft.model._forward_hooks
