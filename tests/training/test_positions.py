"""Positions of dense texts."""

from __future__ import annotations

import numpy as np
import pytest

from tests.training.judged import judged_trace
from tests.training.made_texts import Place, made_trace
from tests.training.worlds import COST, as_trace, manifest, simulate
from treewise.data.envelope import Envelope
from treewise.data.errors import TraceError
from treewise.policy.hook import DRAFT
from treewise.policy.registry import parse_policy
from treewise.training.positions import positions_of


def test_every_column_by_hand() -> None:
    places = [
        Place(0.5, is_first=True, run=2, stated=0.9, draft_entropy_bits=1.0),
        Place(3.0, is_first=False, run=1, looked_up=1, stated=0.6),
        Place(1.0, is_first=False, run=0, looked_up=1),
        Place(2.0, is_first=False, run=0),
    ]
    found = positions_of([made_trace([("a", "chat", places)])])
    assert len(found) == 4
    assert found.prompt_id.tolist() == ["a"] * 4
    assert found.place.tolist() == [0, 1, 2, 3]
    assert found.text_tokens.tolist() == [4] * 4
    assert found.context_tokens.tolist() == [4, 5, 6, 7]
    np.testing.assert_array_equal(found.entropy_bits, [0.5, 3.0, 1.0, np.nan])  # nobody stands behind the last token
    assert found.first.tolist() == [1, 0, 0, 0]
    assert found.width.tolist() == [1, 1, 0, 0]
    assert found.any_source.tolist() == [1, 1, 1, 0]
    assert found.run.tolist() == [2, 1, 0, 0]
    assert found.any_run.tolist() == [2, 2, 1, 0]
    assert found.stated.tolist() == pytest.approx([0.9, 0.6, 0.5, 0.5])
    assert found.right.tolist() == [1, 0, 0, 0]
    assert found.draft_entropy_bits.tolist() == [1.0, 3.0, 3.0, 3.0]


def test_runs_are_the_longest_prefix_of_the_text_in_the_tree() -> None:
    """Against walking every logged tree along the text, node by node."""
    trace = judged_trace()
    found = positions_of([trace])
    at = 0
    for request in trace.requests:
        nodes = request.shard.nodes
        for place in range(request.num_tokens):
            rows = request.node_rows(request.row_at(request.first_position + place))
            runs = []
            for allowed in (DRAFT, 255):
                above, length = 0, 0
                for token in request.text[place:].tolist():
                    below = (nodes.parent[rows] == above) & (nodes.token[rows] == token)
                    below &= (nodes.sources[rows] & allowed) > 0
                    if not below.any():
                        break
                    above, length = int(nodes.node[rows][below][0]), length + 1
                runs.append(length)
            assert [found.run[at], found.any_run[at]] == runs
            assert found.width[at] == (runs[0] > 0)
            at += 1
    assert at == len(found)


def test_a_live_trace_has_no_position_but_its_rounds() -> None:
    from tests.training.judged import ENVELOPE, judged_world

    world = judged_world()
    policy = parse_policy("chain:2")
    setting = judged_trace().deployment(COST)
    policy.bind(setting)
    _, shard = simulate(world, world.texts[0], policy, setting)
    live = as_trace(shard, manifest("live", ENVELOPE, "chain:2"))
    with pytest.raises(TraceError, match="must be dense, got a live one"):
        positions_of([live])


def test_without_a_draft_its_columns_are_unknown() -> None:
    from tests.training.worlds import World, dense_trace
    from treewise.policy.hook import FREE

    world = World(seed=3, num_texts=2, answer_tokens=12)
    found = positions_of([dense_trace(world, Envelope(max_depth=4, draft_width=3), sources=FREE)])
    assert np.isnan(found.run).all()
    assert np.isnan(found.stated).all()
    assert found.any_run.max() >= 1
