"""The demo: pull, profile, train, decode live, replay offline. The main job of treewise in one run."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treewise.data.cost import CostProfile
from treewise.data.errors import MissingExtraError, require
from treewise.data.prompt_set import Prompt, own_prompts
from treewise.data.whole_file import write_whole
from treewise.demo_summary import AbPart, DemoSummary, Label
from treewise.live import PLAIN, LiveRun, run_live
from treewise.profiles import profile_steps, quick_settings, store, stored_path
from treewise.shipped import SplitTrace, shipped_traces, split_trace, spread, train_part
from treewise.stages import Stage, silent

if TYPE_CHECKING:
    from treewise.engine.pair import Pair
    from treewise.training.ab_report import AbReport

EXAMPLE_PROFILE = "example-a100-70b"
TRAIN_POSITIONS = 4000  # root positions that the demo trains on, at most
ENTROPY = "entropy"
# Small grids of the fixed opponents, each with and without the draft; `treewise tune` has larger ones.
_CHOICES = ("all", "free", "lookup")
GRIDS: dict[str, tuple[str, ...]] = {
    "chain": tuple(f"chain:{length},sources={sources}" for length in (1, 2, 3, 5, 8) for sources in _CHOICES),
    "topn": (
        *(f"topn:{nodes}x{depth}" for nodes in (4, 8, 16, 32) for depth in (1, 2, 4)),
        *(f"topn:{nodes}x1,sources={sources}" for nodes in (2, 4, 8, 16, 32) for sources in _CHOICES[1:]),
    ),
    "frontier": tuple(f"frontier:sources={sources}" for sources in _CHOICES),
}


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """What the demo runs on and how much of it."""

    prompts: int = 9  # own demo prompts, spread over the kinds of task: one of each
    max_new_tokens: int = 48
    target: str = "smollm2-135m"
    draft: str = "default"
    traces: Path | None = None  # a dense trace of the pair; None: the one that ships
    tune_prompts: int = 18  # training prompts that the fixed opponents are tuned on
    threads: int = 0  # 0: all cores
    folder: Path = Path("treewise-demo")

    def __post_init__(self) -> None:
        for name in ("prompts", "max_new_tokens", "tune_prompts"):
            require(getattr(self, name) >= 1, name, ">= 1", getattr(self, name))
        require(self.threads >= 0, "threads", ">= 0", self.threads)


def run_demo(
    settings: DemoSettings | None = None, stage: Stage = silent, tell: Callable[[str], None] = lambda line: None
) -> DemoSummary:
    """Run the demo; write `summary.json`, `report.html`, `profile.json` and the bundle `policy` to its folder.

    Raises `TreewiseError` where a part of it cannot run; texts that differ are figures, not errors.
    """
    settings = settings or DemoSettings()
    began = time.perf_counter()
    traces = settings.traces or shipped_traces()
    threads = settings.threads or os.cpu_count() or 1
    pair = _open_pair(settings, threads, tell)
    settings.folder.mkdir(parents=True, exist_ok=True)
    cost = _profile(pair, settings.folder, stage)
    split = split_trace(traces)
    report = _train(split, cost, settings.folder / "policy", stage)
    learned = f"learned:{settings.folder / 'policy'}"
    costs = [cost, CostProfile.load(EXAMPLE_PROFILE)]
    tuned = _tune(split, costs, settings.tune_prompts, stage)

    prompts = demo_prompts(settings.prompts)
    labels = _labels(tuned[0], learned)
    live = _decode(pair, cost, labels, prompts, settings.max_new_tokens, stage)
    parts = []
    for profile, winners in zip(costs, tuned, strict=True):
        contenders = _labels(winners, learned)
        parts.append(AbPart(contenders, _ab(split, profile, contenders, stage)))
    page = _page(pair, split, costs, parts, settings.folder / "report.html", stage, tell)
    summary = DemoSummary(
        pair=pair.name,
        cost=cost,
        threads=threads,
        max_new_tokens=settings.max_new_tokens,
        prompts=prompts,
        answers=tuple(str(pair.tokenizer.decode(list(answer.tokens))) for answer in live.answers[PLAIN]),
        trace=str(traces),
        train_prompts=len({request.prompt_id for request in split.train.requests}),
        held_out_prompts=len({request.prompt_id for request in split.held_out.requests}),
        training=report,
        labels=labels,
        live=live,
        ab=tuple(parts),
        folder=str(settings.folder),
        page=page,
        seconds=time.perf_counter() - began,
    )
    text = json.dumps(summary.to_json(), indent=1) + "\n"
    write_whole(settings.folder / "summary.json", text)
    return summary


def demo_prompts(count: int) -> tuple[Prompt, ...]:
    """`count` of the project's demo prompts, spread evenly over their tasks; all of them where there are fewer."""
    found = own_prompts("demo")
    count = min(count, len(found))
    return tuple(found[place * len(found) // count] for place in range(count))


def _open_pair(settings: DemoSettings, threads: int, tell: Callable[[str], None]) -> Pair:
    from treewise.engine import smollm2
    from treewise.engine.pair import load_pair

    if settings.target == smollm2.NAME and not smollm2.is_pulled():
        smollm2.pull(tell)
    return load_pair(settings.target, settings.draft, threads=threads)


def _profile(pair: Pair, folder: Path, stage: Stage) -> CostProfile:
    from treewise.engine.pair import encode_prompt
    from treewise.engine.profile import measure_profile

    chosen = quick_settings()
    with stage("1/6 timing target and draft on this machine", profile_steps(chosen)) as advance:
        prompts = [encode_prompt(pair, prompt.text) for prompt in demo_prompts(2)]
        cost = measure_profile(pair, chosen, prompts, measured=advance)
    store(cost, folder / "profile.json")
    if not stored_path(pair).exists():
        store(cost, stored_path(pair))
    return cost


def _train(split: SplitTrace, cost: CostProfile, out: Path, stage: Stage) -> dict[str, Any]:
    from treewise.training.dataset import DatasetSettings
    from treewise.training.fit import TrainSettings
    from treewise.training.planner_fit import PlannerFitSettings

    # Fewer rows and replays than `treewise train` takes: the demo has minutes.
    positions = sum(len(request.rows) for request in split.train.requests)
    chosen = TrainSettings(
        rows=DatasetSettings(stride=math.ceil(positions / TRAIN_POSITIONS)),
        planner=PlannerFitSettings(requests=12, rate_rounds=2, grid=(1.4,)),
    )
    with stage("2/6 training the policy on logged prompts", None) as advance:
        report = train_part(
            split, cost, out, chosen, "treewise demo", lambda part, done, total: advance(f"{part} {done}/{total}")
        )
    return report.to_json()


def _tune(split: SplitTrace, costs: Sequence[CostProfile], prompts: int, stage: Stage) -> list[dict[str, str]]:
    """The best of each family under each cost profile, on training prompts."""
    from treewise.training.contest import Contender, contest

    trace = spread(split.train, prompts)
    contenders = [Contender.of(spec) for specs in GRIDS.values() for spec in specs]
    total = len(trace.requests) * len(contenders) * len(costs)
    with stage("3/6 searching the best fixed trees by replay", total) as advance:
        tallies = contest(trace, costs, contenders, advance=lambda steps: advance(steps=steps))
    tuned = []
    for place in range(len(costs)):
        modelled = {name: float(tally.columns["ms"].sum()) for (at, name), tally in tallies.items() if at == place}
        tuned.append({family: min(specs, key=lambda spec: modelled[spec]) for family, specs in GRIDS.items()})
    return tuned


def _labels(winners: dict[str, str], learned: str) -> tuple[Label, ...]:
    return (
        Label("learned", learned),
        Label("entropy rule", ENTROPY),
        Label("tuned top-N", winners["topn"]),
        Label("tuned frontier", winners["frontier"]),
        Label("tuned chain", winners["chain"]),
        Label("plain", PLAIN),
    )


def _decode(
    pair: Pair,
    cost: CostProfile,
    labels: Sequence[Label],
    prompts: Sequence[Prompt],
    max_new_tokens: int,
    stage: Stage,
) -> LiveRun:
    from treewise.engine.pair import encode_prompt

    encoded = {prompt.id: encode_prompt(pair, prompt.text) for prompt in prompts}
    asked = {prompt.id: prompt for prompt in prompts}
    specs = [label.spec for label in labels]
    with stage("4/6 decoding live, every policy on every prompt", len(encoded) * len(labels)) as advance:
        return run_live(pair, cost, specs, encoded, max_new_tokens, advance=advance, asked=asked)


def _ab(split: SplitTrace, cost: CostProfile, labels: Sequence[Label], stage: Stage) -> AbReport:
    from treewise.training.ab import ab, has_cheap_depth_oracles

    specs = [label.spec for label in labels]
    is_cheap = has_cheap_depth_oracles([split.held_out], len(specs))
    with stage(f"5/6 replaying other prompts under {cost.name}", len(split.held_out.requests) * len(specs)) as advance:
        return ab(
            [split.held_out],
            [cost],
            specs,
            advance=lambda steps: advance(steps=steps),
            with_depth_oracles=is_cheap,
        )


def _page(
    pair: Pair,
    split: SplitTrace,
    costs: Sequence[CostProfile],
    parts: Sequence[AbPart],
    path: Path,
    stage: Stage,
    tell: Callable[[str], None],
) -> str:
    """Write the report page; returns where it is, or nothing where its plots cannot be drawn."""
    from treewise.html_report import Compared, write_page

    compared = [
        Compared.of(
            part.report,
            [split.held_out],
            [cost],
            [label.spec for label in part.labels],
            {label.spec: label.name for label in part.labels},
        )
        for part, cost in zip(parts, costs, strict=True)
    ]
    with stage("6/6 writing the report page", None):
        try:
            return str(write_page(path, compared, text_of=lambda token: str(pair.tokenizer.decode([token]))))
        except MissingExtraError as error:
            tell(f"no report page: {error}")
            return ""
