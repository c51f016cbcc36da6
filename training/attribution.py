"""Why guesses are accepted or not: by how sure the target is of its token, and by how well draft and target agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.errors import TraceError, require
from treewise.policy.hook import DRAFT
from treewise.training.ab_report import interval_json
from treewise.training.logged_trace import LoggedTrace
from treewise.training.positions import Positions, positions_of
from treewise.training.ratios import Ratios, ratio_intervals
from treewise.training.replay_result import Float64Array
from treewise.training.statistics import RESAMPLES, Interval

FIGURES = ("share", "first", "width", "any_source", "run")  # of a cell, each with its interval
ENTROPY_EDGES = (0.25, 1.0, 2.0, 4.0)  # bits, between the bands of the entropy curve
AGREEMENT_EDGES = (0.125, 0.25, 0.5, 0.75)  # between the bands of the agreement curve


@dataclass(frozen=True, slots=True)
class AttributionSettings:
    """Where the quadrants part, and what agreement is taken over."""

    entropy_bits: float = 2.0  # from here on the target is unsure
    agreement: float = 0.5  # from here on draft and target agree
    window_tokens: int = 16  # latest guesses of the draft before a position, whose share that was right is agreement
    least_tokens: int = 4  # positions with fewer guesses before them are left out

    def __post_init__(self) -> None:
        require(self.entropy_bits > 0.0, "entropy_bits", "above 0", self.entropy_bits)
        require(0.0 < self.agreement < 1.0, "agreement", "between 0 and 1", self.agreement)
        require(1 <= self.least_tokens <= self.window_tokens, "least_tokens", "from 1 to the window", self.least_tokens)


@dataclass(frozen=True, slots=True)
class Quadrant:
    """A kind of position, and what to try where there are many of them."""

    name: str
    is_unsure: bool
    agrees: bool
    advice: str


QUADRANTS = (
    Quadrant("sure, agree", False, True, "deeper: longer chains and more levels; the draft follows the target here"),
    Quadrant("sure, differ", False, False, "a stronger or specialised draft (`treewise distill`), or the free sources"),
    Quadrant("unsure, agree", True, True, "wider: more children below a node rather than more levels"),
    Quadrant("unsure, differ", True, False, "shallower, or plain decoding: few guesses are right, whatever is drafted"),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """Acceptance over a class of positions. Each figure is a mean over positions with its interval by prompt."""

    task: str  # "": all of them
    name: str  # of the quadrant or the band
    positions: int
    share: Interval  # of the task's positions
    first: Interval  # the draft's first guess is the target's token
    width: Interval  # one of the draft's guesses in the log is
    any_source: Interval  # some source's guess is
    run: Interval  # tokens that a tree of the draft's logged guesses would get accepted

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        figures = {name: interval_json(getattr(self, name)) for name in FIGURES}
        return {"task": self.task, "name": self.name, "positions": self.positions, **figures}


@dataclass(frozen=True, slots=True)
class Attribution:
    """Acceptance by quadrant, and along each of the two axes."""

    settings: AttributionSettings
    quadrants: tuple[Cell, ...]  # in the order of `QUADRANTS`, all tasks first, then each
    by_entropy: tuple[Cell, ...]  # all tasks, bands of the target's entropy
    by_agreement: tuple[Cell, ...]  # all tasks, bands of agreement

    def of_task(self, task: str = "") -> tuple[Cell, ...]:
        """The four quadrants of one task."""
        return tuple(cell for cell in self.quadrants if cell.task == task)

    @property
    def tasks(self) -> list[str]:
        """Tasks with quadrants of their own."""
        return sorted({cell.task for cell in self.quadrants} - {""})

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        return {
            "entropy_bits": self.settings.entropy_bits,
            "agreement": self.settings.agreement,
            "window_tokens": self.settings.window_tokens,
            "advice": {quadrant.name: quadrant.advice for quadrant in QUADRANTS},
            "quadrants": [cell.to_json() for cell in self.quadrants],
            "by_entropy": [cell.to_json() for cell in self.by_entropy],
            "by_agreement": [cell.to_json() for cell in self.by_agreement],
        }


def attribute(
    traces: Sequence[LoggedTrace],
    settings: AttributionSettings | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Attribution:
    """Acceptance at every position of dense `traces` that hold a draft, by quadrant and task.

    The target's entropy is that of the very token to be guessed, in bits, unwarped at temperature 1. Agreement is the
    share of the draft's latest guesses *before* the position that were right, so that it does not contain the outcome
    it is held against. Every position counts, those that a decoder would have skipped too. Raises `TraceError` on a
    live trace, one without a draft, and texts that are too short for any position.
    """
    settings = settings or AttributionSettings()
    for trace in traces:
        if not trace.sources & DRAFT:
            raise TraceError(f"trace {trace.name} must hold a draft for attribution, got one without")
    found = positions_of(traces)
    agreement = _agreement(found, settings)
    known = ~(np.isnan(agreement) | np.isnan(found.first) | np.isnan(found.entropy_bits))
    if not known.any():
        raise TraceError(f"texts must be longer than {settings.least_tokens + 1} tokens for attribution, got none")
    unsure = found.entropy_bits >= settings.entropy_bits
    agrees = agreement >= settings.agreement
    kinds = [known & (unsure == part.is_unsure) & (agrees == part.agrees) for part in QUADRANTS]
    names = [part.name for part in QUADRANTS]
    tasks = sorted(set(found.task.tolist()))
    cells = _cells(found, known, "", names, kinds, resamples, seed)
    for task in tasks if len(tasks) > 1 else []:
        here = found.task == task
        cells += _cells(found, known & here, task, names, [kind & here for kind in kinds], resamples, seed)
    bands = []
    for values, edges, unit in (
        (found.entropy_bits, ENTROPY_EDGES, " bits"),
        (agreement, AGREEMENT_EDGES, ""),
    ):
        place = np.digitize(values, edges)
        chosen = [known & (place == band) for band in range(len(edges) + 1)]
        bands.append(_cells(found, known, "", band_names(edges, unit), chosen, resamples, seed))
    return Attribution(settings, tuple(cells), tuple(bands[0]), tuple(bands[1]))


def band_names(edges: Sequence[float], unit: str = "") -> list[str]:
    """Words for the bands between `edges`, the open ones first and last."""
    inner = [f"{low:g} to {high:g}{unit}" for low, high in pairwise(edges)]
    return [f"below {edges[0]:g}{unit}", *inner, f"{edges[-1]:g}{unit} and more"]


def _agreement(found: Positions, settings: AttributionSettings) -> Float64Array:
    """[positions] share of the draft's latest known guesses before each position that were right; NaN where too few."""
    known = ~np.isnan(found.first)
    right = np.concatenate([[0.0], np.cumsum(np.where(known, found.first, 0.0))])
    asked = np.concatenate([[0], np.cumsum(known)])
    here = np.arange(len(found))
    since = here - np.minimum(found.place, settings.window_tokens)  # never before the request's own text
    guesses = asked[here] - asked[since]
    enough = guesses >= settings.least_tokens
    agreement = np.full(len(found), np.nan)
    agreement[enough] = (right[here] - right[since])[enough] / guesses[enough]
    return agreement


def _cells(
    found: Positions,
    among: NDArray[np.bool_],
    task: str,
    names: Sequence[str],
    kinds: Sequence[NDArray[np.bool_]],
    resamples: int,
    seed: int,
) -> list[Cell]:
    """One cell for each of `kinds` [positions], whose shares are of `among` [positions]; one bootstrap for all."""
    prompts, place = np.unique(found.prompt_id[among], return_inverse=True)
    count = len(prompts)

    def by_prompt(values: NDArray[Any]) -> Float64Array:
        return np.bincount(place, values[among].astype(np.float64), count).astype(np.float64)

    columns = [getattr(found, name) for name in FIGURES[1:]]
    tops, bottoms = [], []
    everything = by_prompt(among)
    for kind in kinds:
        inside = by_prompt(kind)
        tops += [inside, *(by_prompt(np.where(kind, column, 0.0)) for column in columns)]
        bottoms += [everything, *[inside] * len(columns)]
    bounds = ratio_intervals(Ratios(np.column_stack(tops), np.column_stack(bottoms)), resamples, seed)
    figures = [Interval(*row) for row in bounds.tolist()]
    width = len(FIGURES)
    return [
        Cell(task, name, int((among & kind).sum()), *figures[number * width : (number + 1) * width])
        for number, (name, kind) in enumerate(zip(names, kinds, strict=True))
    ]
