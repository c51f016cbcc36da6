"""What the policies of a survey did, counted by request, and the figures that are made of the counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from treewise.data.cost import CostProfile
from treewise.training.contender import Contender
from treewise.training.contest_work import tally_columns
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay import Replayer, check_reach
from treewise.training.replay_result import Float64Array, ReplayResult, TextArray, plain_ms


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a survey: a ratio of two sums over requests."""

    name: str
    heading: str  # in a table
    meaning: str
    top: str  # columns of `SurveyCounts`
    bottom: str
    is_modelled: bool = False  # it is made of milliseconds of a cost profile
    is_share: bool = False  # of 1, shown in percent


FIGURES: tuple[Figure, ...] = (
    Figure(
        "accepted", "accepted length", "accepted length per verification, bonus token not counted", "accepted", "rounds"
    ),
    Figure("with_bonus", "with bonus", "tokens committed per verification, bonus token counted", "tokens", "rounds"),
    Figure("nodes", "nodes", "verified nodes per verification", "nodes", "rounds"),
    Figure("on_path", "on path", "share of verified nodes on the committed path", "accepted", "nodes", is_share=True),
    Figure(
        "decided",
        "decided",
        "share of verified nodes that reached a decision: their parent is on the path",
        "decided",
        "nodes",
        is_share=True,
    ),
    Figure(
        "calls_saved",
        "calls saved",
        "share of target calls saved: (plain steps - verifications) / plain steps",
        "saved",
        "tokens",
        is_share=True,
    ),
    Figure("growths", "growths", "forward passes of the draft per verification", "growths", "rounds"),
    Figure("drafting", "drafting", "share of modelled time in draft growths", "draft_ms", "ms", True, True),
    Figure("speedup", "speed-up", "modelled speed over that of plain decoding", "plain_ms", "ms", True),
)
COLUMNS = ("rounds", "tokens", "accepted", "nodes", "decided", "saved", "growths", "draft_ms", "ms", "plain_ms")


@dataclass(frozen=True, slots=True)
class SurveyCounts:
    """What one policy did, by request. A plain step brings one token, so `tokens` are also the plain steps."""

    prompt_id: TextArray  # [requests]
    task: TextArray  # [requests]
    columns: dict[str, Float64Array]  # `COLUMNS`, each [requests]
    lengths: Float64Array  # [requests, longest + 1] verifications by accepted length


class Counting(Protocol):
    """Finds what a policy did; `survey_counts` does, by replay."""

    def __call__(
        self,
        traces: Sequence[LoggedTrace],
        cost: CostProfile,
        contender: Contender,
        longest: int,
        advance: Callable[[int], None] | None = None,
    ) -> SurveyCounts:
        """See `survey_counts`."""


def survey_counts(
    traces: Sequence[LoggedTrace],
    cost: CostProfile,
    contender: Contender,
    longest: int,
    advance: Callable[[int], None] | None = None,
) -> SurveyCounts:
    """Replay `contender` on every request of `traces` and count; `longest` is the longest accepted length there can be.

    `advance` is told of one more request. Raises `CoverageError` where a trace does not hold what is asked for.
    """
    parts = [_of_trace(trace, cost, contender, longest, advance) for trace in traces]
    return SurveyCounts(
        np.concatenate([part.prompt_id for part in parts]),
        np.concatenate([part.task for part in parts]),
        {name: np.concatenate([part.columns[name] for part in parts]) for name in COLUMNS},
        np.concatenate([part.lengths for part in parts]),
    )


def _of_trace(
    trace: LoggedTrace,
    cost: CostProfile,
    contender: Contender,
    longest: int,
    advance: Callable[[int], None] | None,
) -> SurveyCounts:
    policy, deployment = contender.make(), trace.deployment(cost)
    replayer = Replayer(policy, deployment)
    check_reach(policy, deployment, contender.name)
    replayer.run_all(trace.requests, None if advance is None else lambda: advance(1))
    result = replayer.result()
    tally = tally_columns(result, deployment, policy)
    accepted = result.by_request(result.accepted_length)
    columns = {
        **{name: tally[name] for name in ("rounds", "tokens", "nodes", "growths", "draft_ms", "ms")},
        "accepted": accepted,
        "decided": result.by_request(result.decided_nodes),
        "saved": tally["tokens"] - tally["rounds"],
        "plain_ms": np.asarray([plain_ms(request, cost) for request in trace.requests], dtype=np.float64),
    }
    return SurveyCounts(result.prompt_id, result.task, columns, length_counts(result, longest))


def length_counts(result: ReplayResult, longest: int) -> Float64Array:
    """Verifications of each request by accepted length, [requests, longest + 1]."""
    cells = result.request.astype(np.int64) * (longest + 1) + result.accepted_length
    counts = np.bincount(cells, minlength=result.num_requests * (longest + 1))
    return counts.reshape(result.num_requests, longest + 1).astype(np.float64)
