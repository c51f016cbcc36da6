"""Explained trees against the replay that they explain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.training.worlds import ALL, COST, GrowAll, World, as_trace, dense_trace, manifest, simulate
from treewise.data.envelope import Envelope
from treewise.data.errors import ParameterError
from treewise.data.trace_schema import concatenate
from treewise.policy.hook import DRAFT, LOOKUP, RECYCLED, BoolArray, Expansion, ForestView, Level
from treewise.policy.registry import parse_policy
from treewise.training.contest import Contender
from treewise.training.explain import (
    FATES,
    KEPT,
    NOT_ADMITTED,
    NOT_KEPT,
    ON_PATH,
    OUTSIDE,
    ExplainedTree,
    Explanation,
    explain,
)
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay import replay
from treewise.training.replay_result import Float64Array

ENVELOPE = Envelope(max_depth=6, draft_width=4)
SPECS = ("topn:12x3", "entropy", "frontier", "chain:3", "plain")
ROUNDS = 6


@pytest.fixture(scope="module")
def world() -> World:
    return World(seed=5, num_texts=2, answer_tokens=30)


@pytest.fixture(scope="module")
def trace(world: World) -> LoggedTrace:
    return dense_trace(world, ENVELOPE)


@pytest.fixture(scope="module")
def explained(trace: LoggedTrace) -> Explanation:
    return explain(trace, COST, [Contender.of(spec) for spec in SPECS], rounds=ROUNDS)


def trees(explained: Explanation) -> list[ExplainedTree]:
    return [tree for request in explained.requests for own in request.trees.values() for tree in own]


def depths(tree: ExplainedTree) -> list[int]:
    found: list[int] = []
    for parent in tree.parent.tolist():
        found.append(0 if parent < 0 else found[parent] + 1)
    return found


@pytest.mark.parametrize("spec", SPECS)
def test_rounds_are_those_of_the_replay(trace: LoggedTrace, explained: Explanation, spec: str) -> None:
    result = replay(parse_policy(spec), trace.requests, trace.deployment(COST))
    for place, request in enumerate(explained.requests):
        mine = request.trees[spec]
        rows = np.flatnonzero(result.request == place)[: len(mine)]
        assert [tree.position for tree in mine] == result.position[rows].tolist()
        assert [tree.accepted_length for tree in mine] == result.accepted_length[rows].tolist()
        assert [tree.num_verified for tree in mine] == result.verified_nodes[rows].tolist()
        assert [len(tree.committed) for tree in mine] == result.committed_tokens[rows].tolist()


def test_the_first_policy_says_how_much_of_a_text_is_shown(trace: LoggedTrace, explained: Explanation) -> None:
    assert explained.policies == SPECS
    assert len(explained.requests) == len(trace.requests)
    for request in explained.requests:
        first = request.trees[SPECS[0]]
        assert len(first) == ROUNDS
        end = first[-1].position + len(first[-1].committed)
        assert len(request.text) == end - (request.prompt_tokens - 1)
        for own in request.trees.values():
            assert own[0].position == request.prompt_tokens - 1
            ends = [tree.position + len(tree.committed) for tree in own]
            assert [tree.position for tree in own[1:]] == ends[:-1]
            assert own[-1].position < end <= ends[-1]


def test_the_path_is_the_text(explained: Explanation) -> None:
    for request in explained.requests:
        text = (request.root_token, *request.text)
        for own in request.trees.values():
            for tree in own:
                at = tree.position - (request.prompt_tokens - 1)
                path = tuple(tree.token[list(tree.path)].tolist())
                assert path == text[at : at + len(path)]
                shown = text[at + 1 : at + 1 + len(tree.committed)]
                assert tree.committed[: len(shown)] == shown
                assert np.flatnonzero(tree.fate == ON_PATH).tolist() == list(tree.path)
                assert path[1:] == tree.committed[: len(path) - 1]


def test_fates_agree_with_parents(explained: Explanation) -> None:
    found = set()
    for tree in trees(explained):
        found |= set(tree.fate.tolist())
        for row, parent in enumerate(tree.parent.tolist()[1:], 1):
            assert 0 <= parent < row
            if tree.fate[row] <= KEPT:
                assert tree.fate[parent] <= KEPT
            if tree.fate[row] == NOT_KEPT:
                assert tree.fate[parent] <= NOT_KEPT
            if tree.match[row] >= 0:
                assert tree.fate[parent] == ON_PATH
            if tree.fate[row] == ON_PATH:
                assert tree.match[row] == 1
            if tree.match[row] == 1 and tree.fate[row] == KEPT:
                pytest.fail("a verified node that the target said must be on the path")
            assert tree.fate[parent] != OUTSIDE
    assert found == set(range(len(FATES)))


def test_what_the_envelope_shut_out_lies_below_it(explained: Explanation) -> None:
    assert ENVELOPE.min_path_prior == 0.01
    outside = 0
    for tree in trees(explained):
        depth = depths(tree)
        for row in np.flatnonzero(tree.fate == OUTSIDE).tolist():
            outside += 1
            # A free chain is cut when it is offered; the draft may raise the priors above it later.
            small = tree.survival[row] < (0.01 if tree.sources[row] == DRAFT else 0.1)
            assert small or depth[row] > ENVELOPE.max_depth
            siblings = np.flatnonzero(tree.parent == tree.parent[row])
            assert len(set(tree.token[siblings].tolist())) == len(siblings)
    assert outside > 10


def test_a_log_made_at_the_envelope_shuts_nothing_out(world: World) -> None:
    policy = parse_policy("chain:3")
    setting = dense_trace(world, ENVELOPE, world.texts[:1]).deployment(COST, ENVELOPE)
    policy.bind(setting)
    shards = [simulate(world, text, policy, setting)[1] for text in world.texts]
    live = as_trace(concatenate(shards), manifest("live", ENVELOPE, "chain:3"))
    found = trees(explain(live, COST, [Contender.of("chain:3")], prompts=1))
    assert found
    assert not any((tree.fate == OUTSIDE).any() for tree in found)


def test_withheld_tokens_stay_withheld(world: World, explained: Explanation) -> None:
    hidden = dense_trace(world, ENVELOPE, tokens_included=False)
    found = explain(hidden, COST, [Contender.of(spec) for spec in SPECS], rounds=ROUNDS)
    for request in found.requests:
        assert request.root_token == -1
        assert set(request.text) == {-1}
    for mine, theirs in zip(trees(found), trees(explained), strict=True):
        assert (mine.token == -1).all()
        assert set(mine.committed) == {-1}
        np.testing.assert_array_equal(mine.parent, theirs.parent)
        np.testing.assert_array_equal(mine.fate, theirs.fate)
        np.testing.assert_array_equal(mine.match, theirs.match)


class Scoring(GrowAll):
    """Keeps nothing, says survival 0.5 ** depth, and fails at every third level it opens."""

    spec = "scoring"

    def __init__(self, fails: bool = False) -> None:
        self.survival: Float64Array | None = None
        self._fails = fails
        self._opened = 0

    def expand(self, level: Level) -> Expansion:
        if level.index == 0:
            self._opened += 1
            if self._fails and self._opened % 3 == 0:
                raise ValueError("no")
        return super().expand(level)

    def select(self, forest: ForestView) -> BoolArray:
        self.survival = 0.5 ** forest.nodes.depth.astype(np.float64)
        return np.zeros(len(forest.nodes.parent), dtype=np.bool_)


def test_survival_is_the_policys_own(trace: LoggedTrace) -> None:
    found = explain(trace, COST, [Contender.of(Scoring()), Contender.of("topn:12x3")], prompts=1, rounds=4)
    assert found.scoring == (True, False)
    (request,) = found.requests
    for tree in request.trees["scoring"]:
        offered = np.flatnonzero(tree.fate != OUTSIDE)
        np.testing.assert_array_equal(tree.survival[offered], 0.5 ** np.asarray(depths(tree))[offered])
        assert set(tree.fate[offered].tolist()) == {ON_PATH, NOT_KEPT}
        assert tree.accepted_length == 0
    for tree in request.trees["topn:12x3"]:
        above = tree.survival[tree.parent[1:]]
        np.testing.assert_allclose(tree.survival[1:], above * tree.prior[1:], rtol=1e-5)


def test_a_fallbacks_round_has_path_priors(trace: LoggedTrace) -> None:
    with pytest.warns(RuntimeWarning, match="Scoring failed"):
        found = explain(trace, COST, [Contender.of(Scoring(fails=True))], prompts=1, rounds=4)
    failed = found.requests[0].trees["scoring"][2]
    assert failed.num_verified > 0
    np.testing.assert_allclose(failed.survival[1:], failed.survival[failed.parent[1:]] * failed.prior[1:], rtol=1e-5)


def test_sources_and_signals_are_told_apart(explained: Explanation) -> None:
    seen = set()
    for tree in trees(explained):
        inner = tree.parent >= 0
        seen |= set(tree.sources[inner].tolist())
        drafted = inner & ((tree.sources & DRAFT) > 0)
        assert not np.isnan(tree.draft_prob[drafted]).any()
        looked_up = inner & ((tree.sources & LOOKUP) > 0) & (tree.fate != OUTSIDE)
        assert (tree.lookup_match_length[looked_up] > 0).all()
        remembered = inner & ((tree.sources & RECYCLED) > 0) & (tree.fate != OUTSIDE)
        assert (tree.recycled_prob[remembered] > 0).all()
        assert (tree.recycled_order[remembered] > 0).all()
        assert (tree.grown[tree.fate >= NOT_ADMITTED] == 0).all()
    assert seen == set(range(1, ALL + 1))


def test_envelope_can_be_narrower(trace: LoggedTrace) -> None:
    narrow = replace(ENVELOPE, max_depth=2)
    found = explain(trace, COST, [Contender.of("topn:12x2")], prompts=1, rounds=3, envelope=narrow)
    for tree in trees(found):
        assert max(np.asarray(depths(tree))[tree.fate != OUTSIDE]) <= 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"prompts": 0}, "prompts must be >= 1, got 0"),
        ({"rounds": 0}, "rounds must be >= 1, got 0"),
    ],
)
def test_nothing_to_explain_is_refused(trace: LoggedTrace, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        explain(trace, COST, [Contender.of("plain")], **values)
    with pytest.raises(ParameterError, match="policies must be at least one"):
        explain(trace, COST, [])
