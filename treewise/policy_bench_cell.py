"""One cell of the policy benchmark: fixed policies tuned on training prompts, then everyone judged on others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from treewise.data.cost import CostProfile
from treewise.policy.hook import BoolArray
from treewise.policy.registry import FILED, GUARDED, LEARNED, split_bundle
from treewise.policy_bench_plan import Cell
from treewise.policy_bench_store import DEPTH, ORACLE, ReplayStore

if TYPE_CHECKING:
    from treewise.training.statistics import Interval
    from treewise.training.survival_check import SurvivalCheck
    from treewise.training.tally import Tally

UNTUNED = "entropy, untuned"  # the rule with the settings it comes with
UNTUNED_SPEC = "entropy"
DRAFT_ONLY, FREE_ONLY = "draft only", "free only"  # the best of all families with those sources alone
TUNED_SOURCES = {DRAFT_ONLY: "sources=draft", FREE_ONLY: "sources=free"}
TOPN = "topn"


@dataclass(frozen=True, slots=True)
class Opponent:
    """A fixed policy beside the learned one."""

    name: str  # family, or what it stands for
    spec: str
    speedup: Interval  # over plain decoding
    ratio: Interval  # the learned policy's speed over its own, this comparison alone
    joint: Interval  # the same, holding together with those of the cell's other opponents (Holm)
    p_value: float  # two-sided, adjusted; NaN with one prompt
    tokens_per_round: float
    nodes_per_round: float


@dataclass(frozen=True, slots=True)
class Judged:
    """The learned policy and its opponents on one subset of the judged prompts."""

    subset: str
    prompts: int
    speedup: Interval  # of the learned policy over plain decoding
    tokens_per_round: float
    nodes_per_round: float  # verified
    growths_per_round: float
    oracle: float  # speed-up of the path oracle
    depth_oracle: float  # of the learned policy's own trees, grown just as deep as was accepted
    opponents: tuple[Opponent, ...]
    tuned_best: str  # name of the opponent that was fastest on the training prompts

    @property
    def rivals(self) -> tuple[Opponent, ...]:
        """The tuned opponents."""
        return tuple(one for one in self.opponents if one.name != UNTUNED)

    @property
    def best(self) -> Opponent:
        """The tuned opponent that is fastest on the judged prompts: the hardest one, with hindsight."""
        return max(self.rivals, key=lambda one: one.speedup.value)

    def opponent(self, name: str) -> Opponent | None:
        """The opponent of that name, None where the cell has none."""
        return next((one for one in self.opponents if one.name == name), None)


@dataclass(frozen=True, slots=True)
class NodesSaved:
    """Verified nodes at the accepted length of the learned policy, which counts milliseconds; top-N's settings do not.

    What a policy saves where nodes are counted is the node curve's to say.
    """

    accepted: float  # per round, of the learned policy
    nodes: float  # per round, of the learned policy
    topn_nodes: float  # per round, that the best mixture of top-N settings verifies there; NaN beyond them all

    @property
    def share(self) -> float:
        """Share of top-N's nodes that are saved."""
        return 1.0 - self.nodes / self.topn_nodes


@dataclass(frozen=True, slots=True)
class CellResult:
    """Everything about one cell."""

    cell: Cell
    tuned: dict[str, str]  # name -> spec, fastest on the training prompts first
    judged: tuple[Judged, ...]  # by subset, those without prompts left out
    saved: NodesSaved | None  # only where draft and free sources are both there
    survival: SurvivalCheck | None
    tallies: dict[str, Tally]  # by spec, on the judged prompts; the learned policy's under its own
    learned: str  # spec

    def subset(self, name: str) -> Judged | None:
        """The figures of a subset, None where it has no prompts."""
        return next((part for part in self.judged if part.subset == name), None)


def tune_cells(
    store: ReplayStore,
    sources: int,
    costs: Sequence[CostProfile],
    specs: Mapping[str, str],
    advance: Callable[[int], None],
) -> list[dict[str, str]]:
    """Name -> fastest spec, fastest first, under each of `costs`; `specs` maps what is tried to its family."""
    tallies = store.tallies(sources, costs, specs, advance)
    return [winners({spec: tallies[place, spec] for spec in specs}, specs) for place in range(len(costs))]


def winners(tallies: Mapping[str, Tally], families: Mapping[str, str]) -> dict[str, str]:
    """Name -> spec of the fastest of each family, and of each choice of sources alone, fastest first."""
    speed = {spec: speedup_of(tally) for spec, tally in tallies.items()}
    best: dict[str, str] = {}
    for spec in sorted(speed, key=lambda spec: -speed[spec]):
        best.setdefault(families[spec], spec)
        for name, mark in TUNED_SOURCES.items():
            if mark in spec:
                best.setdefault(name, spec)
    return best


def judge_cell(
    cell: Cell,
    tallies: dict[str, Tally],
    tuned: dict[str, str],
    learned: str,
    subsets: Mapping[str, BoolArray],
    survival: SurvivalCheck | None,
    resamples: int,
) -> CellResult:
    """The figures of a cell from replays on the judged prompts; `subsets` maps names to choices [requests] bool."""
    opponents = {**tuned, UNTUNED: UNTUNED_SPEC}
    judged = []
    for name, chosen in subsets.items():
        if chosen.any():
            picked = {spec: tally.of(chosen) for spec, tally in tallies.items()}
            judged.append(_judged(name, picked, opponents, learned, resamples))
    saved = None
    if cell.has_union:
        grid = [tally for spec, tally in tallies.items() if spec.startswith(f"{TOPN}:") and "sources=all" in spec]
        saved = nodes_saved(tallies[learned], grid)
    return CellResult(cell, tuned, tuple(judged), saved, survival, tallies, learned)


def _judged(subset: str, tallies: dict[str, Tally], opponents: dict[str, str], learned: str, resamples: int) -> Judged:
    from treewise.training.ab_report import speed_totals
    from treewise.training.statistics import SpeedRatio, interval, totals_by_prompt
    from treewise.training.verdict import judge

    mine = tallies[learned]
    totals = speed_totals(mine)
    plain = totals_by_prompt(mine.prompt_id, mine.columns["tokens"], mine.plain_ms)
    ratios = {name: SpeedRatio(totals, speed_totals(tallies[spec])) for name, spec in opponents.items()}
    judgements = judge(list(ratios.values()), resamples)
    rows = []
    for (name, spec), judgement in zip(opponents.items(), judgements, strict=True):
        other = tallies[spec]
        rows.append(
            Opponent(
                name=name,
                spec=spec,
                speedup=interval(SpeedRatio(speed_totals(other), plain), resamples),
                ratio=interval(ratios[name], resamples),
                joint=judgement.interval,
                p_value=judgement.p_value,
                tokens_per_round=per_round(other, "tokens"),
                nodes_per_round=per_round(other, "nodes"),
            )
        )
    return Judged(
        subset=subset,
        prompts=len(totals.tokens),
        speedup=interval(SpeedRatio(totals, plain), resamples),
        tokens_per_round=per_round(mine, "tokens"),
        nodes_per_round=per_round(mine, "nodes"),
        growths_per_round=per_round(mine, "growths"),
        oracle=speedup_of(tallies[ORACLE]),
        depth_oracle=speedup_of(tallies[DEPTH + learned]),
        opponents=tuple(rows),
        tuned_best=next(iter(opponents)),
    )


def speedup_of(tally: Tally) -> float:
    """Over plain decoding, ratio of totals."""
    return float(tally.plain_ms.sum() / tally.columns["ms"].sum())


def per_round(tally: Tally, column: str) -> float:
    """Mean of a column over rounds."""
    return float(tally.columns[column].sum() / tally.columns["rounds"].sum())


def nodes_saved(learned: Tally, grid: Sequence[Tally]) -> NodesSaved:
    """The learned policy beside the settings of `grid`, interpolated at its accepted length.

    The curve is the upper hull of (verified nodes, accepted length), from no nodes and no length on: a mixture of
    settings reaches every point of it, so it is at least as good as each of them.
    """
    accepted, nodes = per_round(learned, "tokens") - 1.0, per_round(learned, "nodes")
    points = sorted({(0.0, 0.0), *((per_round(one, "nodes"), per_round(one, "tokens") - 1.0) for one in grid)})
    hull: list[tuple[float, float]] = []
    for x, y in points:
        if hull and y <= hull[-1][1]:
            continue  # more nodes for no more length
        while len(hull) >= 2 and _is_below(hull[-2], hull[-1], (x, y)):
            hull.pop()
        hull.append((x, y))
    if accepted > hull[-1][1]:
        return NodesSaved(accepted, nodes, math.nan)
    xs, ys = zip(*hull, strict=True)
    return NodesSaved(accepted, nodes, float(np.interp(accepted, ys, xs)))


def _is_below(first: tuple[float, float], middle: tuple[float, float], last: tuple[float, float]) -> bool:
    rise = (last[1] - first[1]) * (middle[0] - first[0])
    return (middle[1] - first[1]) * (last[0] - first[0]) <= rise


def shown(spec: str) -> str:
    """A spec as people read it: files and folders by what they are."""
    name, _, rest = spec.partition(":")
    if name in (LEARNED, GUARDED):
        _, settings = split_bundle(rest)
        return f"{name}:DIR,{settings}" if settings else name
    if name in FILED:
        _, comma, settings = rest.partition(",")
        return f"{name}:TABLE{comma}{settings}"
    return spec
