"""The match model: folds by prompt, cross-fitting, determinism."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from treewise.data.errors import ParameterError
from treewise.training.calibrate import sigmoid
from treewise.training.match_model import FittedForest, ForestSettings, Int64Array, deal_folds, fit_forest
from treewise.training.report import figures
from treewise.training.tree_text import read_trees

NAMES = ("a", "b", "c", "d")
SETTINGS = ForestSettings(trees=40)


@dataclass(frozen=True, slots=True)
class Law:
    """Rows drawn from a known match law."""

    x: NDArray[np.float32]
    label: NDArray[np.int8]
    weight: NDArray[np.float32]
    probability: NDArray[np.float64]
    fold: Int64Array


@pytest.fixture(scope="module")
def law() -> Law:
    draw = np.random.default_rng(7)
    x = draw.normal(size=(6000, 4)).astype(np.float32)
    x[draw.random(x.shape) < 0.2] = np.nan
    x[:, 3] = draw.integers(0, 2, size=len(x))  # never missing
    odds = 1.5 * np.nan_to_num(x[:, 0]) - 1.0 * np.isnan(x[:, 1]) + x[:, 3] - 1.0
    probability = sigmoid(odds)
    label = (draw.random(len(x)) < probability).astype(np.int8)
    fold = (np.arange(len(x)) // 100 % 5).astype(np.int64)
    return Law(x, label, np.ones(len(x), dtype=np.float32), probability, fold)


@pytest.fixture(scope="module")
def fitted(law: Law) -> FittedForest:
    return fit_forest(law.x, law.label, law.weight, law.fold, NAMES, SETTINGS)


def test_folds_never_part_a_prompt_and_spread_each_task() -> None:
    prompts = [f"p{number % 23}" for number in range(60)]
    tasks = ["code" if int(prompt[1:]) % 3 else "chat" for prompt in prompts]
    dealt = deal_folds(prompts, tasks, 5, seed=3)
    assert set(dealt) == set(prompts)
    assert set(dealt.values()) == set(range(5))
    for task in ("code", "chat"):
        sizes = Counter(dealt[p] for p in set(prompts) if dict(zip(prompts, tasks, strict=True))[p] == task)
        assert max(sizes.values()) - min(sizes[fold] for fold in range(5)) <= 1
    assert dealt == deal_folds(prompts, tasks, 5, seed=3)
    assert dealt != deal_folds(prompts, tasks, 5, seed=4)


def test_folds_follow_the_number_of_prompts() -> None:
    assert set(deal_folds(["a", "b", "c"], ["t"] * 3, 5, 0).values()) == {0, 1, 2}
    with pytest.raises(ParameterError, match="prompts must be at least three"):
        deal_folds(["a", "b", "b"], ["t"] * 3, 5, 0)


def test_held_out_predictions_recover_the_law(law: Law, fitted: FittedForest) -> None:
    label, weight = law.label.astype(np.float64), law.weight.astype(np.float64)
    ours = figures(label, fitted.held_out_probability, weight)
    best = figures(label, law.probability, weight)
    constant = figures(label, np.full(len(label), label.mean()), weight)
    assert ours.log_loss < best.log_loss + 0.2 * (constant.log_loss - best.log_loss)
    assert ours.ece < 0.03
    assert fitted.gains[2] < 0.05 * fitted.gains.sum()


def test_held_out_rows_were_not_learned(law: Law) -> None:
    """With labels that are noise per prompt, a model that had seen the prompt would score far above chance."""
    noisy = np.repeat(np.random.default_rng(0).integers(0, 2, size=60), 100).astype(np.int8)
    marked = law.x.copy()
    marked[:, 2] = np.repeat(np.arange(60), 100)
    found = fit_forest(marked, noisy, law.weight, law.fold, NAMES, SETTINGS)
    held_out = figures(noisy.astype(np.float64), found.held_out_probability, np.ones(len(noisy)))
    assert held_out.log_loss > 0.65


def test_judged_rows_are_scored_by_the_models_of_other_folds(law: Law, fitted: FittedForest) -> None:
    again = fit_forest(law.x, law.label, law.weight, law.fold, NAMES, SETTINGS, (law.x[:50], law.fold[:50]))
    assert np.array_equal(again.judged_probability, fitted.held_out_probability[:50])


def test_two_fits_are_the_same(law: Law, fitted: FittedForest) -> None:
    steps: list[str] = []
    again = fit_forest(law.x, law.label, law.weight, law.fold, NAMES, SETTINGS, None, steps.append)
    assert again.text == fitted.text
    assert again.calibration == fitted.calibration
    assert steps == [*(f"fold {number} of 5" for number in range(1, 6)), "final fit"]


def test_thresholds_are_float32_and_every_split_knows_where_nan_goes(fitted: FittedForest) -> None:
    trees = read_trees(fitted.text)
    assert len(trees) == fitted.trees
    for tree in trees:
        assert np.array_equal(tree.threshold, tree.threshold.astype(np.float32).astype(np.float64))
    kinds = [line.split("=")[1].split() for line in fitted.text.splitlines() if line.startswith("decision_type=")]
    assert {int(kind) >> 2 & 3 for part in kinds for kind in part} == {2}


@pytest.mark.parametrize(
    ("name", "value"),
    [("trees", 0), ("leaves", 1), ("learning_rate", 0.0), ("min_leaf_rows", 0), ("folds", 2), ("threads", 0)],
)
def test_settings_that_cannot_be_used_are_refused(name: str, value: float) -> None:
    with pytest.raises(ParameterError, match=f"{name} must be"):
        ForestSettings(**{name: value})  # type: ignore[arg-type]


def test_the_first_tree_follows_the_feature_that_the_fit_starts_from(law: Law, fitted: FittedForest) -> None:
    started = fit_forest(law.x, law.label, law.weight, law.fold, NAMES, SETTINGS, start="a")
    first, *others = read_trees(started.text)
    assert set(first.feature.tolist()) == {0}
    assert {0, 1, 3} <= {place for tree in others for place in tree.feature.tolist()}
    assert len(others) + 1 == started.trees <= SETTINGS.trees
    label, weight = law.label.astype(np.float64), law.weight.astype(np.float64)
    with_start = figures(label, started.held_out_probability, weight)
    without = figures(label, fitted.held_out_probability, weight)
    assert with_start.log_loss < without.log_loss + 0.005


def test_few_rows_stay_near_the_feature_that_the_fit_starts_from(law: Law) -> None:
    prior = np.clip(law.probability + np.random.default_rng(3).normal(0, 0.02, len(law.x)), 0.01, 0.99)
    x = np.column_stack([law.x[:, 1:], prior]).astype(np.float32)[:400]
    few = ForestSettings(trees=15, min_leaf_rows=20)
    fold = (np.arange(400) // 10 % 5).astype(np.int64)
    label, weight = law.label[:400], law.weight[:400]
    losses = [
        figures(
            label.astype(np.float64),
            fit_forest(x, label, weight, fold, ("b", "c", "d", "prior"), few, start=start).held_out_probability,
            weight.astype(np.float64),
        ).log_loss
        for start in ("prior", None)
    ]
    assert losses[0] < losses[1] + 0.01
