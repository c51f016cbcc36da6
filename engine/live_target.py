"""The target, live: one forward pass a round over root and tree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from treewise.engine.draft_model import decoder_layers, decoder_of
from treewise.engine.pass_timer import PassTimer
from treewise.engine.passes import EAGER, tree_model_of
from treewise.engine.tree_model import BoolMatrix, see_ancestors
from treewise.policy.hook import Int32Array
from treewise.policy.round import RoundTree


class LiveTarget:
    """Verifies one request's trees. Between rounds its cache holds just the committed tokens before the root."""

    def __init__(self, model: PreTrainedModel, passes: str = EAGER, row_buckets: Sequence[int] = ()) -> None:
        """`passes`: how they are run, see `treewise.engine.passes`; `row_buckets`: what static ones are padded to."""
        self._decoder = decoder_of(model)
        self.tree_model = tree_model_of(passes, model, len(decoder_layers(self._decoder)), row_buckets=row_buckets)
        self._timer = PassTimer(self.tree_model.device)
        self.num_passes = 0
        self.places: Int32Array = np.zeros(0, dtype=np.int32)  # [forest rows] row of the last pass, -1: it did not run

    def begin(self, prompt: Sequence[int], capacity: int) -> None:
        """Forget the last request and prefill every prompt token but the last, which is the first root."""
        self.tree_model.reset(capacity)
        self.tree_model.prefill(prompt[:-1], decoder=self._decoder)
        self._timer.reset()
        self.num_passes = 0

    @property
    def verify_seconds(self) -> float:
        """Of all passes of this request so far."""
        return self._timer.seconds

    def verify(self, tree: RoundTree, root_token: int, position: int, padded_rows: int) -> torch.Tensor:
        """Logits [1 + verified nodes, vocabulary] of the root and the kept rows, in forest order.

        Args:
            root_token: the last committed token.
            position: its absolute position; the cache holds exactly the tokens before it.
            padded_rows: rows to run, dead ones included.
        """
        self._timer.start()
        base = self.tree_model.cache.length
        assert base == position
        kept = np.flatnonzero(tree.kept)
        tokens, depths, mask = verify_rows(tree, kept, root_token, base, padded_rows)
        self.places = np.full(tree.forest.num_rows, -1, dtype=np.int32)
        self.places[kept] = np.arange(len(kept))
        logits = self.tree_model.forward(tokens, (position + depths).astype(np.int32), mask)
        self.num_passes += 1
        self._timer.stop()
        return logits[: len(kept)]

    def place_of(self, row: int) -> int:
        """The row of the last verify pass that forest `row` ran in."""
        return int(self.places[row])

    def commit(self, position: int, path_rows: Sequence[int]) -> None:
        """Keep the root and the accepted path (forest rows, root first); everything else of the tree goes."""
        self.tree_model.cache.keep(position, [position + self.place_of(row) for row in path_rows])


def verify_rows(
    tree: RoundTree, kept: NDArray[np.intp], root_token: int, base: int, padded_rows: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], BoolMatrix]:
    """Tokens, depths and mask of a verify pass over forest rows `kept` (root first), behind `base` cached slots.

    Returns tokens [rows], depths [rows] and mask [rows, base + rows], with rows = max(padded_rows, len(kept)). A row
    sees the committed slots, its ancestors and itself; a dead row sees the committed slots and itself.
    """
    parent, depth = tree.forest.column("parent"), tree.forest.column("depth")
    count = len(kept)
    rows = max(padded_rows, count)
    tokens = np.full(rows, root_token, dtype=np.int32)
    tokens[:count] = tree.forest.column("token")[kept]
    tokens[0] = root_token
    depths = np.zeros(rows, dtype=np.int32)
    depths[:count] = depth[kept]
    place = np.full(tree.forest.num_rows, -1, dtype=np.int64)
    place[kept] = np.arange(count)
    above = np.zeros(count, dtype=np.int64)
    above[1:] = place[parent[kept[1:]]]
    mask = np.zeros((rows, base + rows), dtype=np.bool_)
    mask[:, :base] = True
    mask[np.arange(rows), base + np.arange(rows)] = True
    inner = np.arange(1, count)
    see_ancestors(mask[:count, base : base + count], inner, above[inner], depths[inner])
    return tokens, depths, mask
