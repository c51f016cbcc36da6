"""The free sources of one round: merged by token, whole chains, what was asked where."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.policy.scripted import TABLE, Path, ScriptedLookup, ScriptedMemory, World, path_of, play
from treewise.data.envelope import Envelope
from treewise.policy.everything import EverythingPolicy
from treewise.policy.forest import ASKED, Forest
from treewise.policy.free_growth import FreeGrowth
from treewise.policy.hook import FREE, LOOKUP, RECYCLED, Continuations, Recycled

WIDE = Envelope(max_depth=4, min_path_prior=0.001, min_grow_prior=0.001)


class Said:
    """Both free sources as tables by path."""

    def __init__(self, looked_up: dict[Path, Continuations], remembered: dict[Path, Recycled]) -> None:
        self.looked_up, self.remembered = looked_up, remembered

    def continuations(self, path: Sequence[int]) -> Continuations:
        return self.looked_up.get(tuple(path), Continuations(0, (), (), (), ()))

    def recycled(self, path: Sequence[int]) -> Recycled:
        return self.remembered.get(tuple(path), Recycled(0, 0.0, (), ()))


def grown(said: Said, bits: int, envelope: Envelope = WIDE, whole_chains: bool = True) -> Forest:
    """A forest of one root after one growth of `bits`."""
    forest = Forest()
    forest.append(1)
    growth = FreeGrowth(envelope, TABLE, whole_chains)
    limits = np.asarray([envelope.max_depth], dtype=np.int32)
    growth.offer(forest, np.asarray([0]), np.asarray([bits], dtype=np.uint8), [said], [said], limits, None)
    return forest


BOTH_SAY = Said(
    {(): Continuations(2, (5, 6), (3, 1), (0.75, 0.25), (4, 9))},
    {(): Recycled(3, 12.0, (6, 7, 5, 8, 9), (0.4, 0.3, 0.2, 0.05, 0.01))},
)


def test_what_two_sources_say_is_merged_by_token() -> None:
    forest = grown(BOTH_SAY, FREE)
    assert forest.column("token")[1:].tolist() == [5, 6, 7, 8]  # the lookup's first; width 4 leaves 9 out
    assert forest.column("sources")[1:].tolist() == [FREE, FREE, RECYCLED, RECYCLED]
    looked_up = [TABLE.prior(2, 0.75), TABLE.prior(2, 0.25)]
    expected = [max(looked_up[0], 0.2), max(looked_up[1], 0.4), 0.3, 0.05]
    np.testing.assert_allclose(forest.column("prior")[1:], expected, rtol=1e-6)
    np.testing.assert_allclose(forest.column("recycled_prob")[1:], [0.2, 0.4, 0.3, 0.05], rtol=1e-6)
    assert forest.column("recycled_rank")[1:].tolist() == [2, 0, 1, 3]
    assert forest.column("recycled_order")[1:].tolist() == [3] * 4
    assert forest.column("lookup_count")[1:].tolist() == [3, 1, 0, 0]
    assert np.isnan(forest.column("lookup_rank")[3:]).all()
    assert forest.column("lookup_match_length")[1:].tolist() == [2] * 4


@pytest.mark.parametrize(("bits", "tokens"), [(LOOKUP, [5, 6]), (RECYCLED, [6, 7, 5, 8])])
def test_a_source_that_was_not_asked_says_nothing(bits: int, tokens: list[int]) -> None:
    forest = grown(BOTH_SAY, bits)
    assert forest.column("token")[1:].tolist() == tokens
    silent = "recycled_prob" if bits == LOOKUP else "lookup_match_length"
    assert np.isnan(forest.column(silent)).all()
    assert set(forest.column("sources")[1:].tolist()) == {bits}


def test_a_candidate_beyond_one_width_keeps_that_sources_signals() -> None:
    forest = grown(BOTH_SAY, FREE, Envelope(4, 5, 1, 0.001, 0.001, recycled_width=1))
    assert forest.column("token")[1:].tolist() == [5, 6]
    assert forest.column("sources")[1:].tolist() == [LOOKUP, RECYCLED]
    assert forest.column("recycled_rank")[1:].tolist() == [2, 0]
    assert forest.column("lookup_rank")[1:].tolist() == [0, 1]


def test_chains_go_on_with_what_was_asked_and_unlikely_rows_with_the_lookup_alone() -> None:
    known = {(): Continuations(3, (1,), (2,), (1.0,), (3,)), (1,): Continuations(4, (2,), (2,), (1.0,), (3,))}
    memories = {(): Recycled(1, 2.0, (4,), (0.1,)), (4,): Recycled(1, 2.0, (5,), (0.9,))}
    envelope = Envelope(4, 5, 3, min_path_prior=0.01, min_grow_prior=0.5)
    forest = grown(Said(known, memories), FREE, envelope)
    assert [path_of(forest.view(), row) for row in range(1, forest.num_rows)] == [(1,), (4,), (1, 2)]
    assert forest.column(ASKED)[1:].tolist() == [FREE, LOOKUP, FREE]  # .1 is below .5: what (4,) leads to is not asked


def test_one_level_at_a_time_asks_nothing_below() -> None:
    forest = grown(BOTH_SAY, FREE, whole_chains=False)
    assert not forest.column(ASKED).any()


def test_chains_offer_what_one_level_at_a_time_offers() -> None:
    """Without a draft, whole chains are what asking level by level brings, rows in another order."""
    rows_seen = 0
    for seed in range(30):
        world = World(seed, FREE)
        trees = []
        for whole in (True, False):
            forest = Forest()
            forest.append(1)
            growth = FreeGrowth(Envelope(max_depth=4), TABLE, whole)
            lookup, memory = ScriptedLookup(world, 0, 9), ScriptedMemory(world, 0, 9)
            limits = np.asarray([4], dtype=np.int32)
            rows, bits = np.asarray([0]), np.asarray([FREE], dtype=np.uint8)
            while rows.size:
                start = forest.num_rows
                growth.offer(forest, rows, bits, [lookup], [memory], limits, None)
                rows = np.arange(start, forest.num_rows) if not whole else np.zeros(0, dtype=np.intp)
                likely = forest.column("path_prior")[rows] >= growth.envelope.min_grow_prior
                bits = np.where(likely, np.uint8(FREE), np.uint8(LOOKUP))
            view = forest.view()
            names = ("path_prior", "recycled_prob", "lookup_share", "sources")
            signals = zip(*(forest.column(name).tolist() for name in names), strict=True)
            trees.append({path_of(view, row): repr(values) for row, values in enumerate(signals)})
        assert trees[0] == trees[1]
        rows_seen += len(trees[0])
    assert rows_seen > 100


def test_growing_everything_plays_with_three_sources() -> None:
    decisions = play(EverythingPolicy(), World(3, FREE))
    assert any(decision.accepted_length > 0 for decision in decisions[0])
