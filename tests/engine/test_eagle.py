"""The step of EAGLE's reference code that a policy takes over: shapes, its own rule, and what happens on failure."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.eagle_loops import DEPTH, NODES, FailsAt, K, trees_of
from tests.engine.recorded_eagle import Recorded, own_rule, record
from tests.policy.models import tiny_bundle
from treewise.data.errors import ParameterError
from treewise.engine.eagle_tree import EagleDraft
from treewise.policy.everything import EverythingPolicy
from treewise.policy.hook import DRAFT, BoolArray, Expansion, ForestView, Level, RoundOutcome
from treewise.policy.learned import LearnedPolicy
from treewise.policy.registry import RULES


class Watching(EverythingPolicy):
    """Wants everything and remembers what it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.levels: list[Level] = []
        self.outcomes: list[RoundOutcome] = []
        self.finished: list[str] = []

    def expand(self, level: Level) -> Expansion:
        self.levels.append(level)
        return super().expand(level)

    def observe(self, outcome: RoundOutcome) -> None:
        self.outcomes.append(outcome)

    def finish(self, request_id: int, reason: str) -> None:
        self.finished.append(reason)


class OneChild(EverythingPolicy):
    """Follows one candidate of each level: the one of `rank`."""

    def __init__(self, rank: int, stop: int = 99) -> None:
        super().__init__()
        self.rank = rank
        self.stop = stop

    def expand(self, level: Level) -> Expansion:
        nodes = level.candidates
        wanted = (nodes.parent < 0) | (nodes.draft_rank == self.rank)
        grow = np.where(wanted & (level.index < self.stop), nodes.may_grow & DRAFT, 0).astype(np.uint8)
        return Expansion(wanted, grow)

    def select(self, forest: ForestView) -> BoolArray:
        return forest.nodes.admitted.copy()


def as_lists(draft: EagleDraft) -> tuple[list[int], list[list[int]], list[list[int]], list[int]]:
    """Its four parts as `own_rule` writes them, shapes checked."""
    tokens, paths, mask, depths = draft
    rows = tokens.shape[1]
    assert tokens.shape == (1, rows)
    assert mask.shape == (1, 1, rows, rows)
    assert depths.shape == (rows,)
    return tokens[0].tolist(), paths.tolist(), mask[0, 0].astype(int).tolist(), depths.tolist()


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    top_k=st.integers(1, 6),
    depth=st.integers(0, 4),
    count=st.integers(1, 40),
    sharpness=st.sampled_from([0.5, 2.0, 6.0]),
    sample=st.booleans(),
)
def test_the_best_paths_are_eagles_own_tree(
    seed: int, top_k: int, depth: int, count: int, sharpness: float, sample: bool
) -> None:
    lists = record(seed, top_k, depth, sharpness=sharpness)
    spec = f"topn:{count}x{depth + 1},beam={top_k}"
    made = trees_of(spec, num_nodes=count, top_k=top_k, depth=depth)
    found = as_lists(made.prune(*lists.arguments, sort_leaves=sample))
    assert found == own_rule(lists, count, sample)
    assert made.counters.fallbacks == 0


def test_arrays_give_arrays_of_eagles_types() -> None:
    tokens, paths, mask, depths = trees_of("topn:12x4").prune(*record(0).arguments)
    assert [part.dtype for part in (tokens, paths, mask, depths)] == [np.int64, np.int64, np.float32, np.int64]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_tensors_give_the_same_as_tensors(dtype: torch.dtype) -> None:
    lists = record(3, sharpness=3.0)
    scores = [torch.from_numpy(entry).to(dtype) for entry in lists.scores]
    rounded = Recorded([entry.float().numpy() for entry in scores], lists.tokens, lists.parents, lists.root)
    tensors = (scores, [torch.from_numpy(t) for t in lists.tokens], [torch.from_numpy(p) for p in lists.parents])
    found = trees_of("topn:12x4").prune(*tensors, torch.from_numpy(lists.root))
    expected = trees_of("topn:12x4").prune(*rounded.arguments)
    for mine, theirs in zip(found, expected, strict=True):
        assert isinstance(mine, torch.Tensor)
        assert mine.numpy().dtype == theirs.dtype
        np.testing.assert_array_equal(mine.numpy(), theirs)


@pytest.mark.parametrize("spec", sorted(RULES))
@pytest.mark.parametrize("asks", [True, False])
def test_every_rule_draws_closed_trees_within_eagles_buffers(spec: str, asks: bool) -> None:
    made = trees_of(spec)
    for seed in range(6):
        lists, entries = record(seed, sharpness=3.0), DEPTH + 1
        if asks:
            entries = 1
            while made.keep_drafting(*lists.until(entries).arguments):
                entries += 1
            assert entries <= DEPTH + 1
        tokens, paths, mask, depths = as_lists(made.prune(*lists.until(entries).arguments))
        assert tokens[0] == lists.root[0]
        assert len(tokens) <= NODES + 1
        assert {row for path in paths for row in path if row >= 0} == set(range(len(tokens)))
        for path in paths:
            line = [row for row in path if row >= 0]
            assert line == np.flatnonzero(mask[line[-1]]).tolist()
            assert [depths[row] for row in line] == list(range(len(line)))
        made.accept(paths[0][:1], 7)
    assert made.counters.fallbacks == 0
    assert made.counters.rounds == made.counters.accepted_rounds == 6


def test_a_policy_sees_probabilities_not_path_scores() -> None:
    policy, lists = Watching(), record(5)
    made = trees_of(policy, num_nodes=1024)
    draft = made.prune(*lists.arguments)
    assert [level.index for level in policy.levels] == [0, 1, 2, 3, 4]
    assert [len(level.candidates.parent) for level in policy.levels] == [1, K, K * K, K * K, K * K]
    nodes = policy.levels[-1].forest
    np.testing.assert_allclose(nodes.prior[1 : K + 1], np.exp(lists.scores[0][0]), rtol=1e-6)
    inner = nodes.parent >= 0
    np.testing.assert_allclose(
        nodes.path_prior[inner], nodes.path_prior[nodes.parent[inner]] * nodes.prior[inner], rtol=1e-5
    )
    assert (nodes.draft_rank[inner] < K).all()
    assert nodes.token[0] == lists.root[0]
    second = nodes.prior[1] - nodes.prior[2]
    np.testing.assert_allclose(nodes.draft_margin[1 : K + 1], second, rtol=1e-5)
    assert np.isnan(nodes.draft_entropy).all()
    assert draft.draft_tokens.shape[1] == 1 + K + DEPTH * K * K


def test_only_the_beam_may_grow_and_only_below_it_is_offered() -> None:
    policy, lists = Watching(), record(6)
    trees_of(policy).prune(*lists.arguments)
    for index, level in enumerate(policy.levels[1:], start=1):
        growing = np.flatnonzero(level.candidates.may_grow) + level.start
        if index <= DEPTH:
            assert len(growing) == K
            below = policy.levels[index + 1].candidates.parent
            assert sorted(set(below.tolist())) == growing.tolist()
        else:
            assert not len(growing)


def test_drafting_stops_when_the_policy_grows_nothing() -> None:
    lists = record(7)
    made = trees_of(OneChild(rank=0, stop=2))
    assert made.keep_drafting(*lists.until(1).arguments)
    assert not made.keep_drafting(*lists.until(2).arguments)
    tokens, paths, _, _ = as_lists(made.prune(*lists.until(2).arguments))
    assert len(tokens) == 3
    assert paths == [[0, 1, 2]]
    assert made.counters.passes == 2


def test_a_loop_that_never_asks_gets_the_same_tree() -> None:
    lists = record(8)
    asked, silent = trees_of(OneChild(0, stop=2)), trees_of(OneChild(0, stop=2))
    entries = 1
    while asked.keep_drafting(*lists.until(entries).arguments):
        entries += 1
    assert entries == 2
    first = as_lists(asked.prune(*lists.until(entries).arguments))
    assert first == as_lists(silent.prune(*lists.arguments))


def test_a_learned_policy_sees_what_it_learned_from_alone() -> None:
    bundle = tiny_bundle()
    seen = LearnedPolicy(replace(bundle, envelope=replace(bundle.envelope, max_depth=2, draft_width=2)))
    made = trees_of(seen)
    assert made.deployment.prior_table == bundle.prior_table
    for seed in range(4):
        lists = record(seed, sharpness=5.0)
        draft = made.prune(*lists.arguments)
        assert draft.tree_position_ids.max() <= 2
        kept = made._kept
        assert kept is not None
        assert (kept.forest.column("draft_rank")[1:] < 2).all()
        assert (kept.forest.column("path_prior")[2:] >= bundle.envelope.min_path_prior).all()
        made.accept([0], 1)
    assert made.counters.fallbacks == 0
    assert made.counters.verified_nodes > 0


@pytest.mark.parametrize("floor", [1e-30, 0.999])
def test_a_policy_that_keeps_nothing_leaves_the_best_node(floor: float) -> None:
    lists = record(1)
    made = trees_of("plain")
    made._forest.envelope = replace(made._forest.envelope, min_path_prior=floor, min_grow_prior=floor)
    assert as_lists(made.prune(*lists.arguments)) == own_rule(lists, 1)
    made.accept([0, 1], 3)
    assert made.counters.accepted_tokens == 1


def test_more_nodes_than_the_buffers_hold_are_trimmed_and_counted() -> None:
    lists = record(9)
    made = trees_of(EverythingPolicy())
    assert as_lists(made.prune(*lists.arguments)) == own_rule(lists, NODES)
    assert made.counters.trimmed == 1


@pytest.mark.parametrize("index", [0, 1, 2, 3, 99])
@pytest.mark.parametrize("asks", [True, False])
def test_a_failing_policy_leaves_the_round_to_eagles_own_rule(index: int, asks: bool) -> None:
    lists = record(10)
    made = trees_of(FailsAt(index))
    with pytest.warns(RuntimeWarning, match="ArithmeticError: no idea"):
        if asks:
            for entries in range(1, DEPTH + 1):
                assert made.keep_drafting(*lists.until(entries).arguments)
            assert not made.keep_drafting(*lists.arguments)
        found = made.prune(*lists.arguments)
    assert as_lists(found) == own_rule(lists, NODES)
    assert made.counters.fallbacks == 1
    path = [row for row in found.retrieve_indices[-1].tolist() if row >= 0]
    made.accept(path, 3)
    assert made.counters.accepted_tokens == len(path) - 1


def test_a_slow_policy_is_suspended_and_counted() -> None:
    made = trees_of(EverythingPolicy(), time_limit_ms=1e-9)
    for seed in range(3):
        lists = record(seed)
        assert as_lists(made.prune(*lists.arguments)) == own_rule(lists, NODES)
    assert made.counters.suspensions == 2
    assert made.counters.fallbacks == 0


def test_what_the_tree_brought_reaches_the_policy() -> None:
    policy, lists = Watching(), record(11)
    made = trees_of(policy)
    tokens, paths, _, _ = as_lists(made.prune(*lists.arguments))
    path = next(line for line in paths if line[-1] >= 0)
    missing = next(token for token in range(50) if token not in tokens)
    made.accept(np.asarray(path), torch.tensor([[missing]]))
    outcome = policy.outcomes[0]
    accepted = len(path) - 1
    assert accepted > 1
    assert outcome.accepted_length.tolist() == [accepted]
    assert outcome.committed_tokens.tolist() == [accepted + 1]
    assert outcome.nodes.token[outcome.on_path].tolist() == [tokens[row] for row in path]
    assert int(outcome.kept.sum()) == len(tokens)
    made.prune(*lists.arguments)
    context = policy.levels[-1].context
    assert context.position.tolist() == [8 + accepted + 1]
    assert context.catch_up.tolist() == [accepted]
    assert context.last_accepted.tolist() == [accepted]
    assert 0.0 <= context.draft_agreement[0] <= 1.0


def test_requests_begin_and_end() -> None:
    policy = Watching()
    made = trees_of(policy)
    made.prune(*record(0).arguments)
    made.begin(5, 10)  # the first one is left open
    made.finish("length")
    made.finish()
    assert policy.finished == ["error", "length"]
    with pytest.raises(ParameterError, match="begin must be called"):
        made.prune(*record(0).arguments)


def test_a_round_that_was_abandoned_leaves_nothing_behind() -> None:
    made, lists = trees_of(OneChild(0)), record(12)
    made.keep_drafting(*record(13).until(1).arguments)
    made.keep_drafting(*record(13).until(2).arguments)
    for entries in range(1, DEPTH + 2):
        made.keep_drafting(*lists.until(entries).arguments)
    assert as_lists(made.prune(*lists.arguments)) == as_lists(trees_of(OneChild(0)).prune(*lists.arguments))


def test_arrays_need_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np\n"
        "from treewise.engine.eagle import EagleSettings, EagleTrees\n"
        "made = EagleTrees('topn:2x1', 'example-a100-70b', EagleSettings(num_nodes=2, top_k=2, depth=0))\n"
        "made.begin(3, 10)\n"
        "lists = ([np.log(np.float32([[0.6, 0.3]]))], [np.int64([[7, 8]])], [np.zeros(1, np.int64)])\n"
        "print(made.prune(*lists, 5).draft_tokens.tolist())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
    )
    assert done.stdout.strip() == "[[5, 7, 8]]", done.stderr
