"""The target's verify pass: rows, mask, padding, commit."""

from typing import Any

import numpy as np
import pytest

from tests.engine.tiny import next_logits, tiny_model
from treewise.engine.live_target import LiveTarget, verify_rows
from treewise.policy.forest import Forest
from treewise.policy.round import RoundTree

PROMPT = [4, 9, 2, 7]
#       parent, depth, token, kept
ROWS = [(-1, 0, 7, True), (0, 1, 3, True), (0, 1, 5, False), (1, 2, 8, True), (0, 1, 6, True), (4, 2, 8, True)]


def hand_made() -> RoundTree:
    forest = Forest(8)
    forest.append(len(ROWS))
    for place, name in enumerate(("parent", "depth", "token")):
        forest.column(name)[:] = [row[place] for row in ROWS]
    return RoundTree(forest, np.asarray([row[3] for row in ROWS]), (), 2)


@pytest.mark.parametrize("padded", [0, 5, 8])
def test_rows_see_the_text_their_ancestors_and_themselves(padded: int) -> None:
    tree = hand_made()
    tokens, depths, mask = verify_rows(tree, np.flatnonzero(tree.kept), 7, 2, padded)
    rows = max(5, padded)
    assert tokens.tolist() == [7, 3, 8, 6, 8] + [7] * (rows - 5)
    assert depths.tolist() == [0, 1, 2, 1, 2] + [0] * (rows - 5)
    assert mask.shape == (rows, 2 + rows)
    seen = [np.flatnonzero(row[2:]).tolist() for row in mask]
    assert seen == [[0], [0, 1], [0, 1, 2], [0, 3], [0, 3, 4], *([row] for row in range(5, rows))]
    assert mask[:, :2].all()


@pytest.mark.parametrize("padded", [0, 16])
def test_verify_answers_for_kept_rows_and_commit_keeps_the_path(padded: int) -> None:
    model = tiny_model(2)
    target = LiveTarget(model)
    tree = hand_made()
    target.begin(PROMPT, 32)
    for _ in range(2):  # the second time behind what the first one committed
        position = target.tree_model.cache.length
        text: list[Any] = PROMPT if position == 3 else [*PROMPT[:3], 7, 6, 8, 7]
        logits = target.verify(tree, 7, position, padded)
        assert logits.shape == (5, model.config.vocab_size)
        paths: dict[int, list[int]] = {0: [], 1: [3], 3: [3, 8], 4: [6], 5: [6, 8]}
        for row, path in paths.items():
            expected = next_logits(model, [*text, *path])
            np.testing.assert_allclose(logits[target.place_of(row)].numpy(), expected, rtol=1e-4, atol=1e-5)
        target.commit(position, (0, 4, 5))
        assert target.tree_model.cache.length == position + 3
    assert target.num_passes == 2
    assert target.verify_seconds > 0
    with pytest.raises(AssertionError):
        target.verify(tree, 7, 3, 0)  # the cache holds more than the text before the root
