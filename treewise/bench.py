"""The bench: texts equal plain decoding's on a real pair, what rounds cost beside the models, replay equals live."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treewise.bench_inputs import bench_prompts, prompt_sampling, trained_bundle
from treewise.bench_store import BenchKey, BenchResult, BenchStore, content_key
from treewise.data.cost import CostProfile
from treewise.data.errors import require
from treewise.data.prompt_set import Prompt, prompts_sha256
from treewise.live import PLAIN, LiveFigures, policy_for, told_of
from treewise.policy.registry import LEARNED, RULES
from treewise.shipped import shipped_traces, split_trace
from treewise.stages import Stage, silent
from treewise.texts import first_divergence

if TYPE_CHECKING:
    from treewise.engine.decode import Engine
    from treewise.engine.pair import Pair
    from treewise.engine.pass_clock import ClockedPair
    from treewise.training.live_check import LiveCheck

SCHEMA_VERSION = 1
ENTROPY = "entropy"
REPLAYED = (ENTROPY, "frontier", LEARNED)
WIDE = (ENTROPY, LEARNED)  # on all prompts; the other policies on a few


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """How much is decoded."""

    prompts: int = 50  # with entropy and learned
    few_prompts: int = 6  # with every other policy, and for replay
    max_new_tokens: int = 48
    temperatures: tuple[float, ...] = (0.0, 1.0)
    policies: tuple[str, ...] = (*(name for name in RULES if name != PLAIN), LEARNED)
    bundle: Path | None = None  # of the learned policy; None: one trained from the traces that ship

    def __post_init__(self) -> None:
        for name in ("prompts", "few_prompts", "max_new_tokens"):
            require(getattr(self, name) >= 1, name, ">= 1", getattr(self, name))
        require(len(self.temperatures) > 0, "temperatures", "at least one", self.temperatures)

    def quick(self) -> BenchSettings:
        """The same on 4 prompts."""
        return replace(self, prompts=4, few_prompts=min(self.few_prompts, 2))


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One policy at one temperature, over its prompts."""

    policy: str  # name
    temperature: float
    results: tuple[BenchResult, ...]

    @property
    def figures(self) -> LiveFigures:
        """Totals over the prompts."""
        return LiveFigures.total(self.policy, [result.figures for result in self.results])

    @property
    def identical(self) -> int:
        """Texts that equal plain decoding's."""
        return sum(result.divergence is None for result in self.results)


@dataclass(frozen=True, slots=True)
class BenchReport:
    """Everything that was compared."""

    pair: str
    cost: CostProfile
    bundle: str
    settings: BenchSettings
    results_file: str
    resumed: int  # results that an earlier run had left
    rows: tuple[BenchRow, ...]
    replays: dict[str, LiveCheck]  # by policy name

    @property
    def is_identical(self) -> bool:
        """Whether every text equals plain decoding's."""
        return all(row.identical == len(row.results) for row in self.rows)

    @property
    def replays_live(self) -> bool:
        """Whether every live round was decided the same in replay."""
        return all(check.compared == check.rounds and not check.mismatches for check in self.replays.values())

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping that fits `treewise/schemas/bench.json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "pair": self.pair,
            "device": self.cost.device,
            "dtype": self.cost.dtype,
            "cost": self.cost.name,
            "bundle": self.bundle,
            "max_new_tokens": self.settings.max_new_tokens,
            "results_file": self.results_file,
            "resumed": self.resumed,
            "identical": self.is_identical,
            "replays_live": self.replays_live,
            "rows": [
                {
                    "temperature": row.temperature,
                    "texts": len(row.results),
                    "identical": row.identical,
                    "divergences": [
                        {"prompt_id": result.key.prompt_id, **result.divergence.to_json()}
                        for result in row.results
                        if result.divergence is not None
                    ],
                    **row.figures.to_json(),
                }
                for row in self.rows
            ],
            "replays": [{"policy": name, **check.to_json()} for name, check in self.replays.items()],
        }


def run_bench(
    pair: Pair,
    cost: CostProfile,
    settings: BenchSettings | None = None,
    stage: Stage = silent,
    home: Path | None = None,
) -> BenchReport:
    """Decode, compare with plain decoding and replay. `home` is where results are kept, the user's cache by default.

    An interrupted run goes on where it stopped, as long as code, pair, prompts, prices and settings are the same.
    Raises `TraceError` where a learned policy is asked for and neither a bundle nor shipped traces are there.
    """
    from treewise.engine.hub import cache_home

    settings = settings or BenchSettings()
    home = home or cache_home() / "bench"
    prompts = bench_prompts(max(settings.prompts, settings.few_prompts))
    specs = {name: name for name in settings.policies if name != LEARNED}
    bundle = ""
    if LEARNED in settings.policies:
        bundle = str(
            settings.bundle or trained_bundle(split_trace(shipped_traces()), cost, home, stage, "treewise bench")
        )
        specs[LEARNED] = f"{LEARNED}:{bundle}"
        policy_for(pair, specs[LEARNED])  # a bad bundle should cost no decoding
    key = content_key(
        [
            pair.description.to_json(),
            str(pair.target.dtype),
            cost.to_json(),
            prompts_sha256(prompts),
            settings.max_new_tokens,
            (Path(bundle) / "bundle.json").read_text(encoding="utf-8") if bundle else "",
        ]
    )
    store = BenchStore(home / key / "results.jsonl")
    resumed = len(store)
    rows = _compare(pair, cost, settings, prompts, specs, store, stage)
    replays = {
        name: _replay(pair, cost, specs[name], prompts[: settings.few_prompts], settings, home / key / name, stage)
        for name in REPLAYED
        if name in specs
    }
    return BenchReport(pair.name, cost, bundle, settings, str(store.path), resumed, tuple(rows), replays)


def _compare(
    pair: Pair,
    cost: CostProfile,
    settings: BenchSettings,
    prompts: Sequence[Prompt],
    specs: dict[str, str],
    store: BenchStore,
    stage: Stage,
) -> list[BenchRow]:
    from treewise.engine.pass_clock import ClockedPair

    keys = list(_keys(settings, prompts, list(specs)))
    asked = {prompt.id: prompt for prompt in prompts}
    with ClockedPair(pair) as clocked, stage("decoding and comparing", len(keys)) as advance:
        decoder = _Decoder(clocked, cost, {PLAIN: PLAIN, **specs}, settings.max_new_tokens)
        for key in keys:
            if key not in store:
                plain = None if key.policy == PLAIN else store[BenchKey(PLAIN, key.temperature, key.prompt_id)]
                store.add(decoder.decode(key, asked[key.prompt_id], plain))
            advance(f"{key.policy} T={key.temperature:g} {key.prompt_id}")
    rows = []
    for temperature in settings.temperatures:
        for name in (PLAIN, *specs):
            chosen = tuple(store[key] for key in keys if key.policy == name and key.temperature == temperature)
            rows.append(BenchRow(name, temperature, chosen))
    return rows


def _keys(settings: BenchSettings, prompts: Sequence[Prompt], names: Sequence[str]) -> Iterator[BenchKey]:
    """Plain decoding comes first on each prompt: the others are compared with it."""
    for temperature in settings.temperatures:
        for place, prompt in enumerate(prompts):
            for name in (PLAIN, *names):
                wide = name in WIDE or name == PLAIN
                if place < (settings.prompts if wide else settings.few_prompts):
                    yield BenchKey(name, temperature, prompt.id)


class _Decoder:
    """Engines by policy name, made when they are first asked for, on a pair whose forward passes are clocked."""

    def __init__(self, clocked: ClockedPair, cost: CostProfile, specs: dict[str, str], max_new_tokens: int) -> None:
        self._pair = clocked.pair
        self._clock = clocked.clock
        self._cost = cost
        self._specs = specs
        self._max_new_tokens = max_new_tokens
        self._engines: dict[str, Engine] = {}

    def decode(self, key: BenchKey, prompt: Prompt, plain: BenchResult | None) -> BenchResult:
        """One text, compared with `plain`'s where it is given."""
        from treewise.engine.decode import Engine
        from treewise.engine.pair import encode_prompt

        if key.policy not in self._engines:
            policy = policy_for(self._pair, self._specs[key.policy])
            self._engines[key.policy] = Engine(self._pair, policy, self._cost)
        ids = encode_prompt(self._pair, prompt.text)
        sampling = prompt_sampling(key.temperature, key.prompt_id)
        engine = self._engines[key.policy]
        self._clock.reset()
        answer = engine.generate(ids, self._max_new_tokens, sampling, told_of(engine.policy, prompt))
        # The engine's own clocks take in the tensors made for a pass and read off it; this one does not.
        figures = LiveFigures.of(key.policy, [answer], self._clock.seconds_since(engine.decode_began))
        place = None if plain is None else first_divergence(self._pair, ids, plain.tokens, answer.tokens, sampling)
        return BenchResult(key, answer.tokens, figures, place)


def _replay(
    pair: Pair,
    cost: CostProfile,
    spec: str,
    prompts: Sequence[Prompt],
    settings: BenchSettings,
    folder: Path,
    stage: Stage,
) -> LiveCheck:
    """Collect a live trace of the policy and replay it."""
    from treewise.engine.collect import CollectSettings, collect_live
    from treewise.training.live_check import replay_live
    from treewise.training.logged_trace import open_trace

    name = spec.partition(":")[0]
    chosen = CollectSettings(max_new_tokens=settings.max_new_tokens, shard_rounds=16)
    with stage(f"live trace of {name}", len(prompts)) as advance:
        collect_live(pair, spec, cost, prompts, folder, chosen, progressed=lambda prompt_id, count: advance(prompt_id))
    with stage(f"replaying {name}", len(prompts)) as advance:
        return replay_live(open_trace(folder), policy_for(pair, spec), cost, advance=advance)
