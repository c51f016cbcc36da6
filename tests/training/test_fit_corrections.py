"""Corrections by sources: what a model states too surely is taken back, and nothing is made up from few rows."""

from __future__ import annotations

from dataclasses import astuple, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.training.test_fit import ENVELOPE, FAST, of_pair
from tests.training.worlds import COST, World, dense_trace
from treewise.data.errors import BundleError
from treewise.policy.bundle import Bundle
from treewise.policy.guard import GuardedPolicy
from treewise.policy.hook import DRAFT, FREE, LOOKUP
from treewise.policy.learned import LearnedPolicy, ScorerName
from treewise.policy.recalibration import NO_CORRECTION, Correction
from treewise.policy.scorer import Calibration
from treewise.policy.shared_budget import SharedBudgetPolicy
from treewise.training.cross_fit import FoldModel
from treewise.training.fit import NamedTrace, train_on
from treewise.training.fit_corrections import count_replays, fit_correction, fit_corrections
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay import replay
from treewise.training.training_rows import source_subsets


@pytest.fixture(scope="module")
def trace() -> LoggedTrace:
    return of_pair(dense_trace(World(seed=2, num_texts=6, answer_tokens=64), ENVELOPE))


@pytest.fixture(scope="module")
def bundle(trace: LoggedTrace, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("trained") / "bundle"
    train_on([NamedTrace(trace, "h")], COST, folder, FAST)
    return Bundle.load(folder)


def shifted(bundle: Bundle, odds: float) -> list[FoldModel]:
    """Two folds of the bundle's own match model, its log-odds raised."""
    own = bundle.match.calibration
    return [FoldModel(bundle.match.text, Calibration(own.knots_x, tuple(y + odds for y in own.knots_y)))] * 2


def test_what_is_stated_too_surely_is_taken_back(trace: LoggedTrace, bundle: Bundle) -> None:
    fold_of = {request.prompt_id: place % 2 for place, request in enumerate(trace.requests)}
    surer, honest = (
        fit_corrections(bundle, shifted(bundle, odds), [trace], fold_of, COST)[trace.sources] for odds in (1.5, 0.0)
    )
    # In the surer model's own log-odds the honest one's correction is this; the trees and the ridge differ a little.
    assert surer.intercept == pytest.approx(honest.intercept - 1.5 * honest.slope, abs=0.6)
    assert surer.intercept < honest.intercept - 0.7


def test_every_round_counts_once_and_every_replay_is_told(
    trace: LoggedTrace, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Side by side, first rounds are driven a second time, to see that they are decided as alone."""
    fold_of = {request.prompt_id: place % 2 for place, request in enumerate(trace.requests)}
    traces = [trace, replace(trace, manifest=replace(trace.manifest, kind="live"))]  # live ones are left out
    steps: list[None] = []
    together = fit_corrections(bundle, shifted(bundle, 0.5), traces, fold_of, COST, lambda: steps.append(None))
    assert len(steps) == count_replays(traces) == len(trace.requests) * (1 + len(source_subsets(trace)))
    monkeypatch.setattr("treewise.training.fit_corrections.replay", partial(replay, batch_requests=1))
    alone = fit_corrections(bundle, shifted(bundle, 0.5), traces, fold_of, COST)
    for sources, correction in alone.items():
        found = together[sources]
        assert astuple(found) == pytest.approx(astuple(correction), abs=1e-4)
    assert together.keys() == alone.keys()


def test_every_choice_of_sources_has_its_own(trace: LoggedTrace, bundle: Bundle) -> None:
    assert set(bundle.corrections) <= {trace.sources, DRAFT, FREE & trace.sources, LOOKUP}
    assert trace.sources in bundle.corrections
    few = replace(trace, requests=trace.requests[:1])
    none = replace(trace, requests=())
    assert not fit_corrections(bundle, shifted(bundle, 0.0), [none, few], {few.requests[0].prompt_id: 0}, COST)


def test_trees_that_only_lightgbm_runs_are_corrected_too(
    trace: LoggedTrace, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    fold_of = {request.prompt_id: place % 2 for place, request in enumerate(trace.requests)}
    usual = fit_corrections(bundle, shifted(bundle, 0.5), [trace], fold_of, COST)[trace.sources]
    monkeypatch.setattr("treewise.policy.flat_scorer.MAX_LEAVES", 1)
    with pytest.raises(BundleError, match="leaves"):
        LearnedPolicy(bundle, "flat")
    found = fit_corrections(bundle, shifted(bundle, 0.5), [trace], fold_of, COST)[trace.sources]
    assert astuple(found) == pytest.approx(astuple(usual), abs=1e-3)


def test_what_serves_is_corrected_once(trace: LoggedTrace, bundle: Bundle) -> None:
    """As machine code, in numpy, and behind the guard's own correction while that is the identity."""
    strong = Correction(-1.0, 0.8, -0.1)
    corrected = replace(bundle, corrections={trace.sources: strong})
    rows = np.random.default_rng(0).random((64, len(bundle.features))).astype(np.float32)
    depth = rows[:, bundle.features.index("depth")] = np.arange(64) % 8 + 1.0
    deployment = trace.deployment(COST)
    names: tuple[ScorerName, ...] = ("flat", "lightgbm", "onnx", "auto")
    for make in (LearnedPolicy, SharedBudgetPolicy, GuardedPolicy):
        for scorer in names:
            policy, plain = make(corrected, scorer), make(replace(bundle, corrections={}), scorer)
            policy.bind(deployment)
            policy.bind(deployment)  # each replay binds anew
            plain.bind(deployment)
            stated = plain._match.score(rows)
            np.testing.assert_array_equal(policy._match.score(rows), strong.corrected(stated, depth))
            assert not np.allclose(policy._match.score(rows), stated)


def test_a_bundle_corrects_by_the_sources_that_serve(trace: LoggedTrace, bundle: Bundle, tmp_path: Path) -> None:
    again = Bundle.load(bundle.save(tmp_path / "again"))
    assert again.corrections == bundle.corrections
    policy = LearnedPolicy(again)
    for sources in (trace.sources, DRAFT):
        policy.bind(replace(trace, sources=sources).deployment(COST))
        assert policy._corrected.correction == bundle.corrections.get(sources, NO_CORRECTION)


def test_a_known_miscalibration_comes_back() -> None:
    """200,000 rows: a parameter's standard error is about .01, its tolerance five times that."""
    rng = np.random.default_rng(3)
    depth = rng.integers(1, 9, 200_000).astype(np.int32)
    odds = rng.normal(0.0, 1.5, len(depth))
    true = -0.3 + 0.8 * odds - 0.2 * np.minimum(depth - 1, 5)
    match = (rng.random(len(depth)) < 1.0 / (1.0 + np.exp(-true))).astype(np.int8)
    found = fit_correction((1.0 / (1.0 + np.exp(-odds))).astype(np.float32), match, depth)
    assert astuple(found) == pytest.approx((-0.3, 0.8, -0.2), abs=0.05)
    few = fit_correction(np.full(3, 0.5, dtype=np.float32), np.zeros(3, dtype=np.int8), np.ones(3, dtype=np.int32))
    assert astuple(few) == pytest.approx((0.0, 1.0, 0.0), abs=0.1)  # the ridge holds where there is nothing to learn
