"""What verification rules do to the text and to the speed, as figures with intervals by prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treewise.data.errors import require
from treewise.training.ratios import Ratios, ratio_intervals
from treewise.training.replay_result import Float64Array, Int64Array
from treewise.training.statistics import RESAMPLES, Interval, Totals, speed_ratio


@dataclass(frozen=True, slots=True)
class QualityFigure:
    """One figure of a verification rule."""

    name: str
    heading: str  # in a table
    meaning: str
    is_share: bool = False  # of 1, shown in percent


FIGURES: tuple[QualityFigure, ...] = (
    QualityFigure("same", "same text", "share of texts that are plain decoding's, token by token", True),
    QualityFigure("kept", "kept", "share of plain decoding's tokens before the first difference", True),
    QualityFigure("rouge_l", "ROUGE-L", "F measure of the longest common subsequence of words with plain decoding's"),
    QualityFigure("json", "valid JSON", "share of the answers to prompts for JSON that are JSON", True),
    QualityFigure("passed", "tests pass", "share of the answers with tests whose code passes all of them", True),
    QualityFigure("tokens_per_round", "tokens per round", "tokens committed per verify pass"),
    QualityFigure("speedup", "over plain", "tokens per second over those of plain decoding, prefill left out"),
    QualityFigure("over_exact", "over exact", "tokens per second over those of the exact rule"),
)
NAMES = tuple(figure.name for figure in FIGURES)


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of one verification rule, or of plain decoding, prompt by prompt, and how good they are."""

    name: str  # the rule's spec, or "plain"
    tokens: Int64Array  # [prompts]
    rounds: Int64Array  # [prompts] verify passes
    ms: Float64Array  # [prompts] without prefill
    is_cut: NDArray[np.bool_]  # [prompts] ended by the longest answer allowed
    is_same: NDArray[np.bool_]  # [prompts] as plain decoding's
    shared_tokens: Int64Array  # [prompts] before the first difference from plain decoding's
    rouge_l: Float64Array  # [prompts]
    is_json: Float64Array  # [prompts] 1 or 0; NaN where the prompt asks for no JSON
    is_pass: Float64Array  # [prompts] 1 or 0; NaN where no tests were run

    def __post_init__(self) -> None:
        prompts = self.tokens.shape
        for name in ("rounds", "ms", "is_cut", "is_same", "shared_tokens", "rouge_l", "is_json", "is_pass"):
            require(getattr(self, name).shape == prompts, name, f"of shape {prompts}", getattr(self, name).shape)

    @property
    def is_identical(self) -> bool:
        """Whether every text is plain decoding's."""
        return bool(self.is_same.all())

    @property
    def num_differing(self) -> int:
        """Texts that are not plain decoding's."""
        return int((~self.is_same).sum())

    @property
    def first_differences(self) -> Int64Array:
        """Tokens before the first difference, of the texts that differ, ascending."""
        return np.sort(self.shared_tokens[~self.is_same])


@dataclass(frozen=True, slots=True)
class Change:
    """A yes or no of every answer, beside that of plain decoding."""

    right: int
    of: int
    lost: int  # plain decoding is right
    gained: int  # plain decoding is not

    @classmethod
    def between(cls, plain: Float64Array, found: Float64Array) -> Change:
        """From 1, 0 or NaN by prompt, each [prompts], NaN at the same places."""
        asked = ~np.isnan(found)
        was, now = plain[asked] > 0.5, found[asked] > 0.5
        return cls(int(now.sum()), int(asked.sum()), int((was & ~now).sum()), int((now & ~was).sum()))


def quality_figures(
    plain: Answers, exact: Answers, rules: Sequence[Answers], resamples: int = RESAMPLES, seed: int = 0
) -> Float64Array:
    """Value, low and high of every figure of every rule, [rules, figures, 3]; NaN where there is none.

    Percentile intervals of one bootstrap by prompt for all figures, so that they may be compared; they say what another
    choice of prompts would give, not what the clock's noise would. Raises `ParameterError` on unequal prompts.
    """
    values = np.full((len(rules), len(FIGURES), 3), np.nan)
    ones = np.ones(len(plain.tokens))
    for place, rule in enumerate(rules):
        asked, tested = ~np.isnan(rule.is_json), ~np.isnan(rule.is_pass)
        pairs = (
            (rule.is_same, ones),
            (rule.shared_tokens, plain.tokens),
            (rule.rouge_l, ones),
            (np.where(asked, rule.is_json, 0.0), asked),
            (np.where(tested, rule.is_pass, 0.0), tested),
            (rule.tokens, rule.rounds),
        )
        tops, bottoms = (np.stack(columns, axis=1).astype(np.float64) for columns in zip(*pairs, strict=True))
        values[place, : len(pairs)] = ratio_intervals(Ratios(tops, bottoms), resamples, seed)
        for figure, baseline in enumerate((plain, exact), start=len(pairs)):
            if rule.name != baseline.name:
                ratio = speed_ratio(_totals(rule), _totals(baseline), resamples, seed)
                values[place, figure] = (ratio.value, ratio.low, ratio.high)
    return values


def figure_of(values: Float64Array, name: str) -> Interval:
    """One figure of one rule, from `values` [figures, 3]. Raises `ParameterError` on an unknown name."""
    require(name in NAMES, "figure", f"one of {', '.join(NAMES)}", name)
    return Interval(*map(float, values[NAMES.index(name)]))


def take(answers: Answers, places: NDArray[np.intp]) -> Answers:
    """The answers at some of the prompts."""
    columns = (getattr(answers, name)[places] for name in Answers.__slots__ if name != "name")
    return Answers(answers.name, *columns)


def _totals(answers: Answers) -> Totals:
    return Totals(answers.tokens.astype(np.float64), answers.ms)
