"""How tree passes are run: eagerly, in static shapes, or replayed from CUDA graphs."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedModel

from treewise.data.errors import require
from treewise.engine.captured_model import CapturedModel
from treewise.engine.captured_slot_model import CapturedSlotModel
from treewise.engine.slot_model import SlotModel
from treewise.engine.static_model import CAPACITY_BUCKETS, ROW_BUCKETS, StaticModel
from treewise.engine.static_slot_model import StaticSlotModel
from treewise.engine.tree_model import TreeModel

EAGER, STATIC, CAPTURED = "eager", "static", "captured"
PASSES = (EAGER, STATIC, CAPTURED)
TAIL_SLACK = 96  # drafted rows of a round that a growth's rows may be masked from


def check_passes(passes: str) -> None:
    """Raise `ParameterError` on a way to run passes that there is not."""
    require(passes in PASSES, "passes", f"one of {', '.join(PASSES)}", passes)


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
    check_passes(passes)
    if passes == EAGER:
        return TreeModel(model, num_layers, capacity)
    kind = CapturedModel if passes == CAPTURED else StaticModel
    return kind(model, num_layers, capacity, tuple(row_buckets) or ROW_BUCKETS, tail_slack)


def slot_model_of(
    passes: str,
    model: PreTrainedModel,
    num_layers: int,
    num_slots: int,
    *,
    slot_buckets: Sequence[int] = (),
    row_buckets: Sequence[int] = (),
    tail_slack: int = 0,
) -> SlotModel:
    """As `tree_model_of`, for the rows of `num_slots` requests.

    Args:
        slot_buckets: requests that static passes are padded to; empty: see `StaticSlotModel`.
        row_buckets: rows of a whole pass that static ones are padded to; empty: see `StaticSlotModel`.

    Raises `ParameterError` on other passes, and as `SlotModel` and `StaticSlotModel` do.
    """
    check_passes(passes)
    if passes == EAGER:
        return SlotModel(model, num_layers, num_slots)
    kind = CapturedSlotModel if passes == CAPTURED else StaticSlotModel
    return kind(model, num_layers, num_slots, slot_buckets=slot_buckets, row_buckets=row_buckets, tail_slack=tail_slack)
