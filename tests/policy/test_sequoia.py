"""Offline trees by child rank: the dynamic programming, the table they come from, and the rule that draws them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.policy.conformance import CHECKS, Check, sizes
from tests.policy.rank_tables import BY_RANK, rank_table, write_rank_table
from tests.policy.scripted import Played, World, example_cost, example_deployment, play
from treewise.data.errors import ParameterError, PolicyError, PolicySpecError, SchemaVersionError
from treewise.policy.hook import DRAFT, FREE, LOOKUP
from treewise.policy.rank_table import RankTable
from treewise.policy.rank_tree import BestRankTrees, RankTree
from treewise.policy.registry import parse_policy
from treewise.policy.sequoia import SequoiaPolicy, SequoiaSettings, offline_tree


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table fitted for every choice of sources; its name holds an x and a space."""
    return write_rank_table(tmp_path_factory.mktemp("x-ranks") / "own x.json")


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(("nodes", "depth"), [(None, None), (9, 3), (None, 2)])
def test_conforms(check: Check, nodes: int | None, depth: int | None, file: str) -> None:
    assert check(lambda: SequoiaPolicy(SequoiaSettings(table=file, nodes=nodes, depth=depth))) > 0


Shape = frozenset[tuple[int, ...]]  # paths of child ranks


@cache
def shapes(nodes: int, depth: int, ranks: int) -> frozenset[Shape]:
    """Every tree of at most `nodes` nodes and `depth` levels, by adding one node at a time."""
    found = {frozenset[tuple[int, ...]]()}
    for _ in range(nodes):
        found |= {shape | {path} for shape in found for path in _next(shape, depth, ranks)}
    return frozenset(found)


def _next(shape: Shape, depth: int, ranks: int) -> Iterator[tuple[int, ...]]:
    for above in (*shape, ()):
        if len(above) < depth:
            yield from ((*above, rank) for rank in range(ranks) if (*above, rank) not in shape)


def expected(shape: Shape, acceptance: tuple[float, ...]) -> float:
    return sum(float(np.prod([acceptance[rank] for rank in path])) for path in shape)


def paths_of(tree: RankTree) -> Shape:
    paths: list[tuple[int, ...]] = [()]
    for parent, rank in zip(tree.parent[1:].tolist(), tree.rank[1:].tolist(), strict=True):
        paths.append((*paths[parent], rank))
    return frozenset(paths[1:])


@pytest.mark.parametrize("acceptance", [(0.6, 0.25, 0.1), (0.3, 0.05, 0.3), (0.9, 0.0, 0.02), (0.34, 0.33, 0.33)])
@pytest.mark.parametrize("depth", [1, 2, 3, 5])
def test_no_tree_of_a_size_and_depth_is_better(acceptance: tuple[float, ...], depth: int) -> None:
    best = BestRankTrees(acceptance, 5, depth)
    for nodes in range(6):
        found = paths_of(best.tree(nodes, depth))
        most = max(expected(shape, acceptance) for shape in shapes(nodes, depth, len(acceptance)))
        assert best.tokens[depth, nodes] == pytest.approx(most)
        assert expected(found, acceptance) == pytest.approx(most)
        assert len(found) <= nodes
        assert max((len(path) for path in found), default=0) <= depth


def test_deeper_and_larger_never_hurts_and_chains_follow_a_sure_first_child() -> None:
    best = BestRankTrees(BY_RANK, 40, 8)
    assert (np.diff(best.tokens, axis=0) >= -1e-12).all()
    assert (np.diff(best.tokens, axis=1) >= -1e-12).all()
    assert paths_of(BestRankTrees((0.99, 0.005), 4, 9).tree(4, 9)) == {(0,), (0, 0), (0, 0, 0), (0, 0, 0, 0)}
    assert paths_of(BestRankTrees((0.2, 0.2, 0.2), 3, 9).tree(3, 9)) == {(0,), (1,), (2,)}


def test_a_tree_knows_its_children_and_parents_come_first() -> None:
    tree = BestRankTrees(BY_RANK, 20, 4).tree(20, 4)
    assert tree.num_nodes == 20
    assert (tree.parent[1:] < np.arange(1, 21)).all()
    np.testing.assert_array_equal(tree.child[tree.parent[1:], tree.rank[1:]], np.arange(1, 21))
    assert (tree.child >= 0).sum() == 20
    np.testing.assert_array_equal(np.unique(tree.parent[1:]), np.flatnonzero(tree.has_children))
    np.testing.assert_array_equal(tree.depth[1:], tree.depth[tree.parent[1:]] + 1)


def drawn(file: str, nodes: int, depth: int) -> tuple[RankTree, list[Played]]:
    policy = SequoiaPolicy(SequoiaSettings(table=file, nodes=nodes, depth=depth))
    rounds: list[Played] = []
    play(policy, World(3, DRAFT), max_new_tokens=30, rounds=rounds)
    return policy.tree, rounds


def test_every_round_draws_the_shape_as_far_as_there_are_candidates(file: str) -> None:
    tree, rounds = drawn(file, nodes=7, depth=2)
    wanted = paths_of(tree)
    seen = set()
    for played in rounds[:-2]:
        nodes, kept = played.tree.forest.view(), played.tree.kept
        rank: dict[int, tuple[int, ...]] = {0: ()}
        for parent in range(len(nodes.parent)):
            children = np.flatnonzero(nodes.parent == parent)
            order = children[np.argsort(-nodes.prior[children], kind="stable")]
            if parent in rank:
                rank |= {int(child): (*rank[parent], place) for place, child in enumerate(order.tolist())}
        shape = {rank[row] for row in np.flatnonzero(kept)[1:].tolist()}
        assert shape <= wanted
        assert shape == {path for path in rank.values() if path in wanted}
        seen.add(len(shape))
    assert max(seen) == 7


def test_growths_end_where_the_shape_does(file: str) -> None:
    for depth in (1, 2, 3):
        tree, rounds = drawn(file, nodes=16, depth=depth)
        growths = [len(played.tree.growth_tokens) for played in rounds]
        assert max(growths) == int(tree.depth.max()) == depth
        assert all(played.tree.num_nodes <= 16 for played in rounds)


def test_size_and_depth_follow_the_prices() -> None:
    def chosen(draft_ms: float, sources: int = DRAFT) -> RankTree:
        return offline_tree(rank_table(), sources, example_deployment(sources, example_cost(draft_ms))).tree

    cheap, fair, dear = (chosen(ms) for ms in (0.01, 2.0, 200.0))
    assert cheap.depth.max() > fair.depth.max() > dear.depth.max()
    assert dear.num_nodes == 0
    assert chosen(200.0, FREE).num_nodes > 0  # nothing of it is drafted
    assert chosen(200.0, 0).num_nodes == 0


def test_rows_are_priced_at_their_buckets() -> None:
    bound = example_deployment(FREE, example_cost(1.0))
    free = offline_tree(rank_table(), FREE, bound)
    padded = offline_tree(rank_table(), FREE, replace(bound, row_buckets=(5, 64)))
    assert free.tree.num_nodes > padded.tree.num_nodes == 4
    assert padded.tokens_per_ms < free.tokens_per_ms


def test_settings_hold_what_they_name() -> None:
    bound = example_deployment(DRAFT)
    assert offline_tree(rank_table(), DRAFT, bound, nodes=20).tree.num_nodes == 20
    assert offline_tree(rank_table(), DRAFT, bound, depth=5).tree.depth.max() <= 5
    both = offline_tree(rank_table(), DRAFT, bound, nodes=12, depth=4)
    assert (both.tree.num_nodes, int(both.tree.depth.max())) == (12, 4)
    assert both.tokens == pytest.approx(1.0 + BestRankTrees(BY_RANK, 12, 4).tokens[4, 12])


def test_a_budget_bounds_every_round(file: str) -> None:
    decisions = play(SequoiaPolicy(SequoiaSettings(table=file, nodes=5)), World(6, DRAFT | FREE), max_new_tokens=30)[0]
    assert 0 < max(sizes(decisions)) <= 5


def test_specs_name_the_file_whatever_letters_it_has(file: str) -> None:
    policy = parse_policy(f"sequoia:{file},nodes=9,depth=3,sources=draft")
    assert isinstance(policy, SequoiaPolicy)
    assert policy.spec == f"sequoia:{file},nodes=9,depth=3,sources=draft"
    assert policy.reach.depth == 3
    policy.bind(example_deployment(DRAFT))
    assert policy.reach.depth == int(policy.tree.depth.max())


def test_tables_round_trip(file: str) -> None:
    table = RankTable({DRAFT: (0.5, 0.25)}, {DRAFT: 12}, 3, ("here",))
    assert RankTable.from_json(json.loads(json.dumps(table.to_json()))) == table
    assert list(RankTable.load(file).to_json()["acceptance"])[:3] == ["lookup", "draft", "lookup+draft"]


def test_a_table_answers_for_the_sources_that_it_was_fitted_for(tmp_path: Path) -> None:
    file = write_rank_table(tmp_path / "ranks.json", RankTable({DRAFT: BY_RANK, LOOKUP | DRAFT: BY_RANK}))
    parse_policy(f"sequoia:{file}").bind(example_deployment(DRAFT))
    with pytest.raises(PolicyError, match=r"got lookup where it knows draft, lookup\+draft: fit it with"):
        parse_policy(f"sequoia:{file}").bind(example_deployment(LOOKUP))


def edited(**changes: object) -> str:
    return json.dumps({**rank_table().to_json(), **changes})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "table must be a JSON file"),
        ("[" * 100_000, "table must be a JSON file"),
        ("[]", "table must be one JSON object, got 'list'"),
        ("{}", r"table must be one of acceptance by rank \(`treewise fit-tree`\), got \[\]"),
        ('{"schema_version": 1}', r"table must be of acceptance, origin, .*, got \['schema_version'\]"),
        (edited(rank="1"), "table must be of acceptance, origin, .*'rank'"),
        (edited(acceptance=[0.5]), r"acceptance must be a JSON object, got \[0.5\]"),
        (edited(positions={"draft": -1}), "positions of draft must be >= 0, got -1"),
        (edited(positions={"draft": 1.5}), "positions of draft must be a whole number, got 1.5"),
        (edited(prompts=float("inf")), "prompts must be a whole number, got inf"),
        (edited(origin="here"), "origin must be a list of strings, got 'here'"),
        (("web", [0.5]), r"acceptance must be by sources such as .*draft.*, got 'web'"),
        (("draft", ["high"]), r"acceptance of draft must be a list of probabilities, got \['high'\]"),
        (("draft", "01"), "acceptance of draft must be a list of probabilities, got '01'"),
        (("draft", [True]), r"acceptance of draft must be a list of probabilities, got \[True\]"),
        (("draft", [[0.5]]), "acceptance of draft must be a list of probabilities"),
        (("draft", [10**400]), "acceptance of draft must be a list of probabilities"),
        (("draft", 3), "acceptance of draft must be a list of probabilities, got 3"),
        (("draft", [0.8, 0.4]), r"must be probabilities that add up to at most 1, got \[0.8, 0.4\]"),
        (("draft", [0.8, -0.1]), "acceptance of draft must be a list of probabilities"),
        (("draft", [float("nan")]), "acceptance of draft must be a list of probabilities"),
        (("draft", []), "acceptance of draft must be 1 to 64 probabilities, got 0"),
        (("draft", [0.001] * 65), "acceptance of draft must be 1 to 64 probabilities, got 65"),
    ],
)
def test_other_files_are_refused(content: str | tuple[str, object], message: str, tmp_path: Path) -> None:
    path = tmp_path / "ranks.json"
    if isinstance(content, tuple):
        content = edited(acceptance=dict([content]))
    path.write_text(content, encoding="utf-8")
    with pytest.raises(PolicySpecError, match=message):
        parse_policy(f"sequoia:{path}")


def test_another_version_names_its_cure(tmp_path: Path) -> None:
    path = tmp_path / "ranks.json"
    path.write_text(edited(schema_version=9), encoding="utf-8")
    with pytest.raises(SchemaVersionError, match="fit it again with `treewise fit-tree`"):
        parse_policy(f"sequoia:{path}")


def test_bad_settings_are_refused(file: str) -> None:
    with pytest.raises(PolicySpecError, match="table must be a file that exists, got ''"):
        parse_policy("sequoia")
    with pytest.raises(PolicySpecError, match="nodes must be between 1 and 256, or none, got 257"):
        parse_policy(f"sequoia:{file},nodes=257")
    with pytest.raises(ParameterError, match="acceptance must be of at least one choice of sources"):
        RankTable({})
