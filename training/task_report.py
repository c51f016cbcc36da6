"""How well a recogniser knows the tasks of prompts that it never saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.errors import require
from treewise.data.prompt_set import Prompt
from treewise.data.task_kinds import in_order, kind_of
from treewise.policy.task_recogniser import UNKNOWN, Recognised
from treewise.training.report import calibration_error


@dataclass(frozen=True, slots=True)
class RecognisedPart:
    """Figures of some prompts; NaN where there is none to judge by."""

    name: str
    prompts: int
    accuracy: float  # of the likeliest task, whether or not it was probable enough
    confidence: float  # its mean probability
    ece: float  # distance of the two over bins of equal mass
    unknown: float  # share of prompts that it says it does not know
    answered_accuracy: float  # among the others


@dataclass(frozen=True, slots=True)
class RecogniserReport:
    """Figures of all prompts, by their labels, and by source: what stands before the first slash of their ids."""

    whole: RecognisedPart
    by_task: tuple[RecognisedPart, ...]
    by_source: tuple[RecognisedPart, ...]  # empty where the ids name one source, or none
    confusion: Mapping[str, Mapping[str, int]]  # label -> answer, `UNKNOWN` included -> prompts

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping; figures that are not known are null."""
        parts = {name: [asdict(part) for part in getattr(self, name)] for name in ("by_task", "by_source")}
        every = [asdict(self.whole), *parts["by_task"], *parts["by_source"]]
        for part in every:
            part |= {name: None for name, value in part.items() if value != value}
        return {
            "schema_version": 1,
            "whole": every[0],
            "by_task": every[1 : 1 + len(self.by_task)],
            "by_source": every[1 + len(self.by_task) :],
            "confusion": [
                {"label": label, "answer": answer, "prompts": count}
                for label, row in self.confusion.items()
                for answer, count in row.items()
            ],
        }


def recogniser_report(prompts: Sequence[Prompt], answers: Sequence[Recognised]) -> RecogniserReport:
    """Compare `answers` with the labels of `prompts`; an answer of another name for the same kind of task is right.

    A label that no task of the recogniser is of counts as wrong, but where the answer is that it is unknown. Raises
    `ParameterError` on no prompts.
    """
    require(len(prompts) > 0, "prompts", "at least one", 0)
    labels = [prompt.task for prompt in prompts]
    sources = [prompt.id.partition("/")[0] if "/" in prompt.id else "" for prompt in prompts]
    tables = {
        "right": [is_same_task(answer.likeliest, label) for answer, label in zip(answers, labels, strict=True)],
        "sure": [answer.confidence for answer in answers],
        "known": [answer.task != UNKNOWN for answer in answers],
    }
    columns = {name: np.asarray(values, dtype=np.float64) for name, values in tables.items()}
    confusion: dict[str, dict[str, int]] = {label: {} for label in in_order(labels)}
    for label, answer in zip(labels, answers, strict=True):
        confusion[label][answer.task] = confusion[label].get(answer.task, 0) + 1
    return RecogniserReport(
        whole=_part("all", columns, np.ones(len(prompts), dtype=np.bool_)),
        by_task=tuple(_part(label, columns, np.asarray(labels) == label) for label in confusion),
        by_source=tuple(
            _part(source, columns, np.asarray(sources) == source)
            for source in sorted(set(sources))
            if len(set(sources)) > 1
        ),
        confusion=confusion,
    )


def is_same_task(one: str, other: str) -> bool:
    """Whether two names are of the same task, or of the same kind of task."""
    return one == other or (kind_of(one) != "" and kind_of(one) == kind_of(other))


def _part(name: str, columns: Mapping[str, NDArray[np.float64]], chosen: NDArray[np.bool_]) -> RecognisedPart:
    right, sure, known = (columns[column][chosen] for column in ("right", "sure", "known"))
    answered = known > 0
    return RecognisedPart(
        name=name,
        prompts=int(chosen.sum()),
        accuracy=float(right.mean()),
        confidence=float(sure.mean()),
        ece=calibration_error(right, sure, np.ones(len(right))),
        unknown=float(1.0 - known.mean()),
        answered_accuracy=float(right[answered].mean()) if answered.any() else float("nan"),
    )
