"""The round's builder: what it offers, merges, forbids and closes. Sources and policies here are written by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tests.policy.scripted import World, example_deployment, path_of, play
from treewise.data.envelope import Envelope, PriorTable
from treewise.policy.everything import EverythingPolicy
from treewise.policy.hook import (
    DRAFT,
    LOOKUP,
    BoolArray,
    Continuations,
    DraftGuesses,
    Expansion,
    ForestView,
    Int32Array,
    Level,
    Nodes,
    UInt8Array,
)
from treewise.policy.progress import Progress, build_context
from treewise.policy.round import RoundBuilder, RoundTree

TABLE = PriorTable((0.0, 0.5, 0.8))
OPEN = Envelope(max_depth=3, draft_width=2, lookup_width=2, min_path_prior=0.01, min_grow_prior=0.02)
Path = tuple[int, ...]
Answer = Callable[[Level], UInt8Array]  # growth bits; everything is admitted


class Lookup:
    """Continuations by path."""

    def __init__(self, known: dict[Path, Continuations]) -> None:
        self.known = known
        self.asked: list[Path] = []

    def continuations(self, path: Sequence[int]) -> Continuations:
        self.asked.append(tuple(path))
        return self.known.get(tuple(path), Continuations(0, (), (), (), ()))


class Draft:
    """Token 1 with probability 0.6, token 2 with 0.3, token 3 with 0.1, below every node."""

    def __init__(self) -> None:
        self.runs: list[list[Path]] = []

    def grow(self, nodes: Nodes, rows: Int32Array, extra_rows: Int32Array, extra_tokens: Int32Array) -> DraftGuesses:
        self.runs.append([path_of(nodes, row) for row in rows.tolist()])
        count = len(rows)
        probs = {1: 0.6, 2: 0.3, 3: 0.1}
        extra = [probs.get(token, np.nan) for token in extra_tokens.tolist()]
        ranks = [token - 1 if token in probs else np.nan for token in extra_tokens.tolist()]
        return DraftGuesses(
            tokens=np.tile(np.asarray([1, 2], dtype=np.int32), (count, 1)),
            probs=np.tile(np.asarray([0.6, 0.3], dtype=np.float32), (count, 1)),
            entropy=np.full(count, 1.3, dtype=np.float32),
            margin=np.full(count, 0.3, dtype=np.float32),
            extra_probs=np.asarray(extra, dtype=np.float32),
            extra_ranks=np.asarray(ranks, dtype=np.float32),
        )

    def in_vocab(self, tokens: Int32Array) -> BoolArray:
        return np.asarray(tokens <= 3)


class Scripted(EverythingPolicy):
    """Grows as told, level by level; keeps the paths named, or everything."""

    def __init__(self, *answers: Answer, keep: Sequence[Path] | None = None, admit: bool = True) -> None:
        super().__init__()
        self.answers, self.keep, self.admits = answers, keep, admit
        self.levels: list[list[Path]] = []

    def expand(self, level: Level) -> Expansion:
        count = len(level.candidates.parent)
        self.levels.append([path_of(level.forest, level.start + at) for at in range(count)])
        grow = np.zeros(count, dtype=np.uint8)
        if level.index < len(self.answers):
            grow = self.answers[level.index](level).astype(np.uint8)
        return Expansion((grow > 0) | self.admits, grow)

    def select(self, forest: ForestView) -> BoolArray:
        if self.keep is None:
            return super().select(forest)
        return np.asarray([path_of(forest.nodes, row) in self.keep for row in range(len(forest.nodes.parent))])


def all_of(bits: int) -> Answer:
    return lambda level: np.full(len(level.candidates.parent), bits, dtype=np.uint8)


def at(bits: int, *paths: Path) -> Answer:
    def answer(level: Level) -> UInt8Array:
        rows = range(level.start, level.start + len(level.candidates.parent))
        return np.asarray([bits if path_of(level.forest, row) in paths else 0 for row in rows], dtype=np.uint8)

    return answer


# After the text came 1 (3 of 4 times) or 7; after 1 came 5; after 1 5 came 6.
KNOWN = {
    (): Continuations(2, (1, 7), (3, 1), (0.75, 0.25), (4, 9)),
    (1,): Continuations(3, (5,), (3,), (1.0,), (4,)),
    (1, 5): Continuations(4, (6,), (2,), (1.0,), (12,)),
}


def build(
    policy: Scripted,
    lookup: Lookup | None = None,
    draft: Draft | None = None,
    envelope: Envelope = OPEN,
    remaining: int = 9,
    lag: int = 0,
    whole_chains: bool = True,
) -> tuple[RoundTree, dict[Path, int]]:
    """The tree, and its rows by path."""
    progress = Progress(0, prompt_tokens=10, max_new_tokens=remaining)
    progress.draft_seen -= lag
    builder = RoundBuilder(envelope, TABLE, whole_chains)
    tree = builder.build(policy, build_context([progress]), np.asarray([99], dtype=np.int32), [lookup], draft)
    tree.forest.check_integrity()
    nodes = tree.forest.view()
    return tree, {path_of(nodes, row): row for row in range(tree.forest.num_rows)}


def test_growing_nothing_is_plain_decoding() -> None:
    draft, lookup = Draft(), Lookup(KNOWN)
    tree, rows = build(Scripted(), lookup, draft)
    assert (list(rows), tree.num_nodes, tree.growth_tokens, tree.policy_calls) == ([()], 0, (), 2)
    assert draft.runs == []
    # The opening level shows the root's first continuation.
    column = tree.forest.column
    assert [float(column(f"lookup_{name}")[0]) for name in ("match_length", "count", "share", "age")] == [2, 3, 0.75, 4]


def test_a_lookup_is_offered_whole() -> None:
    policy = Scripted(all_of(LOOKUP))
    tree, rows = build(policy, Lookup(KNOWN))
    assert policy.levels == [[()], [(1,), (7,), (1, 5), (1, 5, 6)]]
    column = tree.forest.column
    assert column("path_prior")[rows[(1,)]] == np.float32(0.8 * 0.75)
    assert column("path_prior")[rows[(1, 5, 6)]] == pytest.approx(0.6 * 0.8 * 0.8)
    assert column("lookup_rank")[rows[(7,)]] == 1
    assert set(column("sources")[1:].tolist()) == {LOOKUP}
    assert np.isnan(column("draft_prob")).all()
    assert (column("may_grow")[1:] & LOOKUP == 0).all()  # asked already
    assert tree.growth_tokens == ()


def test_one_depth_at_a_time_ends_at_the_same_candidates() -> None:
    policy = Scripted(*[all_of(LOOKUP)] * 3)
    _, rows = build(policy, Lookup(KNOWN), whole_chains=False)
    assert policy.levels == [[()], [(1,), (7,)], [(1, 5)], [(1, 5, 6)]]
    assert set(rows) == set(build(Scripted(all_of(LOOKUP)), Lookup(KNOWN))[1])


def test_sources_merge_by_token() -> None:
    tree, rows = build(Scripted(all_of(LOOKUP | DRAFT)), Lookup(KNOWN), Draft())
    column = tree.forest.column
    assert set(rows) == {(), (1,), (7,), (2,), (1, 5), (1, 5, 6)}
    both, lookup, draft = rows[(1,)], rows[(7,)], rows[(2,)]
    assert column("sources")[[both, lookup, draft]].tolist() == [LOOKUP | DRAFT, LOOKUP, DRAFT]
    assert column("draft_prob")[both] == np.float32(0.6) and column("lookup_count")[both] == 3
    assert column("prior")[both] == np.float32(max(0.8 * 0.75, 0.6))
    # 7 is outside the draft's head; 2 is a token that the lookup does not know.
    assert np.isnan(column("draft_prob")[lookup]) and not column("in_draft_vocab")[lookup]
    assert (column("lookup_count")[draft], column("lookup_match_length")[draft]) == (0, 2)
    assert np.isnan(column("lookup_rank")[draft])
    # Entropy and margin describe the distribution below the parent, whoever proposed the child.
    assert column("draft_entropy")[[both, lookup, draft]].tolist() == [np.float32(1.3)] * 3


def test_drafting_below_a_node_runs_its_ancestors_in_the_same_pass() -> None:
    draft = Draft()
    policy = Scripted(all_of(LOOKUP), at(DRAFT, (1, 5)))
    tree, rows = build(policy, Lookup(KNOWN), draft, lag=4)
    assert draft.runs == [[(), (1,), (1, 5)]]
    assert tree.growth_tokens == (3 + 4,)  # and what the cache lacks
    column = tree.forest.column
    assert column("draft_missing")[rows[(1, 5)]] == 2
    assert column("drafted")[[rows[()], rows[(1,)], rows[(1, 5)]]].all()
    assert column("grown")[rows[(1,)]] == 0  # an ancestor was not asked for
    assert {(2,), (1, 1), (1, 2), (1, 5, 1), (1, 5, 2)} <= set(rows)
    assert column("draft_prob")[rows[(1,)]] == np.float32(0.6)
    assert column("draft_missing")[rows[(1, 5, 2)]] == 0


def test_a_second_growth_pays_for_no_lag() -> None:
    draft = Draft()
    tree, _ = build(Scripted(all_of(DRAFT), at(DRAFT, (1,), (2,))), None, draft, lag=2)
    assert draft.runs == [[()], [(1,), (2,)]]
    assert tree.growth_tokens == (3, 2)


@pytest.mark.parametrize(
    ("envelope", "remaining", "expected"),
    [
        (OPEN, 9, {(1,), (2,), (1, 1), (1, 2), (2, 1), (2, 2)}),
        (Envelope(1, 2, 2, 0.01, 0.02), 9, {(1,), (2,)}),
        (Envelope(3, 1, 2, 0.01, 0.02), 9, {(1,), (1, 1)}),
        (Envelope(3, 0, 2, 0.01, 0.02), 9, set()),
        (Envelope(3, 2, 2, 0.15, 0.15), 9, {(1,), (2,), (1, 1), (1, 2), (2, 1)}),
        (Envelope(3, 2, 2, 0.01, 0.5), 9, {(1,), (2,), (1, 1), (1, 2)}),
        (OPEN, 2, {(1,), (2,)}),  # a bonus token always has its place
        (OPEN, 1, set()),
    ],
)
def test_the_envelope_holds_whatever_a_policy_asks(envelope: Envelope, remaining: int, expected: set[Path]) -> None:
    tree, rows = build(Scripted(all_of(DRAFT), all_of(DRAFT)), None, Draft(), envelope, remaining)
    assert set(rows) - {()} == expected
    assert (tree.forest.column("depth") <= min(envelope.max_depth, max(remaining - 1, 0))).all()


def test_sources_that_do_not_exist_have_no_effect() -> None:
    _, rows = build(Scripted(all_of(LOOKUP | DRAFT), all_of(LOOKUP | DRAFT)), None, None)
    assert set(rows) == {()}
    draft = Draft()
    build(Scripted(all_of(LOOKUP)), None, draft)
    assert draft.runs == []


def test_what_is_kept_is_closed_under_parents_and_admitted() -> None:
    policy = Scripted(all_of(LOOKUP), keep=[(1, 5, 6)])
    tree, rows = build(policy, Lookup(KNOWN))
    assert {path for path, row in rows.items() if tree.kept[row]} == {(), (1,), (1, 5), (1, 5, 6)}
    assert tree.num_nodes == 3
    # Growing admits a node with its ancestors; what was not admitted cannot be kept.
    policy = Scripted(all_of(LOOKUP), at(DRAFT, (1, 5)), admit=False)
    tree, rows = build(policy, Lookup(KNOWN), Draft())
    admitted = tree.forest.column("admitted")
    assert {path for path, row in rows.items() if admitted[row]} == {(), (1,), (1, 5)}
    assert {path for path, row in rows.items() if tree.kept[row]} == {(), (1,), (1, 5)}


def test_the_forest_of_a_batch_is_the_forests_of_its_requests() -> None:
    world = World(3)
    deployment = example_deployment(world.sources)
    together = play(EverythingPolicy(), world, (0, 1, 2), deployment=deployment)
    for request in range(3):
        assert play(EverythingPolicy(), world, (request,), deployment=deployment)[request] == together[request]


def test_growing_everything_one_depth_at_a_time_covers_any_order_of_asking() -> None:
    """A lookup with small shares, whose tokens the draft is sure of: asked first, its chain would end early."""
    known = {
        (): Continuations(1, (4, 1), (9, 1), (0.9, 0.1), (3, 5)),
        (1,): Continuations(2, (1, 3), (1, 1), (0.5, 0.5), (5, 6)),
        (1, 1): Continuations(3, (3,), (1,), (1.0,), (5,)),
    }
    tight = Envelope(max_depth=4, draft_width=2, lookup_width=2, min_path_prior=0.04, min_grow_prior=0.05)
    every = [all_of(LOOKUP | DRAFT)] * 5
    _, cover = build(Scripted(*every), Lookup(known), Draft(), tight, whole_chains=False)
    orders = [
        every,
        [all_of(DRAFT), all_of(LOOKUP), all_of(DRAFT), all_of(LOOKUP)],
        [all_of(DRAFT), all_of(DRAFT), all_of(LOOKUP)],
        [all_of(LOOKUP), all_of(DRAFT), all_of(LOOKUP | DRAFT)],
        [all_of(DRAFT)] * 4,
    ]
    asked = [set(build(Scripted(*order), Lookup(known), Draft(), tight)[1]) for order in orders]
    assert all(found <= set(cover) for found in asked)
    assert any(found - asked[0] for found in asked)  # whole chains alone would not have covered them
