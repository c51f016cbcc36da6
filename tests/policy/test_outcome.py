"""The walk along the target's tokens."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treewise.policy.forest import Forest, close_upward
from treewise.policy.outcome import build_outcome, walk
from treewise.policy.progress import Progress, build_context
from treewise.policy.round import RoundTree

#        request, parent, depth, token, kept, drafted
ROWS = [
    (0, -1, 0, 50, True, True),
    (1, -1, 0, 51, True, False),
    (0, 0, 1, 3, True, True),
    (0, 0, 1, 4, True, False),
    (1, 1, 1, 3, False, False),
    (0, 2, 2, 7, True, False),
    (0, 2, 2, 8, False, False),
    (0, 5, 3, 9, True, True),
]


def tree_of(rows: list[tuple[int, int, int, int, bool, bool]]) -> RoundTree:
    forest = Forest(4)
    forest.append(len(rows))
    for place, name in enumerate(("request", "parent", "depth", "token")):
        forest.column(name)[:] = [row[place] for row in rows]
    forest.column("drafted")[:] = [row[5] for row in rows]
    return RoundTree(forest, np.asarray([row[4] for row in rows]), (), 2)


def texts(*truths: list[int]) -> tuple[list[int], ...]:
    return truths


@pytest.mark.parametrize(
    ("truths", "accepted", "tokens", "paths", "drafted"),
    [
        (texts([3, 7, 9, 1], [3, 0]), [3, 0], ((3, 7, 9, 1), (3,)), ((0, 2, 5, 7), (1,)), [2, 0]),
        (texts([3, 8, 9], [0]), [1, 0], ((3, 8), (0,)), ((0, 2), (1,)), [2, 0]),  # 8 was guessed and not kept
        (texts([4, 7], [5]), [1, 0], ((4, 7), (5,)), ((0, 3), (1,)), [1, 0]),
        (texts([6], [3]), [0, 0], ((6,), (3,)), ((0,), (1,)), [1, 0]),
        (texts([3, 7, -1], [-1]), [2, 0], ((3, 7), ()), ((0, 2, 5), (1,)), [2, 0]),  # the text is over
    ],
)
def test_the_path_follows_the_target_through_kept_rows(
    truths: tuple[list[int], ...],
    accepted: list[int],
    tokens: tuple[tuple[int, ...], ...],
    paths: tuple[tuple[int, ...], ...],
    drafted: list[int],
) -> None:
    tree = tree_of(ROWS)
    depth = tree.forest.column("depth")
    asked: list[tuple[int, int]] = []

    def say(request: int, row: int) -> int:
        asked.append((request, row))
        return truths[request][int(depth[row])]

    result = walk(tree, 2, say)
    assert result.accepted_length.tolist() == accepted
    assert (result.tokens, result.path_rows) == (tokens, paths)
    assert result.drafted_path.tolist() == drafted
    assert np.flatnonzero(result.on_path).tolist() == sorted(row for path in paths for row in path)
    assert asked == [(request, row) for request, path in enumerate(paths) for row in path]
    for row, (request, parent, level, token, _, _) in enumerate(ROWS):
        known = parent in paths[request] and truths[request][level - 1] >= 0
        assert result.match[row] == (-1 if not known else int(token == truths[request][level - 1]))
    outcome = build_outcome(tree, build_context([Progress(0, 3, 9), Progress(1, 3, 9)]), result)
    assert outcome.committed_tokens.tolist() == [len(text) for text in tokens]
    assert outcome.kept is tree.kept


@given(st.integers(0, 2**32 - 1))
def test_more_kept_rows_never_shorten_the_accepted_length(seed: int) -> None:
    draw = np.random.default_rng(seed)
    rows: list[tuple[int, int, int, int, bool, bool]] = [(0, -1, 0, 0, True, False)]
    children: dict[int, set[int]] = {}
    for _ in range(30):
        parent = int(draw.integers(0, len(rows)))
        token = int(draw.integers(0, 4))
        if token not in children.setdefault(parent, set()):
            children[parent].add(token)
            rows.append((0, parent, rows[parent][2] + 1, token, True, False))
    full = tree_of(rows)
    parents = full.forest.column("parent")
    few = close_upward(draw.random(len(rows)) < 0.3, parents)
    few[0] = True
    more = close_upward(few | (draw.random(len(rows)) < 0.3), parents)
    truth = draw.integers(0, 4, size=40).tolist()
    depth = full.forest.column("depth")
    lengths = [
        int(walk(RoundTree(full.forest, kept, (), 2), 1, lambda _, row: truth[int(depth[row])]).accepted_length[0])
        for kept in (few, more, full.kept)
    ]
    assert lengths == sorted(lengths)
