"""What a batch reads off the columns of a log against what one request reads off its trees."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.training.batch_traces import ENVELOPE, check_same, trace
from tests.training.worlds import ALL, COST, GrowAll
from treewise.policy.draft_ranking import BOTH, COUPLED, PLAIN
from treewise.policy.hook import DRAFT, FREE, LOOKUP, RECYCLED, Expansion, Level, RoundOutcome
from treewise.training.replay import replay


class Seen(GrowAll):
    """Asks at random, by the request's place in its text and the row's path, and collects every column of every round.

    Rounds are kept by (request, position), so that it does not matter how many requests one call held.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rounds: dict[tuple[int, int], dict[str, NDArray[Any]]] = {}

    def expand(self, level: Level) -> Expansion:
        rows, context = level.candidates, level.context
        place = context.position[rows.request].astype(np.int64) * 7 + rows.token * 13 + rows.depth * 31 + self.seed
        bits = np.asarray((1, 2, 3, 4, 5, 6, 7, 7, 5), dtype=np.uint8)[place % 9]
        grow = np.where((rows.depth > 0) & (place % 5 == 0), np.uint8(0), bits & rows.may_grow)
        return Expansion(np.ones(len(grow), dtype=np.bool_), grow)

    def observe(self, outcome: RoundOutcome) -> None:
        context, nodes = outcome.context, outcome.nodes
        for place, key in enumerate(zip(context.request_id.tolist(), context.position.tolist(), strict=True)):
            own = nodes.request == place
            self.rounds[key] = {
                name: getattr(nodes, name)[own] for name in type(nodes).__dataclass_fields__ if name not in ROW_NAMES
            }


ROW_NAMES = ("request", "parent")  # rows are counted over a batch; `digest` compares shapes


@pytest.mark.parametrize("sources", [ALL, LOOKUP | DRAFT, RECYCLED | DRAFT, FREE, RECYCLED])
@pytest.mark.parametrize("tokens_included", [True, False])
@pytest.mark.parametrize("seed", [0, 1])
def test_every_signal_in_a_batch_is_that_of_a_request_alone(sources: int, tokens_included: bool, seed: int) -> None:
    log = trace(seed, sources=sources, tokens_included=tokens_included)
    envelopes = (ENVELOPE, replace(ENVELOPE, lookup_width=1, recycled_width=2, max_depth=4, min_grow_prior=0.1))
    for envelope in envelopes:
        setting = log.deployment(COST, envelope)
        assert setting.sources == sources
        one, many = Seen(seed), Seen(seed)
        alone = replay(one, log.requests, setting, batch_requests=1)
        check_same(replay(many, log.requests, setting, batch_requests=3), alone)
        assert one.rounds.keys() == many.rounds.keys()
        for key, columns in one.rounds.items():
            for name, values in columns.items():
                np.testing.assert_array_equal(many.rounds[key][name], values, err_msg=f"{name} at {key}")
        seen = np.concatenate([columns["sources"] for columns in one.rounds.values()])
        assert set(seen.tolist()) >= {bits for bits in range(1, ALL + 1) if bits & sources == bits}


@pytest.mark.parametrize("tokens_included", [True, False])
@pytest.mark.parametrize("ranking", [PLAIN, COUPLED, BOTH])
def test_columns_say_what_the_trees_say(ranking: str, tokens_included: bool) -> None:
    log = trace(1, ranking, tokens_included)
    request = log.requests[1]
    columns = request.columns
    assert columns is log.requests[0].columns
    for position, row in list(request.rows.items())[::5]:
        tree = request.tree(position)
        root = int(columns.root_place[row])
        for node in range(tree.num_nodes + 1):
            place = root + node
            drafted = columns.drafted
            below = drafted.nodes[drafted.starts[place] : drafted.starts[place + 1]] - columns.shard.node_offsets[row]
            assert below.tolist() == tree.proposals(node, ranking, request.draft_width)
            assert bool(drafted.ran[place]) == tree.is_drafted(node)
            np.testing.assert_array_equal([drafted.entropy[place], drafted.margin[place]], tree.state(node))
            asked = tree.is_looked_up(node) * LOOKUP | tree.is_recycled(node) * RECYCLED
            assert int(columns.free.asked[place]) == asked
            known, remembered = tree.continuations(node), tree.recycled(node)
            assert columns.free.match_length[place] == known.match_length
            assert columns.free.order[place] == remembered.order
            widths = (2, 3)
            looked_up, recycled = known.tokens[: widths[0]], remembered.tokens[: widths[1]]
            proposed = {
                LOOKUP: looked_up,
                RECYCLED: recycled,
                FREE: (*looked_up, *(token for token in recycled if token not in looked_up)),
            }
            for bits, tokens in proposed.items():
                held = [root + tree.children[node][token] for token in tokens if token >= 0]
                at, nodes = columns.free_offers(*widths).below(
                    np.asarray([place], dtype=np.int32), np.asarray([bits], dtype=np.uint8)
                )
                assert columns.node_place[nodes].tolist() == held
                assert at.tolist() == [0] * len(held)
            assert columns.matching[place] == (tree.matching(node) if tree.matching(node) > 0 else tree.num_nodes + 1)
