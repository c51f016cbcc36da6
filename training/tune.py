"""The best setting of every fixed family of policies, by replay: honest opponents."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from treewise.data.cost import CostProfile
from treewise.data.errors import CoverageError, TraceError, require
from treewise.policy.frontier_table import FrontierTablePolicy
from treewise.policy.hook import DRAFT
from treewise.policy.registry import parse_policy
from treewise.policy.rule import RulePolicy
from treewise.policy.sequoia import SequoiaPolicy
from treewise.training.ab_report import ProfileOrigin
from treewise.training.contest import Contender, contests
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay import check_reach
from treewise.training.tally import Tally, joined

SCHEMA_VERSION = 1
TABLED = FrontierTablePolicy.name  # the family whose specs name a hand table
RANKED = SequoiaPolicy.name  # the family whose specs name a rank table
_SOURCES = re.compile(r"[,:]sources=\w+")


def _specs(form: str, *values: Iterable[object]) -> tuple[str, ...]:
    """`form` filled with every combination of `values`."""
    return tuple(form.format(*parts) for parts in product(*values))


# Which sources a setting asks is tuned like the rest of it; a deployment without the draft has grids of its own.
GRIDS: dict[str, tuple[str, ...]] = {
    "chain": (
        *_specs("chain:{},sources={}", (1, 2, 3, 4, 5, 6, 8), ("all", "draft")),
        *_specs("chain:{},sources={}", (1, 2, 3, 4, 6, 8, 10), ("free", "lookup")),
    ),
    "static": (
        *_specs("static:{}x{},sources=all", (1, 2, 3, 4), (1, 2, 3, 4, 5)),
        *_specs("static:{}x{},sources=draft", (1, 2, 3, 4), (1, 2, 3, 4)),
        *_specs("static:{}x{},sources=free", (1, 2, 3), (2, 4, 8)),
    ),
    "topn": (
        *_specs("topn:{}x{},sources=all", (4, 8, 12, 16, 24, 32, 48), (1, 2, 3, 4)),
        *_specs("topn:{}x{},sources=draft", (4, 8, 12, 24, 32), (1, 2, 3, 4)),
        *_specs("topn:{}x1,sources={}", (2, 4, 8, 12, 16, 24, 32), ("free", "lookup")),
    ),
    "cumulative": (
        *_specs("cumulative:{}x{},sources=all", (0.02, 0.04, 0.08, 0.15, 0.3), (1, 2, 4, 6)),
        *_specs("cumulative:{}x{},sources=draft", (0.04, 0.08, 0.15), (1, 2, 4, 6)),
        *_specs("cumulative:{}x10,sources=free", (0.02, 0.04, 0.08, 0.15, 0.3)),
    ),
    "opt-tree": (
        *_specs("opt-tree:{}x{},beam={},sources=all", (8, 16, 24, 32, 48), (0.1, 0.3, 0.5, 0.8), (4, "none")),
        *_specs("opt-tree:{}x{},sources=draft", (8, 16, 32), (0.1, 0.3, 0.5)),
        *_specs("opt-tree:{}x0.3,sources=free", (8, 16, 32)),  # one level, so no growth to weigh
    ),
    "frontier": (
        *_specs("frontier:sources={}", ("all", "draft", "free")),
        *_specs("frontier:kappa={}", (0.05, 0.1, 0.2, 0.3, 0.5)),
    ),
    "feedback": (
        *_specs("feedback:{}x{},headroom={},sources=all", (16, 32, 48), (1, 2, 3, 5), (0.3, 0.7, 1.5)),
        *_specs("feedback:{}x{},context_tokens=1024,sources=all", (32, 48), (2, 4)),
        *_specs("feedback:{}x{},headroom={},sources=draft", (24,), (2, 4), (0.7, 1.5)),
        *_specs("feedback:{}x{},sources=free", (16, 32), (2, 4)),
    ),
    "entropy": _specs(
        "entropy:low_bits={},high_bits={},mid_width={},min_path_prior={}",
        (1.0, 2.0),
        (2.2, 3.5, 5.0),
        (2, 3),
        (0.03, 0.08),
    ),
    "switch": _specs("switch:min_match={},nodes={},depth={}", (2, 4, 6), (8, 16, 32), (1, 2, 4)),
    TABLED: (TABLED + ":{table}", *(f"{TABLED}:{{table}},kappa={kappa:g}" for kappa in (0.05, 0.1, 0.2, 0.3, 0.5))),
    RANKED: (
        *(RANKED + ":{ranks}" + f",sources={sources}" for sources in ("all", "draft", "free")),
        *_specs(RANKED + ":{{ranks}},nodes={},depth={},sources=all", (8, 16, 24, 32, 48), (1, 2, 3, 4)),
        *_specs(RANKED + ":{{ranks}},nodes={},depth={},sources=draft", (8, 16, 32), (1, 2, 3, 4)),
        *_specs(RANKED + ":{{ranks}},nodes={},sources=free", (8, 16, 32)),
    ),
}
FREE_GRIDS: dict[str, tuple[str, ...]] = {
    "chain": _specs("chain:{},sources={}", (1, 2, 3, 4, 5, 6, 8, 10), ("all", "lookup")),
    "static": _specs("static:{}x{}", (1, 2, 3, 4), (1, 2, 3, 4, 6, 8)),
    "topn": _specs("topn:{}x1,sources={}", (2, 4, 6, 8, 12, 16, 24, 32), ("all", "lookup")),
    "cumulative": _specs("cumulative:{}x10", (0.01, 0.02, 0.04, 0.08, 0.15, 0.3)),
    "opt-tree": _specs("opt-tree:{}x0.3", (4, 8, 16, 32)),
    "frontier": ("frontier",),
    "feedback": _specs("feedback:{}x{}", (8, 16, 32), (2, 4, 8)),
    "entropy": _specs("entropy:min_path_prior={}", (0.03, 0.08)),
    "switch": (),
    TABLED: (TABLED + ":{table}",),
    RANKED: (RANKED + ":{ranks}", *_specs(RANKED + ":{{ranks}},nodes={}", (4, 8, 16, 32))),
}


def grid(family: str, sources: int, table: str = "", ranks: str = "") -> tuple[str, ...]:
    """The settings of `family` that are tried where these source bits exist.

    `table` is the file of a hand table, `ranks` that of a rank table. Raises `ParameterError` on an unknown family and
    where a table is needed and missing.
    """
    require(family in GRIDS, "family", f"among {', '.join(GRIDS)}", family)
    require(family != TABLED or table != "", "table", f"a file, which {TABLED} needs", table)
    require(family != RANKED or ranks != "", "ranks", f"a file, which {RANKED} needs", ranks)
    specs = (GRIDS if sources & DRAFT else FREE_GRIDS)[family]
    return tuple(spec.replace("{table}", table).replace("{ranks}", ranks) for spec in specs)


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
    families: Sequence[str] = (),
    advance: Callable[[int], None] | None = None,
    table: str = "",
    ranks: str = "",
    workers: int = 1,
) -> TuneReport:
    """Replay the whole grid of every family on `traces`, which must be training prompts for the winners to be honest.

    Without `families`, all of them; those that read a hand table only where `table` names its file, those that read a
    rank table only where `ranks` does. `advance` is told how many more of the requests x settings x profiles are done.
    `workers` processes share the replays: see `contests`. Raises `ParameterError` on an unknown family.
    """
    require(len(traces) > 0, "traces", "at least one", len(traces))
    require(len(costs) > 0, "costs", "at least one profile", len(costs))
    specs, skipped = reachable_specs(traces, costs[0], families or known_families(table, ranks), table, ranks)
    contenders = [Contender.of(spec) for spec in specs]
    parts = contests(traces, costs, contenders, advance=advance, workers=workers)
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


def known_families(table: str = "", ranks: str = "") -> tuple[str, ...]:
    """The families that can be tuned with that hand table and that rank table, or without them."""
    missing = {family for family, file in ((TABLED, table), (RANKED, ranks)) if not file}
    return tuple(family for family in GRIDS if family not in missing)


def reachable_specs(
    traces: Sequence[LoggedTrace], cost: CostProfile, families: Sequence[str], table: str = "", ranks: str = ""
) -> tuple[dict[str, str], list[str]]:
    """(spec -> family of what every trace can answer, specs that some trace cannot).

    Settings that differ in sources only, and in no source that exists, count once; those left with no source are none.
    Raises `ParameterError` as `grid`, and `TraceError` on a live trace, which holds what its own policy asked for.
    """
    for trace in traces:
        if trace.manifest.kind != "dense":
            raise TraceError(f"trace {trace.name} must be dense to try settings on, got a {trace.manifest.kind} one")
    specs: dict[str, str] = {}
    skipped: list[str] = []
    taken: set[tuple[str, int]] = set()
    sources = int(np.bitwise_or.reduce([trace.sources for trace in traces]))
    for family in families:
        for spec in grid(family, sources, table, ranks):
            try:
                asked = 0
                for trace in traces:
                    policy = parse_policy(spec)
                    deployment = trace.deployment(cost)
                    policy.bind(deployment)
                    check_reach(policy, deployment, spec)
                    asked |= policy.sources_asked if isinstance(policy, RulePolicy) else deployment.sources
            except CoverageError:
                skipped.append(spec)
                continue
            key = (_SOURCES.sub("", spec), asked)
            if asked and key not in taken:
                taken.add(key)
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
