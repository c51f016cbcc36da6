"""What a training run says about itself: held-out figures beside the prior's, importances, parity, settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import log_loss, roc_auc_score

SCHEMA_VERSION = 1
BINS = 15
_FLOOR = 1e-6

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Figures:
    """How well probabilities fit outcomes."""

    auc: float  # NaN where only one outcome occurs
    log_loss: float  # nats per row
    ece: float  # expected calibration error over bins of equal mass


@dataclass(frozen=True, slots=True)
class Comparison:
    """Held-out figures of a model beside those of its baseline, on the same rows."""

    name: str
    rows: int
    rate: float  # share of positive rows
    model: Figures
    baseline: Figures


@dataclass(frozen=True, slots=True)
class Importance:
    """One feature of the match model."""

    feature: str
    gain: float  # share of the total gain, 0 to 1


@dataclass(frozen=True, slots=True)
class Tuning:
    """One scale of the planner that was tried by replay."""

    name: str
    value: float  # the best of those tried, 1 included
    ratio: float  # tokens per second over the scale 1, on the prompts that chose the value
    held_out_ratio: float  # the same on prompts that did not
    is_taken: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """One class of match model that was tried by replay."""

    name: str
    log_loss: float  # held out
    call_ms: float  # of its policy, here
    speedup: float  # over plain decoding in replay, its own calls paid for; 0 where nothing could be replayed
    is_kept: bool


@dataclass(frozen=True, slots=True)
class TrainReport:
    """A finished training run."""

    folder: str
    traces: tuple[str, ...]
    trace_hashes: tuple[str, ...]
    cost: str
    prompts: int
    positions: int  # root positions
    uncovered: int  # views of a position that asked for more than the log holds and were left out
    match_rows: int
    growth_rows: int
    match_model: str  # its class
    choices: tuple[Choice, ...]  # where classes were compared
    match_trees: int
    growth_trees: int
    match: tuple[Comparison, ...]  # all rows first, then by kind; the baseline is the prior
    survival: Comparison  # of whole paths, before the bundle's corrections; the baseline is the path prior
    growth: Comparison  # the baseline is the constant rate
    importances: tuple[Importance, ...]  # the fifteen largest
    parity: float  # largest difference in probability between the exported graphs and LightGBM
    scorer: str
    call_ms: float
    planner: dict[str, Any]  # settings in the bundle
    tuning: tuple[Tuning, ...]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping; figures that are not known are null."""
        value = {"schema_version": SCHEMA_VERSION, **asdict(self)}
        plain = _plain(value)
        assert isinstance(plain, dict)
        return plain

    def lasting(self) -> dict[str, Any]:
        """The part that belongs in the bundle: nothing that differs between two runs on the same rows."""
        clocked = ("folder", "call_ms", "seconds", "choices")
        return {name: part for name, part in self.to_json().items() if name not in clocked}


def compare(
    name: str, label: NDArray[Any], model: NDArray[Any], baseline: NDArray[Any], weight: NDArray[Any] | None = None
) -> Comparison:
    """Figures of `model` and `baseline` probabilities [rows] on outcomes `label` [rows] in {0, 1}."""
    label = np.asarray(label, dtype=np.float64)
    weight = np.ones_like(label) if weight is None else np.asarray(weight, dtype=np.float64)
    total = float(weight.sum())
    rate = float((weight * label).sum() / total) if total else math.nan
    both = (figures(label, np.asarray(given, dtype=np.float64), weight) for given in (model, baseline))
    return Comparison(name, len(label), rate, *both)


def figures(label: FloatArray, probability: FloatArray, weight: FloatArray) -> Figures:
    """AUC, log loss and ECE of `probability` [rows]; NaN without rows."""
    if not label.size:
        return Figures(math.nan, math.nan, math.nan)
    held = np.clip(probability, _FLOOR, 1.0 - _FLOOR)
    two_sided = len(np.unique(label)) == 2
    return Figures(
        float(roc_auc_score(label, probability, sample_weight=weight)) if two_sided else math.nan,
        float(log_loss(label, held, sample_weight=weight, labels=[0.0, 1.0])),
        calibration_error(label, probability, weight),
    )


def calibration_error(label: FloatArray, probability: FloatArray, weight: FloatArray, bins: int = BINS) -> float:
    """Mean distance between outcome rate and mean probability over `bins` bins of equal mass, weighted by mass."""
    order = np.argsort(probability, kind="stable")
    label, probability, weight = label[order], probability[order], weight[order]
    mass = np.cumsum(weight)
    place = np.minimum((mass - 0.5 * weight) / mass[-1] * bins, bins - 1).astype(np.int64)
    gaps = np.bincount(place, weight * (label - probability), minlength=bins)
    return float(np.abs(gaps).sum() / mass[-1])


def top_importances(features: Sequence[str], gains: FloatArray, count: int = 15) -> tuple[Importance, ...]:
    """The `count` features with the largest share of the gain."""
    total = float(gains.sum()) or 1.0
    order = np.argsort(-gains, kind="stable")[:count]
    return tuple(Importance(features[place], float(gains[place]) / total) for place in order.tolist())


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
