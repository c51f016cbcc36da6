"""What the policy benchmark works with: traces, costs, a trained policy and opponents' tables, made once and kept."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from treewise.bench_store import code_sha256
from treewise.data.cost import CostProfile
from treewise.data.envelope import Envelope, PriorTable
from treewise.data.prompt_set import Prompt
from treewise.policy_bench_plan import THIS_MACHINE, Condition, PolicyBenchSettings, PromptParts
from treewise.profiles import Tell
from treewise.stages import Stage

if TYPE_CHECKING:
    from treewise.engine.pair import Pair
    from treewise.policy.hand_table import HandTable
    from treewise.policy.rank_table import RankTable
    from treewise.training.fit import NamedTrace
    from treewise.training.logged_trace import LoggedTrace

QUICK_PROMPTS = 27  # of the shipped training prompts that a quick run tunes on
SHARD_ROUNDS = 256  # what a killed collection loses at most
OpenPair = Callable[[str], "Pair"]  # by the draft's name
# A table of traces, what they are in words, and a step after each request.
Fit = Callable[[Sequence["LoggedTrace"], tuple[str, ...], Callable[[], None]], "HandTable | RankTable"]


@dataclass(frozen=True, slots=True)
class TracePair:
    """The traces of one condition."""

    train: NamedTrace
    judge: NamedTrace


@dataclass(frozen=True, slots=True)
class Material:
    """Everything about one draft."""

    draft: str
    pair: str  # name
    traces: dict[float, TracePair]  # by temperature
    costs: dict[str, CostProfile]  # by the name that was asked for
    bundle: str  # folder
    table: str  # file of the hand table
    ranks: str  # file of the rank table


class Workshop:
    """Makes materials under `home`; what is there already stays.

    Traces are data: they are kept until pair, prompts or settings change, whatever the code. The policy and the tables
    are made anew where traces, costs or code changed.
    """

    def __init__(self, settings: PolicyBenchSettings, home: Path, stage: Stage, command: str) -> None:
        self.settings = settings
        self._home = home
        self._stage = stage
        self._command = command

    def shipped(self, bundle: str) -> Material:
        """From the traces that ship."""
        from treewise.shipped import shipped_traces, split_trace, spread
        from treewise.training.fit import NamedTrace

        split = split_trace(shipped_traces())
        also = [NamedTrace(trace, found) for trace, found in zip(split.also_train, split.also_hashes, strict=True)]
        judge = hashlib.sha256("\n".join([split.content_hash, *_ids(split.held_out)]).encode("utf-8")).hexdigest()
        few = spread(split.train, QUICK_PROMPTS)
        tuned = hashlib.sha256("\n".join([split.content_hash, *_ids(few)]).encode("utf-8")).hexdigest()
        parts = TracePair(NamedTrace(few, tuned), NamedTrace(split.held_out, judge))
        whole = [NamedTrace(split.train, split.train_hash), *also]
        costs = {name: CostProfile.load(name) for name in self.settings.costs}
        (draft,) = self.settings.drafts
        return self._finish(Material(draft, split.train.pair_name, {0.0: parts}, costs, bundle, "", ""), whole)

    def collected(
        self, draft: str, prompts: PromptParts, open_pair: OpenPair, bundle: str, warn: Tell, note: Tell
    ) -> Material:
        """From dense traces of the pair with `draft`, collected where they are missing."""
        from treewise.profiles import find_cost

        pair = open_pair(draft)
        traces = {}
        for temperature in self.settings.temperatures:
            condition = Condition(draft, temperature)
            both = [self._trace(pair, condition, name, part) for name, part in _named(prompts)]
            traces[temperature] = TracePair(*both)
        costs = {
            name: find_cost(pair, "", warn, note) if name == THIS_MACHINE else CostProfile.load(name)
            for name in self.settings.costs
        }
        parts = [both.train for both in traces.values()]
        return self._finish(Material(draft, pair.name, traces, costs, bundle, "", ""), parts)

    def _trace(self, pair: Pair, condition: Condition, name: str, prompts: Sequence[Prompt]) -> NamedTrace:
        from treewise.data.trace_reader import TraceReader
        from treewise.engine.collect import CollectSettings, build_manifest, collect_whole
        from treewise.training.fit import NamedTrace
        from treewise.training.logged_trace import open_trace

        tokens, temperature = self.settings.max_new_tokens, condition.temperature
        chosen = CollectSettings(max_new_tokens=tokens, temperature=temperature, shard_rounds=SHARD_ROUNDS)
        manifest = build_manifest(pair, prompts, Envelope().widened(), PriorTable(), chosen, None)
        label = f"{slug(condition.draft)}-t{temperature:g}-{name}"
        folder = self._home / "traces" / f"{label}-{manifest.identity()[:16]}"
        with self._stage(f"dense trace {label}", len(prompts)) as advance:
            collect_whole(
                pair, prompts, folder, Envelope(), PriorTable(), chosen, lambda prompt_id, count: advance(prompt_id)
            )
        return NamedTrace(open_trace(folder, label), TraceReader(folder).content_hash())

    def _finish(self, material: Material, named: Sequence[NamedTrace]) -> Material:
        """With the opponents' tables, and with a trained policy where none was given, all from `named`."""
        table = self._kept("hand table", material.draft, named, _hand_table)
        ranks = self._kept("rank table", material.draft, named, _rank_table)
        bundle = material.bundle or self.bundle(material.draft, named, training_cost(material.costs))
        return replace(material, table=table, ranks=ranks, bundle=bundle)

    def _kept(self, kind: str, draft: str, named: Sequence[NamedTrace], fit: Fit) -> str:
        """File of the table that `fit` makes of `named`, or once made of it."""
        from treewise.engine.hub import write_atomically

        hashes = [part.content_hash for part in named]
        key = _key([hashes, code_sha256(("data", "policy", "training"))])
        path = self._home / f"{slug(kind)}-{slug(draft)}-{key}.json"
        if not path.is_file():
            traces = [part.trace for part in named]
            origin = tuple(f"{part.trace.name} {part.content_hash}" for part in named)
            with self._stage(f"{kind} of {draft}") as advance:
                table = fit(traces, origin, lambda: advance())
            write_atomically(path, (json.dumps(table.to_json()) + "\n").encode("utf-8"))
        return str(path)

    def bundle(self, draft: str, named: Sequence[NamedTrace], cost: CostProfile) -> str:
        """Folder of a policy trained on `named`, one for every cost profile; `cost` only starts its throughput."""
        from treewise.training.fit import train_on

        hashes = [part.content_hash for part in named]
        parts = [hashes, cost.to_json(), code_sha256(("data", "policy", "training"))]
        place = self._home / f"policy-{slug(draft)}-{_key(parts)}"
        if not (place / "bundle.json").is_file():
            with self._stage(f"training the policy of {draft}") as advance:
                train_on(
                    named,
                    cost,
                    place,
                    command=self._command,
                    progress=lambda part, done, total: advance(f"{part} {done}/{total}"),
                )
        return str(place)


def training_cost(costs: dict[str, CostProfile]) -> CostProfile:
    """The profile that a policy is trained with: an example one where there is one, for it says the same everywhere."""
    built_in = [cost for name, cost in costs.items() if name != THIS_MACHINE]
    return (built_in or list(costs.values()))[0]


def _hand_table(traces: Sequence[LoggedTrace], origin: tuple[str, ...], step: Callable[[], None]) -> HandTable:
    from treewise.training.dataset_batch import build_dataset_batched
    from treewise.training.hand_table import fit_hand_table

    return fit_hand_table(build_dataset_batched(traces, step=step), origin=origin)


def _rank_table(traces: Sequence[LoggedTrace], origin: tuple[str, ...], step: Callable[[], None]) -> RankTable:
    from treewise.training.rank_table import fit_rank_table

    return fit_rank_table(traces, step, origin)


def slug(text: str) -> str:
    """`text` as a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.")[-60:] or "none"


def _named(prompts: PromptParts) -> tuple[tuple[str, Sequence[Prompt]], ...]:
    return (("train", prompts.train), ("judge", prompts.test))


def _ids(trace: LoggedTrace) -> list[str]:
    return [request.prompt_id for request in trace.requests]


def _key(parts: Sequence[object]) -> str:
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]
