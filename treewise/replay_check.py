"""Replay equals live: policies decode, and replay is held to what they decided and how long they took."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from treewise.bench_inputs import UNSEEN_SPLITS, bench_prompts, prompt_sampling, trained_bundle
from treewise.data.cost import CostProfile
from treewise.data.errors import require
from treewise.data.prompt_set import Prompt
from treewise.live import PLAIN, policy_for, told_of
from treewise.policy.registry import LEARNED
from treewise.shipped import shipped_traces, split_trace
from treewise.stages import Stage, silent

if TYPE_CHECKING:
    from treewise.engine.collect import CollectSettings
    from treewise.engine.decode import Completion, EngineSettings
    from treewise.engine.pair import Pair
    from treewise.engine.profile import ProfileMeter, ProfileSettings
    from treewise.training.dense_check import DenseCheck
    from treewise.training.logged_trace import LoggedTrace
    from treewise.training.replay_check_report import PolicyCheck, ReplayCheckReport
    from treewise.training.statistics import Totals

CHECKED = (PLAIN, "chain", "topn", "frontier", "entropy", LEARNED)
WARM_TOKENS = 6


@dataclass(frozen=True, slots=True)
class ReplayCheckSettings:
    """How much is decoded, and how near replay has to come. As it stands, some ten minutes on two idle cores."""

    prompts: int = 9
    max_new_tokens: int = 48
    repeats: int = 3  # timed decodes of each prompt by each policy; a prompt's time is their mean
    temperature: float = 0.0
    policies: tuple[str, ...] = CHECKED  # spec strings; `learned` alone is one with `bundle`
    bundle: Path | None = None  # of the learned policy; None: one trained from the traces that ship
    tolerance: float = 0.05  # share by which modelled speed may miss the live one

    def __post_init__(self) -> None:
        for name in ("prompts", "max_new_tokens", "repeats"):
            require(getattr(self, name) >= 1, name, ">= 1", getattr(self, name))
        require(len(self.policies) >= 1, "policies", "at least one", self.policies)
        require(len(set(self.policies)) == len(self.policies), "policies", "each named once", self.policies)
        require(self.tolerance > 0.0, "tolerance", "above 0", self.tolerance)

    def quick(self) -> ReplayCheckSettings:
        """A look: 3 prompts, short answers. Its speeds say little."""
        return replace(self, prompts=3, max_new_tokens=20, repeats=1)


def check_replay(
    pair: Pair,
    cost: CostProfile,
    folder: Path,
    settings: ReplayCheckSettings | None = None,
    stage: Stage = silent,
    prices: CostProfile | None = None,
) -> ReplayCheckReport:
    """Decode with every policy, collect, replay and compare; traces are written to `folder`.

    Args:
        cost: the profile that policies decide by, live and in replay.
        prices: the profile that replay's milliseconds come from; None: one measured here, a repeat after each prompt,
            so that it shares the slow and fast minutes of the decoding that it models.

    Raises `TraceError` where two policies said different texts, or where a learned policy is asked for and neither a
    bundle nor shipped traces are there.
    """
    from treewise.engine.hub import cache_home
    from treewise.engine.pair import encode_prompt
    from treewise.training.replay_check_report import ReplayCheckReport

    settings = settings or ReplayCheckSettings()
    bundle = settings.bundle
    if bundle is None and LEARNED in settings.policies:
        split = split_trace(shipped_traces())
        bundle = trained_bundle(split, cost, cache_home() / "bench", stage, "treewise check-replay")
    specs = {name: f"{LEARNED}:{bundle}" if name == LEARNED else name for name in settings.policies}
    for spec in specs.values():
        policy_for(pair, spec)  # a bad spec or bundle should cost no decoding
    prompts = bench_prompts(settings.prompts, UNSEEN_SPLITS)
    ids = {prompt.id: encode_prompt(pair, prompt.text) for prompt in prompts}
    run = _Run(pair, cost, specs, prompts, ids, folder, settings, stage)
    meter = None if prices is not None else _meter(pair, ids, settings)
    answers = run.time(meter)
    if prices is None:
        assert meter is not None
        prices = meter.profile("measured in turns with live decoding", with_hiccups=True)
    dense = run.grow(answers[settings.policies[0]])
    checks = tuple(run.check(name, answers[name], dense, prices) for name in specs)
    return ReplayCheckReport(
        pair=pair.name,
        device=prices.device,
        cost=cost.name,
        prices=prices,
        prompts=len(prompts),
        max_new_tokens=settings.max_new_tokens,
        temperature=settings.temperature,
        repeats=settings.repeats,
        tolerance=settings.tolerance,
        folder=str(folder),
        policies=checks,
    )


@dataclass(frozen=True, slots=True)
class _Answer:
    """What one policy said to one prompt, and how long that took on average."""

    completion: Completion
    ms: float


@dataclass(frozen=True, slots=True)
class _Run:
    """Policies and prompts of one check."""

    pair: Pair
    cost: CostProfile
    specs: Mapping[str, str]  # name -> spec string
    prompts: Sequence[Prompt]
    ids: Mapping[str, Sequence[int]]  # prompt id -> token ids
    folder: Path
    settings: ReplayCheckSettings
    stage: Stage

    def time(self, meter: ProfileMeter | None) -> dict[str, list[_Answer]]:
        """Timed decodes, policies in turns on each prompt, with a repeat of `meter` behind it; by policy name."""
        from treewise.engine.decode import Engine

        names, settings = list(self.specs), self.settings
        engines = {
            name: Engine(self.pair, policy_for(self.pair, spec), self.cost, _untimed())
            for name, spec in self.specs.items()
        }
        seconds: dict[tuple[str, str], list[float]] = {}
        said: dict[tuple[str, str], Completion] = {}
        for engine in engines.values():
            engine.generate(next(iter(self.ids.values())), WARM_TOKENS)
        if meter is not None:
            meter.repeat()
        turns = [prompt for _ in range(settings.repeats) for prompt in self.prompts]
        with self.stage("timing live decoding", len(turns) * len(names)) as advance:
            for number, prompt in enumerate(turns):
                sampling, ids = prompt_sampling(settings.temperature, prompt.id), self.ids[prompt.id]
                turn = number % len(names)
                for name in names[turn:] + names[:turn]:
                    task = told_of(engines[name].policy, prompt)
                    answer = engines[name].generate(ids, settings.max_new_tokens, sampling, task)
                    seconds.setdefault((name, prompt.id), []).append(answer.decode_seconds)
                    said[name, prompt.id] = answer
                    advance(f"{name} on {prompt.id}")
                if meter is not None:
                    meter.repeat()
                    meter.decode(1)
        return {
            name: [_Answer(said[name, key], 1e3 * statistics.fmean(seconds[name, key])) for key in self.ids]
            for name in names
        }

    def grow(self, answers: Sequence[_Answer]) -> LoggedTrace:
        """A dense trace of the texts in `answers`."""
        from treewise.data.envelope import Envelope, PriorTable
        from treewise.engine.known_texts import collect_texts, known_text
        from treewise.training.logged_trace import open_trace

        settings, place = self.settings, self.folder / "dense"
        texts = [
            known_text(
                self.pair,
                prompt,
                self.ids[prompt.id],
                answer.completion.tokens,
                settings.max_new_tokens,
                prompt_sampling(settings.temperature, prompt.id),
            )
            for prompt, answer in zip(self.prompts, answers, strict=True)
        ]
        with self.stage("growing the dense trace", len(texts)) as advance:
            collect_texts(
                self.pair,
                texts,
                place,
                Envelope(),
                PriorTable(),
                self._collecting(),
                progressed=lambda prompt_id, count: advance(prompt_id),
            )
        return open_trace(place)

    def check(self, name: str, answers: Sequence[_Answer], dense: LoggedTrace, prices: CostProfile) -> PolicyCheck:
        """One policy: its live trace, its replay on that and on the dense one, and its modelled time."""
        from treewise.engine.collect import collect_live
        from treewise.training.dense_check import replay_dense
        from treewise.training.live_check import replay_live
        from treewise.training.logged_trace import open_trace
        from treewise.training.replay_check_report import PolicyCheck
        from treewise.training.statistics import Totals

        pair, spec = self.pair, self.specs[name]
        place = self.folder / f"live-{re.sub(r'[^A-Za-z0-9.=-]+', '-', name)}"
        with self.stage(f"live trace of {name}", len(self.prompts)) as advance:
            collect_live(
                pair,
                spec,
                self.cost,
                self.prompts,
                place,
                self._collecting(),
                _untimed(),
                progressed=lambda prompt_id, count: advance(prompt_id),
            )
        live = open_trace(place)
        with self.stage(f"replaying {name}", 2 * len(self.prompts)) as advance:
            own = replay_live(live, policy_for(pair, spec), self.cost, advance=advance)
            other = replay_dense(live, dense, policy_for(pair, spec), self.cost, advance=advance)
        tokens = np.asarray([len(answer.completion.tokens) for answer in answers], dtype=np.float64)
        return PolicyCheck(
            policy=name,
            spec=spec,
            own=own,
            dense=other,
            live=Totals(tokens, np.asarray([answer.ms for answer in answers], dtype=np.float64)),
            modelled=self._modelled(other, spec, prices),
            rounds=sum(answer.completion.num_rounds for answer in answers),
            nodes=sum(sum(answer.completion.verified_nodes) for answer in answers),
        )

    def _modelled(self, check: DenseCheck, spec: str, prices: CostProfile) -> Totals:
        """Tokens and modelled milliseconds of the replay on the dense trace, prompt by prompt."""
        from treewise.training.replay_result import call_ms_of, modelled_ms
        from treewise.training.statistics import Totals

        result = check.result
        call_ms = call_ms_of(policy_for(self.pair, spec), prices)
        ms = result.by_request(modelled_ms(result, replace(check.deployment, cost=prices), call_ms))
        tokens = result.by_request(result.committed_tokens)
        replayed = result.prompt_id.tolist()
        order = [replayed.index(prompt.id) for prompt in self.prompts]
        return Totals(tokens[order], ms[order])

    def _collecting(self) -> CollectSettings:
        from treewise.engine.collect import CollectSettings

        return CollectSettings(max_new_tokens=self.settings.max_new_tokens, temperature=self.settings.temperature)


def _meter(pair: Pair, ids: Mapping[str, Sequence[int]], settings: ReplayCheckSettings) -> ProfileMeter:
    from treewise.engine.profile import ProfileMeter

    return ProfileMeter(pair, meter_settings(ids, settings.max_new_tokens), list(ids.values()))


def meter_settings(ids: Mapping[str, Sequence[int]], max_new_tokens: int) -> ProfileSettings:
    """Passes at the counts that small trees have, behind the shortest and the longest text of the run."""
    from treewise.engine.profile import ProfileSettings

    lengths = [len(prompt) for prompt in ids.values()]
    return ProfileSettings(
        verify_rows=(1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 16, 20, 24, 25, 32),
        draft_tokens=(1, 2, 3, 4, 6, 8, 16),
        capacities=(max(min(lengths) - 1, 1), max(lengths) + max_new_tokens),
    )


def _untimed() -> EngineSettings:
    """Engine settings under which no clock suspends a policy: a busy machine must not change what is compared."""
    from treewise.engine.decode import EngineSettings

    return EngineSettings(time_limit_ms=math.inf)
