"""What a diagnosis says: worth it or not, how to set it, the ceiling, and every finding on the way there."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from treewise.training.ab_report import ProfileOrigin, interval_json
from treewise.training.attribution import Attribution
from treewise.training.findings import Finding
from treewise.training.policy_findings import LiveShares
from treewise.training.statistics import Interval
from treewise.training.tally import Tally

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Tried:
    """One setting on the prompts at hand; the fastest of them is flattered by having been chosen."""

    spec: str
    speedup: float  # over plain decoding, modelled
    tokens_per_round: float
    nodes_per_round: float
    growths_per_round: float

    @classmethod
    def of(cls, spec: str, tally: Tally) -> Tried:
        """From what it did."""
        columns = {name: float(values.sum()) for name, values in tally.columns.items()}
        per_round = (columns[name] / columns["rounds"] for name in ("tokens", "nodes", "growths"))
        return cls(spec, float(tally.plain_ms.sum()) / columns["ms"], *per_round)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        return {name: value if name == "spec" else round(value, 6) for name, value in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The answer to the three questions, what it rests on and what stands in the way."""

    acceptance: str  # where acceptance comes from
    profile: ProfileOrigin  # where milliseconds come from
    prompts: int
    tokens: int
    tried: tuple[Tried, ...]  # fastest first
    policy: str  # the setting in use that was asked about; else the fastest that guesses
    speedup: Interval  # of the choice among those tried, each prompt under what the others choose; plain is a choice
    ceiling: Interval  # the path oracle's
    findings: tuple[Finding, ...]
    attribution: Attribution | None  # None: no draft
    live: LiveShares | None

    @property
    def advised(self) -> Tried:
        """The fastest setting; plain decoding where no other is faster."""
        return self.tried[0]

    @property
    def is_worth_it(self) -> bool:
        """Whether trees are faster than plain decoding beyond what the choice of prompts explains, live too."""
        sure = self.speedup.low > 1.0
        return bool(sure and (self.live is None or self.live.advised_speedup > 1.0))

    @property
    def reached(self) -> float:
        """Share of the gain that the ceiling leaves: (speed-up - 1) / (ceiling - 1)."""
        return (self.speedup.value - 1.0) / (self.ceiling.value - 1.0) if self.ceiling.value > 1.0 else float("nan")

    @property
    def verdict(self) -> str:
        """The answer in a sentence."""
        how = f"modelled {self.speedup} times as fast as plain decoding, settings chosen on other prompts"
        if self.is_worth_it:
            return f"worth it: {how}"
        if self.live is not None and self.live.advised_speedup <= 1.0 < self.speedup.low:
            return f"plain decoding is as fast: live it is {self.live.advised_speedup:.2f} times that, though {how}"
        if np.isnan(self.speedup.low):
            return f"one prompt cannot tell, so plain decoding until more do: {how}"
        return f"plain decoding is as fast, as far as these prompts tell: {how}"

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping that fits `treewise/schemas/diagnose.json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "acceptance": self.acceptance,
            "profile": self.profile.to_json(),
            "prompts": self.prompts,
            "tokens": self.tokens,
            "worth_it": self.is_worth_it,
            "verdict": self.verdict,
            "advised": self.advised.spec,
            "policy": self.policy,
            "speedup": interval_json(self.speedup),
            "ceiling": interval_json(self.ceiling),
            "reached": None if np.isnan(self.reached) else round(self.reached, 6),
            "tried": [row.to_json() for row in self.tried],
            "findings": [finding.to_json() for finding in self.findings],
            "attribution": None if self.attribution is None else self.attribution.to_json(),
            "live": None if self.live is None else self.live.to_json(),
        }
