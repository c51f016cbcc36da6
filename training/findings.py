"""One finding of a diagnosis: a figure, what it is held against, and what to do where it breaks that."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from treewise.data.errors import require

Status: TypeAlias = Literal["fires", "fine", "unknown"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One figure beside its threshold. It fires below `low` and above `high`."""

    name: str
    figure: float | None  # None: not known here
    words: str  # what the figure is of and where it comes from; where it is None, what is missing
    cure: str
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        require(self.low is not None or self.high is not None, "low", "a number where high is none", self.low)

    @property
    def status(self) -> Status:
        """Whether the figure breaks its threshold."""
        if self.figure is None or math.isnan(self.figure):
            return "unknown"
        is_low = self.low is not None and self.figure < self.low
        is_high = self.high is not None and self.figure > self.high
        return "fires" if is_low or is_high else "fine"

    @property
    def rule(self) -> str:
        """The threshold in words."""
        if self.low is not None and self.high is not None:
            return f"{self.low:.3g} to {self.high:.3g}"
        return f"at least {self.low:.3g}" if self.low is not None else f"at most {self.high:.3g}"

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        return {
            "name": self.name,
            "status": self.status,
            "figure": None if self.status == "unknown" or self.figure is None else round(self.figure, 6),
            "low": None if self.low is None else round(self.low, 6),
            "high": None if self.high is None else round(self.high, 6),
            "rule": self.rule,
            "words": self.words,
            "cure": self.cure,
        }


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds of the findings."""

    draft_share: float = 0.4  # of a round's time, drafting
    draft_agreement: float = 0.05  # of the draft's first guesses, right
    draft_temperature: float = 1.5  # the draft's probabilities are right at this temperature, or at one over it
    verify_slope: float = 1.5  # a pass of `SLOPE_ROWS` rows over one of one row
    serial: float = 0.8  # a pass of `SERIAL_ROWS` rows over as many passes of one row
    context_cost: float = 1.25  # a plain pass at the longest measured context over one at the shortest
    context_acceptance: float = 0.8  # tokens accepted in a text's later half over those in its earlier half
    task_spread: float = 2.0  # tokens a round of the task with the most over those of the task with the fewest
    policy_time: float = 0.02  # of a round's time, in the policy's calls
    outside_models: float = 0.05  # of a round's time, outside the models, the policy's calls included
    fallbacks: float = 0.01  # of rounds, finished without the policy
    model_error: float = 0.15  # share by which the modelled speed-up may miss the live one
