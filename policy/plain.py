"""Plain decoding as a policy: nothing is guessed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treewise.policy.hook import BoolArray, Expansion, ForestView, Level, Reach
from treewise.policy.rule import RulePolicy


@dataclass(frozen=True, slots=True)
class PlainSettings:
    """Plain decoding has none."""


class PlainPolicy(RulePolicy[PlainSettings]):
    """Grows nothing: one token per round."""

    name = "plain"
    settings_type = PlainSettings

    @property
    def call_ms(self) -> float:
        """Nothing: its answers are known before the question, and a loop without policies decodes the same way."""
        return 0.0

    @property
    def reach(self) -> Reach:
        """Only the root."""
        return Reach(0, 0)

    def expand(self, level: Level) -> Expansion:
        """Admits the roots, asks no source."""
        candidates = level.candidates
        return Expansion(candidates.parent < 0, np.zeros(len(candidates.parent), dtype=np.uint8))

    def select(self, forest: ForestView) -> BoolArray:
        """The roots."""
        return np.asarray(forest.nodes.parent < 0)
