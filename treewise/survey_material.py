"""What a survey is made from: dense traces, there or collected once and kept, and a cost profile."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from treewise.data.cost import CostProfile
from treewise.data.errors import ParameterError, TraceError
from treewise.data.prompt_set import Prompt
from treewise.data.trace_manifest import TraceManifest
from treewise.profiles import Tell
from treewise.shipped import JUDGE, shipped_traces, spread
from treewise.stages import Stage

if TYPE_CHECKING:
    from treewise.data.envelope import Envelope
    from treewise.engine.collect import CollectSettings
    from treewise.engine.pair import Pair
    from treewise.training.logged_trace import LoggedTrace
    from treewise.training.survey import Survey
    from treewise.training.survey_grid import SurveyGrid

SHARD_ROUNDS = 256  # what a killed collection loses at most
EXAMPLE = "example-a100-70b"  # the profile of traces without a pair, unless another is named


@dataclass(frozen=True, slots=True)
class SurveyMaterial:
    """Dense traces of one pair, the folders that they were read from, and what a round costs."""

    traces: tuple[LoggedTrace, ...]
    folders: tuple[Path, ...]
    cost: CostProfile

    @classmethod
    def of_traces(
        cls, folders: Sequence[Path], cost: str = "", tasks: Sequence[str] = (), limit: int = 0
    ) -> SurveyMaterial:
        """From traces that are there, of `tasks` only, at most `limit` prompts of each trace; no model is needed.

        Raises `TraceError`, `CostProfileError`, and `ParameterError` on an unknown task.
        """
        from treewise.training.logged_trace import open_trace

        profile = CostProfile.load(cost or EXAMPLE)
        traces = [open_trace(folder) for folder in folders]
        known = sorted({entry.task for trace in traces for entry in trace.entries})
        if unknown := sorted(set(tasks) - set(known)):
            raise ParameterError(f"task must be one of {', '.join(known)}, got {unknown[0]!r}")
        if tasks:
            traces = [trace.only(_places(trace, tasks)) for trace in traces]
        return cls(tuple(spread(trace, limit) if limit else trace for trace in traces), tuple(folders), profile)

    @classmethod
    def of_pair(
        cls,
        pair: Pair,
        prompts: Sequence[Prompt],
        envelope: Envelope,
        settings: CollectSettings,
        stage: Stage,
        cost: str = "",
        warn: Tell = lambda line: None,
        note: Tell = lambda line: None,
        name: str = "",
    ) -> SurveyMaterial:
        """From a dense trace of `pair` on `prompts` that covers `envelope`, collected where it is missing.

        `cost`, `warn` and `note` as in `find_cost`; `name` is what the trace is called.
        """
        from treewise.profiles import find_cost
        from treewise.training.logged_trace import open_trace

        profile = find_cost(pair, cost, warn, note)
        folder = survey_trace(pair, prompts, envelope, settings, stage)
        return cls((open_trace(folder, name),), (folder,), profile)

    def survey(
        self,
        policies: Sequence[str] = (),
        grid: SurveyGrid | None = None,
        resamples: int = 2000,
        seed: int = 0,
        advance: Callable[[int], None] | None = None,
        home: Path | None = None,
    ) -> Survey:
        """The survey of this material; replays are kept in `home`, by default in the user's cache.

        Warns of policies that were trained on the traces. Raises as `treewise.training.survey.survey`.
        """
        from treewise.engine.hub import cache_home
        from treewise.survey_store import SurveyStore
        from treewise.training.ab import contenders_of, trained_on_judged
        from treewise.training.survey import survey

        trained = trained_on_judged(contenders_of(policies), self.folders) if policies else []
        store = SurveyStore((home or cache_home() / "survey") / f"counts-{self._key()}.jsonl")
        found = survey(self.traces, self.cost, policies, grid, resamples, seed, advance, store.count)
        return replace(found, warnings=(*found.warnings, *trained))

    def _key(self) -> str:
        """Sixteen hex digits over the traces' content and the requests that are taken of it."""
        from treewise.data.trace_reader import TraceReader

        parts = [TraceReader(folder).content_hash() for folder in self.folders]
        parts += [f"{entry.prompt_id} {entry.seed}" for trace in self.traces for entry in trace.entries]
        return hashlib.sha256("\n".join(parts).encode("utf-8")).hexdigest()[:16]


def survey_trace(
    pair: Pair,
    prompts: Sequence[Prompt],
    envelope: Envelope,
    settings: CollectSettings,
    stage: Stage,
    home: Path | None = None,
) -> Path:
    """Folder of a dense trace of `pair` on `prompts` that covers `envelope`; collected where it is missing.

    The trace that ships is taken where it is of the same pair, prompts and conditions. Others are kept in `home`, by
    default in the user's cache, under the hash of their conditions; an unfinished one is continued.
    """
    from treewise.data.envelope import PriorTable
    from treewise.engine.collect import build_manifest, collect_whole
    from treewise.engine.hub import cache_home

    manifest = build_manifest(pair, prompts, envelope.widened(), PriorTable(), settings, None)
    if (shipped := _shipped(manifest)) is not None:
        return shipped
    folder = (home or cache_home() / "survey") / f"trace-{manifest.identity()[:16]}"
    with stage(f"dense trace of {pair.name}", len(prompts)) as advance:
        collect_whole(
            pair, prompts, folder, envelope, PriorTable(), settings, lambda prompt_id, count: advance(prompt_id)
        )
    return folder


def _shipped(wanted: TraceManifest) -> Path | None:
    """Folder of the shipped judging trace where it was made under the conditions `wanted`, other versions aside."""
    try:
        folder = shipped_traces() / JUDGE
        found = TraceManifest.load(folder)
    except TraceError:  # an install without it
        return None
    here = replace(found, versions=wanted.versions, device=wanted.device)
    return folder if here.identity() == wanted.identity() else None


def _places(trace: LoggedTrace, tasks: Sequence[str]) -> list[int]:
    return [place for place, entry in enumerate(trace.entries) if entry.task in tasks]
