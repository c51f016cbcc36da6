"""What the match model states too surely where its own policy decides, by the sources that serve.

A policy looks at nodes of its own trees, at the roots where its own rounds open, and along paths that it found likely;
there a model that is calibrated on all rows states too much, and more so with fewer sources. So each fold's model plays
the policy on the prompts that it has not seen, and two numbers for each set of sources make up for what came of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from treewise.data.cost import CostProfile
from treewise.data.errors import BundleError
from treewise.policy.bundle import Bundle, Model
from treewise.policy.hook import Float32Array, Int8Array, RoundOutcome
from treewise.policy.learned import LearnedPolicy, ScorerName, uses_compiled
from treewise.policy.recalibration import Correction, Recalibration, RecalibrationSettings
from treewise.training.cross_fit import FoldModel
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay import replay
from treewise.training.training_rows import source_subsets

LEAST_SURVIVAL = 0.02  # of the nodes that are looked at: what is less likely is hardly ever kept
LEAST_ROWS = 300  # below it a set of sources goes without a correction
MOST_REQUESTS = 200  # of one trace that are replayed


class _NotingPolicy(LearnedPolicy):
    """Keeps what it stated of nodes whose parent was on the path, and whether they matched."""

    def __init__(self, bundle: Bundle, scorer: ScorerName) -> None:
        super().__init__(bundle, scorer)
        self.stated: list[Float32Array] = []
        self.matched: list[Int8Array] = []

    def observe(self, outcome: RoundOutcome) -> None:
        """Keep the round's."""
        super().observe(outcome)
        survival = self.survival
        if survival is None:
            return
        known = (outcome.match >= 0) & (outcome.nodes.parent >= 0) & (survival >= LEAST_SURVIVAL)
        self.stated.append(self.round_match[known].astype(np.float32))
        self.matched.append(outcome.match[known])


def fit_corrections(
    bundle: Bundle,
    models: Sequence[FoldModel],
    traces: Sequence[LoggedTrace],
    fold_of: Mapping[str, int],
    cost: CostProfile,
) -> dict[int, Correction]:
    """The corrections of `bundle`, by source bits, from dense `traces`; `models` [folds] stand in for its match model.

    `fold_of` is each prompt's fold. Sets of sources without enough rows have none.
    """
    plain = replace(bundle, corrections={})
    stated: dict[int, list[Float32Array]] = {}
    matched: dict[int, list[Int8Array]] = {}
    for trace in traces:
        if trace.manifest.kind != "dense":
            continue
        step = max(1, -(-len(trace.requests) // MOST_REQUESTS))
        few = trace.only(range(0, len(trace.requests), step)).in_memory()
        for part in (few, *source_subsets(few)):
            deployment = part.deployment(cost)
            for fold, model in enumerate(models):
                own = [request for request in part.requests if fold_of[request.prompt_id] == fold]
                policy = _noting(replace(plain, match=Model(b"", model.text, model.calibration)))
                replay(policy, own, deployment)
                stated.setdefault(part.sources, []).extend(policy.stated)
                matched.setdefault(part.sources, []).extend(policy.matched)
    found = {}
    for sources, parts in stated.items():
        if sum(len(part) for part in parts) >= LEAST_ROWS:
            found[sources] = _fit(np.concatenate(parts), np.concatenate(matched[sources]))
    return found


def _noting(bundle: Bundle) -> _NotingPolicy:
    try:
        return _NotingPolicy(bundle, "compiled" if uses_compiled("auto") else "flat")
    except BundleError:  # trees of more leaves than those scorers hold; what fits them is installed
        return _NotingPolicy(bundle, "lightgbm")


def _fit(probability: Float32Array, match: Int8Array) -> Correction:
    """The most probable correction of rows that all count alike."""
    fitted = Recalibration(RecalibrationSettings(memory_rows=10**9, refit_rows=len(match)))
    fitted.observe(probability, match)
    return Correction(fitted.intercept, fitted.slope)
