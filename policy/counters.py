"""What a controller counts, for dashboards and tests."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from treewise.policy.outcome import RoundRecord

BINS = 10  # of predicted match probability, equal widths over [0, 1]


@runtime_checkable
class ScoringPolicy(Protocol):
    """A policy that says what it expects of each row, as learned ones do; others are measured by the rows' priors."""

    @property
    def round_match(self) -> NDArray[np.float64]:
        """Match probability of every row of the round's forest, given its parent is on the path, [rows]; roots: 1."""


@dataclass(slots=True)
class CalibrationSums:
    """Predicted against observed matches of verified nodes whose parent was on the path, by predicted probability.

    In bin b: `predicted[b] / nodes[b]` is the mean prediction and `matched[b] / nodes[b]` the share that came true.
    """

    nodes: NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, dtype=np.int64))  # [bins]
    predicted: NDArray[np.float64] = field(default_factory=lambda: np.zeros(BINS))  # [bins] sum of probabilities
    matched: NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, dtype=np.int64))  # [bins]

    def add(self, probability: NDArray[np.floating[Any]], match: NDArray[Any]) -> None:
        """Take `probability` [nodes] and `match` [nodes] (true or 1 where the node was the target's token)."""
        bins = np.clip((probability * BINS).astype(np.int64), 0, BINS - 1)
        self.nodes += np.bincount(bins, minlength=BINS)
        self.predicted += np.bincount(bins, weights=probability, minlength=BINS)
        self.matched += np.bincount(bins, weights=np.asarray(match, dtype=np.float64), minlength=BINS).astype(np.int64)


@dataclass(slots=True, weakref_slot=True)
class ControllerCounters:
    """Running totals over every request; they only grow."""

    requests: int = 0  # begun
    finished: int = 0
    rounds: int = 0
    committed_tokens: int = 0
    accepted_tokens: int = 0  # sum of accepted lengths
    verified_nodes: int = 0
    growths: int = 0  # draft calls
    draft_tokens: int = 0  # rows of those calls, catch-up included
    policy_calls: int = 0  # that reached the policy
    policy_seconds: float = 0.0
    fallbacks: int = 0  # rounds that the fallback finished after a failure of the policy
    suspensions: int = 0  # rounds that never reached the policy
    failures: int = 0  # exceptions and violations of the policy, of any call
    unhealthy_rows: int = 0  # rows whose draft probabilities were not finite
    calibration: CalibrationSums = field(default_factory=CalibrationSums)

    @property
    def mean_accepted_length(self) -> float:
        """Accepted tokens over rounds; 0 before the first."""
        return self.accepted_tokens / self.rounds if self.rounds else 0.0

    @property
    def tokens_per_round(self) -> float:
        """Committed tokens over rounds; 1 for plain decoding, 0 before the first round."""
        return self.committed_tokens / self.rounds if self.rounds else 0.0

    def add_round(self, record: RoundRecord, unhealthy_rows: int, expected: NDArray[np.floating[Any]]) -> None:
        """Take one finished round of one request; `expected` [forest rows] are its predicted match probabilities.

        Failures are not: a driver counts them as they come, in calls that may bring no round.
        """
        tree, result = record.tree, record.walk
        self.rounds += 1
        self.committed_tokens += len(record.committed)
        self.accepted_tokens += int(result.accepted_length[0])
        self.verified_nodes += tree.num_nodes
        self.growths += len(tree.growth_tokens)
        self.draft_tokens += sum(tree.growth_tokens)
        self.policy_calls += record.policy_calls
        self.policy_seconds += record.policy_ms / 1e3
        self.fallbacks += record.fallback
        self.suspensions += record.suspended
        self.unhealthy_rows += unhealthy_rows
        rows = np.flatnonzero(tree.kept & (result.match >= 0))
        self.calibration.add(expected[rows], result.match[rows])

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping of the totals; the calibration's arrays as lists."""
        parts: dict[str, Any] = {item.name: getattr(self, item.name) for item in fields(self)}
        sums = self.calibration
        parts["calibration"] = {item.name: getattr(sums, item.name).tolist() for item in fields(sums)}
        return parts
