"""What one contender of an A/B did, by request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from treewise.policy.hook import BoolArray
from treewise.training.replay_result import Float64Array, TextArray

# draft_ms and slope_ms are parts of ms: of draft growths, and of verify passes beyond what passes of one row cost.
TALLY_COLUMNS = ("tokens", "ms", "rounds", "nodes", "growths", "calls", "fallbacks", "draft_ms", "slope_ms")


@dataclass(frozen=True, slots=True)
class Tally:
    """What one contender did under one cost profile, by request."""

    prompt_id: TextArray  # [requests]
    task: TextArray  # [requests]
    plain_ms: Float64Array  # [requests] modelled, of plain decoding
    columns: dict[str, Float64Array]  # `TALLY_COLUMNS`, each [requests]
    reads_costs: bool = False  # it looked at the cost profile, so another profile may change what it does

    def of(self, chosen: BoolArray) -> Tally:
        """The requests `chosen` [requests]."""
        columns = {name: values[chosen] for name, values in self.columns.items()}
        return Tally(self.prompt_id[chosen], self.task[chosen], self.plain_ms[chosen], columns, self.reads_costs)


def joined(parts: Sequence[Tally]) -> Tally:
    """The requests of all `parts`, in order."""
    return Tally(
        np.concatenate([part.prompt_id for part in parts]),
        np.concatenate([part.task for part in parts]),
        np.concatenate([part.plain_ms for part in parts]),
        {name: np.concatenate([part.columns[name] for part in parts]) for name in TALLY_COLUMNS},
        any(part.reads_costs for part in parts),
    )
