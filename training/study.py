"""What training could learn from its traces: learning curve and ablation, without a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from treewise.training.ablation import Ablation, ablate, count_trials
from treewise.training.extra_signals import build_with_extras
from treewise.training.fit import Progress, TrainSettings, counter
from treewise.training.learning_curve import LearningCurve, count_models, learning_curve
from treewise.training.logged_trace import check_distinct, open_trace

POSITIONS = 6000  # root positions that a study learns from at most: it fits dozens of models


@dataclass(frozen=True, slots=True)
class Study:
    """What was asked for."""

    curves: tuple[LearningCurve, ...]
    ablation: Ablation | None

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        ablation = None if self.ablation is None else self.ablation.to_json()
        return {"schema_version": 1, "curves": [curve.to_json() for curve in self.curves], "ablation": ablation}


def study(
    folders: Sequence[Path], settings: TrainSettings, with_curve: bool, with_ablation: bool, progress: Progress
) -> Study:
    """Read the traces and find out. Raises as `treewise.training.fit.train`."""
    settings = settings.seeded()
    traces = []
    for place, folder in enumerate(folders):
        traces.append(open_trace(folder))
        progress("reading", place + 1, len(folders))
    check_distinct(traces)
    few = replace(settings.rows, max_positions=min(settings.rows.max_positions, POSITIONS))
    requests = sum(len(trace.requests) for trace in traces)
    # Signals beside the features are kept for dense traces alone.
    is_dense = all(trace.manifest.kind == "dense" for trace in traces)
    rows, extra = build_with_extras(traces, settings.envelope, few, counter(progress, "rows", requests))
    curves = []
    if with_curve:
        models = settings.match_models
        step = counter(progress, "curve", len(models) * count_models())
        curves = [learning_curve(rows, model, seed=settings.seed, step=step) for model in models.values()]
    found = None
    if with_ablation:
        step = counter(progress, "ablation", count_trials(is_dense, len(rows.growth.label) > 0))
        found = ablate(rows, extra if is_dense else None, settings.match, settings.growth, settings.seed, step)
    return Study(tuple(curves), found)
