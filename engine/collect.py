"""Collecting traces: live ones while the engine decodes, dense ones from texts. Resumable; a finished prompt stays."""

from __future__ import annotations

import datetime
import hashlib
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import numpy as np
import torch

from treewise.data.cost import CostProfile
from treewise.data.envelope import Envelope, PriorTable
from treewise.data.errors import PromptError, require
from treewise.data.prompt_set import Prompt, prompts_sha256
from treewise.data.trace_claims import PromptClaims
from treewise.data.trace_manifest import TraceManifest
from treewise.data.trace_writer import TraceWriter
from treewise.engine.batch_decode import DecodeRow, decode_batch
from treewise.engine.decode import Engine, EngineSettings
from treewise.engine.dense import KnownText, grow_dense
from treewise.engine.exploration import Decider, Exploration
from treewise.engine.pair import Pair, encode_prompt
from treewise.engine.record import LiveRecorder, record_rounds
from treewise.engine.sampling import Sampling
from treewise.engine.verification import Verification
from treewise.policy.by_task import ByTaskPolicy
from treewise.policy.draft_ranking import resolve_ranking
from treewise.policy.learned import LearnedPolicy
from treewise.policy.plain import PlainPolicy
from treewise.policy.registry import parse_policy
from treewise.policy.task_table import told_task

Progressed = Callable[[str, int], None]  # (prompt id, committed tokens)
POLL_S = 1.0  # between two looks at what other processes have done


@dataclass(frozen=True, slots=True)
class CollectSettings:
    """Conditions of a collection; they decide its content, together with pair and prompts."""

    max_new_tokens: int = 96
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    seed: int = 0  # of the run; each prompt's own seed is derived from it above temperature 0
    batch_rows: int = 32  # texts decoded at once at temperature 0
    shard_rounds: int = 2048
    tokens_included: bool = True
    ranking: str = ""  # of the draft's candidates; empty: both above temperature 0, plain at 0

    def __post_init__(self) -> None:
        require(self.max_new_tokens >= 1, "max_new_tokens", ">= 1", self.max_new_tokens)
        require(self.batch_rows >= 1, "batch_rows", ">= 1", self.batch_rows)


def prompt_seed(run_seed: int, prompt_id: str) -> int:
    """The seed of one prompt: a hash of the run's seed and the prompt's id, below 2**63."""
    digest = hashlib.sha256(f"{run_seed}:{prompt_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def build_manifest(
    pair: Pair,
    prompts: Sequence[Prompt],
    envelope: Envelope,
    prior_table: PriorTable,
    settings: CollectSettings,
    policy: str | None,
) -> TraceManifest:
    """The manifest of a collection over `prompts`; `policy` is None for a dense one."""
    return TraceManifest(
        kind="dense" if policy is None else "live",
        pair=pair.description.to_json(),
        tokenizer_hash=pair.description.tokenizer_sha256,
        envelope=envelope,
        prior_table=prior_table,
        vocab_size=pair.description.vocab_size,
        max_new_tokens=settings.max_new_tokens,
        seed=settings.seed,
        temperature=settings.temperature,
        top_k=settings.top_k,
        top_p=settings.top_p,
        min_p=settings.min_p,
        typical_p=settings.typical_p,
        policy=policy,
        recycled_corpus_hash=None if pair.recycled is None else pair.recycled.sha256,
        ranking=resolve_ranking(settings.ranking, settings.temperature),
        draft_reads="none" if pair.draft is None else pair.description.draft_reads,
        tokens_included=settings.tokens_included,
        versions={name: metadata.version(name) for name in ("torch", "transformers", "numpy", "treewise")},
        device=f"{pair.target.device.type}: {platform.machine()}",
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        input_hashes={"prompts": prompts_sha256(prompts)},
        command=" ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    )


def collect_live(
    pair: Pair,
    policy_spec: str,
    cost: CostProfile,
    prompts: Sequence[Prompt],
    folder: Path,
    settings: CollectSettings,
    engine_settings: EngineSettings | None = None,
    progressed: Progressed | None = None,
    exploration: Exploration | None = None,
    generator: np.random.Generator | None = None,
) -> int:
    """Decode `prompts` with one policy and write a live trace; prompts that another run is doing are left to it.

    Returns how many prompts were already there, or were another run's.

    With `exploration`, `generator` says which prompts another policy decides. It is asked for all of them at once, so
    that a collection goes on as it began where it gets a generator of the same state.
    """
    require(
        (exploration is None) == (generator is None), "generator", "given with exploration, and only then", generator
    )
    require(exploration is None or policy_spec not in exploration.policies, "explore_policies", "others", policy_spec)
    engine_settings = engine_settings or EngineSettings()
    engine_settings = replace(engine_settings, ranking=settings.ranking or engine_settings.ranking)
    deciders = [Decider("", 1.0)] * len(prompts)
    specs = [""]
    if exploration is not None and generator is not None:
        deciders = exploration.draw(generator, len(prompts))
        specs.extend(exploration.policies)
    policies = {spec: parse_policy(spec or policy_spec) for spec in specs}
    engines = {spec: Engine(pair, policy, cost, engine_settings) for spec, policy in policies.items()}
    engine = engines[""]
    envelope, prior_table = engine.settings.envelope, engine.settings.prior_table
    manifest = build_manifest(pair, prompts, envelope, prior_table, settings, policy_spec)
    # A policy that reads prices repeats its decisions under the same prices only.
    hashes = {**manifest.input_hashes, "cost": cost.sha256}
    for spec, policy in policies.items():
        if isinstance(policy, LearnedPolicy):  # its spec names a folder, which may hold another bundle tomorrow
            hashes[f"bundle of {spec}" if spec else "bundle"] = policy.bundle.sha256
        if isinstance(policy, ByTaskPolicy):
            hashes[f"task table of {spec}" if spec else "task table"] = policy.sha256
    if exploration is not None:
        hashes["explore"] = exploration.sha256
    rule = Verification.parse(engine.settings.verification).spec
    ranking = resolve_ranking(engine.ranking, settings.temperature)
    manifest = replace(manifest, input_hashes=hashes, verification=rule, ranking=ranking)
    writer = TraceWriter(folder, manifest, settings.shard_rounds)
    with PromptClaims(folder) as claims, writer:
        # Once more at the end: another run may have ended without what it had begun.
        for prompt, decider in [*zip(prompts, deciders, strict=True)] * 2:
            if not claims.take(prompt.id):
                continue
            ids = encode_prompt(pair, prompt.text)
            sampling = _sampling(settings, prompt)
            told = told_task(policies[decider.explorer], prompt.task, prompt.text)
            recorder = LiveRecorder(
                prompt.id, prompt.task, len(ids), sampling.temperature, sampling.seed, told,
                explorer=decider.explorer, propensity=decider.propensity,
            )  # fmt: skip
            steps = engines[decider.explorer].rounds(ids, settings.max_new_tokens, sampling, told)
            count = 0
            for record in record_rounds(steps, recorder):
                count += len(record.committed)
            recorder.finish(writer)
            if progressed:
                progressed(prompt.id, count)
    return len(prompts) - claims.taken


def collect_dense(
    pair: Pair,
    prompts: Sequence[Prompt],
    folder: Path,
    envelope: Envelope,
    prior_table: PriorTable,
    settings: CollectSettings,
    progressed: Progressed | None = None,
) -> int:
    """Let the target answer `prompts` and write a dense trace, grown to `envelope` widened.

    Returns as `collect_live`.
    """
    wide = envelope.widened()
    manifest = build_manifest(pair, prompts, wide, prior_table, settings, None)
    writer = TraceWriter(folder, manifest, settings.shard_rounds)
    with PromptClaims(folder) as claims, writer:
        for _ in range(2):  # as in a live collection
            rest = [prompt for prompt in prompts if claims.is_open(prompt.id)]
            for text in texts(pair, rest, settings, claims.take):
                sampling = replace(_run_sampling(settings), seed=text.seed or 0)
                writer.add(*grow_dense(pair, text, wide, prior_table, sampling=sampling, ranking=settings.ranking))
                if progressed:
                    progressed(text.prompt_id, len(text.completion))
    return len(prompts) - claims.taken


def collect_whole(
    pair: Pair,
    prompts: Sequence[Prompt],
    folder: Path,
    envelope: Envelope,
    prior_table: PriorTable,
    settings: CollectSettings,
    progressed: Progressed | None = None,
) -> None:
    """As `collect_dense`, and returns when `folder` holds every prompt.

    It waits for what other processes are doing, and does what one leaves undone when it ends.
    """
    while True:
        collect_dense(pair, prompts, folder, envelope, prior_table, settings, progressed)
        with PromptClaims(folder) as claims:
            if not any(claims.is_open(prompt.id) for prompt in prompts):
                return
        time.sleep(POLL_S)


def texts(
    pair: Pair,
    prompts: Sequence[Prompt],
    settings: CollectSettings,
    is_wanted: Callable[[str], bool] = lambda prompt_id: True,
) -> Iterator[KnownText]:
    """The target's own text for each prompt: batched at temperature 0, one by one with its seed above.

    `is_wanted` is asked of a prompt's id when its turn comes. Raises `PromptError` on a prompt that leaves no room in
    the target's context.
    """
    if settings.temperature > 0.0:
        engine = Engine(pair, PlainPolicy(), _UNPRICED, EngineSettings(use_lookup=False, use_recycled=False))
        for prompt in prompts:
            if not is_wanted(prompt.id):
                continue
            ids = encode_prompt(pair, prompt.text)
            sampling = _sampling(settings, prompt)
            completion = engine.generate(ids, settings.max_new_tokens, sampling)
            yield _known(pair, prompt, ids, completion.tokens, settings, sampling.seed)
        return
    # Prompts of one length waste no padding.
    encoded = sorted(((encode_prompt(pair, prompt.text), prompt) for prompt in prompts), key=lambda item: len(item[0]))
    longest = pair.max_context_tokens
    for ids, prompt in encoded:
        if len(ids) >= longest:
            rule = f"shorter than the target's context of {longest} tokens"
            raise PromptError(f"prompt {prompt.id!r} must be {rule}, got {len(ids)}")
    for start in range(0, len(encoded), settings.batch_rows):
        part = [item for item in encoded[start : start + settings.batch_rows] if is_wanted(item[1].id)]
        if not part:
            continue
        rows = [DecodeRow(tuple(ids), 0.0, (0,)) for ids, _ in part]
        answers = decode_batch(pair.target, rows, max_new_tokens=settings.max_new_tokens, eos_ids=pair.eos_token_ids)
        for (ids, prompt), answer in zip(part, answers, strict=True):
            yield _known(pair, prompt, ids, answer[: longest - len(ids)], settings, 0)


def _known(
    pair: Pair, prompt: Prompt, ids: Sequence[int], answer: Sequence[int], settings: CollectSettings, seed: int
) -> KnownText:
    finish = "eos" if answer[-1] in pair.eos_token_ids else "length"
    limit = min(settings.max_new_tokens, pair.max_context_tokens - len(ids))  # as the engine counts
    return KnownText(prompt.id, prompt.task, tuple(ids), tuple(answer), limit, finish, settings.temperature, seed)


def _sampling(settings: CollectSettings, prompt: Prompt) -> Sampling:
    seed = prompt_seed(settings.seed, prompt.id) if settings.temperature > 0.0 else 0
    return replace(_run_sampling(settings), seed=seed)


def _run_sampling(settings: CollectSettings) -> Sampling:
    return Sampling(
        temperature=settings.temperature,
        top_k=settings.top_k,
        top_p=settings.top_p,
        min_p=settings.min_p,
        typical_p=settings.typical_p,
    )


_UNPRICED = CostProfile.load("example-a100-70b")  # plain decoding reads no price


def known_device(device: torch.device) -> str:
    """The device in words, for profiles and manifests."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return _cpu_name()


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return f"{line.partition(':')[2].strip()}, {torch.get_num_threads()} threads"
    return f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"
