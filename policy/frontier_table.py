"""The frontier rule with a hand table of match probability in place of the prior."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from treewise.policy.budget import Float64Array, shared_survival
from treewise.policy.frontier import FrontierPolicy, FrontierSettings
from treewise.policy.hand_table import HandTable
from treewise.policy.hook import BoolArray, Nodes


@dataclass(frozen=True, slots=True)
class FrontierTableSettings(FrontierSettings):
    """Settings of `FrontierTablePolicy`."""

    table: str = ""  # file of the hand table; there is none by default


class FrontierTablePolicy(FrontierPolicy):
    """The frontier rule, survival being the product of a hand table's match probabilities along the path.

    The table is fitted to logged rounds, so unlike the prior it knows how far each source may be trusted and what it
    means that they agree. What may be grown at all stays with the envelope, which reads the prior.
    """

    name = "frontier-table"
    settings_type = FrontierTableSettings
    positional = ("table",)

    def __init__(self, settings: FrontierTableSettings | None = None) -> None:
        """Reads the table. Raises `ParameterError` where there is none."""
        super().__init__(settings)
        self.table = HandTable.load((settings or FrontierTableSettings()).table)

    def _survival(self, nodes: Nodes, among: BoolArray | None = None) -> Float64Array:
        return shared_survival(replace(nodes, prior=self.table.probabilities(nodes).astype(np.float32)), among)
