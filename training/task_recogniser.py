"""Fitting a recogniser of tasks: TF-IDF and logistic regression, calibrated on prompts of families it has not seen.

Prompts that share a run of words, as those made from one template do, are one family and are held out together: who
knows a template's other prompts is sure of this one, and no user's prompt comes from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from treewise.data.errors import require
from treewise.data.prompt_set import Prompt, prompts_sha256
from treewise.policy.task_recogniser import Float64Array, Recognised, TaskRecogniser, TermBlock
from treewise.policy.task_text import READERS

_WORD = re.compile(r"\w+")
Int64Array = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RecogniserSettings:
    """How a recogniser is fitted."""

    terms: int = 4000  # of each reader, at most: those that tell the tasks apart best
    min_prompts: int = 2  # that a term must be in
    inverse_penalty: float = 10.0  # of the regressions' weights (C)
    folds: int = 5  # of families
    shared_words: int = 5  # a run of so many words in common makes two prompts one family
    threshold: float = 0.5  # below this probability of the likeliest task the answer is that it is unknown
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.terms >= 1, "terms", ">= 1", self.terms)
        require(self.min_prompts >= 1, "min_prompts", ">= 1", self.min_prompts)
        require(self.inverse_penalty > 0.0, "inverse_penalty", "above 0", self.inverse_penalty)
        require(self.folds >= 2, "folds", ">= 2", self.folds)
        require(self.shared_words >= 1, "shared_words", ">= 1", self.shared_words)
        require(0.0 <= self.threshold <= 1.0, "threshold", "between 0 and 1", self.threshold)


@dataclass(frozen=True, slots=True)
class FittedRecogniser:
    """A recogniser of all prompts, and what it said of each while its family was held out."""

    recogniser: TaskRecogniser
    held_out: tuple[Recognised, ...]  # [prompts] calibrated on the same answers: one number was fitted to them
    families: int


def fit_recogniser(
    prompts: Sequence[Prompt],
    settings: RecogniserSettings | None = None,
    origin: Iterable[str] = (),
    step: Callable[[], None] = lambda: None,
) -> FittedRecogniser:
    """A recogniser of the tasks of `prompts`, by their labels; `step` is called after each of `folds` + 1 fits.

    One logistic regression for each task against the others. The temperature minimises the log loss of prompts whose
    family was held out. Raises `ParameterError` on fewer than two tasks, and on a task of one prompt.
    """
    settings = settings or RecogniserSettings()
    tasks = tuple(sorted({prompt.task for prompt in prompts}))
    require(len(tasks) >= 2, "prompts", "of two tasks or more", tasks)
    texts = [prompt.text for prompt in prompts]
    task = np.asarray([tasks.index(prompt.task) for prompt in prompts])
    family = families(texts, settings.shared_words)
    fold = deal_families(family, task, settings)
    few = [name for place, name in enumerate(tasks) if int((task == place).sum()) < 2]
    require(not few, "prompts", "two or more of each task, so that one can be held out", few)
    scores = np.zeros((len(texts), len(tasks)))
    for held_out in range(settings.folds):
        own = fold == held_out
        if own.any():
            model = _linear([texts[row] for row in np.flatnonzero(~own)], task[~own], tasks, settings)
            scores[own] = [model.scores(texts[row]) for row in np.flatnonzero(own)]
        step()
    temperature = round(_temperature(scores, task), 4)
    whole = replace(
        _linear(texts, task, tasks, settings),
        temperature=temperature,
        threshold=settings.threshold,
        prompts=len(prompts),
        origin=(*origin, f"prompts {prompts_sha256(prompts)}"),
    )
    step()
    return FittedRecogniser(whole, tuple(whole.answer(row) for row in scores), len(np.unique(family)))


def families(texts: Sequence[str], shared_words: int) -> Int64Array:
    """Family of every text, [texts]: those that share a run of `shared_words` words, and those that share with them."""
    parent = list(range(len(texts)))

    def top(place: int) -> int:
        while parent[place] != place:
            parent[place] = parent[parent[place]]
            place = parent[place]
        return place

    owner: dict[tuple[str, ...], int] = {}
    for place, text in enumerate(texts):
        found = _WORD.findall(text.lower())
        for start in range(max(len(found) - shared_words + 1, 1)):
            run = tuple(found[start : start + shared_words])
            parent[top(place)] = top(owner.setdefault(run, place))
    return np.asarray([top(place) for place in range(len(texts))], dtype=np.int64)


def deal_families(family: Int64Array, task: Int64Array, settings: RecogniserSettings) -> Int64Array:
    """Fold of every prompt, [prompts]: families are dealt in turn task by task, and stay whole.

    A family that is most of a task, as where every prompt has the same words around it, is dealt prompt by prompt:
    nothing would be left of the task without it.
    """
    rng = np.random.default_rng(settings.seed)
    dealt: dict[int, int] = {}
    fold = np.zeros(len(task), dtype=np.int64)
    for place in np.unique(task):
        own = np.flatnonzero(task == place)
        names, counts = np.unique(family[own], return_counts=True)
        large = set(names[2 * counts > len(own)].tolist())
        fresh = [name for name in names.tolist() if name not in dealt and name not in large]
        dealt |= {fresh[pick]: turn % settings.folds for turn, pick in enumerate(rng.permutation(len(fresh)).tolist())}
        for turn, row in enumerate(own[rng.permutation(len(own))].tolist()):
            found = int(family[row])
            fold[row] = turn % settings.folds if found in large else dealt[found]
    return fold


def _linear(
    texts: Sequence[str], task: Int64Array, tasks: tuple[str, ...], settings: RecogniserSettings
) -> TaskRecogniser:
    """A recogniser without calibration, its numbers rounded as they will be stored."""
    blocks = [_block(texts, reader, task, len(tasks), settings) for reader in READERS]
    x = hstack([_matrix(block, texts) for block in blocks]).tocsr()
    weights, bias = np.zeros((x.shape[1], len(tasks))), np.zeros(len(tasks))
    for place in range(len(tasks)):
        model = LogisticRegression(C=settings.inverse_penalty, solver="liblinear", class_weight="balanced")
        model.fit(x, task == place)
        weights[:, place], bias[place] = model.coef_[0], model.intercept_[0]
    rounded = np.asarray(np.round(weights, 2), dtype=np.float64)
    parts: list[Float64Array] = np.split(rounded, np.cumsum([len(block.terms) for block in blocks])[:-1])
    fitted = tuple(replace(block, weights=part) for block, part in zip(blocks, parts, strict=True))
    return TaskRecogniser(tasks, fitted, np.round(bias, 3), 1.0)


def _block(
    texts: Sequence[str], reader: str, task: Int64Array, num_tasks: int, settings: RecogniserSettings
) -> TermBlock:
    """The terms of one reader that tell the tasks apart best, without weights."""
    found = TfidfVectorizer(analyzer=READERS[reader], sublinear_tf=True, min_df=min(settings.min_prompts, len(texts)))
    matrix = found.fit_transform(texts)
    # How far a term's mean weight differs from task to task: 0 for one that all of them hold alike.
    means = np.stack([np.asarray(matrix[task == place].mean(axis=0)).ravel() for place in np.unique(task)])
    best = np.sort(np.argsort(-means.std(axis=0), kind="stable")[: settings.terms])
    names = found.get_feature_names_out()[best].tolist()
    places = {term: row for row, term in enumerate(names)}
    return TermBlock(reader, places, np.round(found.idf_[best], 3), np.zeros((len(names), num_tasks)))


def _matrix(block: TermBlock, texts: Sequence[str]) -> Any:
    """The values of `texts`, sparse, [texts, terms], by the function that a live recogniser uses."""
    found = [block.values(text) for text in texts]
    rows = np.concatenate([np.full(len(places), row) for row, (places, _) in enumerate(found)])
    columns, values = (np.concatenate(part) for part in zip(*found, strict=True))
    return csr_matrix((values, (rows, columns)), shape=(len(texts), len(block.terms)))


def _temperature(scores: Float64Array, task: Int64Array) -> float:
    """What `scores` [prompts, tasks] are divided by so that the softmax of the quotients has the least log loss."""

    def loss(log_temperature: float) -> float:
        part = scores / np.exp(log_temperature)
        top = part.max(axis=1)
        return float((np.log(np.exp(part - top[:, None]).sum(axis=1)) + top - part[np.arange(len(task)), task]).mean())

    return float(np.exp(minimize_scalar(loss, bounds=(-4.0, 4.0), method="bounded").x))
