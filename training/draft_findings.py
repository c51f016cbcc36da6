"""Findings on what is guessed: how often the draft agrees, whether it states what it knows, what length does."""

from __future__ import annotations

import math

import numpy as np

from treewise.training.findings import Finding, Limits
from treewise.training.positions import Positions
from treewise.training.ratios import Ratios, ratio_intervals
from treewise.training.replay_result import Float64Array
from treewise.training.report import calibration_error
from treewise.training.statistics import Interval

LEAST_GUESSES = 100  # below it a temperature is not fitted
TEMPERATURES = (0.05, 20.0)  # that are looked at


def draft_findings(found: Positions, limits: Limits) -> tuple[Finding, ...]:
    """Agreement and temperature; `found` must hold a draft."""
    return draft_agreement(found, limits), draft_temperature(found, limits)


def draft_agreement(found: Positions, limits: Limits) -> Finding:
    """Whether the draft's first guess is ever right."""
    known = ~np.isnan(found.first)
    figure = _mean(found, np.where(known, found.first, 0.0), known)
    return Finding(
        "draft agreement",
        figure.value,
        f"share of the draft's first guesses that are the target's token: {figure}, {int(known.sum()):,} guesses",
        "the draft hardly ever agrees: check that it has the target's tokenizer, chat template and family; distil one "
        "(`treewise distill`), or leave it out (`--draft none`)",
        low=limits.draft_agreement,
    )


def draft_temperature(found: Positions, limits: Limits) -> Finding:
    """Whether the draft's probabilities mean what they say, as a temperature that would mend them."""
    known = ~(np.isnan(found.stated) | np.isnan(found.right))
    stated, right = found.stated[known], found.right[known]
    temperature, words = None, f"{len(stated)} guesses, {LEAST_GUESSES} are needed"
    if len(stated) >= LEAST_GUESSES:
        temperature = fitted_temperature(stated, right)
        error = calibration_error(right, stated, np.ones(len(right)))
        words = (
            f"temperature at which the draft's first choices would be as sure as they are right: stated "
            f"{stated.mean():.3f}, right {right.mean():.3f}, ECE {error:.3f}; entropy of the draft "
            f"{found.draft_entropy_bits[known].mean():.2f} bits, of the target {np.nanmean(found.entropy_bits):.2f}"
        )
    return Finding(
        "draft temperature",
        temperature,
        words,
        "the draft's probabilities do not mean what they say (above the band too sharp, below it too flat), so that "
        "rules with thresholds keep too much or too little: train a policy on your traces, which recalibrates it "
        "(`treewise train`), or tune thresholds (`treewise tune`); where draft and target are served at different "
        "temperatures, give them the same",
        low=1.0 / limits.draft_temperature,
        high=limits.draft_temperature,
    )


def context_acceptance(found: Positions, limits: Limits) -> Finding:
    """What length does to acceptance: the later half of every text against its earlier half."""
    half = found.text_tokens // 2
    early, late = found.place < half, found.place >= found.text_tokens - half
    figure = _mean(found, np.where(late, found.any_run, 0.0), np.where(early, found.any_run, 0.0))
    low, high = int(found.context_tokens.min()), int(found.context_tokens.max())
    return Finding(
        "context: acceptance",
        None if math.isnan(figure.value) else figure.value,
        f"tokens that the logged trees would get accepted, later over earlier half of the texts: {figure}; contexts of "
        f"{low:,} to {high:,} tokens",
        "guesses grow worse with the context: a draft that was trained on short texts needs long ones; smaller trees "
        "as the context grows (`guarded:DIR`, or a policy that reads prices)",
        low=limits.context_acceptance,
    )


def fitted_temperature(stated: Float64Array, right: Float64Array) -> float:
    """Temperature t at which odds `stated` [n] raised to 1/t are most likely to have brought `right` [n].

    Above 1 the draft is sharper than it is right, below 1 flatter. Maximum likelihood of logit(p) / t against a match
    or none, found by bisection on its slope in 1/t, which falls; within `TEMPERATURES`.
    """
    odds = np.log(np.clip(stated, 1e-6, 1.0 - 1e-6))
    odds -= np.log1p(-np.clip(stated, 1e-6, 1.0 - 1e-6))
    low, high = 1.0 / TEMPERATURES[1], 1.0 / TEMPERATURES[0]
    for _ in range(60):
        middle = (low + high) / 2.0
        slope = float((odds * (right - 1.0 / (1.0 + np.exp(-middle * odds)))).sum())
        low, high = (middle, high) if slope > 0.0 else (low, middle)
    return 2.0 / (low + high)


def _mean(found: Positions, tops: Float64Array, bottoms: Float64Array) -> Interval:
    """Sum of `tops` over that of `bottoms`, each [positions], with its interval by prompt."""
    prompts, place = np.unique(found.prompt_id, return_inverse=True)
    sums = [np.bincount(place, values, len(prompts)).reshape(-1, 1).astype(np.float64) for values in (tops, bottoms)]
    return Interval(*ratio_intervals(Ratios(*sums))[0].tolist())
