"""The best setting of every fixed family of policies, by replay: honest opponents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from treewise.data.cost import CostProfile
from treewise.data.errors import CoverageError, require
from treewise.policy.registry import parse_policy
from treewise.training.ab_report import ProfileOrigin
from treewise.training.contest import Contender, contest
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay import check_reach
from treewise.training.tally import Tally, joined

SCHEMA_VERSION = 1
_SOURCES = ("both", "draft", "lookup")


def _specs(form: str, *values: Iterable[object]) -> tuple[str, ...]:
    """`form` filled with every combination of `values`."""
    return tuple(form.format(*parts) for parts in product(*values))


GRIDS: dict[str, tuple[str, ...]] = {
    "chain": _specs("chain:{},sources={}", (1, 2, 3, 4, 5, 6, 8), _SOURCES),
    "static": _specs("static:{}x{},sources={}", (1, 2, 3, 4), (1, 2, 3, 4, 5), ("both", "draft")),
    "topn": (
        *_specs("topn:{}x{},sources={}", (4, 8, 12, 16, 24, 32, 48), (1, 2, 3, 4), ("both", "draft")),
        *_specs("topn:{}x1,sources=lookup", (2, 4, 8, 12, 16, 24)),
    ),
    "cumulative": _specs("cumulative:threshold={},depth={}", (0.02, 0.04, 0.08, 0.15, 0.3), (1, 2, 4, 6)),
    "frontier": ("frontier", *_specs("frontier:kappa={}", (0.05, 0.1, 0.2, 0.3, 0.5))),
    "entropy": _specs(
        "entropy:low_bits={},high_bits={},mid_width={},min_path_prior={}",
        (1.0, 2.0),
        (2.2, 3.5, 5.0),
        (2, 3),
        (0.03, 0.08),
    ),
    "switch": _specs("switch:min_match={},nodes={},depth={}", (2, 4, 6), (8, 24), (1, 2, 4)),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of one family under one cost profile."""

    profile: str
    family: str
    spec: str
    speedup: float  # over plain decoding, ratio of totals, modelled
    tokens_per_round: float


@dataclass(frozen=True, slots=True)
class TuneReport:
    """Every setting that was tried; on the prompts it was tuned on, so the winners' speed-ups are flattering."""

    acceptance: tuple[str, ...]  # origins of acceptance, one a trace
    profiles: tuple[ProfileOrigin, ...]  # origins of milliseconds
    settings: tuple[Setting, ...]
    skipped: tuple[str, ...]  # specs that may ask for more than the traces hold

    def winners(self, profile: str) -> list[Setting]:
        """The fastest setting of each family, fastest family first."""
        best: dict[str, Setting] = {}
        for setting in self.settings:
            known = best.get(setting.family)
            if setting.profile == profile and (known is None or setting.speedup > known.speedup):
                best[setting.family] = setting
        return sorted(best.values(), key=lambda setting: -setting.speedup)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping that fits `treewise/schemas/tune.json`."""
        winners = {(row.profile, row.spec) for origin in self.profiles for row in self.winners(origin.name)}
        return {
            "schema_version": SCHEMA_VERSION,
            "acceptance": list(self.acceptance),
            "profiles": [origin.to_json() for origin in self.profiles],
            "skipped": list(self.skipped),
            "settings": [
                {
                    "profile": row.profile,
                    "family": row.family,
                    "spec": row.spec,
                    "speedup": round(row.speedup, 6),
                    "tokens_per_round": round(row.tokens_per_round, 6),
                    "is_winner": (row.profile, row.spec) in winners,
                }
                for row in self.settings
            ],
        }


def tune(
    traces: Sequence[LoggedTrace],
    costs: Sequence[CostProfile],
    families: Sequence[str] = tuple(GRIDS),
    advance: Callable[[int], None] | None = None,
) -> TuneReport:
    """Replay the whole grid of every family on `traces`, which must be training prompts for the winners to be honest.

    `advance` is told how many more of the requests x settings x profiles are done. Raises `ParameterError` on an
    unknown family.
    """
    require(len(traces) > 0, "traces", "at least one", len(traces))
    require(len(costs) > 0, "costs", "at least one profile", len(costs))
    require(set(families) <= set(GRIDS), "families", f"among {', '.join(GRIDS)}", list(families))
    specs, skipped = reachable_specs(traces, costs[0], families)
    contenders = [Contender.of(spec) for spec in specs]
    parts = [contest(trace, costs, contenders, advance=advance) for trace in traces]
    settings = []
    for place, cost in enumerate(costs):
        for spec, family in specs.items():
            tally = joined([part[place, spec] for part in parts])
            settings.append(_setting(cost.name, family, spec, tally))
    return TuneReport(
        acceptance=tuple(trace.origin for trace in traces),
        profiles=tuple(ProfileOrigin.of(cost) for cost in costs),
        settings=tuple(settings),
        skipped=tuple(skipped),
    )


def reachable_specs(
    traces: Sequence[LoggedTrace], cost: CostProfile, families: Sequence[str]
) -> tuple[dict[str, str], list[str]]:
    """(spec -> family of what every trace can answer, specs that some trace cannot)."""
    specs: dict[str, str] = {}
    skipped: list[str] = []
    for family in families:
        for spec in GRIDS[family]:
            try:
                for trace in traces:
                    policy = parse_policy(spec)
                    deployment = trace.deployment(cost)
                    policy.bind(deployment)
                    check_reach(policy, deployment, spec)
            except CoverageError:
                skipped.append(spec)
            else:
                specs[spec] = family
    return specs, skipped


def _setting(profile: str, family: str, spec: str, tally: Tally) -> Setting:
    columns = tally.columns
    return Setting(
        profile,
        family,
        spec,
        float(tally.plain_ms.sum() / columns["ms"].sum()),
        float(columns["tokens"].sum() / columns["rounds"].sum()),
    )
