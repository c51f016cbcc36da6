"""The report of `treewise quality`: figures of every verification rule, and the answers they are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from treewise.code_checks import CodeResult
from treewise.data.prompt_set import Prompt
from treewise.data.task_kinds import in_order
from treewise.texts import Divergence

if TYPE_CHECKING:
    from treewise.training.quality import Answers, Change
    from treewise.training.replay_result import Float64Array

SCHEMA_VERSION = 1
ALL = ""  # in place of a task: every prompt


@dataclass(frozen=True, slots=True)
class AnswerText:
    """One answer."""

    text: str
    tokens: tuple[int, ...]
    finish: str
    code: CodeResult | None  # how its code ran; None where no tests were run
    divergence: Divergence | None  # from plain decoding's


@dataclass(frozen=True, slots=True)
class QualityReport:
    """Texts and speeds of one policy under several verification rules, beside plain decoding."""

    pair: str
    cost: str
    policy: str
    temperature: float
    seed: int
    max_new_tokens: int
    tests_run: bool
    prompts: tuple[Prompt, ...]
    answers: tuple[Answers, ...]  # [1 + rules] plain decoding's, then the exact rule's, then the others'
    texts: Mapping[str, tuple[AnswerText, ...]]  # "plain" or rule -> [prompts]
    resamples: int

    @property
    def plain(self) -> Answers:
        """Plain decoding's answers."""
        return self.answers[0]

    @property
    def exact(self) -> Answers:
        """The exact rule's answers."""
        return self.answers[1]

    @property
    def is_exact_identical(self) -> bool:
        """Whether every text of the exact rule was found to be plain decoding's."""
        return self.exact.is_identical

    @property
    def tasks(self) -> tuple[str, ...]:
        """`ALL`, and the tasks where there are several."""
        tasks = in_order(prompt.task for prompt in self.prompts)
        return (ALL, *tasks) if len(tasks) > 1 else (ALL,)

    def places(self, task: str = ALL) -> np.ndarray[Any, np.dtype[np.intp]]:
        """Numbers of a task's prompts."""
        return np.flatnonzero([task in (ALL, prompt.task) for prompt in self.prompts])

    def figures(self, task: str = ALL) -> Float64Array:
        """Value, low and high, [1 + rules, figures, 3], as `treewise.training.quality.quality_figures`."""
        from treewise.training.quality import quality_figures, take

        places = self.places(task)
        rows = [take(answers, places) for answers in self.answers]
        return quality_figures(rows[0], rows[1], rows, self.resamples)

    def json_change(self, answers: Answers) -> Change:
        """Valid JSON beside plain decoding's."""
        from treewise.training.quality import Change

        return Change.between(self.plain.is_json, answers.is_json)

    def test_change(self, answers: Answers) -> Change:
        """Tests that pass beside plain decoding's."""
        from treewise.training.quality import Change

        return Change.between(self.plain.is_pass, answers.is_pass)

    @property
    def num_tests_not_run(self) -> int:
        """Prompts that bring tests which nobody asked to run."""
        return 0 if self.tests_run else sum(bool(prompt.tests) for prompt in self.prompts)

    def to_json(self) -> dict[str, Any]:
        """A mapping that fits `treewise/schemas/quality.json`."""
        from treewise.training.quality import FIGURES
        from treewise.training.statistics import LEVEL
        from treewise.training.text_quality import ROUGE_PACKAGE

        return {
            "schema_version": SCHEMA_VERSION,
            "pair": self.pair,
            "cost": self.cost,
            "policy": self.policy,
            "temperature": self.temperature,
            "seed": self.seed,
            "max_new_tokens": self.max_new_tokens,
            "rouge_l": f"{ROUGE_PACKAGE} {version(ROUGE_PACKAGE)}",
            "tests_run": self.tests_run,
            "exact_identical": self.is_exact_identical,
            "level": LEVEL,
            "resamples": self.resamples,
            "meanings": {figure.name: figure.meaning for figure in FIGURES},
            "rules": [self._rule_json(answers) for answers in self.answers],
            "tasks": [self._task_json(task) for task in self.tasks],
            "answers": [self._answers_json(place, prompt) for place, prompt in enumerate(self.prompts)],
        }

    def _rule_json(self, answers: Answers) -> dict[str, Any]:
        places = answers.first_differences
        first = {"least": int(places[0]), "median": float(np.median(places))} if len(places) else None
        return {
            "verification": answers.name,
            "prompts": len(answers.tokens),
            "identical": answers.is_identical,
            "differing": answers.num_differing,
            "first_difference_tokens": first,
            "json": asdict(self.json_change(answers)),
            "tests": asdict(self.test_change(answers)),
            "cut_off": int(answers.is_cut.sum()),
            "tokens": int(answers.tokens.sum()),
            "rounds": int(answers.rounds.sum()),
            "decode_seconds": round(float(answers.ms.sum()) / 1e3, 6),
        }

    def _task_json(self, task: str) -> dict[str, Any]:
        from treewise.training.ab_report import interval_json
        from treewise.training.quality import NAMES, figure_of

        rows = [
            {"verification": answers.name, **{name: interval_json(figure_of(values, name)) for name in NAMES}}
            for answers, values in zip(self.answers, self.figures(task), strict=True)
        ]
        return {"task": task, "prompts": len(self.places(task)), "rows": rows}

    def _answers_json(self, place: int, prompt: Prompt) -> dict[str, Any]:
        from treewise.training.text_quality import asks_for_json

        return {
            "prompt_id": prompt.id,
            "task": prompt.task,
            "asks_for_json": asks_for_json(prompt),
            "brings_tests": bool(prompt.tests),
            "texts": [self._text_json(answers, place) for answers in self.answers],
        }

    def _text_json(self, answers: Answers, place: int) -> dict[str, Any]:
        found, asked = self.texts[answers.name][place], answers.is_json[place]
        return {
            "verification": answers.name,
            "text": found.text,
            "tokens": list(found.tokens),
            "finish": found.finish,
            "identical": bool(answers.is_same[place]),
            "shared_tokens": int(answers.shared_tokens[place]),
            "divergence": None if found.divergence is None else found.divergence.to_json(),
            "rouge_l": round(float(answers.rouge_l[place]), 6),
            "is_json": None if np.isnan(asked) else bool(asked),
            "code": None if found.code is None else asdict(found.code),
        }
