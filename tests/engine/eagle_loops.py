"""EAGLE's trees under a policy, for the tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.engine.tiny import LAX, example_cost
from treewise.engine.eagle import EagleSettings, EagleTrees
from treewise.policy.everything import EverythingPolicy
from treewise.policy.hook import BoolArray, Expansion, ForestView, Level, TreePolicy

K, DEPTH, NODES = 4, 3, 12


class FailsAt(EverythingPolicy):
    """Raises at one level, or in `select`."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index

    def expand(self, level: Level) -> Expansion:
        if level.index == self.index:
            raise ArithmeticError("no idea")
        grow = level.candidates.may_grow if level.index < self.index else level.candidates.may_grow * np.uint8(0)
        return Expansion(np.ones(len(grow), dtype=np.bool_), grow.astype(np.uint8))

    def select(self, forest: ForestView) -> BoolArray:
        raise ArithmeticError("no idea")


def trees_of(policy: TreePolicy | str, **changes: Any) -> EagleTrees:
    sizes = {"num_nodes": NODES, "top_k": K, "depth": DEPTH, "vocab_size": 50, "time_limit_ms": LAX, **changes}
    made = EagleTrees(policy, example_cost(), EagleSettings(**sizes))
    made.begin(prompt_tokens=9, max_new_tokens=100)
    return made
