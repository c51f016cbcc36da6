"""What one run of the demo found, as tables and JSON show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from treewise.data.cost import CostProfile
from treewise.data.prompt_set import Prompt
from treewise.live import LiveRun

if TYPE_CHECKING:
    from treewise.training.ab_report import AbReport, AbRow

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Label:
    """A policy by what people call it and by its spec string."""

    name: str
    spec: str


@dataclass(frozen=True, slots=True)
class AbPart:
    """An A/B under one cost profile; the first contender is compared with the others."""

    labels: tuple[Label, ...]
    report: AbReport

    @property
    def profile(self) -> str:
        """Name of the cost profile."""
        return self.report.profiles[0].name

    def rows(self) -> list[tuple[str, AbRow]]:
        """(name, row) over all tasks: contenders in order, the path oracle, then the contenders' depth oracles."""
        from treewise.training.oracle import depth_oracle

        names = {label.spec: label.name for label in self.labels}
        names |= {depth_oracle(spec): depth_oracle(name) for spec, name in names.items()}
        rows = [*self.report.select(self.profile), *(row for row in self.report.depth_oracles if row.task == "")]
        return [(names.get(row.policy, row.policy), row) for row in rows]


@dataclass(frozen=True, slots=True)
class DemoSummary:
    """Figures of one run."""

    pair: str
    cost: CostProfile  # of this machine, quickly measured
    threads: int
    max_new_tokens: int
    prompts: tuple[Prompt, ...]  # [prompts] decoded live
    answers: tuple[str, ...]  # [prompts] the target's text
    trace: str
    train_prompts: int
    held_out_prompts: int
    training: dict[str, Any]  # the training report as JSON
    labels: tuple[Label, ...]  # the live policies
    live: LiveRun
    ab: tuple[AbPart, ...]
    folder: str
    page: str  # the report page; "" where it could not be drawn
    seconds: float

    @property
    def is_identical(self) -> bool:
        """Whether every policy gave plain decoding's text on every prompt."""
        return not any(self.live.differing(label.spec) for label in self.labels)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping that fits `treewise/schemas/demo.json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "pair": self.pair,
            "device": self.cost.device,
            "threads": self.threads,
            "max_new_tokens": self.max_new_tokens,
            "folder": self.folder,
            "page": self.page,
            "seconds": round(self.seconds, 3),
            "identical": self.is_identical,
            "texts": [
                {"prompt_id": prompt.id, "task": prompt.task, "answer": answer}
                for prompt, answer in zip(self.prompts, self.answers, strict=True)
            ],
            "live": [self._live_json(label) for label in self.labels],
            "trace": self.trace,
            "train_prompts": self.train_prompts,
            "held_out_prompts": self.held_out_prompts,
            "training": self.training,
            "ab": [
                {
                    "policies": [{"name": label.name, "spec": label.spec} for label in part.labels],
                    "report": part.report.to_json(),
                }
                for part in self.ab
            ],
        }

    def _live_json(self, label: Label) -> dict[str, Any]:
        found = zip(self.live.prompts, self.live.divergences[label.spec], strict=True)
        return {
            "name": label.name,
            **self.live.figures(label.spec).to_json(),
            "speedup": round(self.live.speedup(label.spec), 6),
            "identical": self.live.differing(label.spec) == 0,
            "divergences": [{"prompt_id": prompt, **place.to_json()} for prompt, place in found if place is not None],
        }
