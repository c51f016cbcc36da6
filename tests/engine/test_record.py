"""Live rounds as trace rows."""

from pathlib import Path

import numpy as np
import pytest

from tests.e2e.test_replay_equals_live import manifest
from tests.engine.tiny import DRAFTS, Draft, RandomPolicy, example_cost, lax_settings, tiny_pair
from treewise.data.trace_reader import TraceReader
from treewise.data.trace_writer import TraceWriter
from treewise.engine.decode import Engine
from treewise.engine.record import LiveRecorder, record_rounds
from treewise.engine.sampling import Sampling

PROMPT = [3, 7, 1, 9, 3, 7, 1, 9]


@pytest.mark.parametrize("draft", DRAFTS)
def test_rows_say_what_the_rounds_were(draft: Draft, tmp_path: Path) -> None:
    pair = tiny_pair(draft, seed=1)
    sampling = Sampling(0.9, seed=6)
    engine = Engine(pair, RandomPolicy(1), example_cost(), lax_settings(row_buckets=(4, 8, 16)))
    recorder = LiveRecorder("p", "chat", len(PROMPT), sampling.temperature, sampling.seed)
    seen = []
    guesses: dict[int, int] = {}
    with TraceWriter(tmp_path, manifest(pair, "live", sampling)) as writer:
        for record in record_rounds(engine.rounds(PROMPT, 20, sampling), recorder):
            column = record.tree.forest.column
            seen.append(
                (
                    int(record.context.position[0]),
                    record.committed,
                    int(record.walk.accepted_length[0]),
                    record.tree.forest.num_rows - 1,
                    record.verify_rows,
                    record.tree.growth_tokens,
                    {name: column(name)[1:].copy() for name in ("token", "draft_prob", "lookup_count", "grown")},
                    record.tree.kept[1:].copy(),
                    record.walk.on_path[1:].copy(),
                    record.walk.match[1:].copy(),
                )
            )
            for place, agrees in enumerate(record.draft_agrees):
                guesses[record.agrees_from + place] = agrees
        recorder.finish(writer)
        LiveRecorder("q", "chat", 3, 0.0, 0).finish(writer)  # no rounds, no rows
    shard = TraceReader(tmp_path).read_all()
    shard.check()
    rounds, nodes = shard.rounds, shard.nodes
    assert len(rounds) == len(seen)
    for row, (position, committed, accepted, count, rows, growths, columns, kept, on_path, match) in enumerate(seen):
        assert rounds.position[row] == position
        assert tuple(rounds.committed_of(row).tolist()) == committed
        assert (rounds.accepted_length[row], rounds.num_nodes[row], rounds.verify_rows[row]) == (accepted, count, rows)
        assert (rounds.draft_growths[row], rounds.draft_tokens[row]) == (len(growths), sum(growths))
        mine = nodes.round == row
        for name, values in columns.items():
            logged = getattr(nodes, name)[mine]
            if name == "grown":  # with what a free chain asked on its own
                logged = logged & values if (logged | values == logged).all() else values ^ 255
            np.testing.assert_array_equal(logged, values)
        np.testing.assert_array_equal(nodes.kept[mine], kept)
        np.testing.assert_array_equal(nodes.on_path[mine], on_path)
        np.testing.assert_array_equal(nodes.match[mine], match)
        np.testing.assert_array_equal(nodes.survives[mine], match == 1)
        offset = int(rounds.committed_offsets[row])
        for place in range(len(committed)):
            assert rounds.draft_agrees[offset + place] == guesses.get(position + place, -1)
    assert rounds.finish.tolist() == [""] * (len(seen) - 1) + ["length"]
    assert (rounds.draft_agrees >= 0).any() == (draft != "none")
    assert set(rounds.seed.tolist()) == {6}
