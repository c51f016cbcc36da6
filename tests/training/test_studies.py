"""Learning curves, ablations and the signals that only those see, on a made-up world."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.training.worlds import World, dense_trace
from treewise.data.envelope import Envelope
from treewise.data.errors import ParameterError
from treewise.policy.features import FEATURE_GROUPS, FEATURES, GROWTH_FEATURES
from treewise.training.ablation import (
    ADDED,
    ALL,
    ALONE,
    GROWTH_GROUPS,
    LEFT_OUT,
    Ablation,
    ablate,
    count_trials,
    variants,
)
from treewise.training.dataset import DatasetSettings
from treewise.training.dataset_batch import build_dataset_batched
from treewise.training.extra_signals import ExtraSignals, build_with_extras, token_surplus
from treewise.training.learning_curve import count_models, in_turns, learning_curve
from treewise.training.log_loss import mean_interval, row_losses
from treewise.training.logged_trace import LoggedTrace
from treewise.training.match_model import ForestModel, ForestSettings
from treewise.training.rows import KINDS, Dataset

ENVELOPE = Envelope(max_depth=3, draft_width=3, lookup_width=2, min_path_prior=0.03, min_grow_prior=0.08)
FEW = ForestSettings(trees=8, leaves=7, learning_rate=0.3, min_leaf_rows=20)
FOREST = ForestModel(FEW, "log_prior")


@pytest.fixture(scope="module")
def trace() -> LoggedTrace:
    return dense_trace(World(seed=5, num_texts=9, answer_tokens=80), ENVELOPE)


@pytest.fixture(scope="module")
def built(trace: LoggedTrace) -> tuple[Dataset, ExtraSignals]:
    return build_with_extras([trace], None, DatasetSettings(stride=2))


@pytest.fixture(scope="module")
def ablation(built: tuple[Dataset, ExtraSignals]) -> Ablation:
    return ablate(*built, FEW, FEW)


def test_a_curve_judges_every_share_on_the_same_rows(built: tuple[Dataset, ExtraSignals]) -> None:
    rows, steps = built[0], list[None]()
    curve = learning_curve(rows, FOREST, (0.5, 1.0), step=lambda: steps.append(None))
    few, whole = curve.points
    assert (few.prompts, whole.prompts) == (3.0, 6.0)
    assert 0 < few.rows < whole.rows < len(rows.match.label) == curve.rows
    assert whole.log_loss.value < curve.prior_log_loss.value
    assert few.above_all.value == pytest.approx(few.log_loss.value - whole.log_loss.value)
    assert (whole.above_all.low, whole.above_all.high) == (0.0, 0.0)
    assert len(steps) == count_models((0.5, 1.0)) == 6
    assert curve.to_json()["points"][0]["log_loss"]["value"] == few.log_loss.value
    assert curve == learning_curve(rows, FOREST, (0.5, 1.0))


def test_parts_of_the_prompts_are_balanced(built: tuple[Dataset, ExtraSignals]) -> None:
    rows = built[0]
    order = in_turns(np.arange(len(rows.prompts)), rows, 0)
    assert sorted(order.tolist()) == list(range(len(rows.prompts)))
    for end in range(2, len(order)):
        tasks = [rows.tasks[prompt] for prompt in order[:end]]
        assert abs(tasks.count("copy") - tasks.count("chat")) <= 2


@pytest.mark.parametrize("shares", [(), (0.5,), (1.0, 0.5), (0.0, 1.0)])
def test_shares_ascend_to_all(built: tuple[Dataset, ExtraSignals], shares: tuple[float, ...]) -> None:
    with pytest.raises(ParameterError, match="shares must be ascending"):
        learning_curve(built[0], FOREST, shares)


def test_a_curve_needs_prompts(trace: LoggedTrace) -> None:
    few = build_dataset_batched([replace(trace, requests=trace.requests[:8])])
    with pytest.raises(ParameterError, match="prompts must be at least 9 for a curve, got 8"):
        learning_curve(few, FOREST)


def test_groups_are_of_all_features() -> None:
    assert sorted(name for group in GROWTH_GROUPS.values() for name in group) == sorted(GROWTH_FEATURES)
    found = list(variants(FEATURE_GROUPS, {"more": ("x", "y")}))
    assert found[0].columns == FEATURES
    assert found[-1].columns == (*FEATURES, "x", "y")
    for variant in found:
        own = FEATURE_GROUPS.get(variant.group, ())
        if variant.use == LEFT_OUT:
            assert set(variant.columns) == set(FEATURES) - set(own)
        if variant.use == ALONE:
            assert set(variant.columns) == {*own, "log_prior"}
        assert len(set(variant.columns)) == len(variant.columns)
    assert len(found) == 2 + 2 * len(FEATURE_GROUPS)


def test_every_group_is_tried(ablation: Ablation) -> None:
    assert len(ablation.trials) == count_trials(True, True)
    match = [trial for trial in ablation.trials if trial.model == "match"]
    assert {trial.group for trial in match if trial.use == ADDED} == {"task", "token identity", "target state"}
    whole = match[0]
    assert (whole.use, whole.change.value, whole.by_kind) == (ALL, 0.0, (0.0,) * len(KINDS))
    for trial in match[1:]:
        beside = ablation.prior_log_loss if trial.use == ALONE else whole.log_loss
        assert trial.change.value == pytest.approx(trial.log_loss - beside)
        assert trial.change.low <= trial.change.value <= trial.change.high
    changes = {trial.group: trial.change.value for trial in match if trial.use == LEFT_OUT}
    assert changes["drawn"] == pytest.approx(0.0, abs=1e-9)  # at temperature 0 there is no noise to know
    alone = {trial.group: trial.change.value for trial in match if trial.use == ALONE}
    assert alone["draft"] < alone["drawn"] < 0.0
    assert ablation.to_json()["trials"][0]["by_kind"]["both"] == 0.0


def test_extra_signals_stand_beside_the_match_rows(trace: LoggedTrace, built: tuple[Dataset, ExtraSignals]) -> None:
    rows, extra = built
    same = build_dataset_batched([trace], settings=DatasetSettings(stride=2))
    np.testing.assert_array_equal(rows.match.x, same.match.x)
    assert len(extra.token) == len(extra.target_margin) == len(rows.match.label)
    assert (extra.token >= 0).all()
    assert not np.array_equal(extra.token, extra.parent_token)
    short = replace(extra, token=extra.token[1:])
    with pytest.raises(ParameterError, match="extra signals must be of the"):
        ablate(rows, short, FEW, FEW)


def test_no_row_reads_its_own_folds_labels(built: tuple[Dataset, ExtraSignals]) -> None:
    match, tokens = built[0].match, built[1].token
    fold = match.prompt.astype(np.int64) % 3
    encoded = token_surplus(match, tokens, fold)
    assert len(np.unique(encoded)) > 10
    own = fold == 1
    flipped = replace(match, label=np.where(own, 1 - match.label, match.label).astype(np.int8))
    again = token_surplus(flipped, tokens, fold)
    np.testing.assert_array_equal(encoded[own], again[own])
    assert not np.array_equal(encoded[~own], again[~own])
    lone = np.arange(len(tokens), dtype=np.int32)  # tokens that no other fold has met
    assert not token_surplus(match, lone, fold).any()


def test_losses_by_row_and_their_interval() -> None:
    label, probability = np.asarray([1, 0, 1]), np.asarray([0.5, 0.25, 0.0])
    np.testing.assert_allclose(row_losses(label, probability), [np.log(2), -np.log(0.75), -np.log(1e-6)])
    values, weight = np.asarray([1.0, 2.0, 3.0, 9.0]), np.asarray([1.0, 1.0, 2.0, 0.0])
    found = mean_interval(values, weight, np.asarray([4, 4, 7, 7]))
    assert found.value == pytest.approx(9 / 4)
    assert found.low == pytest.approx(1.5)
    assert found.high == pytest.approx(3.0)


def test_progress_is_told(built: tuple[Dataset, ExtraSignals]) -> None:
    steps: list[None] = []
    rows = built[0]
    bare = replace(rows, growth=replace(rows.growth, label=np.zeros_like(rows.growth.label)))
    found = ablate(bare, None, FEW, FEW, step=lambda: steps.append(None))
    assert len(steps) == len(found.trials) == count_trials(False, False)
