"""The figures of an estimate from logs of pruned trees; never a verdict."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import asdict, dataclass
from typing import Any

from treewise.training.ab_report import ProfileOrigin, interval_json
from treewise.training.statistics import LEVEL, Interval

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class EstimateRow:
    """One policy under one cost profile by one estimator, over all requests or those of one task."""

    profile: str
    policy: str
    task: str  # "": all of them
    estimator: str  # "direct method" or "inverse propensity" (self-normalised)
    prompts: int  # that it goes by
    effective_prompts: float | None  # that they are worth, for weighted ones
    imputed_share: float | None  # of rounds in which an answer of the draft on the text was lent; None: nothing is
    tokens_per_round: float
    nodes_per_round: float  # verified
    growths_per_round: float  # forward passes of the draft
    speedup: Interval  # over plain decoding
    ratio: Interval | None  # speed over that of the first policy, by the same estimator; None for itself

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping; NaN becomes null."""
        values = asdict(self)
        values["speedup"] = interval_json(self.speedup)
        values["ratio"] = None if self.ratio is None else interval_json(self.ratio)
        return {name: None if isinstance(one, float) and math.isnan(one) else one for name, one in values.items()}


@dataclass(frozen=True, slots=True)
class EstimateReport:
    """What policies that did not write a log would have done on its texts: `exact` is false, nothing is judged."""

    acceptance: tuple[str, ...]  # origins of acceptance, one a trace
    profiles: tuple[ProfileOrigin, ...]  # origins of milliseconds
    policies: tuple[str, ...]  # the first is compared against
    writers: tuple[str, ...]  # policies that decided requests of the log
    rows: tuple[EstimateRow, ...]
    resamples: int
    seed: int
    imputations: int
    warnings: tuple[str, ...] = ()

    @property
    def tasks(self) -> list[str]:
        """The tasks that have rows of their own."""
        return sorted({row.task for row in self.rows} - {""})

    def select(self, profile: str, task: str = "") -> list[EstimateRow]:
        """The rows of one profile and task, policies in order."""
        return [row for row in self.rows if row.profile == profile and row.task == task]

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping that fits `treewise/schemas/ab_estimate.json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "exact": False,
            "acceptance": list(self.acceptance),
            "profiles": [origin.to_json() for origin in self.profiles],
            "policies": list(self.policies),
            "writers": list(self.writers),
            "level": LEVEL,
            "resamples": self.resamples,
            "seed": self.seed,
            "imputations": self.imputations,
            "warnings": list(self.warnings),
            "rows": [row.to_json() for row in self.rows],
        }

    def to_csv(self) -> str:
        """The rows as comma-separated values; origins in columns of their own."""
        origins = {origin.name: origin.words for origin in self.profiles}
        flat = []
        for row in self.rows:
            values = row.to_json()
            for name in ("speedup", "ratio"):
                bounds = values.pop(name) or {"value": None, "low": None, "high": None}
                values.update({f"{name}_{part}" if part != "value" else name: bounds[part] for part in bounds})
            origin = {"acceptance": "; ".join(self.acceptance), "milliseconds": origins[row.profile]}
            flat.append({"exact": False, **values, **origin})
        text = io.StringIO()
        writer = csv.DictWriter(text, list(flat[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)
        return text.getvalue()
