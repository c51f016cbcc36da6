"""The data set: rows are what policies see, labels are what the text says, nothing is made up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.training.worlds import COST, World, as_trace, dense_trace, deployment, manifest, simulate
from treewise.data.envelope import Envelope
from treewise.data.errors import CoverageError, ParameterError, TraceError
from treewise.data.trace_schema import concatenate
from treewise.policy.everything import EverythingPolicy
from treewise.policy.features import FEATURES, GROWTH_FEATURES, node_features
from treewise.policy.hook import DRAFT, LOOKUP, RECYCLED, Float32Array, RoundOutcome
from treewise.policy.topn import TopNPolicy, TopNSettings
from treewise.training.dataset import DatasetSettings, build_dataset
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay import replay
from treewise.training.rows import BOTH, DRAFT_ONLY, FREE_ONLY, Dataset

ENVELOPE = Envelope(max_depth=4, draft_width=3, lookup_width=2, min_path_prior=0.03, min_grow_prior=0.08)


class WatchedEverything(EverythingPolicy):
    """Keeps the features and labels of what each round made known."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds: list[tuple[Float32Array, NDArray[np.int8]]] = []

    def observe(self, outcome: RoundOutcome) -> None:
        """Keep them."""
        self.rounds.append(known(outcome))


class WatchedTopN(TopNPolicy):
    """The same for a policy that prunes."""

    def __init__(self) -> None:
        super().__init__(TopNSettings(nodes=6, depth=2))
        self.rounds: list[tuple[Float32Array, NDArray[np.int8]]] = []

    def observe(self, outcome: RoundOutcome) -> None:
        """Keep them."""
        self.rounds.append(known(outcome))


def known(outcome: RoundOutcome) -> tuple[Float32Array, NDArray[np.int8]]:
    """Features and labels of the rows whose match is known."""
    rows = np.flatnonzero(outcome.match >= 0)
    return node_features(outcome.nodes, rows, outcome.context), outcome.match[rows]


@pytest.fixture(scope="module")
def world() -> World:
    return World(seed=1, num_texts=4, answer_tokens=40)


@pytest.fixture(scope="module")
def trace(world: World) -> LoggedTrace:
    return dense_trace(world, ENVELOPE)


@pytest.fixture(scope="module")
def rows(trace: LoggedTrace) -> Dataset:
    return build_dataset([trace])


def only(trace: LoggedTrace, view: str) -> Dataset:
    """The rows of one view."""
    return build_dataset([trace], settings=DatasetSettings(views=(view,)))  # type: ignore[arg-type]


def column(rows: Dataset, name: str) -> Float32Array:
    """One feature of the match rows."""
    found: Float32Array = rows.match.x[:, FEATURES.index(name)]
    return found


def test_shapes_dtypes_and_prompts(rows: Dataset, world: World) -> None:
    match, growth, trees = rows.match, rows.growth, rows.trees
    assert match.x.shape == (len(match.label), len(FEATURES))
    assert growth.x.shape == (len(growth.label), len(GROWTH_FEATURES))
    assert match.x.dtype == growth.x.dtype == trees.x.dtype == np.float32
    assert rows.prompts == tuple(text.prompt_id for text in world.texts)
    assert rows.tasks == tuple(text.task for text in world.texts)
    assert set(np.unique(match.prompt)) == {0, 1, 2, 3}
    assert rows.positions > 100
    assert rows.uncovered < 0.02 * 3 * rows.positions
    assert rows.envelope.covers(replace(ENVELOPE, min_path_prior=0.0301, min_grow_prior=0.0801)) == []


def test_rows_are_what_a_policy_sees(trace: LoggedTrace) -> None:
    """At the first root of each request, features and labels are those of a replayed policy, bit for bit."""
    policy = WatchedEverything()
    result = replay(policy, trace.requests, trace.deployment(COST), batch_requests=1)  # it keeps one request a round
    firsts = [policy.rounds[place] for place in np.flatnonzero(result.round == 0)]
    found = only(trace, "everything").match
    for prompt, (x, label) in enumerate(firsts):
        mine = np.flatnonzero(found.prompt == prompt)[: len(x)]
        assert len(x) > 0
        assert np.array_equal(found.x[mine], x, equal_nan=True)
        assert np.array_equal(found.label[mine], label)


def test_views_leave_out_what_they_did_not_ask(trace: LoggedTrace) -> None:
    alone = only(trace, "free_only")
    assert np.isnan(column(alone, "draft_log_prob")).all()
    assert np.isnan(column(alone, "draft_entropy")).all()
    assert not np.isnan(column(alone, "lookup_share")).any()
    assert 0.5 < (~np.isnan(column(alone, "recycled_log_prob"))).mean() < 1.0  # not below unlikely rows
    assert set(np.unique(alone.match.kind)) == {FREE_ONLY}
    full = only(trace, "everything")
    assert {BOTH, DRAFT_ONLY} <= set(np.unique(full.match.kind).tolist())
    assert (~np.isnan(column(full, "draft_entropy"))).mean() > 0.9
    mixed = only(trace, "random")
    assert 0.02 < np.isnan(column(mixed, "draft_entropy")).mean() < 0.98
    looked_up, remembered = (~np.isnan(column(mixed, name)) for name in ("lookup_match_length", "recycled_order"))
    for shows in (looked_up & remembered, looked_up & ~remembered, ~looked_up & ~remembered):
        assert shows.mean() > 0.02
    assert not (remembered & ~looked_up).any()  # the lookup is there wherever the recycled guesses are


def test_growth_labels_say_what_only_the_draft_would_bring(trace: LoggedTrace) -> None:
    """At a root, the label is whether the text's token is among the draft's and no free source proposes it."""
    full, alone = only(trace, "everything"), only(trace, "free_only")
    depth = GROWTH_FEATURES.index("depth")
    labels = []
    for found in (full, alone):
        roots = found.growth.x[:, depth] == 0
        assert roots.sum() == found.positions
        labels.append(found.growth.label[roots])
    assert np.array_equal(*labels)  # at a root, both views know all that the free sources offer
    assert 0.05 < full.growth.label.mean() < 0.95
    expected = []
    for request in trace.requests:
        last = request.first_position + request.max_new_tokens - 1  # nothing may be guessed there
        for position in sorted(set(request.rows) - {last}):
            tree = request.tree(position)
            truth = int(request.text[position - request.first_position])
            ranked = truth in tree.children[0] and tree.is_proposed(0, truth, "plain", ENVELOPE.draft_width)
            free = (
                *tree.continuations(0).tokens[: ENVELOPE.lookup_width],
                *tree.recycled(0).tokens[: ENVELOPE.recycled_width],
            )
            expected.append(ranked and truth not in free)
    assert labels[0].astype(bool).tolist() == expected
    without = only(replace(trace, sources=LOOKUP | DRAFT), "everything").growth
    assert without.label[without.x[:, depth] == 0].sum() > labels[0].sum() > 0  # recycled guesses leave less to bring


def test_trees_hold_whole_paths(rows: Dataset) -> None:
    trees = rows.trees
    inner = trees.parent >= 0
    assert (trees.parent[inner] < np.flatnonzero(inner)).all()
    assert (trees.path_prior[inner] <= trees.path_prior[trees.parent[inner]]).all()
    assert (trees.survives[inner] <= trees.survives[trees.parent[inner]]).all()
    assert 0 < trees.survives.sum() < len(trees.survives)


def test_the_seed_decides_the_random_view_only(trace: LoggedTrace) -> None:
    first, again = build_dataset([trace]), build_dataset([trace])
    other = build_dataset([trace], settings=DatasetSettings(seed=1))
    assert np.array_equal(first.match.x, again.match.x, equal_nan=True)
    assert np.array_equal(first.growth.label, again.growth.label)
    assert first.match.x.shape != other.match.x.shape
    sparse = build_dataset([trace], settings=DatasetSettings(stride=5))
    assert sparse.positions < 0.25 * first.positions
    bounded = build_dataset([trace], settings=DatasetSettings(max_positions=40))
    assert 20 < bounded.positions <= 40


def test_live_rows_are_what_the_policy_saw(world: World) -> None:
    """Rounds of a live trace of pruned trees, rebuilt bit for bit; unknown matches are left out."""
    policy = WatchedTopN()
    setting = deployment(ENVELOPE)
    policy.bind(setting)
    shards = [simulate(world, text, policy, setting)[1] for text in world.texts]
    live = as_trace(concatenate(shards), manifest("live", ENVELOPE, policy.spec))
    found = build_dataset([live])
    assert found.positions == len(policy.rounds)
    assert np.array_equal(found.match.x, np.concatenate([x for x, _ in policy.rounds]), equal_nan=True)
    assert np.array_equal(found.match.label, np.concatenate([label for _, label in policy.rounds]))
    assert len(found.match.label) < len(live.requests[0].shard.nodes)
    assert len(found.growth.label) == len(found.trees.survives) == 0


def test_one_source_alone_gives_one_view(world: World, trace: LoggedTrace) -> None:
    lookup = replace(trace, sources=LOOKUP)
    found = build_dataset([lookup])
    assert set(np.unique(found.match.kind)) == {FREE_ONLY}
    assert len(found.growth.label) == 0
    recycled = build_dataset([replace(trace, sources=RECYCLED)])
    assert set(np.unique(recycled.match.kind)) == {FREE_ONLY}
    assert np.isnan(column(recycled, "lookup_share")).all()
    assert not np.isnan(column(recycled, "recycled_log_prob")).any()
    draft = build_dataset([replace(trace, sources=DRAFT)])
    assert set(np.unique(draft.match.kind)) == {DRAFT_ONLY}
    assert len(draft.growth.label) > 0


def test_what_cannot_be_used_is_refused(trace: LoggedTrace) -> None:
    with pytest.raises(ParameterError, match="traces must be at least one"):
        build_dataset([])
    with pytest.raises(CoverageError, match="narrower than the envelope asked for: max_depth 9 > 4"):
        build_dataset([trace], replace(ENVELOPE, max_depth=9))
    with pytest.raises(TraceError, match="at least one round"):
        build_dataset([replace(trace, requests=())])
    with pytest.raises(ParameterError, match="views must be"):
        DatasetSettings(views=("nothing",))  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="stride must be"):
        DatasetSettings(stride=0)
