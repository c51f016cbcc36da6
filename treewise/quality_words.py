"""What a report of `treewise quality` says in words, for the terminal and the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from treewise.quality_report import QualityReport

if TYPE_CHECKING:
    from treewise.training.quality import Answers, Change
    from treewise.training.statistics import Interval


def verdicts(report: QualityReport) -> list[str]:
    """One line for every rule."""
    from treewise.training.quality import figure_of

    values = report.figures()
    lines = [f"{answers.name}: {_text_verdict(answers)}" for answers in report.answers[1:]]
    exact = figure_of(values[1], "tokens_per_round").value
    for place, found in enumerate(values[2:], start=1):
        tokens = figure_of(found, "tokens_per_round").value
        speed = _speed(figure_of(found, "over_exact"))
        lines[place] += f"; {tokens:.2f} tokens per round where exact has {exact:.2f}, {speed}"
    return lines


def notes(report: QualityReport) -> list[str]:
    """What is to be known about the figures."""
    lines = []
    cut = int(report.plain.is_cut.sum())
    if cut:
        lines.append(f"{cut} of {_count(len(report.prompts), 'plain text')} cut off at {report.max_new_tokens} tokens")
        if not (np.isnan(report.plain.is_json).all() and np.isnan(report.plain.is_pass).all()):
            lines[-1] += "; JSON and code that are cut off count as wrong"
    if report.num_tests_not_run:
        lines.append(f"{_count(report.num_tests_not_run, 'prompt')} brought tests that were not run: see --run-tests")
    lines += [f"{figure}: {change}" for figure, change in _changes(report)]
    if report.temperature > 0.0:
        lines.append(f"at temperature {report.temperature:g} with seed {report.seed}, for plain decoding as well")
    return lines


def _text_verdict(answers: Answers) -> str:
    prompts = len(answers.tokens)
    if answers.is_identical:
        words = "the text" if prompts == 1 else f"each of {prompts} texts"
        return f"identical: {words} was found to be plain decoding's, token by token"
    places = answers.first_differences
    differ = f"{answers.num_differing} of {_count(prompts, 'text')} differ{'s' if answers.num_differing == 1 else ''}"
    first = _count(int(places[0]), "token")
    if len(places) == 1:
        return f"{differ}, after {first}"
    return f"{differ}, the first after {first}, half of them within {np.median(places):.0f}"


def _speed(over_exact: Interval) -> str:
    if over_exact.low > 1.0 or over_exact.high < 1.0:
        return f"{over_exact.value:.2f} x its speed"
    return "its speed within the interval"


def _changes(report: QualityReport) -> list[tuple[str, str]]:
    lines = []
    for answers in report.answers[2:]:
        for what, change in (("JSON", report.json_change(answers)), ("tests", report.test_change(answers))):
            if change.lost or change.gained:
                lines.append((f"{answers.name}, {what}", _change(change)))
    return lines


def _change(change: Change) -> str:
    before = change.right + change.lost - change.gained
    return f"right {change.right} times of {change.of}, plain {before}; {change.lost} lost, {change.gained} gained"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
