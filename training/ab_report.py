"""The figures of an A/B, each with the two origins it is made from."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from treewise.data.cost import CostProfile
from treewise.training.statistics import LEVEL, Interval, speed_ratio, totals_by_prompt
from treewise.training.tally import Tally

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class ProfileOrigin:
    """A cost profile as a report names it."""

    name: str
    device: str
    dtype: str
    verified: bool
    origin: str  # where the milliseconds come from, in words

    @classmethod
    def of(cls, cost: CostProfile) -> ProfileOrigin:
        """That of `cost`."""
        return cls(cost.name, cost.device, cost.dtype, cost.verified, cost.origin)

    @property
    def words(self) -> str:
        """Where the milliseconds come from, in one line."""
        mark = "" if self.verified else ", unverified"
        return f"milliseconds from profile {self.name} ({self.device}, {self.dtype}{mark})"

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class AbRow:
    """One policy under one cost profile, over all requests or those of one task. Milliseconds are modelled."""

    profile: str
    policy: str
    task: str  # "": all of them
    is_upper_bound: bool  # the oracle: no policy can reach it
    prompts: int
    requests: int
    rounds: int
    tokens: int
    tokens_per_round: float
    nodes_per_round: float  # verified
    growths_per_round: float  # forward passes of the draft
    calls_per_round: float  # of the policy's expand and select
    fallback_rounds: int
    ms: float
    speedup: Interval  # over plain decoding
    ratio: Interval | None  # speed over that of the first policy; None for itself


def row_of(
    profile: str,
    policy: str,
    task: str,
    tally: Tally,
    baseline: Tally | None,
    is_upper_bound: bool,
    resamples: int,
    seed: int,
) -> AbRow:
    """The row of `tally`; `baseline` holds the same requests under the first policy."""
    columns = tally.columns
    totals = totals_by_prompt(tally.prompt_id, columns["tokens"], columns["ms"])
    plain = totals_by_prompt(tally.prompt_id, columns["tokens"], tally.plain_ms)
    ratio = None
    if baseline is not None:
        first = totals_by_prompt(baseline.prompt_id, baseline.columns["tokens"], baseline.columns["ms"])
        ratio = speed_ratio(totals, first, resamples, seed)
    rounds = columns["rounds"].sum()
    return AbRow(
        profile=profile,
        policy=policy,
        task=task,
        is_upper_bound=is_upper_bound,
        prompts=len(totals.tokens),
        requests=len(tally.prompt_id),
        rounds=int(rounds),
        tokens=int(columns["tokens"].sum()),
        tokens_per_round=float(columns["tokens"].sum() / rounds),
        nodes_per_round=float(columns["nodes"].sum() / rounds),
        growths_per_round=float(columns["growths"].sum() / rounds),
        calls_per_round=float(columns["calls"].sum() / rounds),
        fallback_rounds=int(columns["fallbacks"].sum()),
        ms=float(columns["ms"].sum()),
        speedup=speed_ratio(totals, plain, resamples, seed),
        ratio=ratio,
    )


@dataclass(frozen=True, slots=True)
class AbReport:
    """An A/B by exact replay: acceptance from the traces, milliseconds from the profiles."""

    acceptance: tuple[str, ...]  # origins of acceptance, one a trace
    profiles: tuple[ProfileOrigin, ...]  # origins of milliseconds
    policies: tuple[str, ...]  # the first is compared against
    rows: tuple[AbRow, ...]
    resamples: int
    seed: int

    def select(self, profile: str, task: str = "") -> list[AbRow]:
        """The rows of one profile and task, policies in order, the oracle last."""
        return [row for row in self.rows if row.profile == profile and row.task == task]

    @property
    def tasks(self) -> list[str]:
        """The tasks that have rows of their own."""
        return sorted({row.task for row in self.rows} - {""})

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping that fits `treewise/schemas/ab.json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "exact": True,
            "acceptance": list(self.acceptance),
            "profiles": [origin.to_json() for origin in self.profiles],
            "policies": list(self.policies),
            "level": LEVEL,
            "resamples": self.resamples,
            "seed": self.seed,
            "rows": [_row_json(row) for row in self.rows],
        }

    def to_csv(self) -> str:
        """The rows as comma-separated values, origins in columns of their own."""
        origins = {origin.name: origin.words for origin in self.profiles}
        acceptance = "; ".join(self.acceptance)
        flat: list[Mapping[str, Any]] = []
        for row in self.rows:
            values = _row_json(row)
            for name in ("speedup", "ratio"):
                interval = values.pop(name) or {"value": None, "low": None, "high": None}
                values.update({f"{name}_{part}" if part != "value" else name: interval[part] for part in interval})
            flat.append({**values, "acceptance": acceptance, "milliseconds": origins[row.profile]})
        text = io.StringIO()
        writer = csv.DictWriter(text, list(flat[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)
        return text.getvalue()


def _row_json(row: AbRow) -> dict[str, Any]:
    plain = (name for name in AbRow.__dataclass_fields__ if name not in ("speedup", "ratio"))
    values: dict[str, Any] = {name: getattr(row, name) for name in plain}
    for name, interval in (("speedup", row.speedup), ("ratio", row.ratio)):
        values[name] = None if interval is None else _interval_json(interval)
    return values


def _interval_json(interval: Interval) -> dict[str, float | None]:
    parts = {"value": interval.value, "low": interval.low, "high": interval.high}
    return {name: None if math.isnan(part) else float(np.round(part, 6)) for name, part in parts.items()}
