"""Side by side: transformers' own ways to decode and our policies, interleaved on the same prompts."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from treewise.arms import GENERATE, PLAIN_ARM, Arm, our_arms, rival_arms, tune_rivals, tune_rules
from treewise.bench_inputs import TUNING_SPLIT, UNSEEN_SPLITS, bench_prompts, prompt_sampling, trained_bundle
from treewise.bench_store import ResultStore, content_key
from treewise.data.cost import CostProfile
from treewise.data.errors import PromptError, require
from treewise.data.prompt_set import Prompt, in_turns, own_prompts, prompts_sha256
from treewise.live import LiveFigures, policy_for, told_of
from treewise.shipped import shipped_traces, split_trace
from treewise.sidebyside_report import ArmResult, CompareReport, Machine, PromptKey, PromptResult
from treewise.stages import Stage, silent
from treewise.texts import first_divergence

if TYPE_CHECKING:
    from treewise.engine.decode import Engine
    from treewise.engine.pair import Pair
    from treewise.engine.rivals import RivalDecoder
    from treewise.engine.sampling import Sampling

COMMAND = "treewise compare"


@dataclass(frozen=True, slots=True)
class CompareSettings:
    """How much is decoded and tuned. As it stands, some minutes on two cores."""

    prompts: int = 10
    max_new_tokens: int = 48
    repeats: int = 1  # of every prompt; a prompt's time is the median
    temperature: float = 0.0  # above 0: our arms alone, against our plain decoding
    tune_prompts: int = 9  # training prompts that our fixed policies are tuned on, by replay
    rival_prompts: int = 3  # training prompts that transformers is tuned on, live
    rival_tokens: int = 24  # tokens of those
    bundle: Path | None = None  # of the learned policy; None: one trained from `traces`
    traces: Path | None = None  # dense trace of the pair; None: the one that ships

    def __post_init__(self) -> None:
        for name in ("prompts", "max_new_tokens", "repeats", "tune_prompts", "rival_prompts", "rival_tokens"):
            require(getattr(self, name) >= 1, name, ">= 1", getattr(self, name))

    def quick(self) -> CompareSettings:
        """A look: 4 prompts, little tuning."""
        return replace(self, prompts=4, max_new_tokens=24, tune_prompts=3, rival_prompts=1, rival_tokens=16)

    def long(self) -> CompareSettings:
        """Every prompt that nothing was tuned on, and more tuning: an hour or so on two cores."""
        return replace(self, prompts=45, max_new_tokens=96, tune_prompts=18, rival_prompts=6, rival_tokens=48)


def compare(
    pair: Pair,
    cost: CostProfile,
    settings: CompareSettings | None = None,
    stage: Stage = silent,
    home: Path | None = None,
    is_fresh: bool = False,
) -> CompareReport:
    """Tune, decode and compare. `home` is where results are kept, the user's cache by default.

    Every arm is timed from prompt ids to the last token, prefill included, as a call of `generate` is. The arms take
    turns on each prompt, in an order that rotates from prompt to prompt. An interrupted run goes on behind its last
    whole prompt, unless `is_fresh`. Raises `TraceError` where no traces are there, `BundleError` where they are of
    another pair, `PromptError` where every prompt was one to tune on.
    """
    from treewise.engine.hub import cache_home
    from treewise.engine.pair import encode_prompt

    settings = settings or CompareSettings()
    home = home or cache_home() / "compare"
    split = split_trace(settings.traces or shipped_traces())
    tuning = in_turns(own_prompts(TUNING_SPLIT), settings.rival_prompts)
    logs = (split.train, *split.also_train)
    used = {request.prompt_id for log in logs for request in log.requests} | {prompt.id for prompt in tuning}
    prompts = bench_prompts(settings.prompts, UNSEEN_SPLITS, used)
    if not prompts:
        raise PromptError("prompts must hold one that nothing was tuned on, got none")
    bundle = settings.bundle or trained_bundle(split, cost, home, stage, COMMAND)
    policy_for(pair, f"learned:{bundle}")  # a bad bundle should cost no tuning
    arms = our_arms(tune_rules(split, cost, settings.tune_prompts, home, stage), f"learned:{bundle}")
    encoded = [encode_prompt(pair, prompt.text) for prompt in tuning]
    machine = describe_machine(pair)
    conditions = [pair.description.to_json(), cost.to_json(), machine.torch, machine.transformers, machine.threads]
    runner = _Runner(pair, cost, settings.max_new_tokens)
    if settings.temperature == 0.0:
        key = content_key([*conditions, prompts_sha256(tuning), settings.rival_tokens])
        path = home / f"rivals-{key}.json"
        tuned = tune_rivals(runner.rivals, encoded, settings.rival_tokens, path, stage)
        arms = (*rival_arms(tuned, pair.draft is not None), *arms)
    key = content_key(
        [
            *conditions,
            prompts_sha256(prompts),
            settings.max_new_tokens,
            settings.temperature,
            [(arm.name, arm.spec) for arm in arms],
            (bundle / "bundle.json").read_text(encoding="utf-8"),
        ]
    )
    path = home / key / "results.jsonl"
    if is_fresh:
        path.unlink(missing_ok=True)
    store: ResultStore[PromptKey, PromptResult] = ResultStore(path, PromptResult.from_line)
    keys = [PromptKey(prompt.id, repeat) for repeat in range(settings.repeats) for prompt in prompts]
    resumed = sum(key in store for key in keys)
    if resumed < len(keys):
        runner.warm(arms, encoded[0], stage)
    _measure(runner, arms, prompts, keys, store, settings.temperature, stage)
    return CompareReport(
        pair=pair.name,
        cost=cost.name,
        machine=machine,
        bundle=str(bundle),
        max_new_tokens=settings.max_new_tokens,
        temperature=settings.temperature,
        repeats=settings.repeats,
        results_file=str(path),
        resumed=resumed,
        arms=arms,
        results=tuple(store[key] for key in keys),
    )


def _measure(
    runner: _Runner,
    arms: Sequence[Arm],
    prompts: Sequence[Prompt],
    keys: Sequence[PromptKey],
    store: ResultStore[PromptKey, PromptResult],
    temperature: float,
    stage: Stage,
) -> None:
    from treewise.engine.pair import encode_prompt

    asked = {prompt.id: prompt for prompt in prompts}
    baseline = GENERATE if any(arm.name == GENERATE for arm in arms) else PLAIN_ARM
    with stage("decoding side by side", len(keys) * len(arms)) as advance:
        for number, key in enumerate(keys):
            if key in store:
                advance(key.prompt_id, len(arms))
                continue
            prompt = asked[key.prompt_id]
            ids = encode_prompt(runner.pair, prompt.text)
            sampling = prompt_sampling(temperature, key.prompt_id)
            turn = number % len(arms)
            found: dict[str, ArmResult] = {}
            for arm in (*arms[turn:], *arms[:turn]):
                found[arm.name] = runner.run(arm, ids, sampling, prompt)
                advance(f"{arm.name} on {key.prompt_id}")
            said = found[baseline].tokens
            placed = [
                replace(part, divergence=first_divergence(runner.pair, ids, said, part.tokens, sampling))
                for part in (found[arm.name] for arm in arms)
            ]
            store.add(PromptResult(key, tuple(placed)))


class _Runner:
    """Decodes with any arm; engines are made when they are first asked for."""

    def __init__(self, pair: Pair, cost: CostProfile, max_new_tokens: int) -> None:
        self.pair = pair
        self._cost = cost
        self._max_new_tokens = max_new_tokens
        self._engines: dict[str, Engine] = {}
        self._rivals: RivalDecoder | None = None

    @property
    def rivals(self) -> RivalDecoder:
        """transformers' own decoding."""
        from treewise.engine.rivals import RivalDecoder

        if self._rivals is None:
            self._rivals = RivalDecoder(self.pair)
        return self._rivals

    def warm(self, arms: Sequence[Arm], prompt: Sequence[int], stage: Stage) -> None:
        """Let every arm do once what is slow the first time."""
        from treewise.engine.sampling import Sampling

        with stage("warming up", len(arms)) as advance:
            for arm in arms:
                self.run(arm, prompt, Sampling(), None, 8)
                advance(arm.name)

    def run(
        self, arm: Arm, ids: Sequence[int], sampling: Sampling, prompt: Prompt | None = None, max_new_tokens: int = 0
    ) -> ArmResult:
        """One text, timed as a whole call; `prompt` says what kind of task policies are told."""
        length = max_new_tokens or self._max_new_tokens
        if arm.rival is not None:
            said = self.rivals.decode(arm.rival, ids, length)
            return ArmResult(arm.name, said.tokens, said.seconds, said.passes, None, None)
        engine = self._engine(arm)
        began = time.perf_counter()
        told = told_of(engine.policy, prompt)  # a recogniser takes its time too
        answer = engine.generate(ids, length, sampling, told)
        seconds = time.perf_counter() - began
        figures = LiveFigures.of(arm.name, [answer])
        return ArmResult(arm.name, answer.tokens, seconds, answer.num_rounds, figures, None)

    def _engine(self, arm: Arm) -> Engine:
        from treewise.engine.decode import Engine, EngineSettings

        if arm.name not in self._engines:
            policy = policy_for(self.pair, arm.spec)
            if arm.name == PLAIN_ARM:  # plain decoding needs no guesses, so it prepares none
                alone = replace(self.pair, draft=None)
                self._engines[arm.name] = Engine(
                    alone, policy, self._cost, EngineSettings(use_lookup=False, use_recycled=False)
                )
            else:
                self._engines[arm.name] = Engine(self.pair, policy, self._cost)
        return self._engines[arm.name]


def describe_machine(pair: Pair) -> Machine:
    """The machine and the software that `pair` runs on."""
    import torch
    import transformers

    from treewise import __version__
    from treewise.engine.collect import known_device

    return Machine(
        device=known_device(pair.target.device),
        platform=platform.platform(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        threads=torch.get_num_threads(),
        dtype=str(pair.target.dtype).removeprefix("torch."),
        attention=str(pair.target.config._attn_implementation),
        python=platform.python_version(),
        torch=str(torch.__version__),
        transformers=transformers.__version__,
        treewise=__version__,
    )
