"""What the side-by-side benchmark found: results by prompt, ratios with intervals, and the machine they hold for."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from treewise.arms import GENERATE, LEARNED_ARM, PLAIN_ARM, Arm
from treewise.live import LiveFigures
from treewise.texts import Divergence

if TYPE_CHECKING:
    from treewise.training.statistics import Interval, Totals

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class PromptKey:
    """What tells results apart within one file."""

    prompt_id: str
    repeat: int


@dataclass(frozen=True, slots=True)
class ArmResult:
    """One text by one arm."""

    name: str
    tokens: tuple[int, ...]
    seconds: float  # from prompt ids to the last token, prefill included
    passes: int  # of the target that gave tokens
    figures: LiveFigures | None  # of our arms; prefill left out
    divergence: Divergence | None  # from the baseline's text


@dataclass(frozen=True, slots=True)
class PromptResult:
    """One prompt, decoded by every arm in turn."""

    key: PromptKey
    arms: tuple[ArmResult, ...]

    def to_line(self) -> str:
        """One line of JSON; `from_line` reads it back."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_line(cls, line: str) -> PromptResult | None:
        """The result in `line`; None where a killed run left half of one."""
        try:
            value: dict[str, Any] = json.loads(line)
            return cls(PromptKey(**value["key"]), tuple(_arm_result(part) for part in value["arms"]))
        except (ValueError, KeyError, TypeError):
            return None


def _arm_result(value: Mapping[str, Any]) -> ArmResult:
    figures, place = value["figures"], value["divergence"]
    return ArmResult(
        name=value["name"],
        tokens=tuple(value["tokens"]),
        seconds=value["seconds"],
        passes=value["passes"],
        figures=None if figures is None else LiveFigures.from_json(figures),
        divergence=None if place is None else Divergence(**place),
    )


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the figures hold."""

    device: str
    platform: str
    cores: int  # that this process may use
    threads: int  # of torch
    dtype: str
    attention: str
    python: str
    torch: str
    transformers: str
    treewise: str


@dataclass(frozen=True, slots=True)
class CompareReport:
    """Every arm on the same prompts."""

    pair: str
    cost: str
    machine: Machine
    bundle: str
    max_new_tokens: int
    temperature: float
    repeats: int
    results_file: str
    resumed: int  # prompts that an earlier run had measured
    arms: tuple[Arm, ...]
    results: tuple[PromptResult, ...]  # [prompts x repeats]

    @property
    def baseline(self) -> str:
        """The arm that speeds and texts are compared with."""
        return GENERATE if any(arm.name == GENERATE for arm in self.arms) else PLAIN_ARM

    @property
    def prompts(self) -> tuple[str, ...]:
        """Ids, each once."""
        return tuple(dict.fromkeys(result.key.prompt_id for result in self.results))

    def of(self, name: str) -> list[tuple[PromptKey, ArmResult]]:
        """All texts of one arm."""
        return [(result.key, part) for result in self.results for part in result.arms if part.name == name]

    def totals(self, name: str) -> Totals:
        """Tokens and milliseconds of one arm by prompt, the median over repeats."""
        from treewise.training.statistics import Totals

        seconds: dict[str, list[float]] = {}
        tokens: dict[str, int] = {}
        for key, part in self.of(name):
            seconds.setdefault(key.prompt_id, []).append(part.seconds)
            tokens[key.prompt_id] = len(part.tokens)
        ms = [1e3 * statistics.median(seconds[prompt]) for prompt in tokens]
        return Totals(np.asarray(list(tokens.values()), dtype=np.float64), np.asarray(ms, dtype=np.float64))

    def ratio(self, name: str, over: str) -> Interval:
        """How many times faster `name` is than `over` on the median prompt, with a 95 % bootstrap interval."""
        from treewise.training.statistics import median_ratio

        return median_ratio(self.totals(name), self.totals(over))

    def tokens_per_second(self, name: str) -> float:
        """Median over prompts, prefill included."""
        found = self.totals(name)
        return float(np.median(1e3 * found.tokens / found.ms))

    def tokens_per_pass(self, name: str) -> float:
        """All tokens over all passes of the target that gave tokens; 1 for plain decoding."""
        parts = [part for _, part in self.of(name)]
        return sum(len(part.tokens) for part in parts) / max(sum(part.passes for part in parts), 1)

    def differing(self, name: str) -> list[tuple[PromptKey, Divergence]]:
        """Texts of one arm that are not the baseline's."""
        return [(key, part.divergence) for key, part in self.of(name) if part.divergence is not None]

    @property
    def is_identical(self) -> bool:
        """Whether every arm gave the baseline's text everywhere."""
        return not any(self.differing(arm.name) for arm in self.arms)

    @property
    def ours_agree(self) -> bool:
        """Whether every policy of ours gave our plain decoding's text everywhere."""
        plain = {key: part.tokens for key, part in self.of(PLAIN_ARM)}
        return all(part.tokens == plain[key] for arm in self.arms if arm.is_ours for key, part in self.of(arm.name))

    def fastest_rival(self) -> str:
        """The fastest arm but the learned one, by its ratio over the baseline."""
        others = [arm.name for arm in self.arms if arm.name != LEARNED_ARM]
        return max(others, key=lambda name: self.ratio(name, self.baseline).value)

    def figures(self, name: str) -> LiveFigures | None:
        """Totals of one of our arms over its prompts; None for transformers."""
        parts = [part.figures for _, part in self.of(name) if part.figures is not None]
        return LiveFigures.total(name, parts) if parts else None

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping that fits `treewise/schemas/compare.json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "pair": self.pair,
            "cost": self.cost,
            "machine": asdict(self.machine),
            "bundle": self.bundle,
            "max_new_tokens": self.max_new_tokens,
            "temperature": self.temperature,
            "prompts": list(self.prompts),
            "repeats": self.repeats,
            "results_file": self.results_file,
            "resumed": self.resumed,
            "baseline": self.baseline,
            "fastest_rival": self.fastest_rival(),
            "identical": self.is_identical,
            "ours_agree": self.ours_agree,
            "arms": [self._arm_json(arm) for arm in self.arms],
        }

    def _arm_json(self, arm: Arm) -> dict[str, Any]:
        found = self.figures(arm.name)
        totals = self.totals(arm.name)
        return {
            "name": arm.name,
            "spec": arm.spec,
            "ours": arm.is_ours,
            "texts": len(self.of(arm.name)),
            "tokens": int(totals.tokens.sum()),
            "seconds": round(float(totals.ms.sum()) / 1e3, 6),
            "tokens_per_second": round(self.tokens_per_second(arm.name), 6),
            "tokens_per_pass": round(self.tokens_per_pass(arm.name), 6),
            "over_baseline": _interval(self.ratio(arm.name, self.baseline)),
            "learned_over_it": _interval(self.ratio(LEARNED_ARM, arm.name)),
            "policy_share": None if found is None else round(found.policy_share, 6),
            "overhead_share": None if found is None else round(found.overhead_share, 6),
            "divergences": [
                {"prompt_id": key.prompt_id, "repeat": key.repeat, **place.to_json()}
                for key, place in self.differing(arm.name)
            ],
        }


def _interval(found: Interval) -> dict[str, float | None]:
    """Bounds are null where one prompt cannot give them: JSON has no NaN."""
    values = {"value": found.value, "low": found.low, "high": found.high}
    return {name: round(value, 6) if value == value else None for name, value in values.items()}
