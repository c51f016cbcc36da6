"""How often guesses at each depth of a chain come true: a model's estimate, corrected by what was observed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from treewise.policy.hook import BoolArray

Float64Array = NDArray[np.float64]

WINDOW = 200.0  # trials after which an observation counts 1/e
DEEP_WINDOW = 4.0  # times the window: observations of depths that are not drafted at present fade more slowly
SHORT_WINDOW = 24.0  # trials of the count that notices a change
ALARM = 4.0  # standard deviations between the two counts at which the longer one is dropped
PRIOR_TRIALS = 4.0  # trials that the expectation from the depth above counts for
FLOOR = 1e-4  # probabilities stay this far from 0 and 1


class DepthCalibration:
    """Conditional match probability per depth: q(r, d) = sigmoid(logit(base(r)) + shift(d)).

    `base(r)` is what a model says of request r before anything is drafted. At depth d, n(d) trials (guesses whose
    parent was accepted) with mean base p(d) had m(d) matches, each count fading with time. With k = `PRIOR_TRIALS` and
    shift(0) = 0:

        expected(d) = sigmoid(logit(p(d)) + shift(d - 1))
        shift(d)    = logit((m(d) + k expected(d)) / (n(d) + k)) - logit(p(d))

    so a depth that was never tried inherits the correction of the depth above, and one that was tried often stands on
    its own counts. Exact where the base is the same for all requests; elsewhere the shift moves the mean's odds.

    A second set of counts fades within `SHORT_WINDOW` trials. Where its matches m' of n' trials are `ALARM` standard
    deviations sqrt(n' s (1 - s) / 2) away from the long share s = m / n (an exponentially weighted sum of n' trials has
    half their variance), acceptance has changed, and the short counts replace the long ones at that depth.
    """

    def __init__(self, max_depth: int) -> None:
        # Trials, matches and sum of bases; entry d - 1 is of depth d.
        self._long: Float64Array = np.zeros((3, max_depth))
        self._short: Float64Array = np.zeros((3, max_depth))

    def conditional(self, base: Float64Array) -> Float64Array:
        """Match probability at every depth given the guess above matched, [requests, depths]; `base` is [requests]."""
        return _sigmoid(_logit(base)[:, None] + self.shifts())

    def shifts(self) -> Float64Array:
        """Correction of the log-odds at every depth, [depths]."""
        found = np.empty(self._long.shape[1])
        above = 0.0
        for depth, (trials, matched, predicted) in enumerate(self._long.T.tolist()):
            if trials > 0.0:
                odds = _odds(predicted / trials)
                expected = 0.5 + 0.5 * math.tanh(0.5 * (odds + above))
                share = (matched + PRIOR_TRIALS * expected) / (trials + PRIOR_TRIALS)
                above = _odds(share) - odds
            found[depth] = above
        return found

    def add(self, base: Float64Array, accepted: NDArray[np.integer], depth: int) -> None:
        """Take chains of `depth` >= 1 guesses of which each request accepted the first `accepted` [requests]."""
        age = len(base) / WINDOW
        fade = np.full(self._long.shape[1], np.exp(-age / DEEP_WINDOW))
        fade[:depth] = np.exp(-age)
        self._long *= fade
        self._short[:, :depth] *= np.exp(-len(base) / SHORT_WINDOW)
        tried, came_true = tried_and_true(accepted, depth)
        bases = np.where(tried, base[:, None], 0.0)
        taken = np.stack([part.sum(axis=0, dtype=np.float64) for part in (tried, came_true, bases)])
        self._long[:, :depth] += taken
        self._short[:, :depth] += taken
        trials, matched = self._short[:2]
        share = np.clip(self._long[1] / np.maximum(self._long[0], 1.0), 0.01, 0.99)
        spread = np.sqrt(0.5 * trials * share * (1.0 - share))
        changed = (trials < self._long[0]) & (np.abs(matched - trials * share) > ALARM * spread)
        self._long[:, changed] = self._short[:, changed]


def tried_and_true(accepted: NDArray[np.integer], depth: int) -> tuple[BoolArray, BoolArray]:
    """Which guesses of chains of `depth` had an accepted parent, and which were accepted, [requests, depth] each."""
    depths = np.arange(1, depth + 1)
    return np.asarray(accepted[:, None] >= depths - 1), np.asarray(accepted[:, None] >= depths)


def _odds(probability: float) -> float:
    inside = min(max(probability, FLOOR), 1.0 - FLOOR)
    return math.log(inside / (1.0 - inside))


def _logit(probability: Float64Array) -> Float64Array:
    inside = np.clip(probability, FLOOR, 1.0 - FLOOR)
    return np.asarray(np.log(inside / (1.0 - inside)))


def _sigmoid(odds: Float64Array) -> Float64Array:
    return np.asarray(0.5 + 0.5 * np.tanh(0.5 * odds))
