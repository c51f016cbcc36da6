"""Measuring a cost profile: what verification, draft growth and a round's rest cost on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata

import numpy as np
import torch
from numpy.typing import NDArray

from treewise.data.cost import CostGrid, CostProfile
from treewise.data.errors import require
from treewise.engine.collect import known_device
from treewise.engine.decode import Completion, Engine, EngineSettings
from treewise.engine.draft_head import DraftHead
from treewise.engine.draft_model import decoder_layers, decoder_of
from treewise.engine.pair import Pair
from treewise.engine.tree_model import TreeModel
from treewise.policy.plain import PlainPolicy
from treewise.policy.topn import TopNPolicy, TopNSettings


@dataclass(frozen=True, slots=True)
class ProfileSettings:
    """What is measured; counts and capacities are ascending."""

    verify_rows: tuple[int, ...] = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
    draft_tokens: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    capacities: tuple[int, ...] = (128, 512)  # tokens in the cache
    repeats: int = 7
    round_tokens: int = 24  # tokens of the short decodes behind `round_ms`, `level_ms` and `policy_ms`
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.repeats >= 3, "repeats", ">= 3", self.repeats)
        require(len(self.verify_rows) >= 2, "verify_rows", "at least two counts", self.verify_rows)
        require(len(self.draft_tokens) >= 2, "draft_tokens", "at least two counts", self.draft_tokens)


Measured = Callable[[str], None]  # told what was just measured


def measure_profile(
    pair: Pair,
    settings: ProfileSettings | None = None,
    prompts: Sequence[Sequence[int]] = (),
    measured: Measured | None = None,
    name: str = "",
) -> CostProfile:
    """The cost profile of `pair` on its device: medians over interleaved repeats.

    Args:
        prompts: token ids to decode for `round_ms`, `level_ms` and `policy_ms`; random tokens where empty.
        measured: called after each part.
        name: of the profile; the pair's name by default.
    """
    settings = settings or ProfileSettings()
    tell = measured or (lambda part: None)
    rng = np.random.default_rng(settings.seed)
    vocab_size = pair.description.vocab_size
    decoder = decoder_of(pair.target)
    target = TreeModel(pair.target, len(decoder_layers(decoder)), max(settings.capacities) + 256)
    verify, verify_spread = _grid(target, settings.verify_rows, settings, rng, vocab_size, lambda logits: logits, tell)
    if pair.draft is None:
        draft, draft_spread = CostGrid((1, 2), (0,), ((0.0, 0.0),)), 0.0
    else:
        head = DraftHead(pair.draft, vocab_size, 5)
        none = np.zeros(0, dtype=np.int32)

        def read(hidden: torch.Tensor) -> object:
            return head.read(hidden, np.zeros(len(hidden), dtype=np.int32), none, none)

        model = TreeModel(pair.draft.model, pair.draft.num_layers, max(settings.capacities) + 256)
        draft, draft_spread = _grid(model, settings.draft_tokens, settings, rng, vocab_size, read, tell)
    unpriced = CostProfile(name or pair.name, verify, draft)
    round_ms, level_ms, policy_ms = _round_costs(pair, unpriced, settings, prompts, rng)
    tell("rounds")
    return CostProfile(
        name=name or pair.name,
        verify=verify,
        draft=draft,
        policy_ms=policy_ms,
        round_ms=round_ms,
        level_ms=level_ms,
        device=known_device(pair.target.device),
        dtype=str(pair.target.dtype).removeprefix("torch."),
        attention=str(pair.target.config._attn_implementation),
        pair=pair.name,
        origin=f"measured on this machine, median of {settings.repeats}",
        versions={package: metadata.version(package) for package in ("torch", "transformers", "treewise")},
        spread={"verify": verify_spread, "draft": draft_spread},
    )


def _grid(
    model: TreeModel,
    counts: Sequence[int],
    settings: ProfileSettings,
    rng: np.random.Generator,
    vocab_size: int,
    finish: Callable[[torch.Tensor], object],
    tell: Measured,
) -> tuple[CostGrid, float]:
    """Milliseconds by count and capacity, and the largest relative interquartile range of a cell."""
    table: list[tuple[float, ...]] = []
    spread = 0.0
    for capacity in settings.capacities:
        model.reset(capacity + max(counts) + 1)
        model.prefill(rng.integers(0, vocab_size, capacity).tolist())
        times = np.zeros((settings.repeats + 1, len(counts)))
        for repeat in range(settings.repeats + 1):
            for place, count in enumerate(counts):
                tokens = rng.integers(0, vocab_size, count).astype(np.int32)
                parents = random_tree(count, rng)
                depths, mask = tree_mask(parents, capacity)
                began = time.perf_counter()
                finish(model.forward(tokens, (capacity + depths).astype(np.int32), mask))
                if model.device.type == "cuda":
                    torch.cuda.synchronize(model.device)
                times[repeat, place] = (time.perf_counter() - began) * 1e3
                model.cache.keep(capacity, ())
            tell(f"{capacity} tokens of cache, repeat {repeat}")
        warm = times[1:]  # the first pass pays for allocation
        table.append(tuple(float(value) for value in rising(np.median(warm, axis=0))))
        low, high = np.quantile(warm, (0.25, 0.75), axis=0)
        spread = max(spread, float(((high - low) / np.median(warm, axis=0)).max()))
    return CostGrid(tuple(counts), tuple(settings.capacities), tuple(table)), spread


def rising(ms: NDArray[np.float64]) -> NDArray[np.float64]:
    """`ms` [counts] made monotone: more rows never cost less, whatever a noisy machine measured.

    Halfway between the lowest curve above and the highest curve below that rise.
    """
    above = np.maximum.accumulate(ms)
    below = np.minimum.accumulate(ms[::-1])[::-1]
    return np.asarray((above + below) / 2.0)


def random_tree(count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Parents [count] of a random tree of `count` rows: row 0 is the root (-1), parents come first."""
    return np.asarray([-1, *(int(rng.integers(max(0, row - 4), row)) for row in range(1, count))], dtype=np.int64)


def tree_mask(parents: NDArray[np.int64], base: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Depths [rows] and mask [rows, base + rows] of a tree behind `base` cached slots."""
    rows = len(parents)
    depths = np.zeros(rows, dtype=np.int64)
    mask = np.zeros((rows, base + rows), dtype=np.bool_)
    mask[:, :base] = True
    for row, parent in enumerate(parents.tolist()):
        if parent >= 0:
            mask[row] = mask[parent]
            depths[row] = depths[parent] + 1
        mask[row, base + row] = True
    return depths, mask


def _round_costs(
    pair: Pair, cost: CostProfile, settings: ProfileSettings, prompts: Sequence[Sequence[int]], rng: np.random.Generator
) -> tuple[float, float, float]:
    """Milliseconds outside the models: of a plain round, of one more level, and of one rule policy call."""
    asked = prompts or [rng.integers(0, pair.description.vocab_size, 32).tolist()]
    plain = Engine(pair, PlainPolicy(), cost)
    rule = Engine(pair, TopNPolicy(TopNSettings(nodes=8, depth=2)), cost, EngineSettings())
    bare: list[float] = []
    levels: list[float] = []
    calls: list[float] = []
    for prompt in asked:
        answer = plain.generate(prompt, settings.round_tokens)
        bare.append(_outside_ms(answer) / answer.num_rounds)
        answer = rule.generate(prompt, settings.round_tokens)
        grown = answer.policy_calls - 2 * answer.num_rounds
        levels.append((_outside_ms(answer) - bare[-1] * answer.num_rounds) / max(grown, 1))
        calls.append(answer.policy_seconds * 1e3 / answer.policy_calls)
    return float(np.median(bare)), max(float(np.median(levels)), 0.0), float(np.median(calls))


def _outside_ms(answer: Completion) -> float:
    inside = answer.verify_seconds + answer.draft_seconds + answer.policy_seconds
    return (answer.decode_seconds - inside) * 1e3
