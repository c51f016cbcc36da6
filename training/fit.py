"""Training, end to end: traces and a cost profile in, a policy bundle and a report out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.cost import CostProfile
from treewise.data.envelope import Envelope
from treewise.data.errors import BundleError, ParameterError, TraceError
from treewise.data.pair import PairDescription
from treewise.data.trace_reader import TraceReader
from treewise.policy.bundle import Bundle, Model, check_writable
from treewise.policy.features import FEATURES, GROWTH_FEATURES
from treewise.policy.hook import BoolArray, Expansion, Float32Array, ForestView, Level
from treewise.policy.learned import LearnedPolicy, make_scorer
from treewise.training.dataset import DatasetSettings, build_dataset
from treewise.training.export import PARITY, export_onnx, parity, trial_rows
from treewise.training.logged_trace import LoggedTrace, check_distinct, logged_trace
from treewise.training.match_model import FittedForest, ForestSettings, deal_folds, fit_forest
from treewise.training.planner_fit import PlannerFitSettings, choose_requests, count_replays, fit_planner
from treewise.training.replay import replay
from treewise.training.report import Comparison, TrainReport, compare, top_importances
from treewise.training.rows import KINDS, Dataset

Progress = Callable[[str, int, int], None]  # (stage, steps done, steps in all)
Int64Array = NDArray[np.int64]

MIN_GROWTH_ROWS = 200  # below it the planner reads growth chances off agreement and priors
TIMED_REQUESTS = 6
STRETCHES = 8
START = "log_prior"  # the feature that the match model starts from


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """Every setting of a training run; the seed of the parts is this one's."""

    seed: int = 0
    match: ForestSettings = field(default_factory=ForestSettings)
    growth: ForestSettings = field(
        default_factory=lambda: ForestSettings(trees=15, leaves=8, learning_rate=0.15, min_leaf_rows=60)
    )
    rows: DatasetSettings = field(default_factory=DatasetSettings)
    planner: PlannerFitSettings = field(default_factory=PlannerFitSettings)
    envelope: Envelope | None = None  # what views are grown to; the trace's own where None

    def seeded(self) -> TrainSettings:
        """The same with the seed written into every part."""
        parts = {name: replace(getattr(self, name), seed=self.seed) for name in ("match", "growth", "rows", "planner")}
        return replace(self, **parts)


@dataclass(frozen=True, slots=True)
class NamedTrace:
    """A trace and the hash of what it holds."""

    trace: LoggedTrace
    content_hash: str


def train(
    folders: Sequence[str | Path],
    cost: CostProfile,
    out: str | Path,
    settings: TrainSettings | None = None,
    command: str = "",
    progress: Progress = lambda stage, done, total: None,
) -> TrainReport:
    """Train on the traces in `folders` and write the bundle to the folder `out`.

    Raises `TraceError` and its kin on traces that cannot be read or do not belong together, `ParameterError` on fewer
    than three prompts, `BundleError` where the exported models do not repeat LightGBM's or `out` is another folder.
    """
    named = []
    for place, folder in enumerate(folders):
        reader = TraceReader(folder)
        name = Path(folder).resolve().name
        named.append(NamedTrace(logged_trace(name, reader.manifest, reader.read_all()), reader.content_hash()))
        progress("reading", place + 1, len(folders))
    return train_on(named, cost, out, settings, command, progress)


def train_on(
    named: Sequence[NamedTrace],
    cost: CostProfile,
    out: str | Path,
    settings: TrainSettings | None = None,
    command: str = "",
    progress: Progress = lambda stage, done, total: None,
) -> TrainReport:
    """As `train`, on traces in memory."""
    started = time.perf_counter()
    settings = (settings or TrainSettings()).seeded()
    traces = [part.trace for part in named]
    pair = _one_pair(traces)
    check_distinct(traces)
    check_writable(Path(out))  # before anything is computed
    requests = sum(len(trace.requests) for trace in traces)
    rows = build_dataset(traces, settings.envelope, settings.rows, _counter(progress, "rows", requests))
    dealt = deal_folds(rows.prompts, rows.tasks, settings.match.folds, settings.seed)
    fold = np.asarray([dealt[prompt] for prompt in rows.prompts], dtype=np.int64)

    fits = _counter(progress, "models", 2 * (int(fold.max()) + 2))
    judged = (rows.trees.x, fold[rows.trees.prompt])
    match = fit_forest(
        rows.match.x,
        rows.match.label,
        rows.match.weight,
        fold[rows.match.prompt],
        FEATURES,
        settings.match,
        judged,
        fits,
        START,
    )
    growth = _fit_growth(rows, fold, settings.growth, fits)
    match_model, difference = _export(match, rows.match.x, settings.seed)
    growth_model = None
    if growth is not None:
        growth_model, other = _export(growth, rows.growth.x, settings.seed)
        difference = max(difference, other)

    dense = [trace for trace in traces if trace.manifest.kind == "dense"]
    bundle = Bundle(
        match=match_model,
        growth=growth_model,
        pair=pair,
        envelope=(dense or traces)[0].manifest.envelope,
        prior_table=rows.prior_table,
        provenance=_provenance(named, cost, settings, command),
    )
    replays = _counter(progress, "replays", count_replays(traces, settings.planner))
    fitted = fit_planner(bundle, traces, cost, settings.planner, replays)
    bundle = replace(bundle, planner=fitted.planner)
    call_ms = measure_call_ms(bundle, traces, cost, settings.planner)
    progress("replays", 1, 1)

    report = TrainReport(
        folder=str(out),
        traces=tuple(trace.name for trace in traces),
        trace_hashes=tuple(part.content_hash for part in named),
        cost=cost.name,
        prompts=len(rows.prompts),
        positions=rows.positions,
        uncovered=rows.uncovered,
        match_rows=len(rows.match.label),
        growth_rows=len(rows.growth.label),
        match_trees=match.trees,
        growth_trees=growth.trees if growth is not None else 0,
        match=_match_figures(rows, match),
        survival=_survival_figures(rows, match),
        growth=_growth_figures(rows, growth),
        importances=top_importances(match.features, match.gains),
        parity=difference,
        scorer=type(make_scorer(bundle.match)).__name__,
        call_ms=call_ms,
        planner=fitted.planner.to_json(),
        tuning=fitted.tuning,
        seconds=time.perf_counter() - started,
    )
    replace(bundle, call_ms=call_ms, report=report.lasting()).save(out)
    return report


def measure_call_ms(
    bundle: Bundle, traces: Sequence[LoggedTrace], cost: CostProfile, settings: PlannerFitSettings
) -> float:
    """Mean milliseconds of one `expand` or `select` of the bundle's policy here; the profile's where none can run.

    A mean, because rounds pay the sum; of the quietest of `STRETCHES` stretches of calls, the slowest fiftieth of each
    left out, because what else the machine does is no part of the price.
    """
    policy = _TimedCalls(bundle)
    for trace, requests in choose_requests(traces, replace(settings, requests=TIMED_REQUESTS)):
        replay(policy, requests, trace.deployment(cost))
    if not policy.seconds:
        return cost.policy_ms
    stretches = np.array_split(np.asarray(policy.seconds), min(STRETCHES, len(policy.seconds)))
    means = [np.sort(part)[: max(1, len(part) * 49 // 50)].mean() for part in stretches]
    return float(min(means)) * 1000.0


class _TimedCalls(LearnedPolicy):
    """A learned policy that keeps the seconds of each decision."""

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle)
        self.seconds: list[float] = []

    def expand(self, level: Level) -> Expansion:
        """Timed."""
        started = time.perf_counter()
        answer = super().expand(level)
        self.seconds.append(time.perf_counter() - started)
        return answer

    def select(self, forest: ForestView) -> BoolArray:
        """Timed."""
        started = time.perf_counter()
        answer = super().select(forest)
        self.seconds.append(time.perf_counter() - started)
        return answer


def _one_pair(traces: Sequence[LoggedTrace]) -> PairDescription:
    """The pair of every trace. Raises `TraceError` where they differ in it or in the prior table."""
    if not traces:
        raise ParameterError("traces must be at least one, got none")
    first = traces[0].manifest
    try:
        pair = PairDescription.from_json(first.pair)
        others = [PairDescription.from_json(trace.manifest.pair) for trace in traces[1:]]
    except ParameterError as error:
        raise TraceError(f"trace manifest must describe its pair: {error}") from error
    for trace, other in zip(traces[1:], others, strict=True):
        if differences := pair.differences(other):
            raise TraceError(f"traces must be of one pair, got {trace.name} with {'; '.join(differences)}")
        if trace.manifest.prior_table != first.prior_table:
            raise TraceError(f"traces must share one prior table, got another in {trace.name}")
    return pair


def _fit_growth(
    rows: Dataset, fold: Int64Array, settings: ForestSettings, step: Callable[[str], None]
) -> FittedForest | None:
    growth = rows.growth
    folds = fold[growth.prompt]
    # Every fit needs rows of other folds, with both outcomes among them.
    enough = len(growth.label) >= MIN_GROWTH_ROWS and len(np.unique(folds)) >= 3 and len(np.unique(growth.label)) == 2
    if not enough:
        return None
    return fit_forest(growth.x, growth.label, growth.weight, folds, GROWTH_FEATURES, settings, None, step)


def _export(fitted: FittedForest, x: Float32Array, seed: int) -> tuple[Model, float]:
    """The model in both forms and their largest difference. Raises `BundleError` where it is above `PARITY`."""
    graph = export_onnx(fitted.text, fitted.calibration, fitted.features)
    difference = parity(graph, fitted.text, fitted.calibration, trial_rows(fitted.text, x, seed))
    if not difference <= PARITY:
        raise BundleError(f"exported graph must repeat LightGBM within {PARITY:g}, got {difference:g}")
    return Model(graph, fitted.text, fitted.calibration), difference


def _match_figures(rows: Dataset, fitted: FittedForest) -> tuple[Comparison, ...]:
    match = rows.match
    parts = [("all", np.ones(len(match.label), dtype=np.bool_))]
    parts += [(name, match.kind == kind) for kind, name in enumerate(KINDS)]
    return tuple(
        compare(name, match.label[on], fitted.held_out_probability[on], match.prior[on], match.weight[on])
        for name, on in parts
    )


def _survival_figures(rows: Dataset, fitted: FittedForest) -> Comparison:
    trees = rows.trees
    survival = fitted.judged_probability.copy()
    for row, parent in enumerate(trees.parent.tolist()):  # parents come first
        if parent >= 0:
            survival[row] *= survival[parent]
    return compare("survival", trees.survives, survival, trees.path_prior)


def _growth_figures(rows: Dataset, fitted: FittedForest | None) -> Comparison:
    growth = rows.growth
    if fitted is None:
        nothing = np.zeros(0)
        return compare("growth", nothing, nothing, nothing)
    rate = float(np.average(growth.label, weights=growth.weight))
    constant = np.full(len(growth.label), rate)
    return compare("growth", growth.label, fitted.held_out_probability, constant, growth.weight)


def _provenance(
    named: Sequence[NamedTrace], cost: CostProfile, settings: TrainSettings, command: str
) -> dict[str, Any]:
    return {
        "command": command,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "traces": {part.trace.name: part.content_hash for part in named},
        "cost": cost.name,
        "cost_sha256": cost.sha256,
        "settings": asdict(settings),
        "versions": {name: _version(name) for name in ("treewise", "lightgbm", "numpy", "onnx")},
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def _counter(progress: Progress, stage: str, total: int) -> Callable[..., None]:
    """A step function that counts itself."""
    done = 0

    def step(*_: object) -> None:
        nonlocal done
        done += 1
        progress(stage, min(done, total), total)

    return step
