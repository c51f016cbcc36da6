"""The policy benchmark: the learned policy against every tuned fixed rule, cell by cell, resumable."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from treewise.bench_store import ResultStore
from treewise.code_hash import code_closure
from treewise.data.cost import CostProfile
from treewise.policy.hook import DRAFT, FREE, BoolArray
from treewise.policy.registry import LEARNED, parse_policy
from treewise.policy_bench_carried import Carried, carry
from treewise.policy_bench_cell import TOPN, CellResult, judge_cell, tune_cells
from treewise.policy_bench_goals import LEAST_RATIO, Goal, goals
from treewise.policy_bench_loss import Losses, losses
from treewise.policy_bench_material import Material, OpenPair, Workshop, slug
from treewise.policy_bench_nodes import NodeCurve, node_curve
from treewise.policy_bench_plan import ALL, SOURCE_SETS, Cell, Condition, PolicyBenchSettings, PromptParts
from treewise.policy_bench_schedule import ScheduleResult, run_schedule, stages_of
from treewise.policy_bench_store import DEPTH, ORACLE, ReplayKey, ReplayStore, key_of, masked
from treewise.profiles import Tell
from treewise.stages import Stage, silent

if TYPE_CHECKING:
    from treewise.training.fit import NamedTrace
    from treewise.training.logged_trace import LoggedTrace
    from treewise.training.survival_check import SurvivalCheck
    from treewise.training.tally import Tally

QUICK_FAMILIES = ("chain", "topn", "frontier", "entropy", "switch", "frontier-table", "sequoia")
QUICK_STRIDE = 6  # of a grid, in a quick run
_SURVIVAL = ("treewise.training.survival_check", "treewise.policy.registry", "treewise.policy.guard")


@dataclass(frozen=True, slots=True)
class PolicyBenchReport:
    """Everything that was found."""

    settings: PolicyBenchSettings
    prompts: str  # where they come from, in words
    pairs: dict[str, str]  # by draft
    bundles: dict[str, str]  # by draft
    call_ms: dict[str, float]  # by draft: what one call of the learned policy is charged
    costs: dict[str, CostProfile]  # by cell cost and draft: "cost of draft"
    tried: int  # settings that were tuned over, all cells together
    cells: tuple[CellResult, ...]
    node_curves: tuple[NodeCurve, ...]  # one for each condition with draft and free sources
    carried: tuple[Carried, ...]
    schedules: tuple[ScheduleResult, ...]
    losses: Losses
    left_out: dict[str, SurvivalCheck]  # by condition in words: on tasks left out of training
    goals: tuple[Goal, ...]
    home: str


@dataclass(frozen=True, slots=True)
class _StoredSurvival:
    """A survival check on disk."""

    key: ReplayKey
    check: SurvivalCheck

    def to_line(self) -> str:
        return json.dumps([asdict(self.key), asdict(self.check)]) + "\n"

    @classmethod
    def from_line(cls, line: str) -> _StoredSurvival | None:
        from treewise.training.survival_check import SurvivalCheck

        try:
            key, check = json.loads(line)
            return cls(ReplayKey(**key), SurvivalCheck(**check))
        except (ValueError, TypeError):
            return None


@dataclass(frozen=True, slots=True)
class _Bench:
    """One condition: its material and its stores."""

    condition: Condition
    material: Material
    train: ReplayStore
    judge: ReplayStore
    survival: ResultStore[ReplayKey, _StoredSurvival]
    policy: str  # learned or guarded

    @classmethod
    def open(cls, condition: Condition, material: Material, home: Path, policy: str) -> _Bench:
        traces = material.traces[condition.temperature]
        survival: ResultStore[ReplayKey, _StoredSurvival] = ResultStore(
            _path(home, "survival", condition, traces.judge), _StoredSurvival.from_line
        )
        stores = [
            ReplayStore(part.trace, _path(home, name, condition, part))
            for name, part in (("tuned", traces.train), ("judged", traces.judge))
        ]
        return cls(condition, material, stores[0], stores[1], survival, policy)

    @property
    def learned(self) -> str:
        return f"{self.policy}:{self.material.bundle}"

    def specs(self, sources: int, settings: PolicyBenchSettings) -> dict[str, str]:
        """What is tuned over where only `sources` exist: spec -> family."""
        from treewise.training.tune import known_families, reachable_specs

        table, ranks = self.material.table, self.material.ranks
        families = QUICK_FAMILIES if settings.is_quick else known_families(table, ranks)
        cost = next(iter(self.material.costs.values()))
        specs, _ = reachable_specs([masked(self.train.trace, sources)], cost, families, table, ranks)
        if not settings.is_quick:
            return specs
        kept: dict[str, str] = {}
        for family in families:
            kept |= dict.fromkeys([spec for spec, own in specs.items() if own == family][::QUICK_STRIDE], family)
        return kept

    def node_curve(self, sources: int, settings: PolicyBenchSettings, stage: Stage) -> NodeCurve:
        """Verified nodes against accepted length."""
        stores, cost = (self.train, self.judge), next(iter(self.material.costs.values()))
        spec = f"{LEARNED}:{self.material.bundle}"
        with stage(f"nodes against length on {self.condition}") as advance:
            return node_curve(
                self.condition, stores, sources, cost, spec, settings.resamples, lambda count: advance(steps=count)
            )

    @property
    def call_ms(self) -> float:
        """What one call of the learned policy is charged."""
        from treewise.training.replay_result import call_ms_of

        return call_ms_of(parse_policy(self.learned), next(iter(self.material.costs.values())))

    def check_left_out(self, workshop: Workshop, settings: PolicyBenchSettings) -> SurvivalCheck:
        """The learned policy's on tasks that it was not trained on."""
        from treewise.policy_bench_left_out import left_out_survival

        plain = key_of(self.learned, DRAFT | FREE, "tasks left out")
        key = replace(plain, code=code_closure(_SURVIVAL))
        if key not in self.survival:
            check = left_out_survival(workshop, self.material, self.condition.temperature, settings)
            self.survival.add(_StoredSurvival(key, check))
        return self.survival[key].check

    def check_survival(self, sources: int, stage: Stage) -> SurvivalCheck:
        """The learned policy's, under the first profile: which one decides little."""
        from treewise.training.contest import Contender
        from treewise.training.survival_check import check_survival

        cost = next(iter(self.material.costs.values()))
        key = replace(key_of(self.learned, sources, cost.sha256), code=code_closure(_SURVIVAL))
        if key not in self.survival:
            with stage(f"survival of {self.condition}"):
                check = check_survival([masked(self.judge.trace, sources)], cost, Contender.of(self.learned))
            self.survival.add(_StoredSurvival(key, check))
        return self.survival[key].check


def run_policy_bench(
    settings: PolicyBenchSettings,
    prompts: PromptParts | None,
    open_pair: OpenPair,
    bundles: Mapping[str, str],
    stage: Stage = silent,
    home: Path | None = None,
    warn: Tell = lambda line: None,
    note: Tell = lambda line: None,
    command: str = "treewise bench-policy",
) -> PolicyBenchReport:
    """Collect, train, tune and judge; what an earlier run left under `home` (the user's cache) is not done again.

    `prompts` is None in a quick run, which reads the traces that ship. `bundles` holds folders of policies that are
    judged as they are, by draft. Raises as collection, training and replay do.
    """
    from treewise.engine.hub import cache_home

    home = home or cache_home() / "bench-policy"
    workshop = Workshop(settings, home, stage, command)
    benches: dict[Condition, _Bench] = {}
    materials: dict[str, Material] = {}
    for draft in settings.drafts:
        given = bundles.get(draft, "")
        if prompts is None:
            materials[draft] = workshop.shipped(given)
        else:
            materials[draft] = workshop.collected(draft, prompts, open_pair, given, warn, note)
    for condition in settings.conditions:
        benches[condition] = _Bench.open(condition, materials[condition.draft], home, settings.policy)
    cells: list[CellResult] = []
    schedules: list[ScheduleResult] = []
    node_curves: list[NodeCurve] = []
    tried = 0
    for condition, bench in benches.items():
        subsets = _subsets(bench.judge.trace)
        for name in settings.source_sets(condition):
            sources = bench.judge.trace.sources & SOURCE_SETS[name]
            if not sources:
                note(f"{condition} holds none of the sources {name}: left out")
                continue
            specs = bench.specs(sources, settings)
            tried += len(specs)
            cells += _cells(bench, name, sources, specs, subsets, settings, stage)
            if name == ALL:
                node_curves.append(bench.node_curve(sources, settings, stage))
                stages = stages_of(bench.material.costs)
                with stage(f"schedule of {condition}") as advance:
                    schedules.append(
                        run_schedule(
                            condition, stages, (bench.train, bench.judge), sources, specs, bench.learned,
                            settings.resamples, lambda count: advance(steps=count),
                        )
                    )  # fmt: skip

    def replayed(cell: Cell, spec: str) -> Tally:
        bench = benches[cell.condition]
        sources = bench.judge.trace.sources & SOURCE_SETS[cell.sources]
        costs = [bench.material.costs[cell.cost]]
        return bench.judge.tallies(sources, costs, [spec])[0, spec]

    left_out: dict[str, SurvivalCheck] = {}
    if settings.leaves_tasks_out:
        for condition, bench in benches.items():
            left_out[str(condition)] = bench.check_left_out(workshop, settings)
    with stage("carrying fixed policies to other cells"):
        carried = carry(cells, replayed, settings.resamples)
    with stage("looking for losses"):
        lost = losses(cells, LEAST_RATIO)
    return PolicyBenchReport(
        settings=settings,
        prompts=prompts.origin if prompts is not None else "the traces that ship, a few of the project's own prompts",
        pairs={draft: material.pair for draft, material in materials.items()},
        bundles={draft: material.bundle for draft, material in materials.items()},
        call_ms={bench.condition.draft: bench.call_ms for bench in benches.values()},
        costs={f"{name} of {d}": cost for d, made in materials.items() for name, cost in made.costs.items()},
        tried=tried,
        cells=tuple(cells),
        node_curves=tuple(node_curves),
        carried=carried,
        schedules=tuple(schedules),
        losses=lost,
        left_out=left_out,
        goals=goals(cells, node_curves, carried, schedules, lost, left_out),
        home=str(home),
    )


def _cells(
    bench: _Bench,
    name: str,
    sources: int,
    specs: dict[str, str],
    subsets: dict[str, BoolArray],
    settings: PolicyBenchSettings,
    stage: Stage,
) -> Iterator[CellResult]:
    """The cells of one condition and choice of sources, one for each profile."""
    costs = bench.material.costs
    with stage(f"tuning on {bench.condition}, {name}", len(specs)) as advance:
        tuned = tune_cells(bench.train, sources, list(costs.values()), specs, lambda count: advance(steps=count))
    asked = _asked(bench.learned, tuned, specs)
    with stage(f"judging on {bench.condition}, {name}", len(asked)) as advance:
        found = bench.judge.tallies(sources, list(costs.values()), asked, lambda count: advance(steps=count))
    survival = bench.check_survival(sources, stage)
    for place, cost in enumerate(costs):
        tallies = {spec: found[place, spec] for spec in asked}
        cell = Cell(bench.condition, name, cost)
        yield judge_cell(cell, tallies, tuned[place], bench.learned, subsets, survival, settings.resamples)


def _asked(learned: str, tuned: Sequence[dict[str, str]], specs: Mapping[str, str]) -> list[str]:
    """Everything that is replayed on the judged prompts."""
    grid = [spec for spec, family in specs.items() if family == TOPN and "sources=all" in spec]
    chosen = [spec for names in tuned for spec in names.values()]
    return list(dict.fromkeys([learned, DEPTH + learned, ORACLE, "entropy", *chosen, *grid]))


def _subsets(trace: LoggedTrace) -> dict[str, BoolArray]:
    from treewise.training.text_repetition import SUBSETS, repeated_shares, within

    shares = repeated_shares(trace.requests)
    return {name: within(shares, name) for name in SUBSETS}


def _path(home: Path, kind: str, condition: Condition, named: NamedTrace) -> Path:
    label = f"{slug(condition.draft)}-t{condition.temperature:g}"
    return home / "replays" / f"{kind}-{label}-{named.content_hash[:16]}.jsonl"
