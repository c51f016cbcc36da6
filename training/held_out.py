"""Held-out figures of fitted models beside those of what they are to beat."""

from __future__ import annotations

import numpy as np

from treewise.training.cross_fit import FittedModel
from treewise.training.report import Comparison, compare
from treewise.training.rows import KINDS, Dataset


def match_figures(rows: Dataset, fitted: FittedModel) -> tuple[Comparison, ...]:
    """Of all match rows of the traces' own sources, then by kind; the baseline is the prior."""
    match = rows.match
    own = np.arange(len(match.label)) < (len(match.label) if rows.whole_rows is None else rows.whole_rows)
    parts = [("all", own)]
    parts += [(name, own & (match.kind == kind)) for kind, name in enumerate(KINDS)]
    return tuple(
        compare(name, match.label[on], fitted.held_out_probability[on], match.prior[on], match.weight[on])
        for name, on in parts
    )


def survival_figures(rows: Dataset, fitted: FittedModel) -> Comparison:
    """Of whole paths, as the match model alone states them: without a bundle's `corrections`. Baseline: path prior."""
    trees = rows.trees
    survival = fitted.judged_probability.copy()
    for row, parent in enumerate(trees.parent.tolist()):  # parents come first
        if parent >= 0:
            survival[row] *= survival[parent]
    return compare("survival", trees.survives, survival, trees.path_prior)


def growth_figures(rows: Dataset, fitted: FittedModel | None) -> Comparison:
    """Of growths; the baseline is the constant rate."""
    growth = rows.growth
    if fitted is None:
        nothing = np.zeros(0)
        return compare("growth", nothing, nothing, nothing)
    rate = float(np.average(growth.label, weights=growth.weight))
    constant = np.full(len(growth.label), rate)
    return compare("growth", growth.label, fitted.held_out_probability, constant, growth.weight)
