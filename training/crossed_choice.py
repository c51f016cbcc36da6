"""Which of several settings to use, and how fast that choice is on prompts that it did not see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treewise.data.errors import require
from treewise.training.replay_result import Float64Array, TextArray
from treewise.training.statistics import RESAMPLES, Interval, Totals, speed_ratio
from treewise.training.tally import Tally


@dataclass(frozen=True, slots=True)
class Choices:
    """Modelled milliseconds of several settings by prompt, in one order of prompts."""

    specs: tuple[str, ...]
    task: TextArray  # [prompts]
    tokens: Float64Array  # [prompts] the same under every setting, as the text is
    plain_ms: Float64Array  # [prompts]
    ms: Float64Array  # [settings, prompts]

    @classmethod
    def of(cls, tallies: Mapping[str, Tally]) -> Choices:
        """Sums over the requests of each prompt; every tally is of the same requests."""
        require(len(tallies) > 0, "tallies", "at least one", len(tallies))
        first = next(iter(tallies.values()))
        names, index, place = np.unique(first.prompt_id, return_index=True, return_inverse=True)

        def by_prompt(values: Float64Array) -> Float64Array:
            return np.bincount(place, values, len(names)).astype(np.float64)

        ms = np.stack([by_prompt(tally.columns["ms"]) for tally in tallies.values()])
        tokens, plain = by_prompt(first.columns["tokens"]), by_prompt(first.plain_ms)
        return cls(tuple(tallies), first.task[index], tokens, plain, ms)

    def only(self, specs: tuple[str, ...]) -> Choices:
        """The same of fewer settings."""
        return Choices(
            specs, self.task, self.tokens, self.plain_ms, self.ms[[self.specs.index(spec) for spec in specs]]
        )

    @property
    def best(self) -> str:
        """The fastest setting over all prompts."""
        return self.specs[int(np.argmin(self.ms.sum(axis=1)))]

    def unseen_ms(self) -> Float64Array:
        """[prompts] under the setting that is fastest on all the *other* prompts; of one prompt, on itself."""
        return self._unseen(np.ones(len(self.task), dtype=np.bool_))

    @property
    def unseen_totals(self) -> Totals:
        """Tokens and milliseconds by prompt, as `unseen_ms`."""
        return Totals(self.tokens, self.unseen_ms())

    def unseen_speedup(self, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
        """Over plain decoding, each prompt under the setting that the others choose: not flattered by the choice."""
        return speed_ratio(self.unseen_totals, self._plain, resamples, seed)

    def own_setting_gain(self) -> float:
        """Speed with a setting of every task's own over one for all, both chosen on other prompts.

        A task of one prompt takes what all choose.
        """
        one = self.unseen_ms()
        own = one.copy()
        for task in sorted(set(self.task.tolist())):
            here = np.asarray(self.task == task)
            if here.sum() > 1:
                own[here] = self._unseen(here)[here]
        return float(one.sum() / own.sum())

    @property
    def _plain(self) -> Totals:
        return Totals(self.tokens, self.plain_ms)

    def _unseen(self, among: NDArray[np.bool_]) -> Float64Array:
        """[prompts]; where `among`, under the setting that is fastest on the others among them."""
        totals = self.ms[:, among].sum(axis=1, keepdims=True)
        others = totals - self.ms if among.sum() > 1 else np.broadcast_to(totals, self.ms.shape)
        return np.asarray(self.ms[np.argmin(others, axis=0), np.arange(len(self.task))])
