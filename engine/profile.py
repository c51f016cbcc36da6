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
from treewise.engine.passes import EAGER, check_passes, tree_model_of
from treewise.engine.random_tree import random_tree, tree_mask
from treewise.engine.tree_model import TreeModel
from treewise.policy.plain import PlainPolicy
from treewise.policy.topn import TopNPolicy, TopNSettings

QUARTERS = (0.25, 0.5, 0.75)


@dataclass(frozen=True, slots=True)
class ProfileSettings:
    """What is measured; counts and capacities are ascending."""

    verify_rows: tuple[int, ...] = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
    draft_tokens: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    capacities: tuple[int, ...] = (128, 512)  # tokens in the cache
    repeats: int = 7
    round_tokens: int = 24  # tokens of the short decodes behind `round_ms`, `level_ms` and `policy_ms`
    seed: int = 0
    passes: str = EAGER  # how passes are run: see `treewise.engine.passes`

    def __post_init__(self) -> None:
        check_passes(self.passes)
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
    meter = ProfileMeter(pair, settings, prompts)
    for repeat in range(settings.repeats + 1):  # the first warms up and does not count
        meter.repeat(lambda part, repeat=repeat: tell(f"{part}, repeat {repeat}"))  # type: ignore[misc]
    meter.decode()
    tell("rounds")
    return meter.profile(name)


class ProfileMeter:
    """Measures a profile a repeat at a time, so that a caller can do other work in between.

    Measured in turns with the work that it shall price, a profile shares that work's slow and fast minutes.
    """

    def __init__(
        self, pair: Pair, settings: ProfileSettings | None = None, prompts: Sequence[Sequence[int]] = ()
    ) -> None:
        """`prompts`: token ids to decode for what rounds cost beside the models; random tokens where empty."""
        self.pair = pair
        self.settings = settings or ProfileSettings()
        rng = np.random.default_rng(self.settings.seed)
        vocab_size = pair.description.vocab_size
        depth = len(decoder_layers(decoder_of(pair.target)))

        own = self.settings

        def target(capacity: int) -> TreeModel:
            return tree_model_of(own.passes, pair.target, depth, row_buckets=own.verify_rows, capacity=capacity)

        self._verify = _Grid(target, self.settings.verify_rows, self.settings, rng, vocab_size, lambda logits: logits)
        self._draft: _Grid | None = None
        if pair.draft is not None:
            draft, head = pair.draft, DraftHead(pair.draft, vocab_size, 5)
            none = np.zeros(0, dtype=np.int32)

            def read(hidden: torch.Tensor) -> object:
                return head.read(hidden, np.zeros(len(hidden), dtype=np.int32), none, none)

            def guesser(capacity: int) -> TreeModel:
                counts = own.draft_tokens
                return tree_model_of(own.passes, draft.model, draft.num_layers, row_buckets=counts, capacity=capacity)

            self._draft = _Grid(guesser, self.settings.draft_tokens, self.settings, rng, vocab_size, read)
        self._prompts = prompts or [rng.integers(0, vocab_size, 32).tolist()]
        self._engines: tuple[Engine, Engine] | None = None
        self._rest: list[tuple[float, float, float]] = []  # per decode: ms of a plain round, a level, a policy call

    def repeat(self, tell: Measured = lambda part: None) -> None:
        """Time every pass once more; the first repeat pays for allocation and does not count.

        Target and draft take turns, as in a round: a draft that runs on its own finds its weights in the processor's
        caches, where the target's pass would have pushed them out (a quarter of a small draft's time).
        """
        grids = [self._verify] if self._draft is None else [self._verify, self._draft]
        for row, capacity in enumerate(self.settings.capacities):
            for turn in range(max(grid.num_counts for grid in grids)):
                for grid in grids:
                    # No cell always comes first, behind whatever was done before.
                    grid.time(row, (turn + grid.counted) % grid.num_counts)
            tell(f"{capacity} tokens of cache")
        for grid in grids:
            grid.end_repeat()

    def decode(self, count: int = 0) -> None:
        """Decode `count` prompts, by default each once, by plain decoding and by a rule: for what is beside passes."""
        for _ in range(count or len(self._prompts)):
            prompt = self._prompts[len(self._rest) % len(self._prompts)]
            plain, rule = self._both()
            answer = plain.generate(prompt, self.settings.round_tokens)
            bare = _outside_ms(answer) / answer.num_rounds
            answer = rule.generate(prompt, self.settings.round_tokens)
            grown = answer.policy_calls - 2 * answer.num_rounds
            level = (_outside_ms(answer) - bare * answer.num_rounds) / max(grown, 1)
            self._rest.append((bare, level, answer.policy_seconds * 1e3 / answer.policy_calls))

    def profile(self, name: str = "", with_hiccups: bool = False) -> CostProfile:
        """Medians of everything measured so far. Needs two repeats and one decode.

        `with_hiccups`: passes cost more by what the machine's hiccups add to them on average, as they do in the total
        of a run. One factor for all cells of a model: a few repeats of one cell meet a hiccup or they do not.
        """
        pair = self.pair
        verify, verify_spread = self._verify.table(with_hiccups)
        if self._draft is None:
            draft, draft_spread = CostGrid((1, 2), (0,), ((0.0, 0.0),)), 0.0
        else:
            draft, draft_spread = self._draft.table(with_hiccups)
        round_ms, level_ms, policy_ms = np.median(np.asarray(self._rest), axis=0).tolist()
        return CostProfile(
            name=name or pair.name,
            verify=verify,
            draft=draft,
            policy_ms=policy_ms,
            round_ms=max(round_ms, 0.0),
            level_ms=max(level_ms, 0.0),
            device=known_device(pair.target.device),
            dtype=str(pair.target.dtype).removeprefix("torch."),
            attention=str(pair.target.config._attn_implementation)
            + ("" if self.settings.passes == EAGER else f", {self.settings.passes} passes"),
            pair=pair.name,
            origin=f"measured on this machine, median of {self._verify.counted}"
            + (", hiccups added" if with_hiccups else ""),
            versions={package: metadata.version(package) for package in ("torch", "transformers", "treewise")},
            spread={"verify": verify_spread, "draft": draft_spread},
        )

    def _both(self) -> tuple[Engine, Engine]:
        """The engines of plain decoding and of a rule; neither reads a price."""
        if self._engines is None:
            unpriced = CostProfile.load("example-a100-70b")
            rule = TopNPolicy(TopNSettings(nodes=8, depth=2))
            settings = EngineSettings(passes=self.settings.passes)
            self._engines = (
                Engine(self.pair, PlainPolicy(), unpriced, settings),
                Engine(self.pair, rule, unpriced, settings),
            )
            for engine in self._engines:
                engine.generate(self._prompts[0], 2)  # what is slow the first time is no part of a round
        return self._engines


class _Grid:
    """Passes of one model, timed by count of rows and by capacity, one repeat behind another."""

    def __init__(
        self,
        model: Callable[[int], TreeModel],
        counts: Sequence[int],
        settings: ProfileSettings,
        rng: np.random.Generator,
        vocab_size: int,
        finish: Callable[[torch.Tensor], object],
    ) -> None:
        """`model` makes the model with a cache of so many slots; `finish` is what a pass's output goes through."""
        # Static buffers have places for rows beside their capacity.
        room = max(counts) + 1 if settings.passes == EAGER else 0
        self._models = [model(capacity + room) for capacity in settings.capacities]
        self._counts = tuple(counts)
        self._capacities = tuple(settings.capacities)
        self._rng = rng
        self._vocab_size = vocab_size
        self._finish = finish
        self._cells: list[list[list[float]]] = [[[] for _ in counts] for _ in settings.capacities]  # ms of each
        self._repeats = 0  # the first is a warm-up

    @property
    def num_counts(self) -> int:
        """Counts of rows that are measured."""
        return len(self._counts)

    @property
    def counted(self) -> int:
        """Repeats that count."""
        return max(self._repeats - 1, 0)

    def time(self, row: int, place: int) -> None:
        """One pass of the count at `place` behind the capacity at `row`."""
        model, rng = self._models[row], self._rng
        capacity, count = self._capacities[row], self._counts[place]
        if model.cache.length == 0:
            model.reset()
            model.prefill(rng.integers(0, self._vocab_size, capacity).tolist())
        tokens = rng.integers(0, self._vocab_size, count).astype(np.int32)
        parents = random_tree(count, rng)
        began = time.perf_counter()
        depths, mask = tree_mask(parents, capacity)
        self._finish(model.forward(tokens, (capacity + depths).astype(np.int32), mask))
        if model.device.type == "cuda":
            torch.cuda.synchronize(model.device)
        self._cells[row][place].append((time.perf_counter() - began) * 1e3)
        model.cache.keep(capacity, ())

    def end_repeat(self) -> None:
        """Every cell was timed; what the first repeat brought goes."""
        if self._repeats == 0:
            for cell in (cell for cells in self._cells for cell in cells):
                cell.clear()
        self._repeats += 1

    def table(self, with_hiccups: bool = False) -> tuple[CostGrid, float]:
        """Median milliseconds by count and capacity, and the largest relative interquartile range of a cell."""
        require(self.counted >= 1, "repeats", "at least two before a profile is read", self._repeats)
        quartiles = np.asarray([[np.quantile(cell, QUARTERS) for cell in row] for row in self._cells])
        low, median, high = (quartiles[..., place] for place in range(len(QUARTERS)))  # [capacities, counts] each
        # Kernels work in tiles, so that 16 rows may well cost less than 12: only what noise explains is made to rise.
        ms = np.clip([rising(row) for row in median], low, high)
        if with_hiccups:
            sizes = np.asarray([[len(cell) for cell in row] for row in self._cells])
            ms *= sum(sum(cell) for row in self._cells for cell in row) / float((median * sizes).sum())
        grid = CostGrid(self._counts, self._capacities, tuple(tuple(row) for row in ms.tolist()))
        return grid, float(((high - low) / median).max())


def rising(ms: NDArray[np.float64]) -> NDArray[np.float64]:
    """`ms` [counts] made monotone, as though more rows never cost less.

    Halfway between the lowest curve above and the highest curve below that rise.
    """
    above = np.maximum.accumulate(ms)
    below = np.minimum.accumulate(ms[::-1])[::-1]
    return np.asarray((above + below) / 2.0)


def _outside_ms(answer: Completion) -> float:
    inside = answer.verify_seconds + answer.draft_seconds + answer.policy_seconds
    return (answer.decode_seconds - inside) * 1e3
