"""What the policy benchmark asks: which cells, which prompts, how much of each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from treewise.data.errors import PromptError, require
from treewise.data.prompt_set import Prompt, in_turns, own_prompts, read_prompts
from treewise.policy.hook import DRAFT, FREE, LOOKUP
from treewise.policy.registry import GUARDED, LEARNED

ALL = "all"
SOURCE_SETS: dict[str, int] = {"draft": DRAFT, "lookup": LOOKUP, "free": FREE, ALL: DRAFT | FREE}
WITH_DRAFT = ("draft", ALL)  # the others do not depend on the draft, so one draft's traces answer for all
THIS_MACHINE = "this-machine"  # the pair's measured profile
COSTS = (THIS_MACHINE, "example-a100-70b", "example-a100-70b-3ms")
_SHORT = {THIS_MACHINE: "here", "example-a100-70b": "a100", "example-a100-70b-3ms": "a100-3ms"}
TRAIN_SPLIT, TEST_SPLIT = "train", "test"
OWN_TRAIN, OWN_TEST = "policy", "judge"
LONGEST_CHARACTERS = 8000  # of a prompt; longer ones would spend the time on prefill


@dataclass(frozen=True, slots=True)
class Condition:
    """One pair of traces: what the texts and the logged guesses depend on."""

    draft: str
    temperature: float

    def __str__(self) -> str:
        return f"{self.draft} T{self.temperature:g}"


@dataclass(frozen=True, slots=True)
class Cell:
    """One contest: a condition, the sources that exist, and what milliseconds cost."""

    condition: Condition
    sources: str  # of SOURCE_SETS
    cost: str

    def __str__(self) -> str:
        return f"{self.condition} {self.sources} {_SHORT.get(self.cost, Path(self.cost).stem)}"

    @property
    def has_union(self) -> bool:
        """Whether draft and free sources are both there."""
        return self.sources == ALL

    @property
    def is_a100(self) -> bool:
        """Whether its costs are those of the example GPU."""
        return self.cost.startswith("example-a100-70b")


@dataclass(frozen=True, slots=True)
class PolicyBenchSettings:
    """How much is collected, tuned and judged."""

    drafts: tuple[str, ...] = ("default", "prune:12-17")
    temperatures: tuple[float, ...] = (0.0, 1.0)
    sources: tuple[str, ...] = tuple(SOURCE_SETS)
    costs: tuple[str, ...] = COSTS  # built-in names, files, or THIS_MACHINE
    train_prompts: int = 60
    test_prompts: int = 60
    max_new_tokens: int = 64
    policy: str = LEARNED  # which of the two that read a bundle: plain or guarded
    resamples: int = 2000
    leaves_tasks_out: bool = False  # also train without each task in turn, to see calibration on tasks never seen
    is_quick: bool = False  # shipped traces and small grids; nothing is decoded

    def __post_init__(self) -> None:
        for name in ("drafts", "temperatures", "sources", "costs"):
            values = getattr(self, name)
            require(len(values) > 0 and len(set(values)) == len(values), name, "at least one, each once", values)
        require(set(self.sources) <= set(SOURCE_SETS), "sources", f"among {', '.join(SOURCE_SETS)}", self.sources)
        warm = all(0.0 <= temperature < float("inf") for temperature in self.temperatures)
        require(warm, "temperatures", "finite and >= 0", self.temperatures)
        require(self.policy in (LEARNED, GUARDED), "policy", f"{LEARNED} or {GUARDED}", self.policy)
        require(self.train_prompts >= 3, "train_prompts", ">= 3", self.train_prompts)
        enough = self.train_prompts >= 6 or not self.leaves_tasks_out  # three must stay without those of one task
        require(enough, "train_prompts", ">= 6 to leave tasks out", self.train_prompts)
        require(self.test_prompts >= 2, "test_prompts", ">= 2", self.test_prompts)
        require(self.max_new_tokens >= 1, "max_new_tokens", ">= 1", self.max_new_tokens)
        require(self.resamples >= 2000, "resamples", ">= 2000", self.resamples)

    def quick(self) -> PolicyBenchSettings:
        """On the traces that ship, which are of the default draft at temperature 0, without this machine's costs."""
        costs = tuple(cost for cost in self.costs if cost != THIS_MACHINE) or COSTS[1:]
        return replace(self, drafts=("default",), temperatures=(0.0,), costs=costs, is_quick=True)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Every draft at every temperature."""
        return tuple(Condition(draft, temperature) for draft in self.drafts for temperature in self.temperatures)

    def source_sets(self, condition: Condition) -> tuple[str, ...]:
        """The sources that are asked of a condition: those without a draft only of the first draft."""
        first = condition.draft == self.drafts[0]
        return tuple(name for name in self.sources if first or name in WITH_DRAFT)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Every cell, in order."""
        return tuple(
            Cell(condition, sources, cost)
            for condition in self.conditions
            for sources in self.source_sets(condition)
            for cost in self.costs
        )


@dataclass(frozen=True, slots=True)
class PromptParts:
    """Prompts to tune and train on, and others to judge on."""

    train: tuple[Prompt, ...]
    test: tuple[Prompt, ...]
    origin: str  # in words


def prompt_parts(folder: str | Path | None, settings: PolicyBenchSettings) -> PromptParts:
    """Prompts of a folder of JSON Lines files with the splits `train` and `test`; the project's own without one.

    Prompts longer than `LONGEST_CHARACTERS` are left out. Raises `PromptError` where a split is empty.
    """
    if folder:
        found = read_prompts(folder)
        names = (TRAIN_SPLIT, TEST_SPLIT)
        origin = f"prompts of {folder}, tuned and trained on split {TRAIN_SPLIT}, judged on split {TEST_SPLIT}"
    else:
        found = own_prompts()
        names = (OWN_TRAIN, OWN_TEST)
        origin = f"the project's own prompts, tuned and trained on own:{OWN_TRAIN}, judged on own:{OWN_TEST}"
    parts = []
    for name, count in zip(names, (settings.train_prompts, settings.test_prompts), strict=True):
        short = [prompt for prompt in found if prompt.split == name and len(prompt.text) <= LONGEST_CHARACTERS]
        if not short:
            raise PromptError(f"prompts must hold one of split {name!r} to go on, got none in {folder or 'own'}")
        parts.append(spread_prompts(short, count))
    return PromptParts(parts[0], parts[1], origin)


def spread_prompts(prompts: Iterable[Prompt], count: int) -> tuple[Prompt, ...]:
    """At most `count` of `prompts`: tasks take turns, within a task its sources, within a source the order of a hash.

    The source is what stands before the first slash of a prompt's id.
    """
    ordered = sorted(prompts, key=lambda prompt: _hash(prompt.id))
    rank: dict[tuple[str, str], int] = {}
    placed: list[tuple[int, str, Prompt]] = []
    for prompt in ordered:
        source = prompt.id.partition("/")[0]
        place = rank[prompt.task, source] = rank.get((prompt.task, source), -1) + 1
        placed.append((place, _hash(source), prompt))
    placed.sort(key=lambda item: item[:2])
    return in_turns((prompt for _, _, prompt in placed), count)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
