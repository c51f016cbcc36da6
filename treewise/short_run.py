"""A short run of a pair: a small dense trace, and the advised setting live beside plain decoding."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from treewise.bench_inputs import prompt_sampling
from treewise.data.cost import CostProfile
from treewise.data.errors import require
from treewise.data.prompt_set import Prompt
from treewise.live import PLAIN, Asked, LiveFigures, policy_for, take_turns
from treewise.stages import Stage, silent

if TYPE_CHECKING:
    from treewise.engine.decode import Completion
    from treewise.engine.pair import Pair
    from treewise.training.diagnose import Trial
    from treewise.training.diagnosis import Diagnosis
    from treewise.training.logged_trace import LoggedTrace
    from treewise.training.policy_findings import LiveShares

WARM_TOKENS = 6


@dataclass(frozen=True, slots=True)
class ShortRunSettings:
    """How much is decoded."""

    max_new_tokens: int = 64
    temperature: float = 0.0

    def __post_init__(self) -> None:
        require(self.max_new_tokens >= 1, "max_new_tokens", ">= 1", self.max_new_tokens)


def diagnose_pair(
    pair: Pair,
    cost: CostProfile,
    prompts: Sequence[Prompt],
    policy: str = "",
    settings: ShortRunSettings | None = None,
    folder: Path | None = None,
    stage: Stage = silent,
) -> Diagnosis:
    """Diagnose `pair` on `prompts`; the dense trace stays in `folder` where one is named.

    `policy` is the setting in use, which is what is looked at; without one it is the fastest that guesses. That and the
    advised one run live.
    Raises `ParameterError` on fewer than two prompts, `PolicySpecError` and `BundleError` on a policy that is none for
    the pair, and as `collect_whole`.
    """
    from treewise.training.diagnose import diagnose

    settings = settings or ShortRunSettings()
    require(len(prompts) >= 2, "prompts", "at least 2, as intervals are by prompt", len(prompts))
    if policy:
        policy_for(pair, policy)  # a bad spec should cost no decoding
    with tempfile.TemporaryDirectory(prefix="treewise-diagnose-") as scratch:
        trace = _grow(pair, prompts, settings, folder or Path(scratch) / "dense", stage)
        trial = _try(trace, cost, policy, stage)
        live = _decode(pair, cost, (trial.looked_at, trial.advised), prompts, settings, stage)
        with stage("reading the figures"):
            return diagnose(trial, live)


def diagnose_trace(trace: LoggedTrace, cost: CostProfile, policy: str = "", stage: Stage = silent) -> Diagnosis:
    """Diagnose from a dense trace and a cost profile alone: no model runs. Raises as `try_grid`."""
    from treewise.training.diagnose import diagnose

    trial = _try(trace, cost, policy, stage)
    with stage("reading the figures"):
        return diagnose(trial)


def _try(trace: LoggedTrace, cost: CostProfile, policy: str, stage: Stage) -> Trial:
    from treewise.training.diagnose import grid_of, try_grid

    replays = (len(grid_of(trace, cost)) + bool(policy)) * len(trace.requests)
    with stage("trying a small grid of settings by replay", replays) as advance:
        return try_grid(trace, cost, policy, lambda steps: advance(steps=steps))


def _grow(pair: Pair, prompts: Sequence[Prompt], settings: ShortRunSettings, place: Path, stage: Stage) -> LoggedTrace:
    from treewise.data.envelope import Envelope, PriorTable
    from treewise.engine.collect import CollectSettings, collect_whole
    from treewise.training.logged_trace import open_trace

    collecting = CollectSettings(max_new_tokens=settings.max_new_tokens, temperature=settings.temperature)
    with stage("growing a small dense trace", len(prompts)) as advance:
        collect_whole(
            pair,
            prompts,
            place,
            Envelope(),
            PriorTable(),
            collecting,
            progressed=lambda prompt_id, count: advance(prompt_id),
        )
    return open_trace(place)


def _decode(
    pair: Pair,
    cost: CostProfile,
    pick: tuple[str, str],
    prompts: Sequence[Prompt],
    settings: ShortRunSettings,
    stage: Stage,
) -> LiveShares:
    """Plain decoding and `pick` (looked at, advised) in turns on every prompt, a clock inside the models' passes."""
    from treewise.engine.decode import Engine
    from treewise.engine.pair import encode_prompt
    from treewise.engine.pass_clock import ClockedPair

    specs = list(dict.fromkeys((PLAIN, *pick)))
    answers: dict[str, list[Completion]] = {name: [] for name in specs}
    seconds = dict.fromkeys(specs, 0.0)
    with ClockedPair(pair) as clocked, stage("decoding live, in turns", len(specs) * len(prompts)) as advance:
        engines = {name: Engine(clocked.pair, policy_for(clocked.pair, name), cost) for name in specs}
        asked = (
            Asked(prompt.id, encode_prompt(pair, prompt.text), prompt_sampling(settings.temperature, prompt.id), prompt)
            for prompt in prompts
        )
        for name, answer in take_turns(engines, asked, settings.max_new_tokens, advance, WARM_TOKENS):
            answers[name].append(answer)
            seconds[name] += clocked.clock.seconds_since(engines[name].decode_began)
            clocked.clock.reset()
    return shares(pick, answers, seconds)


def shares(
    pick: tuple[str, str], answers: Mapping[str, Sequence[Completion]], model_seconds: Mapping[str, float]
) -> LiveShares:
    """What the first of `pick` (looked at, advised) did, beside plain decoding.

    `model_seconds` are those inside the models' passes, by policy as `answers` are.
    """
    from treewise.training.policy_findings import LiveShares

    spec = pick[0]
    own, advised, plain = (LiveFigures.of(name, answers[name], model_seconds[name]) for name in (*pick, PLAIN))
    pairs = zip(answers[spec], answers[PLAIN], strict=True)
    return LiveShares(
        policy=spec,
        prompts=own.requests,
        tokens=own.tokens,
        tokens_per_round=own.tokens_per_round,
        speedup=own.tokens_per_second / plain.tokens_per_second,
        advised_speedup=advised.tokens_per_second / plain.tokens_per_second,
        draft_share=sum(answer.draft_seconds for answer in answers[spec]) / own.decode_seconds,
        policy_share=own.policy_share,
        outside_share=own.overhead_share,
        fallback_share=(own.fallbacks + own.suspensions) / max(own.rounds, 1),
        differing=sum(mine.tokens != theirs.tokens for mine, theirs in pairs),
    )
