"""How tree passes are run: eagerly, in static shapes, or replayed from CUDA graphs."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedModel

from treewise.data.errors import require
from treewise.engine.captured_model import CapturedModel
from treewise.engine.static_model import CAPACITY_BUCKETS, ROW_BUCKETS, StaticModel
from treewise.engine.tree_model import TreeModel

EAGER, STATIC, CAPTURED = "eager", "static", "captured"
PASSES = (EAGER, STATIC, CAPTURED)
TAIL_SLACK = 96  # drafted rows of a round that a growth's rows may be masked from


def tree_model_of(
    passes: str,
    model: PreTrainedModel,
    num_layers: int,
    *,
    row_buckets: Sequence[int] = (),
    tail_slack: int = 0,
    capacity: int = CAPACITY_BUCKETS[0],
) -> TreeModel:
    """A model of tree rows whose passes run as `passes` says; `eager` is what every device and kernel can do.

    Args:
        row_buckets: rows that static passes are padded to; empty: `ROW_BUCKETS`.
        tail_slack: see `StaticModel`.

    Raises `ParameterError` on other passes, and as `StaticModel` does.
    """
    require(passes in PASSES, "passes", f"one of {', '.join(PASSES)}", passes)
    if passes == EAGER:
        return TreeModel(model, num_layers, capacity)
    kind = CapturedModel if passes == CAPTURED else StaticModel
    return kind(model, num_layers, capacity, tuple(row_buckets) or ROW_BUCKETS, tail_slack)
