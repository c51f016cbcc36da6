"""Corrections by sources: what a model states too surely is taken back, and nothing is made up from few rows."""

from __future__ import annotations

from dataclasses import replace
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
from treewise.training.fit_corrections import fit_corrections
from treewise.training.logged_trace import LoggedTrace


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
    assert (found.intercept, found.slope) == pytest.approx((usual.intercept, usual.slope), abs=1e-3)


def test_what_serves_is_corrected_once(trace: LoggedTrace, bundle: Bundle) -> None:
    """As machine code, in numpy, and behind the guard's own correction while that is the identity."""
    strong = Correction(-1.0, 0.8)
    corrected = replace(bundle, corrections={trace.sources: strong})
    rows = np.random.default_rng(0).random((64, len(bundle.features))).astype(np.float32)
    deployment = trace.deployment(COST)
    names: tuple[ScorerName, ...] = ("flat", "lightgbm", "onnx", "auto")
    for make in (LearnedPolicy, SharedBudgetPolicy, GuardedPolicy):
        for scorer in names:
            policy, plain = make(corrected, scorer), make(replace(bundle, corrections={}), scorer)
            policy.bind(deployment)
            policy.bind(deployment)  # each replay binds anew
            plain.bind(deployment)
            stated = plain._match.score(rows)
            np.testing.assert_array_equal(policy._match.score(rows), strong.corrected(stated))
            assert not np.allclose(policy._match.score(rows), stated)


def test_a_bundle_corrects_by_the_sources_that_serve(trace: LoggedTrace, bundle: Bundle, tmp_path: Path) -> None:
    again = Bundle.load(bundle.save(tmp_path / "again"))
    assert again.corrections == bundle.corrections
    policy = LearnedPolicy(again)
    for sources in (trace.sources, DRAFT):
        policy.bind(replace(trace, sources=sources).deployment(COST))
        assert policy._corrected.correction == bundle.corrections.get(sources, NO_CORRECTION)
