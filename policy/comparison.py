"""The guard's running comparison: which of learned policy, fixed tree and plain decoding decides the next round.

Against plain decoding no experiment is needed: committed text does not depend on the tree, so plain decoding would have
taken one plain round for each committed token, at a price that the profile knows. A round therefore saves `tokens - ms
/ plain ms` plain rounds, exactly, and their sum is a random walk. The deciding arm steps aside when the walk has fallen
`patience` below its highest point (Page's cumulative sum test, Biometrika 1954; least worst delay for a given rate of
false alarms: Lorden 1971). So being wrong costs at most `patience` plain rounds before it ends, and an arm that saves
mu a round with variance s^2 is stopped by chance about (2 mu^2 / s^2) exp(-2 mu patience / s^2) times a round. After a
pause a trial runs the arm again: it is over at +-`patience` (Wald's sequential test, 1945), and every failed trial
doubles the pause, up to a cap, so that a hopeless arm costs at most patience / longest pause in the long run. The pause
is short again once the arm has saved as many rounds as the pause lasts.

What the fixed tree would have done on a round of the learned policy is known only in part: rows it alone would have
grown were never drafted. Bounds from the known rows are wide (everything behind the first row that only the tree has is
open) and need the tree's own decisions simulated in every round. So it runs itself, for one short block in
`probe_blocks`, more seldom where it is so slow that this would cost more than `probe_cost` of the time, and is compared
with the blocks of the other arm just before and after, which share most of the text's difficulty. Speeds are ratios of
sums (renewal rewards), their difference in logs has the standard error of the paired, linearised residuals, and the
window is the latest pairs only (sliding-window bandits: Garivier and Moulines, 2011, arXiv 0805.3415). The arms change
places where the lead exceeds its margin by `confidence` standard errors; changing back needs the same evidence the
other way round.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from treewise.data.errors import require

Arm: TypeAlias = Literal["learned", "fixed", "plain"]
FEWEST_PAIRS = 8


@dataclass(frozen=True, slots=True)
class ComparisonSettings:
    """Settings of `Comparison`. Rounds are counted per request; the rounds of a block are rounds of the whole batch."""

    patience_rounds: float = 64.0  # plain rounds lost before an arm steps aside
    pause_rounds: int = 128  # first pause before it is tried again
    longest_pause_rounds: int = 8192
    block_rounds: int = 8  # rounds of one probe of the fixed tree, and of what it is compared with
    probe_blocks: int = 32  # blocks of the deciding arm between two probes
    longest_probe_blocks: int = 512
    probe_cost: float = 0.004  # share of the time that probes of a slower arm may cost
    pairs: int = 32  # latest probes that count
    confidence: float = 2.0  # standard errors
    margin: float = 0.01  # lead in speed that is worth a change

    def __post_init__(self) -> None:
        for name in ("patience_rounds", "pause_rounds", "block_rounds", "probe_blocks", "probe_cost", "confidence"):
            require(0 < getattr(self, name) < float("inf"), name, "finite and above 0", getattr(self, name))
        for name, least in (("longest_pause_rounds", "pause_rounds"), ("longest_probe_blocks", "probe_blocks")):
            require(getattr(self, name) >= getattr(self, least), name, f"at least {least}", getattr(self, name))
        require(self.pairs >= FEWEST_PAIRS, "pairs", f"at least {FEWEST_PAIRS}", self.pairs)
        require(0.0 <= self.margin < 1.0, "margin", "at least 0 and below 1", self.margin)


@dataclass(frozen=True, slots=True)
class ComparisonCounters:
    """What the guard did so far; rounds are counted per request."""

    learned_rounds: int = 0
    fixed_rounds: int = 0
    plain_rounds: int = 0
    asides: int = 0  # an arm stepped aside for plain decoding
    trials: int = 0  # it was tried again
    returns: int = 0  # the trial was won
    probes: int = 0  # blocks of the arm that does not decide
    changes: int = 0  # learned policy and fixed tree changed places


@dataclass(slots=True)
class _Block:
    """Sums over a stretch of rounds of one arm."""

    rounds: int = 0  # of the batch
    plain_ms: float = 0.0  # what plain decoding would have taken for the same tokens
    ms: float = 0.0


class Comparison:
    """Says who decides (`arm`), and is told what every round brought (`add`)."""

    def __init__(self, settings: ComparisonSettings | None = None, has_fixed: bool = False) -> None:
        self.settings = settings or ComparisonSettings()
        self.counters = ComparisonCounters()
        self._has_fixed = has_fixed
        self._home: Arm = "learned"  # who decides, probes aside
        self._next: Arm = "learned"  # whom the next trial is for
        self._on_trial = False
        self._saved = 0.0  # plain rounds since the deciding arm took over
        self._most_saved = 0.0
        self._waited = 0
        self._pause = self.settings.pause_rounds
        self._is_probing = False
        self._block = _Block()
        self._before: _Block | None = None  # the deciding arm's last block
        self._probe: _Block | None = None  # waits for the block after it
        self._blocks = 0  # of the deciding arm since the last probe
        self._interval = self.settings.probe_blocks
        self._pairs: deque[tuple[float, float, float, float]] = deque(maxlen=self.settings.pairs)

    @property
    def arm(self) -> Arm:
        """Who decides the next round."""
        if not self._is_probing:
            return self._home
        return "fixed" if self._home == "learned" else "learned"

    @property
    def fixed_lead(self) -> tuple[float, float]:
        """Log of the fixed tree's speed over the learned policy's by the latest probes, and its standard error.

        (0, infinity) before there are two probes.
        """
        count = len(self._pairs)
        if count < 2:
            return 0.0, math.inf
        tokens, ms, other_tokens, other_ms = np.asarray(self._pairs).T
        residual = tokens / tokens.sum() - ms / ms.sum()
        residual -= other_tokens / other_tokens.sum() - other_ms / other_ms.sum()
        lead = math.log(other_tokens.sum() / other_ms.sum()) - math.log(tokens.sum() / ms.sum())
        return lead, math.sqrt(float((residual**2).sum()) * count / (count - 1))

    def add(self, tokens: int, plain_ms: float, ms: float, requests: int) -> None:
        """Take in a round of `arm`: `requests` requests committed `tokens` tokens in `ms` modelled milliseconds.

        Plain decoding would have taken `plain_ms` for them. Both must be above 0.
        """
        arm, counters = self.arm, self.counters
        name = f"{arm}_rounds"
        self.counters = replace(counters, **{name: getattr(counters, name) + requests})
        if arm == "plain":
            self._waited += requests
            if self._waited >= self._pause:
                self._try_again()
            return
        if not self._is_probing and self._steps_aside(tokens * (1.0 - ms / plain_ms)):
            return
        block = self._block
        block.rounds += 1
        block.plain_ms += plain_ms
        block.ms += ms
        if block.rounds >= self.settings.block_rounds:
            self._block = _Block()
            if self._has_fixed and not self._on_trial:
                self._end_block(block)

    def _steps_aside(self, saved: float) -> bool:
        """Move the walk by `saved` plain rounds; whether that was too much."""
        patience, counters = self.settings.patience_rounds, self.counters
        self._saved += saved
        self._most_saved = max(self._most_saved, self._saved)
        if self._most_saved - self._saved >= patience:
            if self._on_trial:
                self._pause = min(2 * self._pause, self.settings.longest_pause_rounds)
            self._next = "fixed" if self._has_fixed and self._home == "learned" else "learned"
            self._decide("plain")
            self.counters = replace(counters, asides=counters.asides + 1)
            return True
        if self._on_trial and self._saved >= patience:
            self._on_trial = False
            self.counters = replace(counters, returns=counters.returns + 1)
        if not self._on_trial and self._saved >= self._pause:
            self._pause = self.settings.pause_rounds
        return False

    def _try_again(self) -> None:
        self._decide(self._next)
        self._on_trial = True
        self.counters = replace(self.counters, trials=self.counters.trials + 1)

    def _decide(self, home: Arm) -> None:
        """Hand the rounds to `home`, with nothing counted yet."""
        self._home = home
        self._on_trial = self._is_probing = False
        self._saved = self._most_saved = 0.0
        self._waited = self._blocks = 0
        self._block = _Block()
        self._before = self._probe = None

    def _end_block(self, block: _Block) -> None:
        if self._is_probing:
            self._probe = block
            self._is_probing = False
            return
        before, probe, self._before = self._before, self._probe, block
        if probe is not None and before is not None:
            self._probe = None
            home, away = (before.plain_ms + block.plain_ms, before.ms + block.ms), (probe.plain_ms, probe.ms)
            self._pairs.append((*home, *away) if self._home == "learned" else (*away, *home))
            self._weigh()
        self._blocks += 1
        if self._blocks >= self._interval:
            self._blocks = 0
            self._is_probing = True
            self.counters = replace(self.counters, probes=self.counters.probes + 1)

    def _weigh(self) -> None:
        """Change places where the other arm leads; probe as often as what it is behind allows."""
        settings = self.settings
        lead, error = self.fixed_lead
        lead = lead if self._home == "learned" else -lead
        if len(self._pairs) >= FEWEST_PAIRS and lead - settings.confidence * error > settings.margin:
            self._decide("fixed" if self._home == "learned" else "learned")
            self._interval = settings.probe_blocks
            self.counters = replace(self.counters, changes=self.counters.changes + 1)
            return
        lost = math.expm1(max(-lead, 0.0))  # by a probe, in blocks of the deciding arm
        affordable = min(lost / settings.probe_cost, float(settings.longest_probe_blocks))
        self._interval = max(settings.probe_blocks, math.ceil(affordable))
