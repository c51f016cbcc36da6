"""What the match model states too surely where its own policy decides, by the sources that serve.

A policy looks at nodes of its own trees, at the roots where its own rounds open, and along paths that it found likely;
there a model that is calibrated on all rows states too much, and more so with fewer sources. So each fold's model plays
the policy on the prompts that it has not seen, and three numbers for each set of sources make up for what came of it:
an intercept and a slope of log-odds, and what each level below the first adds to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize

from treewise.data.cost import CostProfile
from treewise.data.errors import BundleError
from treewise.policy.bundle import Bundle, Model
from treewise.policy.hook import Float32Array, Int8Array, Int32Array, RoundOutcome
from treewise.policy.learned import LearnedPolicy, ScorerName, uses_compiled
from treewise.policy.recalibration import (
    LARGEST_INTERCEPT,
    LARGEST_TILT,
    SLOPES,
    Correction,
    Float64Array,
    levels_below,
    log_odds,
)
from treewise.training.calibrate import sigmoid
from treewise.training.cross_fit import FoldModel
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay import replay
from treewise.training.stored_requests import grouped
from treewise.training.training_rows import source_subsets

LEAST_SURVIVAL = 0.02  # of the nodes that are looked at: what is less likely is hardly ever kept
LEAST_ROWS = 300  # below it a set of sources goes without a correction
MOST_REQUESTS = 200  # of one trace that are replayed
RIDGE = np.asarray([20.0, 60.0, 20.0])  # pulls towards the identity, in units of information: rows times p (1 - p)
_IDENTITY = np.asarray([0.0, 1.0, 0.0])
_BOUNDS = ((-LARGEST_INTERCEPT, LARGEST_INTERCEPT), SLOPES, (-LARGEST_TILT, LARGEST_TILT))


class _NotingPolicy(LearnedPolicy):
    """Keeps what it stated of nodes whose parent was on the path, and whether they matched, once a round.

    Replay drives the first rounds of some requests a second time, to see that a batch decides as a request alone.
    """

    def __init__(self, bundle: Bundle, scorer: ScorerName) -> None:
        super().__init__(bundle, scorer)
        self.stated: list[Float32Array] = []
        self.matched: list[Int8Array] = []
        self.depths: list[Int32Array] = []
        self.seen: set[tuple[int, int]] = set()  # (request, position of the root) of the group that is replayed

    def observe(self, outcome: RoundOutcome) -> None:
        """Keep the round's."""
        super().observe(outcome)
        survival = self.survival
        if survival is None:
            return
        context = outcome.context
        roots = list(zip(context.request_id.tolist(), context.position.tolist(), strict=True))
        is_new = np.asarray([root not in self.seen for root in roots])
        self.seen.update(roots)
        known = (outcome.match >= 0) & (outcome.nodes.parent >= 0) & (survival >= LEAST_SURVIVAL)
        known &= is_new[outcome.nodes.request]
        self.stated.append(self.round_match[known].astype(np.float32))
        self.matched.append(outcome.match[known])
        self.depths.append(outcome.nodes.depth[known])


def fit_corrections(
    bundle: Bundle,
    models: Sequence[FoldModel],
    traces: Sequence[LoggedTrace],
    fold_of: Mapping[str, int],
    cost: CostProfile,
    step: Callable[[], None] = lambda: None,
) -> dict[int, Correction]:
    """The corrections of `bundle`, by source bits, from dense `traces`; `models` [folds] stand in for its match model.

    `fold_of` is each prompt's fold. Sets of sources without enough rows have none. `step` is called after each
    replayed request.
    """
    plain = replace(bundle, corrections={})
    stated: dict[int, list[Float32Array]] = {}
    matched: dict[int, list[Int8Array]] = {}
    depths: dict[int, list[Int32Array]] = {}
    for trace in traces:
        if trace.manifest.kind != "dense":
            continue
        few = trace.only(_replayed(trace)).in_memory()
        for part in (few, *source_subsets(few)):
            deployment = part.deployment(cost)
            for fold, model in enumerate(models):
                own = [request for request in part.requests if fold_of[request.prompt_id] == fold]
                policy = _noting(replace(plain, match=Model(b"", model.text, model.calibration)))
                for group in grouped(own):
                    policy.seen.clear()  # requests are counted anew
                    replay(policy, group, deployment, step)
                stated.setdefault(part.sources, []).extend(policy.stated)
                matched.setdefault(part.sources, []).extend(policy.matched)
                depths.setdefault(part.sources, []).extend(policy.depths)
    found = {}
    for sources, parts in stated.items():
        if sum(len(part) for part in parts) >= LEAST_ROWS:
            found[sources] = fit_correction(
                np.concatenate(parts), np.concatenate(matched[sources]), np.concatenate(depths[sources])
            )
    return found


def count_replays(traces: Sequence[LoggedTrace]) -> int:
    """Requests that `fit_corrections` replays."""
    dense = [trace for trace in traces if trace.manifest.kind == "dense"]
    return sum(len(_replayed(trace)) * (1 + len(source_subsets(trace))) for trace in dense)


def _replayed(trace: LoggedTrace) -> range:
    """Places of the requests that are replayed, spread over the trace."""
    return range(0, len(trace.requests), max(1, -(-len(trace.requests) // MOST_REQUESTS)))


def _noting(bundle: Bundle) -> _NotingPolicy:
    try:
        return _NotingPolicy(bundle, "compiled" if uses_compiled("auto") else "flat")
    except BundleError:  # trees of more leaves than those scorers hold; what fits them is installed
        return _NotingPolicy(bundle, "lightgbm")


def fit_correction(probability: Float32Array, match: Int8Array, depth: Int32Array) -> Correction:
    """The most probable correction of rows [n] that stated `probability` at `depth` and matched or not."""
    design = np.stack([np.ones(len(match)), log_odds(probability), levels_below(depth)], axis=1)
    label = match.astype(np.float64)

    def loss(theta: Float64Array) -> tuple[float, Float64Array]:
        odds, off = design @ theta, theta - _IDENTITY
        # log(1 + exp(odds)) - label * odds, and its gradient
        value = float((np.logaddexp(0.0, odds) - label * odds).sum() + 0.5 * RIDGE @ (off * off))
        return value, (sigmoid(odds) - label) @ design + RIDGE * off

    found = minimize(loss, _IDENTITY, jac=True, method="L-BFGS-B", bounds=_BOUNDS)
    return Correction(*(float(part) for part in found.x))
