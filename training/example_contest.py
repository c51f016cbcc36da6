"""The strategies of the example tables, and the learned policy, on our own traces under the tables' profiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from treewise.data.cost import CostProfile
from treewise.data.errors import require
from treewise.data.example_tables import TABLES, ExampleRow, ExampleTable, contradictions, faults, level_match
from treewise.policy.hook import DRAFT
from treewise.training.ab import ORACLE, ab
from treewise.training.ab_report import AbRow, ProfileOrigin, interval_json
from treewise.training.logged_trace import LoggedTrace
from treewise.training.statistics import RESAMPLES

SCHEMA_VERSION = 1
PLAIN = "plain"
LEARNED, BOUND = "learned policy", "path oracle"
DRAFT_ALONE, ALL_SOURCES = "draft", "all"


@dataclass(frozen=True, slots=True)
class Played:
    """One strategy on our traces under one profile; milliseconds are modelled."""

    profile: str
    strategy: str
    sources: str  # `DRAFT_ALONE`, as in the tables, or `ALL_SOURCES`
    spec: str
    result: AbRow

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        row = self.result
        return {
            "profile": self.profile,
            "strategy": self.strategy,
            "sources": self.sources,
            "spec": self.spec,
            "tokens_per_round": round(row.tokens_per_round, 6),
            "nodes_per_round": round(row.nodes_per_round, 6),
            "growths_per_round": round(row.growths_per_round, 6),
            "speedup": interval_json(row.speedup),
        }


@dataclass(frozen=True, slots=True)
class ExampleReport:
    """The tables, what they leave unsaid, and our own replays beside them."""

    tables: tuple[ExampleTable, ...]
    acceptance: tuple[str, ...]  # where our acceptance comes from; empty: nothing was replayed
    profiles: tuple[ProfileOrigin, ...]
    played: tuple[Played, ...]

    def of(self, profile: str, strategy: str, sources: str = ALL_SOURCES) -> Played | None:
        """One of our replays."""
        wanted = (profile, strategy, sources)
        return next((one for one in self.played if (one.profile, one.strategy, one.sources) == wanted), None)

    def strategies(self, profile: str) -> list[str]:
        """Strategies replayed under `profile`, in order."""
        return list(dict.fromkeys(one.strategy for one in self.played if one.profile == profile))

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping that fits `treewise/schemas/tables.json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "verified": False,
            "tables": [_table_json(table) for table in self.tables],
            "acceptance": list(self.acceptance),
            "profiles": [origin.to_json() for origin in self.profiles],
            "replayed": [one.to_json() for one in self.played],
        }


def derive_only() -> ExampleReport:
    """The tables alone."""
    return ExampleReport(TABLES, (), (), ())


def play_examples(
    traces: Sequence[LoggedTrace],
    more_costs: Sequence[CostProfile] = (),
    learned: str = "",
    advance: Callable[[int], None] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> ExampleReport:
    """Replay the strategies under the tables' profiles and `more_costs`, and the policy `learned` where it is named.

    Each strategy runs twice: with the draft alone, as in the tables, where the traces hold one, and with every source.
    Under a table's profile its own strategies are reported, under another all of them. `advance` is told how many more
    of the requests x policies x profiles are done. Raises as `ab`.
    """
    has_draft = all(trace.sources & DRAFT for trace in traces)
    specs = strategy_specs(has_draft)
    names = [PLAIN, *dict.fromkeys(spec for _, _, spec in specs if spec != PLAIN), *([learned] if learned else [])]
    profiles = profiles_for(more_costs)
    report = ab(traces, profiles, names, resamples=resamples, seed=seed, advance=advance)
    played = []
    for cost in profiles:
        rows = {row.policy: row for row in report.select(cost.name)}
        for strategy, sources, spec in specs:
            if strategy in _strategies_under(cost.name):
                played.append(Played(cost.name, strategy, sources, spec, rows[spec]))
        if learned:
            played.append(Played(cost.name, LEARNED, ALL_SOURCES, learned, rows[learned]))
        if ORACLE in rows:
            played.append(Played(cost.name, BOUND, ALL_SOURCES, "", rows[ORACLE]))
    return ExampleReport(TABLES, report.acceptance, report.profiles, tuple(played))


def profiles_for(more_costs: Sequence[CostProfile]) -> list[CostProfile]:
    """The tables' profiles, then `more_costs`. Raises `ParameterError` where two share a name."""
    profiles = [*(CostProfile.load(table.name) for table in TABLES), *more_costs]
    names = [cost.name for cost in profiles]
    require(len(set(names)) == len(names), "cost", "profiles of names that differ from the tables'", names)
    return profiles


def strategy_specs(has_draft: bool) -> list[tuple[str, str, str]]:
    """(strategy, sources, spec) of everything that is replayed, plain decoding once."""
    found = []
    for strategy, spec in {row.strategy: row.spec for table in TABLES for row in table.rows}.items():
        if has_draft and spec != PLAIN:
            found.append((strategy, DRAFT_ALONE, f"{spec}{',' if ':' in spec else ':'}sources=draft"))
        found.append((strategy, ALL_SOURCES, spec))
    return found


def _strategies_under(profile: str) -> set[str]:
    own = [table for table in TABLES if table.name == profile]
    return {row.strategy for table in own or TABLES for row in table.rows} | {PLAIN}


def _table_json(table: ExampleTable) -> dict[str, Any]:
    bounds = table.plain_bounds
    return {
        "name": table.name,
        "device": table.device,
        "pair": table.pair,
        "plain_ms": round(table.plain_ms, 6),
        "plain_is_given": table.given_plain_ms is not None,
        "plain_low_ms": round(bounds.low, 6),
        "plain_high_ms": round(bounds.high, 6),
        "contradictions": list(contradictions(table)),
        "rows": [_row_json(table, row) for row in table.rows],
    }


def _row_json(table: ExampleTable, row: ExampleRow) -> dict[str, Any]:
    step, drafting, match = table.step_ms(row), table.drafting_ms(row), level_match(row)
    expected = table.expected_speedup(row) if row.speedup is None else None
    return {
        "strategy": row.strategy,
        "task": row.task,
        "spec": row.spec,
        "verify_rows": row.rows,
        "verify_ms": row.verify_ms,
        "tokens_per_step": row.tokens_per_step,
        "speedup": row.speedup,
        "expected_speedup": None if expected is None else round(expected, 6),
        "most_speedup": round(table.most_speedup(row), 6),
        "step_ms": None if step is None else step.to_json(),
        "drafting_ms": None if drafting is None else drafting.to_json(),
        "draft_passes": row.passes,
        "drafted_tokens": row.drafted,
        "level_match": None if match is None else round(match, 6),
        "faults": list(faults(table, row)),
    }
