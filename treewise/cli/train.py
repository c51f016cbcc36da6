"""`treewise train`: a policy bundle from traces and a cost profile."""

import math
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from treewise.cli._options import AsJson
from treewise.cli._show import console, facts, figures_table, percent, print_json, progress, warn
from treewise.stages import Advance

if TYPE_CHECKING:
    from treewise.training.fit import TrainSettings
    from treewise.training.report import Comparison, Figures, TrainReport

TREES = 50  # that of `treewise.training.match_model`, written again because importing it brings LightGBM


def register(app: typer.Typer) -> None:
    """Add the command of this module to `app`."""
    app.command("train")(train)


def train(
    traces: Annotated[
        list[Path], typer.Argument(metavar="TRACES...", help="Folders of traces of one pair.", show_default=False)
    ],
    cost: Annotated[
        str, typer.Option("--cost", help="Cost profile: a file or a built-in name.", show_default="needed for a bundle")
    ] = "",
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder of the bundle.", show_default="needed for a bundle")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of folds, views and trees.")] = 0,
    trees: Annotated[int, typer.Option("--trees", min=1, max=1000, help="Trees of the match model, at most.")] = TREES,
    match_model: Annotated[
        str, typer.Option("--match-model", help="forest, table, or auto: what replays faster, its own calls paid for.")
    ] = "forest",
    threads: Annotated[int, typer.Option("--threads", min=1, help="Threads of the fits.")] = 1,
    stride: Annotated[int, typer.Option("--stride", min=1, help="Learn from every STRIDE-th root position.")] = 1,
    curve: Annotated[
        bool, typer.Option("--curve", help="Instead of a bundle: held-out figures by number of training prompts.")
    ] = False,
    ablation: Annotated[
        bool, typer.Option("--ablate", help="Instead of a bundle: what each group of signals brings.")
    ] = False,
    tune: Annotated[
        bool,
        typer.Option(
            "--tune/--no-tune", help="Try the planner's scales by replay: for one deployment, under its own --cost."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train a policy on traces: match model, growth model, calibration and planner, written as a bundle."""
    from dataclasses import replace

    from treewise.data.cost import CostProfile
    from treewise.data.errors import MissingExtraError, ParameterError

    try:
        from treewise.training import fit
    except ImportError as error:
        raise MissingExtraError(error.name or "lightgbm", "train") from error

    settings = fit.TrainSettings(seed=seed)
    settings = replace(
        settings,
        match=replace(settings.match, trees=trees, threads=threads),
        growth=replace(settings.growth, threads=threads),
        match_model=fit.match_model_name(match_model),
        rows=replace(settings.rows, stride=stride),
        planner=replace(settings.planner, tune=tune),
    )
    if curve or ablation:
        _study(traces, settings, curve, ablation, as_json)
        return
    if not cost or out is None:
        raise ParameterError(f"{'--out' if cost else '--cost'} must be given, but for --curve and --ablate")
    words = [*(str(folder) for folder in traces), f"--cost {cost}", f"-o {out}", f"--seed {seed}", f"--trees {trees}"]
    words += [f"--match-model {match_model}", f"--stride {stride}", "--tune" if tune else "--no-tune"]
    command = " ".join(["treewise train", *words])
    with _Stages() as stages:
        report = fit.train(traces, CostProfile.load(cost), out, settings, command, stages.advance)
    if as_json:
        print_json(report.to_json())
        return
    screen = console()
    for part in (_summary(report), _choices(report), _figures(report), _importances(report), _tuning(report)):
        if part is not None:
            screen.print(part)
    overall = report.match[0]
    if overall.model.log_loss >= overall.baseline.log_loss:
        found, prior = overall.model.log_loss, overall.baseline.log_loss
        warn(
            f"the match model's log loss on held-out prompts, {found:.3f}, is no better than the prior's, {prior:.3f}: "
            f"{report.prompts} prompts are too few"
        )


def _study(traces: list[Path], settings: "TrainSettings", with_curve: bool, with_ablation: bool, as_json: bool) -> None:
    """Print what training could learn from, instead of training."""
    from treewise.cli._train_studies import study_tables
    from treewise.training.study import study

    with _Stages() as stages:
        found = study(traces, settings, with_curve, with_ablation, stages.advance)
    if as_json:
        print_json(found.to_json())
        return
    for table in study_tables(found):
        console().print(table)


class _Stages:
    """One progress bar after the other, by the name of the stage."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._stage = ""
        self._done = 0
        self._bar: Advance | None = None

    def __enter__(self) -> "_Stages":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def advance(self, stage: str, done: int, total: int) -> None:
        """Move the bar of `stage` to `done` of `total`."""
        if stage != self._stage:
            self._stack.close()
            self._stage, self._done = stage, 0
            self._bar = self._stack.enter_context(progress(stage, total))
        if self._bar is not None and done > self._done:
            self._bar(steps=done - self._done)
            self._done = done


def _summary(report: "TrainReport") -> Table:
    planner = report.planner
    scales = ", ".join(f"{name} {planner[name]:g}" for name in ("prune_scale", "growth_scale", "opening_scale"))
    left = f", {report.uncovered:,} views beyond the log left out" if report.uncovered else ""
    return facts(
        {
            "bundle": report.folder,
            "traces": ", ".join(report.traces),
            "prompts": f"{report.prompts:,}, {report.positions:,} root positions{left}",
            "rows": f"{report.match_rows:,} for the match model, {report.growth_rows:,} for the growth model",
            "models": f"{report.match_model} of {report.match_trees} and forest of {report.growth_trees} trees",
            "parity": f"{report.parity:.1e} between the exported graphs and LightGBM",
            "policy call": f"{report.call_ms:.3f} ms, {report.scorer}",
            "planner": f"{planner['rate_over_plain']:.2f} times plain decoding under {report.cost}; {scales}",
        }
    )


def _choices(report: "TrainReport") -> Table | None:
    if not report.choices:
        return None
    headings = ("log loss", "ms a call", "over plain", "kept")
    table = figures_table("match models by replay, their own calls paid for", "class", headings)
    for item in report.choices:
        kept = "yes" if item.is_kept else "no"
        table.add_row(item.name, f"{item.log_loss:.4f}", f"{item.call_ms:.3f}", f"{item.speedup:.4f}", kept)
    return table


def _figures(report: "TrainReport") -> Table:
    headings = ("rows", "matches", "AUC", "of prior", "log loss", "of prior", "ECE", "of prior")
    table = figures_table("held-out prompts, beside the prior", "rows of", headings)
    for row in (*report.match, report.survival):
        _add(table, row, row.baseline)
    if report.growth.rows:
        _add(table, report.growth, report.growth.baseline)
    return table


def _add(table: Table, row: "Comparison", baseline: "Figures") -> None:
    model = row.model
    pairs = ((model.auc, baseline.auc), (model.log_loss, baseline.log_loss), (model.ece, baseline.ece))
    numbers = [_number(value) for pair in pairs for value in pair]
    rate = "-" if math.isnan(row.rate) else percent(row.rate)
    table.add_row(Text(row.name), f"{row.rows:,}", rate, *numbers)


def _importances(report: "TrainReport") -> Table:
    table = figures_table("what the match model reads", "feature", ("share of gain",))
    for item in report.importances:
        table.add_row(Text(item.feature), percent(item.gain))
    return table


def _tuning(report: "TrainReport") -> Table | None:
    if not report.tuning:
        return None
    table = figures_table("scales tried by replay", "scale", ("best", "ratio", "held out", "taken"))
    for item in report.tuning:
        taken = "yes" if item.is_taken else "no"
        table.add_row(item.name, f"{item.value:g}", f"{item.ratio:.4f}", f"{item.held_out_ratio:.4f}", taken)
    return table


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"
