"""The figures of an A/B, each with the two origins it is made from."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from treewise.data.cost import CostProfile
from treewise.training.break_even import BreakEven
from treewise.training.oracle import depth_oracle
from treewise.training.statistics import LEVEL, POWER, Interval, SpeedRatio, Totals, interval, totals_by_prompt
from treewise.training.statistics import prompts_needed as needed
from treewise.training.tally import Tally
from treewise.training.verdict import MARGIN, Judgement, judge

SCHEMA_VERSION = 2
_JUDGEMENT = ("low", "high", "p_value", "comparisons", "log_spread", "kind", "words", "share", "more_prompts")


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
    is_upper_bound: bool  # an oracle: it knows the text
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
    ratio: Interval | None  # speed over that of the first policy, this comparison alone; None for itself
    judgement: Judgement | None = None  # of that ratio among all comparisons; None for the first policy and oracles

    @property
    def verdict(self) -> str:
        """What follows from the judgement's interval, in words; empty where there is none."""
        return "" if self.judgement is None else self.judgement.verdict.words


@dataclass(frozen=True, slots=True)
class PlanRow:
    """How many prompts would show a difference between one policy and the first."""

    profile: str
    policy: str
    task: str  # "": all of them
    prompts: int  # in the traces at hand
    log_spread: float  # of one prompt; NaN with one
    prompts_needed: int | None  # None where the traces cannot say


def speed_totals(tally: Tally) -> Totals:
    """Tokens and modelled milliseconds of `tally` by prompt."""
    return totals_by_prompt(tally.prompt_id, tally.columns["tokens"], tally.columns["ms"])


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
    totals = speed_totals(tally)
    plain = totals_by_prompt(tally.prompt_id, columns["tokens"], tally.plain_ms)
    ratio = None
    if baseline is not None:
        ratio = interval(SpeedRatio(totals, speed_totals(baseline)), resamples, seed)
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
        speedup=interval(SpeedRatio(totals, plain), resamples, seed),
        ratio=ratio,
    )


def judged(
    rows: list[AbRow], estimators: list[SpeedRatio | None], resamples: int, seed: int, margin: float
) -> list[AbRow]:
    """`rows` with judgements, all those that have an estimator being one family of comparisons."""
    asked = [estimator for estimator in estimators if estimator is not None]
    answers = iter(judge(asked, resamples, seed, LEVEL, margin) if asked else [])
    return [
        row if estimator is None else replace(row, judgement=next(answers))
        for row, estimator in zip(rows, estimators, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class AbReport:
    """An A/B by exact replay: acceptance from the traces, milliseconds from the profiles."""

    acceptance: tuple[str, ...]  # origins of acceptance, one a trace
    profiles: tuple[ProfileOrigin, ...]  # origins of milliseconds
    policies: tuple[str, ...]  # the first is compared against
    rows: tuple[AbRow, ...]
    resamples: int
    seed: int
    depth_oracles: tuple[AbRow, ...] = ()  # each policy's own trees, grown just as deep as was accepted
    break_even: tuple[BreakEven, ...] = ()  # of every policy with the first, by profile
    margin: float = MARGIN  # share of speed whose loss counts as no loss
    warnings: tuple[str, ...] = ()

    def plan(self, difference: float, power: float = POWER) -> tuple[PlanRow, ...]:
        """Prompts that would show that a policy's speed is 1 + `difference` times the first one's, with `power`.

        From the paired spread in the traces at hand, at the level that a verdict would use here: .05 over the number
        of comparisons. Formula and errors as `statistics.prompts_needed`.
        """
        found = []
        for row in self.rows:
            judgement = row.judgement
            if judgement is not None:
                level = 1.0 - (1.0 - LEVEL) / judgement.comparisons
                spread = judgement.log_spread
                count = None if math.isnan(spread) else needed(spread, difference, level, power)
                found.append(PlanRow(row.profile, row.policy, row.task, row.prompts, spread, count))
        return tuple(found)

    def _plan_json(self, difference: float) -> dict[str, Any]:
        rows = [{**asdict(row), "log_spread": _number(row.log_spread)} for row in self.plan(difference)]
        return {"difference": difference, "power": POWER, "rows": rows}

    def depth_oracle_of(self, row: AbRow) -> AbRow | None:
        """The depth oracle's row beside that of a policy."""
        wanted = (row.profile, depth_oracle(row.policy), row.task)
        return next((one for one in self.depth_oracles if (one.profile, one.policy, one.task) == wanted), None)

    def select(self, profile: str, task: str = "") -> list[AbRow]:
        """The rows of one profile and task, policies in order, the oracle last."""
        return [row for row in self.rows if row.profile == profile and row.task == task]

    @property
    def tasks(self) -> list[str]:
        """The tasks that have rows of their own."""
        return sorted({row.task for row in self.rows} - {""})

    def to_json(self, difference: float | None = None) -> dict[str, Any]:
        """A JSON-ready mapping that fits `treewise/schemas/ab.json`, with the plan for `difference` if it is given."""
        return {
            "schema_version": SCHEMA_VERSION,
            "exact": True,
            "acceptance": list(self.acceptance),
            "profiles": [origin.to_json() for origin in self.profiles],
            "policies": list(self.policies),
            "level": LEVEL,
            "resamples": self.resamples,
            "seed": self.seed,
            "margin": self.margin,
            "warnings": list(self.warnings),
            "rows": [_row_json(row) for row in self.rows],
            "depth_oracles": [_row_json(row) for row in self.depth_oracles],
            "break_even": [_break_even_json(found) for found in self.break_even],
            "plan": None if difference is None else self._plan_json(difference),
        }

    def to_csv(self) -> str:
        """The rows, depth oracles last, as comma-separated values; origins in columns of their own."""
        origins = {origin.name: origin.words for origin in self.profiles}
        acceptance = "; ".join(self.acceptance)
        flat: list[Mapping[str, Any]] = []
        for row in (*self.rows, *self.depth_oracles):
            values = _row_json(row)
            for name in ("speedup", "ratio"):
                bounds = values.pop(name) or {"value": None, "low": None, "high": None}
                values.update({f"{name}_{part}" if part != "value" else name: bounds[part] for part in bounds})
            judgement = values.pop("judgement") or dict.fromkeys(_JUDGEMENT)
            values.update({f"judged_{part}": judgement[part] for part in _JUDGEMENT})
            flat.append({**values, "acceptance": acceptance, "milliseconds": origins[row.profile]})
        text = io.StringIO()
        writer = csv.DictWriter(text, list(flat[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)
        return text.getvalue()


def _row_json(row: AbRow) -> dict[str, Any]:
    plain = (name for name in AbRow.__dataclass_fields__ if name not in ("speedup", "ratio", "judgement"))
    values: dict[str, Any] = {name: getattr(row, name) for name in plain}
    for name, bounds in (("speedup", row.speedup), ("ratio", row.ratio)):
        values[name] = None if bounds is None else interval_json(bounds)
    values["judgement"] = None if row.judgement is None else _judgement_json(row.judgement)
    return values


def interval_json(interval: Interval) -> dict[str, float | None]:
    """An interval as JSON has it; NaN becomes null."""
    return {name: _number(getattr(interval, name)) for name in ("value", "low", "high")}


def _judgement_json(judgement: Judgement) -> dict[str, Any]:
    verdict = judgement.verdict
    values = (
        _number(judgement.interval.low),
        _number(judgement.interval.high),
        _number(judgement.p_value),
        judgement.comparisons,
        _number(judgement.log_spread),
        verdict.kind,
        verdict.words,
        verdict.share,
        verdict.more_prompts,
    )
    return dict(zip(_JUDGEMENT, values, strict=True))


def _break_even_json(found: BreakEven) -> dict[str, Any]:
    numbers = {name: _number(getattr(found, name)) for name in ("ratio", "draft_factor", "verify_factor")}
    return {**asdict(found), **numbers, "held": list(found.held), "words": found.words()}


def _number(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else float(np.round(value, 6))
