"""What each group of signals brings: held-out log loss without it, and with nothing else beside the prior."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from treewise.data.errors import ParameterError
from treewise.policy.features import FEATURE_GROUPS, FEATURES, GROWTH_FEATURES
from treewise.training.cross_fit import FitRows, Float32Array, FloatArray, Int64Array, deal_folds
from treewise.training.extra_signals import ExtraSignals, token_surplus
from treewise.training.log_loss import mean_interval, row_losses
from treewise.training.match_model import ForestModel, ForestSettings
from treewise.training.rows import KINDS, Dataset
from treewise.training.statistics import Interval

Groups = Mapping[str, Sequence[str]]

SCHEMA_VERSION = 1
PRIOR = "log_prior"
ALL, LEFT_OUT, ALONE, ADDED = "all", "left out", "alone", "added"
GROWTH_GROUPS: dict[str, tuple[str, ...]] = {
    "draft": ("draft_log_prob", "draft_rank", "draft_entropy", "draft_margin", "in_draft_vocab"),
    "lookup": ("lookup_match_length", "lookup_share", "in_both"),
    "recycled": ("recycled_log_prob",),
    "below, lookup": ("below_match_length", "below_log_count", "below_share", "below_log_age"),
    "below, recycled": ("below_recycled_prob", "below_recycled_order", "below_recycled_log_weight"),
    "path": ("depth", PRIOR),
    "context": ("draft_agreement", "lookup_agreement", "temperature"),
}


@dataclass(frozen=True, slots=True)
class Trial:
    """One set of signals."""

    model: str  # match or growth
    group: str
    use: str  # all, left out, alone, or added
    signals: int
    log_loss: float  # nats a row, held out
    change: Interval  # of it, over prompts: less that of all signals, or of the prior where the group is alone
    by_kind: tuple[float, ...]  # the same change for each of `KINDS`; empty for growths; NaN without rows


@dataclass(frozen=True, slots=True)
class Ablation:
    """Trials of every group, match model first."""

    prompts: int
    match_rows: int
    growth_rows: int
    prior_log_loss: float
    trials: tuple[Trial, ...]

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping; figures that are not known are null."""
        value = asdict(self)
        for trial in value["trials"]:
            known = zip(KINDS, trial["by_kind"], strict=False)
            trial["by_kind"] = {kind: None if np.isnan(change) else change for kind, change in known}
        return {"schema_version": SCHEMA_VERSION, **value}


@dataclass(frozen=True, slots=True)
class Variant:
    """Columns that one trial learns from."""

    group: str
    use: str
    columns: tuple[str, ...]


def variants(groups: Groups, added: Groups) -> Iterator[Variant]:
    """All signals; all but each of `groups`; each of them beside the prior alone; all and each of `added`."""
    names = tuple(name for group in groups.values() for name in group)
    yield Variant(ALL, ALL, names)
    for group, own in groups.items():
        yield Variant(group, LEFT_OUT, tuple(name for name in names if name not in own))
    for group, own in groups.items():
        yield Variant(group, ALONE, (PRIOR, *(name for name in own if name != PRIOR)))
    for group, own in added.items():
        yield Variant(group, ADDED, (*names, *own))


def ablate(
    rows: Dataset,
    extra: ExtraSignals | None,
    match: ForestSettings,
    growth: ForestSettings,
    seed: int = 0,
    step: Callable[[], None] = lambda: None,
) -> Ablation:
    """Fit every variant with prompts held out in turn; `step` is called after each.

    On top of all features are tried the prompt's kind of task, as its prompt set says, and `extra`, signals beside the
    match rows. Raises `ParameterError` on fewer than three prompts.
    """
    dealt = deal_folds(rows.prompts, rows.tasks, match.folds, seed)
    fold = np.asarray([dealt[prompt] for prompt in rows.prompts], dtype=np.int64)
    table = rows.match
    of_match = fold[table.prompt]
    columns = {name: table.x[:, place] for place, name in enumerate(FEATURES)}
    columns |= _extra_columns(rows, extra, of_match) | _task_columns(rows)
    bench = _Bench("match", columns, table.label, table.weight, table.prompt, of_match, table.kind, seed)
    prior = row_losses(table.label, table.prior)
    added = {"task": tuple(_task_columns(rows))} | _added(extra)
    trials = bench.run(FEATURE_GROUPS, added, match, PRIOR, prior, step)
    enough = len(rows.growth.label) >= 200 and len(np.unique(rows.growth.label)) == 2
    if enough:
        table_of = rows.growth
        columns = {name: table_of.x[:, place] for place, name in enumerate(GROWTH_FEATURES)}
        weight, label = table_of.weight, table_of.label
        bench = _Bench("growth", columns, label, weight, table_of.prompt, fold[table_of.prompt], None, seed)
        rate = np.full(len(label), np.average(label, weights=weight))
        trials += bench.run(GROWTH_GROUPS, {}, growth, None, row_losses(label, rate), step)
    mean_prior = float(np.average(prior, weights=table.weight))
    return Ablation(len(set(rows.prompts)), len(table.label), len(rows.growth.label), mean_prior, tuple(trials))


def count_trials(has_extra: bool, has_growth: bool) -> int:
    """Variants that an ablation fits."""
    match = 2 + 2 * len(FEATURE_GROUPS) + 2 * has_extra
    return match + (1 + 2 * len(GROWTH_GROUPS)) * has_growth


class _Bench:
    """Fits variants on the same rows and compares them row by row."""

    def __init__(
        self,
        model: str,
        columns: Mapping[str, Float32Array],
        label: Any,
        weight: Any,
        prompt: Any,
        fold: Int64Array,
        kind: Any,
        seed: int,
    ) -> None:
        self._model, self._columns, self._kind, self._seed = model, columns, kind, seed
        self._label, self._weight, self._prompt, self._fold = label, weight, prompt, fold

    def run(
        self,
        groups: Groups,
        added: Groups,
        settings: ForestSettings,
        start: str | None,
        prior: FloatArray,
        step: Callable[[], None],
    ) -> list[Trial]:
        """Trials of every group; `prior` [rows] are the losses that groups alone are compared with."""
        trials: list[Trial] = []
        whole: FloatArray = prior
        for variant in variants(groups, added):
            own_start = start if start in variant.columns else None
            loss = self._losses(variant.columns, settings, own_start)
            if variant.use == ALL:
                whole = loss
            trials.append(self._trial(variant, loss, prior if variant.use == ALONE else whole))
            step()
        return trials

    def _losses(self, names: Sequence[str], settings: ForestSettings, start: str | None) -> FloatArray:
        x = np.column_stack([self._columns[name] for name in names]).astype(np.float32, copy=False)
        rows = FitRows(x, self._label, self._weight, self._fold, tuple(names))
        fitted = ForestModel(settings, start).fit(rows)
        return row_losses(self._label, fitted.held_out_probability)

    def _trial(self, variant: Variant, loss: FloatArray, beside: FloatArray) -> Trial:
        change = loss - beside
        by_kind: tuple[float, ...] = ()
        if self._kind is not None:
            parts = [self._kind == kind for kind in range(len(KINDS))]
            by_kind = tuple(
                float(np.average(change[on], weights=self._weight[on])) if on.any() else float("nan") for on in parts
            )
        return Trial(
            model=self._model,
            group=variant.group,
            use=variant.use,
            signals=len(variant.columns),
            log_loss=float(np.average(loss, weights=self._weight)),
            change=mean_interval(change, self._weight, self._prompt, self._seed),
            by_kind=by_kind,
        )


def _added(extra: ExtraSignals | None) -> dict[str, tuple[str, ...]]:
    if extra is None:
        return {}
    return {"token identity": ("token", "parent_token"), "target state": ("target_entropy", "target_margin")}


def _task_columns(rows: Dataset) -> dict[str, Float32Array]:
    """1 where the prompt is of the task, one column each: all that a recogniser of tasks could say of it."""
    task = np.asarray(rows.tasks, dtype=np.str_)[rows.match.prompt]
    return {f"task_{place}": (task == name).astype(np.float32) for place, name in enumerate(sorted(set(rows.tasks)))}


def _extra_columns(rows: Dataset, extra: ExtraSignals | None, fold: Int64Array) -> dict[str, Float32Array]:
    if extra is None:
        return {}
    if len(extra.token) != len(rows.match.label):
        raise ParameterError(f"extra signals must be of the {len(rows.match.label)} rows, got {len(extra.token)}")
    return {
        "token": token_surplus(rows.match, extra.token, fold),
        "parent_token": token_surplus(rows.match, extra.parent_token, fold),
        "target_entropy": extra.target_entropy,
        "target_margin": extra.target_margin,
    }
