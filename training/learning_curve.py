"""What more prompts bring: held-out figures of match models that learned from a part of the prompts.

A third of the prompts is held out in turn. Of the others, parts that contain each other are trained on as a bundle's
model is, calibration included, so every point is judged on the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from treewise.data.errors import ParameterError, require
from treewise.policy.features import FEATURES
from treewise.policy.scorer import LightGBMScorer
from treewise.training.cross_fit import FitRows, FloatArray, IndexArray, MatchModel, deal_folds
from treewise.training.log_loss import mean_interval, row_losses
from treewise.training.report import figures
from treewise.training.rows import Dataset
from treewise.training.statistics import Interval

SCHEMA_VERSION = 1
SHARES = (0.125, 0.25, 0.5, 1.0)
HELD_OUT_FOLDS = 3
LEAST_PROMPTS = 3  # of one model, so that it can hold some out in turn


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Models of one share of the prompts, judged on prompts that they have not seen."""

    share: float  # of the prompts that are not held out
    prompts: float  # that one model learned from, on average
    rows: float
    trees: float
    log_loss: Interval  # nats, over prompts
    above_all: Interval  # log loss less that of the largest share
    auc: float
    ece: float


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """Points by share of the prompts, ascending."""

    model: str
    prompts: int
    rows: int
    prior_log_loss: Interval
    points: tuple[CurvePoint, ...]

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}


def learning_curve(
    rows: Dataset,
    model: MatchModel,
    shares: Sequence[float] = SHARES,
    seed: int = 0,
    step: Callable[[], None] = lambda: None,
) -> LearningCurve:
    """The curve of `model` on the match rows; `step` is called after each model.

    Raises `ParameterError` on shares that do not ascend to 1 and on fewer than nine prompts.
    """
    rises = all(low < high for low, high in zip((0.0, *shares), shares, strict=False))
    require(rises and tuple(shares[-1:]) == (1.0,), "shares", "ascending, above 0, the last 1", shares)
    count, least = len(set(rows.prompts)), LEAST_PROMPTS * HELD_OUT_FOLDS
    if count < least:
        raise ParameterError(f"prompts must be at least {least} for a curve, got {count}")
    match = rows.match
    dealt = deal_folds(rows.prompts, rows.tasks, HELD_OUT_FOLDS, seed)
    fold = np.asarray([dealt[prompt] for prompt in rows.prompts])
    found = np.zeros((len(shares), len(match.label)))
    sizes = np.zeros((len(shares), 3))  # prompts, rows, trees
    for held_out in range(HELD_OUT_FOLDS):
        judged = np.flatnonzero(fold[match.prompt] == held_out)
        order = in_turns(np.flatnonzero(fold != held_out), rows, seed)
        for place, share in enumerate(shares):
            chosen = order[: max(LEAST_PROMPTS, round(share * len(order)))]
            part = np.flatnonzero(np.isin(match.prompt, chosen))
            inner = deal_folds([rows.prompts[n] for n in chosen], [rows.tasks[n] for n in chosen], 5, seed)
            inner_fold = np.asarray([inner.get(prompt, -1) for prompt in rows.prompts], dtype=np.int64)
            of_part = inner_fold[match.prompt[part]]
            fitted = model.fit(
                FitRows(match.x[part], match.label[part], match.weight[part], of_part, FEATURES), lambda words: None
            )
            found[place, judged] = LightGBMScorer(fitted.text, fitted.calibration).score(match.x[judged])
            sizes[place] += np.asarray([len(chosen), len(part), fitted.trees]) / HELD_OUT_FOLDS
            step()
    losses = np.stack([row_losses(match.label, one) for one in found])
    prior = mean_interval(row_losses(match.label, match.prior), match.weight, match.prompt, seed)
    points = []
    for share, probability, loss, (prompts, seen, trees) in zip(shares, found, losses, sizes.tolist(), strict=True):
        judged_by = figures(match.label.astype(np.float64), probability, match.weight.astype(np.float64))
        own, above = (mean_interval(values, match.weight, match.prompt, seed) for values in (loss, loss - losses[-1]))
        points.append(CurvePoint(share, prompts, seen, trees, own, above, judged_by.auc, judged_by.ece))
    return LearningCurve(model.name, count, len(match.label), prior, tuple(points))


def count_models(shares: Sequence[float] = SHARES) -> int:
    """Models that a curve fits."""
    return HELD_OUT_FOLDS * len(shares)


def in_turns(prompts: IndexArray, rows: Dataset, seed: int) -> IndexArray:
    """`prompts` [n] in a seeded order that takes the tasks in turns, so that every beginning of it is balanced."""
    draw = np.random.default_rng(seed)
    rank: FloatArray = np.zeros(len(prompts))
    tasks = np.asarray([rows.tasks[prompt] for prompt in prompts])
    for task in sorted(set(tasks)):
        own = np.flatnonzero(tasks == task)
        rank[own] = (draw.permutation(len(own)) + draw.random()) / len(own)
    return np.asarray(prompts[rank.argsort(kind="stable")])
