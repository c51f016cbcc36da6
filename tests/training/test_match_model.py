"""The match model: folds by prompt, cross-fitting, determinism."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import lightgbm
import numpy as np
import pytest
from numpy.typing import NDArray

from treewise.data.errors import ParameterError
from treewise.training.calibrate import sigmoid
from treewise.training.cross_fit import FitRows, FittedModel, Int64Array, deal_folds
from treewise.training.match_model import ForestModel, ForestSettings
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

    @property
    def rows(self) -> FitRows:
        """As a fit takes them."""
        return FitRows(self.x, self.label, self.weight, self.fold, NAMES)


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
def fitted(law: Law) -> FittedModel:
    return ForestModel(SETTINGS).fit(law.rows)


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


def test_held_out_predictions_recover_the_law(law: Law, fitted: FittedModel) -> None:
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
    found = ForestModel(SETTINGS).fit(replace(law.rows, x=marked, label=noisy))
    held_out = figures(noisy.astype(np.float64), found.held_out_probability, np.ones(len(noisy)))
    assert held_out.log_loss > 0.65


def test_judged_rows_are_scored_by_the_models_of_other_folds(law: Law, fitted: FittedModel) -> None:
    again = ForestModel(SETTINGS).fit(replace(law.rows, judged_x=law.x[:50], judged_fold=law.fold[:50]))
    assert np.array_equal(again.judged_probability, fitted.held_out_probability[:50])


def test_two_fits_are_the_same(law: Law, fitted: FittedModel) -> None:
    steps: list[str] = []
    again = ForestModel(SETTINGS).fit(law.rows, steps.append)
    assert again.text == fitted.text
    assert again.calibration == fitted.calibration
    assert steps == [*(f"fold {number} of 5" for number in range(1, 6)), "final fit"]


def test_thresholds_are_float32_and_every_split_knows_where_nan_goes(fitted: FittedModel) -> None:
    trees = read_trees(fitted.text)
    assert len(trees) == fitted.trees
    for tree in trees:
        assert np.array_equal(tree.threshold, tree.threshold.astype(np.float32).astype(np.float64))
    kinds = [line.split("=")[1].split() for line in fitted.text.splitlines() if line.startswith("decision_type=")]
    assert {int(kind) >> 2 & 3 for part in kinds for kind in part} == {2}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("trees", 0), ("leaves", 1), ("learning_rate", 0.0), ("min_leaf_rows", 0)),
        *(("folds", 2), ("threads", 0), ("fold_rows", 1)),
    ],
)
def test_settings_that_cannot_be_used_are_refused(name: str, value: float) -> None:
    with pytest.raises(ParameterError, match=f"{name} must be"):
        ForestSettings(**{name: value})  # type: ignore[arg-type]


def test_the_first_tree_follows_the_feature_that_the_fit_starts_from(law: Law, fitted: FittedModel) -> None:
    started = ForestModel(SETTINGS, start="a").fit(law.rows)
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
    rows = FitRows(x, label, weight, fold, ("b", "c", "d", "prior"))
    losses = [
        figures(
            label.astype(np.float64),
            ForestModel(few, start).fit(rows).held_out_probability,
            weight.astype(np.float64),
        ).log_loss
        for start in ("prior", None)
    ]
    assert losses[0] < losses[1] + 0.01


def test_one_fit_of_many_rows_sees_a_part_of_them(law: Law, fitted: FittedModel) -> None:
    few = ForestModel(replace(SETTINGS, fold_rows=1000)).fit(law.rows)
    label, weight = law.label.astype(np.float64), law.weight.astype(np.float64)
    losses = [figures(label, one.held_out_probability, weight).log_loss for one in (few, fitted)]
    assert losses[1] < losses[0] < losses[1] + 0.1


@pytest.mark.parametrize("edges", [1, 31])
def test_the_first_tree_rises_with_its_feature_alone(law: Law, edges: int) -> None:
    settings = replace(SETTINGS, start_leaves=edges + 1, trees=2)
    text = ForestModel(settings, start="a").fit(law.rows).text
    first, _ = read_trees(text)
    assert len(first.leaf) <= edges + 1
    alone = text[: text.index("Tree=1\n")] + text[text.index("end of trees") :]
    alone = re.sub(r"^tree_sizes=.*\n", "", alone, flags=re.MULTILINE)
    raw = np.asarray(lightgbm.Booster(model_str=alone).predict(law.x, raw_score=True))
    order = np.argsort(law.x[:, 0])
    known = order[~np.isnan(law.x[order, 0])]
    assert (np.diff(raw[known]) >= 0).all()
    assert raw[known[-1]] > raw[known[0]] + 1.0
    assert len(np.unique(raw)) <= edges + 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": np.zeros((0, 4), dtype=np.float32)}, "rows must be at least one"),
        ({"features": ("a",)}, "x must be"),
        ({"fold": np.zeros(6000, dtype=np.int64)}, "folds must be >= 3"),
    ],
)
def test_rows_that_teach_nothing_are_refused(law: Law, change: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        replace(law.rows, **change)


def test_threads_change_nothing(law: Law, fitted: FittedModel) -> None:
    assert ForestModel(replace(SETTINGS, threads=2)).fit(law.rows).text == fitted.text.replace(
        "[num_threads: 1]", "[num_threads: 2]"
    )
