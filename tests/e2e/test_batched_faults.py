"""Logs of a batch whose policy failed: what was the fallback's, request by request, is replayed so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.e2e.test_batched_traces import PROMPTS, record
from tests.engine.test_batch import batch_of
from tests.engine.tiny import example_cost, plain_text, tiny_pair
from treewise.engine.sampling import Sampling
from treewise.policy.hook import BoolArray, Expansion, ForestView, Level, RequestInfo
from treewise.policy.topn import TopNPolicy, TopNSettings
from treewise.training.live_check import replay_live
from treewise.training.logged_trace import open_trace

SETTINGS = TopNSettings(nodes=3, depth=3)  # unlike that of the fallback
REFUSED = 1
pytestmark = pytest.mark.filterwarnings("ignore:policy .* failed:RuntimeWarning")


class Faulty(TopNPolicy):
    """Cannot begin one request, and loses every third round of the others; replay may meet neither."""

    def __init__(self, loses_in: str = "") -> None:
        super().__init__(SETTINGS)
        self.loses_in = loses_in  # expand, or select
        self.rounds = 0

    def begin(self, request: RequestInfo) -> None:
        if request.request_id == REFUSED:
            raise OSError("a file was gone")

    def expand(self, level: Level) -> Expansion:
        self.rounds += level.index == 0
        if self.loses_in == "expand" and self.rounds % 3 == 0 and level.index == 1:
            raise OSError("a file was gone")
        return super().expand(level)

    def select(self, forest: ForestView) -> BoolArray:
        if self.loses_in == "select" and self.rounds % 3 == 0:
            raise OSError("a file was gone")
        return super().select(forest)


@pytest.mark.parametrize("loses_in", ["", "expand", "select"])
@pytest.mark.parametrize("is_mended", [False, True])
def test_every_request_replays_as_it_was_decided(loses_in: str, is_mended: bool, tmp_path: Path) -> None:
    pair = tiny_pair("other", seed=8)
    completions = record(batch_of(pair, Faulty(loses_in)), pair, Sampling(), tmp_path)
    for prompt, completion in zip(PROMPTS, completions, strict=True):
        assert completion.tokens == plain_text(pair, prompt, len(completion.tokens), Sampling())
    trace = open_trace(tmp_path)
    for number, (request, completion) in enumerate(zip(trace.requests, completions, strict=True)):
        suspended = np.asarray([request.is_suspended(position) for position in request.rows])
        fell = np.asarray([request.fell_back(position) for position in request.rows])
        assert suspended.all() if number == REFUSED else not suspended.any()
        assert not (fell & suspended).any()
        assert (completion.suspensions, completion.fallbacks) == (suspended.sum(), fell.sum())
        calls = request.shard.rounds.policy_calls[list(request.rows.values())]
        levels = [request.shard.nodes.level[request.node_rows(row)].max(initial=0) + 1 for row in request.rows.values()]
        reached = np.minimum(levels, 2) if loses_in == "expand" else np.asarray(levels) + 1
        expected = np.where(fell, reached, np.asarray(levels) + 1)
        np.testing.assert_array_equal(calls, np.where(suspended, 0, expected), err_msg="the fallback's do not count")
        assert completion.policy_calls == calls.sum()
    assert any(request.batch_size(position) == 3 for request in trace.requests[:1] for position in request.rows)
    policy = TopNPolicy(SETTINGS) if is_mended else Faulty()
    check = replay_live(trace, policy, example_cost(), as_recorded=True)
    assert (check.mismatches, check.compared) == ((), sum(len(request.rows) for request in trace.requests))
    freely = replay_live(trace, policy, example_cost()).mismatches
    assert bool(freely) == bool(loses_in), "suspensions are obeyed whatever is asked, fallbacks only as recorded"
