"""Training, end to end: traces and a cost profile in, a policy bundle and a report out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np

from treewise.data.cost import CostProfile
from treewise.data.envelope import Envelope
from treewise.data.errors import BundleError, ParameterError, TraceError, require
from treewise.data.pair import PairDescription
from treewise.data.trace_reader import TraceReader
from treewise.policy.bundle import Bundle, Model, check_writable
from treewise.policy.features import FEATURES, GROWTH_FEATURES
from treewise.policy.guard import FIXED
from treewise.policy.learned import make_scorer
from treewise.training.call_time import measure_call_ms
from treewise.training.choose_model import ModelName, choose_model, count_choices
from treewise.training.cross_fit import FitRows, FittedModel, Float32Array, Int64Array, MatchModel, deal_folds
from treewise.training.dataset import DatasetSettings
from treewise.training.export import PARITY, export_onnx, parity, trial_rows
from treewise.training.fit_corrections import count_replays as count_corrections
from treewise.training.fit_corrections import fit_corrections
from treewise.training.fixed_policy import choose_fixed
from treewise.training.held_out import growth_figures, match_figures, survival_figures
from treewise.training.logged_trace import LoggedTrace, check_distinct, open_trace
from treewise.training.match_model import ForestModel, ForestSettings
from treewise.training.planner_fit import PlannerFitSettings, count_replays, fit_planner
from treewise.training.report import Choice, TrainReport, top_importances
from treewise.training.rows import Dataset
from treewise.training.table_model import TableModel, TableSettings
from treewise.training.training_rows import build_training_rows, count_requests

MatchChoice = Literal["forest", "table", "auto"]
Progress = Callable[[str, int, int], None]  # (stage, steps done, steps in all)

MIN_GROWTH_ROWS = 200  # below it the planner reads growth chances off agreement and priors
MAX_POSITIONS = 250_000  # root positions of 15 to 20 million candidates
START = "log_prior"  # the feature that the match model starts from


def match_model_name(word: str) -> MatchChoice:
    """`word` as a class of match model. Raises `ParameterError` where it is none."""
    require(word in get_args(MatchChoice), "match_model", f"one of {', '.join(get_args(MatchChoice))}", word)
    return cast(MatchChoice, word)


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """Every setting of a training run; the seed of the parts is this one's."""

    seed: int = 0
    match: ForestSettings = field(default_factory=ForestSettings)
    growth: ForestSettings = field(
        default_factory=lambda: ForestSettings(trees=15, leaves=8, learning_rate=0.15, min_leaf_rows=60)
    )
    table: TableSettings = field(default_factory=TableSettings)
    match_model: MatchChoice = "forest"  # auto: what replays faster, its own calls paid for
    rows: DatasetSettings = field(default_factory=lambda: DatasetSettings(max_positions=MAX_POSITIONS))
    planner: PlannerFitSettings = field(default_factory=PlannerFitSettings)
    envelope: Envelope | None = None  # what views are grown to; the trace's own where None

    def seeded(self) -> TrainSettings:
        """The same with the seed written into every part."""
        parts = {name: replace(getattr(self, name), seed=self.seed) for name in ("match", "growth", "rows", "planner")}
        return replace(self, **parts, table=replace(self.table, forest=parts["match"]))

    @property
    def match_models(self) -> dict[ModelName, MatchModel]:
        """The classes to fit, by name."""
        known: dict[ModelName, MatchModel] = {
            "forest": ForestModel(self.match, START),
            "table": TableModel(self.table),
        }
        return {name: model for name, model in known.items() if self.match_model in ("auto", name)}


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

    Traces are read group by group, as often as needed; the training rows and the requests that the planner is tuned on
    are all in memory, and what bounds them are `DatasetSettings.max_positions` and `PlannerFitSettings.requests`.

    Raises `TraceError` and its kin on traces that cannot be read or do not belong together, `ParameterError` on fewer
    than three prompts, `BundleError` where the exported models do not repeat LightGBM's or `out` is another folder.
    """
    named = []
    for place, folder in enumerate(folders):
        named.append(NamedTrace(open_trace(folder), TraceReader(folder).content_hash()))
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
    """As `train`, on traces that are open."""
    started = time.perf_counter()
    settings = (settings or TrainSettings()).seeded()
    traces = [part.trace for part in named]
    pair = _one_pair(traces)
    check_distinct(traces)
    check_writable(Path(out))  # before anything is computed
    counted = counter(progress, "rows", count_requests(traces))
    rows = build_training_rows(traces, cost, settings.envelope, settings.rows, counted)
    dealt = deal_folds(rows.prompts, rows.tasks, settings.match.folds, settings.seed)
    fold = np.asarray([dealt[prompt] for prompt in rows.prompts], dtype=np.int64)

    models = settings.match_models
    fits = counter(progress, "models", (len(models) + 1) * (int(fold.max()) + 2))
    labelled, judged = rows.match, rows.trees
    fit_rows = FitRows(
        labelled.x, labelled.label, labelled.weight, fold[labelled.prompt], FEATURES, judged.x, fold[judged.prompt]
    )
    fitted = {name: model.fit(fit_rows, fits) for name, model in models.items()}
    growth = _fit_growth(rows, fold, settings.growth, fits)
    exported = {name: _export(one, labelled.x, settings.seed) for name, one in fitted.items()}
    growth_model = None if growth is None else _export(growth, rows.growth.x, settings.seed)

    dense = [trace for trace in traces if trace.manifest.kind == "dense"]
    bundles = {
        name: Bundle(
            match=one.model,
            growth=None if growth_model is None else growth_model.model,
            pair=pair,
            envelope=(dense or traces)[0].manifest.envelope,
            prior_table=rows.prior_table,
            provenance=_provenance(named, cost, settings, command),
        )
        for name, one in exported.items()
    }
    planner = settings.planner
    total = count_choices(len(models), traces, planner) + count_corrections(traces) + count_replays(traces, planner)
    replays = counter(progress, "replays", total)
    figures = {name: match_figures(rows, one) for name, one in fitted.items()}
    choices: tuple[Choice, ...] = ()
    if len(models) > 1:
        losses = {name: of[0].model.log_loss for name, of in figures.items()}
        choices = choose_model(bundles, losses, traces, cost, planner, replays)
    chosen = {choice.name for choice in choices if choice.is_kept} or set(models)
    kept = next(name for name in models if name in chosen)
    match, bundle = fitted[kept], bundles[kept]
    bundle = replace(bundle, corrections=fit_corrections(bundle, match.fold_models, traces, dealt, cost, replays))
    settled = fit_planner(bundle, traces, cost, planner, replays)
    if fixed := choose_fixed(traces, cost, planner):
        bundle.provenance[FIXED] = fixed
    bundle = replace(bundle, planner=settled.planner)
    call_ms = measure_call_ms(bundle, traces, cost, planner)
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
        match_model=kept,
        choices=choices,
        match_trees=match.trees,
        growth_trees=growth.trees if growth is not None else 0,
        match=figures[kept],
        survival=survival_figures(rows, match),
        growth=growth_figures(rows, growth),
        importances=top_importances(match.features, match.gains),
        parity=max(one.parity for one in (exported[kept], growth_model) if one is not None),
        scorer=type(make_scorer(bundle.match)).__name__,
        call_ms=call_ms,
        planner=settled.planner.to_json(),
        tuning=settled.tuning,
        seconds=time.perf_counter() - started,
    )
    replace(bundle, call_ms=call_ms, report=report.lasting()).save(out)
    return report


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
) -> FittedModel | None:
    growth = rows.growth
    folds = fold[growth.prompt]
    # Every fit needs rows of other folds, with both outcomes among them.
    enough = len(growth.label) >= MIN_GROWTH_ROWS and len(np.unique(folds)) >= 3 and len(np.unique(growth.label)) == 2
    if not enough:
        return None
    rows_of = FitRows(growth.x, growth.label, growth.weight, folds, GROWTH_FEATURES)
    return ForestModel(settings).fit(rows_of, step)


@dataclass(frozen=True, slots=True)
class _Exported:
    """A model in both forms, and the largest difference between them."""

    model: Model
    parity: float


def _export(fitted: FittedModel, x: Float32Array, seed: int) -> _Exported:
    """Both forms. Raises `BundleError` where they differ by more than `PARITY`."""
    graph = export_onnx(fitted.text, fitted.calibration, fitted.features)
    difference = parity(graph, fitted.text, fitted.calibration, trial_rows(fitted.text, x, seed))
    if not difference <= PARITY:
        raise BundleError(f"exported graph must repeat LightGBM within {PARITY:g}, got {difference:g}")
    return _Exported(Model(graph, fitted.text, fitted.calibration), difference)


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


def counter(progress: Progress, stage: str, total: int) -> Callable[..., None]:
    """A step function that counts itself."""
    done = 0

    def step(*_: object) -> None:
        nonlocal done
        done += 1
        progress(stage, min(done, total), total)

    return step
