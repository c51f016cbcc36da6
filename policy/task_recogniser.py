"""A recogniser of tasks: prompt text in, calibrated probabilities of its kinds of task out, or that it cannot tell."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.errors import ParameterError, SchemaVersionError, require
from treewise.data.stored_json import short
from treewise.data.whole_file import write_whole
from treewise.policy.table_file import read_table
from treewise.policy.task_text import READERS

SCHEMA_VERSION = 1
KIND = "treewise-task-recogniser"
UNKNOWN = "unknown"
MOST = 1e9  # size of a number in the file, so that no score overflows
Float64Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TermBlock:
    """Terms of one reader: their inverse document frequencies and what each says for each task."""

    reader: str  # name in `READERS`
    terms: dict[str, int]  # term -> its row
    idf: Float64Array  # [terms]
    weights: Float64Array  # [terms, tasks] log-odds

    def __post_init__(self) -> None:
        require(self.reader in READERS, "reader", f"one of {', '.join(READERS)}", self.reader)
        count = len(self.terms)
        require(count > 0, "terms", "at least one", count)
        require(self.idf.shape == (count,), "idf", f"of shape ({count},)", self.idf.shape)
        fits = self.weights.ndim == 2 and len(self.weights) == count
        require(fits, "weights", f"of shape ({count}, tasks)", self.weights.shape)
        fits = bool((np.abs(self.idf) <= MOST).all() and (np.abs(self.weights) <= MOST).all())
        require(fits, "idf and weights", f"finite and at most {MOST:g} in size", "others")

    def values(self, text: str) -> tuple[NDArray[np.intp], Float64Array]:
        """(rows, values) of the text's known terms, each [known]; the values of all its terms have length 1.

        Unknown terms take part in that length, as rare ones, so that a text of few known terms says little.
        """
        counts = Counter(READERS[self.reader](text))
        rows = np.asarray([self.terms.get(term, -1) for term in counts], dtype=np.intp)
        weight = np.asarray([1.0 + math.log(count) for count in counts.values()], dtype=np.float64)
        weight = weight * np.where(rows >= 0, self.idf[rows], self.idf.max())
        known = rows >= 0
        return rows[known], weight[known] / max(float(np.linalg.norm(weight)), 1e-12)

    def scores(self, text: str) -> Float64Array:
        """What the text's terms say for every task, log-odds, [tasks]; 0 where none of them is known."""
        rows, values = self.values(text)
        return np.asarray(values @ self.weights[rows])


@dataclass(frozen=True, slots=True)
class Recognised:
    """What a recogniser says of one prompt."""

    task: str  # the most probable one; `UNKNOWN` where its probability is below the recogniser's threshold
    probabilities: dict[str, float]  # by task; they add up to 1

    @property
    def likeliest(self) -> str:
        """The most probable task, however improbable."""
        return max(self.probabilities, key=lambda task: self.probabilities[task])

    @property
    def confidence(self) -> float:
        """Its probability."""
        return self.probabilities[self.likeliest]


@dataclass(frozen=True)
class TaskRecogniser:
    """Linear scores over TF-IDF terms, and their softmax at a fitted temperature.

    Below `threshold` it says that it does not know. At one half, that is where the likeliest task is more often wrong
    than right, as far as the calibration holds.
    """

    tasks: tuple[str, ...]
    blocks: tuple[TermBlock, ...]
    bias: Float64Array  # [tasks] log-odds
    temperature: float  # divides the scores
    threshold: float = 0.5  # of the likeliest task's probability
    prompts: int = 0  # that it was fitted on
    origin: tuple[str, ...] = ()  # names and hashes of what it was fitted on

    def __post_init__(self) -> None:
        names = {task for task in self.tasks if task.strip() and task != UNKNOWN}
        rule = f"two or more different names, none of them {UNKNOWN}"
        require(len(names) == len(self.tasks) >= 2, "tasks", rule, self.tasks)
        require(self.bias.shape == (len(self.tasks),), "bias", f"of shape ({len(self.tasks)},)", self.bias.shape)
        fits = bool((np.abs(self.bias) <= MOST).all())
        require(fits, "bias", f"finite and at most {MOST:g} in size", self.bias.tolist())
        rule = f"between {1.0 / MOST:g} and {MOST:g}"
        require(1.0 / MOST <= self.temperature <= MOST, "temperature", rule, self.temperature)
        require(0.0 <= self.threshold <= 1.0, "threshold", "between 0 and 1", self.threshold)
        require(len(self.blocks) > 0, "blocks", "at least one", 0)
        for block in self.blocks:
            tasks = block.weights.shape[1]
            require(tasks == len(self.tasks), "weights", f"of {len(self.tasks)} tasks", tasks)

    def recognise(self, text: str) -> Recognised:
        """What kind of task `text`, a user's prompt before any chat template, is."""
        return self.answer(self.scores(text))

    def answer(self, scores: Float64Array) -> Recognised:
        """What `scores` [tasks], those of `scores` of a text, come to once calibrated."""
        scores = scores / self.temperature
        share = np.exp(scores - scores.max())
        share /= share.sum()
        place = int(share.argmax())
        task = self.tasks[place] if share[place] >= self.threshold else UNKNOWN
        return Recognised(task, dict(zip(self.tasks, share.tolist(), strict=True)))

    def scores(self, text: str) -> Float64Array:
        """Log-odds of every task before calibration, [tasks]."""
        return np.asarray(self.bias + np.sum([block.scores(text) for block in self.blocks], axis=0))

    @cached_property
    def sha256(self) -> str:
        """SHA-256, in hex, of what its file holds."""
        return hashlib.sha256(self._text().encode("utf-8")).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping; `from_json` reads it back."""
        return {
            "kind": KIND,
            "schema_version": SCHEMA_VERSION,
            "tasks": list(self.tasks),
            "prompts": self.prompts,
            "origin": list(self.origin),
            "temperature": self.temperature,
            "threshold": self.threshold,
            "bias": self.bias.tolist(),
            "blocks": [
                {
                    "reader": block.reader,
                    "terms": list(block.terms),
                    "idf": block.idf.tolist(),
                    "weights": block.weights.tolist(),
                }
                for block in self.blocks
            ],
        }

    def save(self, path: str | Path) -> None:
        """Write the file; missing folders are made."""
        write_whole(path, self._text())

    def _text(self) -> str:
        return json.dumps(self.to_json(), separators=(",", ":")) + "\n"

    @classmethod
    def from_json(cls, value: object) -> TaskRecogniser:
        """What `to_json` wrote. Raises `ParameterError`, and `SchemaVersionError` on another version."""
        if not isinstance(value, dict) or value.get("kind") != KIND:
            raise ParameterError(f"recogniser must be a JSON object of kind {KIND}, got {short(value)}")
        if value.get("schema_version") != SCHEMA_VERSION:
            cure = "train it again with `treewise tasks train`"
            raise SchemaVersionError("task recogniser", value.get("schema_version"), SCHEMA_VERSION, cure)
        try:
            return cls(
                tasks=_texts(value["tasks"], "tasks"),
                blocks=tuple(_block(part) for part in value["blocks"]),
                bias=np.asarray(value["bias"], dtype=np.float64),
                temperature=float(value["temperature"]),
                threshold=float(value["threshold"]),
                prompts=int(value["prompts"]),
                origin=_texts(value["origin"], "origin"),
            )
        except ParameterError:
            raise
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise ParameterError(f"recogniser must be one that `treewise tasks train` wrote: {error}") from error

    @classmethod
    def load(cls, path: str | Path) -> TaskRecogniser:
        """The recogniser in a JSON file. Raises `ParameterError` and `SchemaVersionError`."""
        return cls.from_json(read_table(path, "recogniser"))


def _block(part: Any) -> TermBlock:
    terms = _texts(part["terms"], "terms")
    places = {term: row for row, term in enumerate(terms)}
    require(len(places) == len(terms), "terms", "each named once", f"{len(terms) - len(places)} twice")
    idf, weights = (np.asarray(part[name], dtype=np.float64) for name in ("idf", "weights"))
    return TermBlock(str(part["reader"]), places, idf, weights)


def _texts(values: Any, name: str) -> tuple[str, ...]:
    fits = isinstance(values, list) and all(isinstance(value, str) for value in values)
    require(fits, name, "a list of strings", short(values))
    return tuple(values)
