"""Fitting a recogniser: families, folds, calibration, the same arithmetic as scikit-learn's, and its report."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from tests.policy.recognisers import tiny_recogniser
from treewise.data.errors import ParameterError
from treewise.data.prompt_set import Prompt, own_prompts
from treewise.policy.task_recogniser import TaskRecogniser
from treewise.policy.task_text import READERS
from treewise.training.task_recogniser import (
    FittedRecogniser,
    RecogniserSettings,
    _temperature,
    deal_families,
    families,
    fit_recogniser,
)
from treewise.training.task_report import is_same_task, recogniser_report

FEW = RecogniserSettings(terms=300, shared_words=2)  # so that prompts of one template are one family
WORDS = ("rivers", "engines", "owls", "bread", "winter", "trains", "maps", "clocks")


def made_up() -> Iterator[Prompt]:
    """Three tasks of four templates each: eight prompts of every template."""
    templates = {
        "code": (
            "def about {}: return",
            "write code in python for {}",
            "a function {} with {{braces}}",
            "debug {} code",
        ),
        "story": ("tell a story of {}", "once upon a time {} lived", "a poem on {} please", "write a tale about {}"),
        "question": ("what are {}?", "why do {} exist?", "how many {} are there?", "who invented {}?"),
    }
    for task, forms in templates.items():
        for number, form in enumerate(forms):
            for word in WORDS:
                yield Prompt(f"{task}/{number}/{word}", task, form.format(word))


@pytest.fixture(scope="module")
def prompts() -> tuple[Prompt, ...]:
    return tuple(made_up())


@pytest.fixture(scope="module")
def fitted(prompts: tuple[Prompt, ...]) -> FittedRecogniser:
    return fit_recogniser(prompts, FEW, ("made up",))


def test_families_share_a_run_of_words() -> None:
    texts = ["a b c d one", "z a b c d", "b c d two e f", "e f unlike", "B, C d TWO"]
    assert families(texts, 4).tolist() == [0, 0, 2, 3, 2]
    assert len(set(families(texts, 2).tolist())) == 1
    assert len(set(families(["short", "short", "other"], 5).tolist())) == 2


def test_families_are_held_out_whole_but_for_those_that_are_a_task() -> None:
    family = np.asarray([0, 0, 1, 1, 2, 2, 3, 3, 3, 3, 3, 2])
    task = np.asarray([0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1])
    fold = deal_families(family, task, RecogniserSettings(folds=3))
    for own in (0, 1, 2):
        assert len(set(fold[family == own].tolist())) == 1
    assert len(set(fold[:6].tolist())) == 3
    assert len(set(fold[family == 3].tolist())) == 3  # most of task 1


def test_what_is_learned_is_said(prompts: tuple[Prompt, ...], fitted: FittedRecogniser) -> None:
    recogniser = fitted.recogniser
    assert recogniser.tasks == ("code", "question", "story")
    assert recogniser.prompts == len(prompts) == 96
    assert recogniser.origin[0] == "made up"
    right = [recogniser.recognise(prompt.text).task == prompt.task for prompt in prompts]
    assert np.mean(right) > 0.95
    assert recogniser.recognise("please write some python code").likeliest == "code"
    assert recogniser.recognise("how many owls invented bread?").task == "question"
    held_out = np.mean([a.likeliest == p.task for a, p in zip(fitted.held_out, prompts, strict=True)])
    assert 0.34 < held_out <= np.mean(right)  # better than a guess, no better than on what it has seen
    seen = [recogniser.recognise(prompt.text) for prompt in prompts]
    sure = [
        np.mean([answer.probabilities[prompt.task] for answer, prompt in zip(answers, prompts, strict=True)])
        for answers in (fitted.held_out, seen)
    ]
    assert sure[0] < sure[1] - 0.02  # what it says of families that it has not seen is less sure
    assert fit_recogniser(prompts, FEW, ("made up",)).recogniser.sha256 == recogniser.sha256


def test_values_are_scikit_learns_but_for_unknown_terms(prompts: tuple[Prompt, ...], fitted: FittedRecogniser) -> None:
    texts = [prompt.text for prompt in prompts]
    for block in fitted.recogniser.blocks:
        assert 0 < len(block.terms) <= 300
        found = TfidfVectorizer(analyzer=READERS[block.reader], sublinear_tf=True, vocabulary=list(block.terms))
        theirs = found.fit_transform(texts).toarray()
        for text, row in zip(texts, theirs, strict=True):
            places, values = block.values(text)
            length = np.linalg.norm(values)
            assert 0.0 < length < 1.0 + 1e-9
            np.testing.assert_allclose(values / length, row[places], atol=0.002)  # stored numbers are rounded
            assert np.count_nonzero(row) == len(places)


def test_confidence_on_held_out_families_is_calibrated(prompts: tuple[Prompt, ...], fitted: FittedRecogniser) -> None:
    report = recogniser_report(prompts, fitted.held_out)
    assert abs(report.whole.confidence - report.whole.accuracy) < 0.1


def test_the_temperature_by_hand() -> None:
    # Odds of 9 for the first task, which is right in three of four: odds of 3 = 9^(1/2).
    scores = np.tile([np.log(9.0), 0.0], (40, 1))
    assert _temperature(scores, np.asarray([0, 0, 0, 1] * 10)) == pytest.approx(2.0, rel=1e-3)


def test_the_own_prompts_are_told_apart() -> None:
    prompts = own_prompts("policy")
    fitted = fit_recogniser(prompts, RecogniserSettings(terms=500, folds=2))
    assert len(fitted.recogniser.tasks) == 9
    assert TaskRecogniser.from_json(json.loads(json.dumps(fitted.recogniser.to_json()))).recognise("x").task
    assert np.mean([fitted.recogniser.recognise(p.text).likeliest == p.task for p in prompts]) > 0.9


def test_too_little_is_refused(prompts: tuple[Prompt, ...]) -> None:
    with pytest.raises(ParameterError, match="prompts must be of two tasks or more"):
        fit_recogniser(prompts[:4])
    with pytest.raises(ParameterError, match=r"prompts must be two or more of each task, .* got \['lone'\]"):
        fit_recogniser([*prompts, Prompt("x", "lone", "alone")])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"terms": 0}, "terms must be >= 1"),
        ({"min_prompts": 0}, "min_prompts must be >= 1"),
        ({"inverse_penalty": 0.0}, "inverse_penalty must be above 0"),
        ({"folds": 1}, "folds must be >= 2"),
        ({"shared_words": 0}, "shared_words must be >= 1"),
        ({"threshold": 1.5}, "threshold must be between 0 and 1"),
    ],
)
def test_settings_keep_their_rules(change: dict[str, float], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        RecogniserSettings(**change)  # type: ignore[arg-type]


def test_the_report_counts_right_and_unknown() -> None:
    told = {"a/0": ("chat", "hello"), "a/1": ("code", "json"), "b/2": ("chat", "json"), "b/3": ("rag", "nothing")}
    prompts = [Prompt(name, task, text) for name, (task, text) in told.items()]
    report = recogniser_report(prompts, [tiny_recogniser(0.6).recognise(prompt.text) for prompt in prompts])
    assert report.whole.accuracy == 0.5  # code is structured; rag is none of its tasks
    assert report.whole.unknown == 0.25
    assert report.whole.answered_accuracy == pytest.approx(2 / 3)
    assert [part.name for part in report.by_task] == ["code", "rag", "chat"]
    assert [(part.name, part.prompts, part.accuracy) for part in report.by_source] == [("a", 2, 1.0), ("b", 2, 0.0)]
    assert report.confusion["chat"] == {"chat": 1, "structured": 1}
    assert report.confusion["rag"] == {"unknown": 1}
    assert report.to_json()["by_task"][1]["answered_accuracy"] is None
    assert json.dumps(report.to_json(), allow_nan=False)
    assert not is_same_task("odd", "")
    with pytest.raises(ParameterError, match="prompts must be at least one"):
        recogniser_report([], [])
