"""What a replay brought, round by round, and what it would have cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from treewise.data.cost import CostGrid, CostProfile, share_of_call
from treewise.policy.hook import BoolArray, Deployment, Int32Array, TimedPolicy, TreePolicy
from treewise.training.logged import LoggedRequest

Int64Array: TypeAlias = NDArray[np.int64]
UInt64Array: TypeAlias = NDArray[np.uint64]
Float64Array: TypeAlias = NDArray[np.float64]
TextArray: TypeAlias = NDArray[np.str_]


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """Rounds of a replay in the order they were driven, and the requests that they belong to.

    Everything but `policy_seconds` is the same on every run.
    """

    request: Int32Array  # [rounds] place of the request among those replayed
    round: Int32Array  # [rounds] counted from 0 within the request
    position: Int32Array  # [rounds] absolute position of the root
    accepted_length: Int32Array  # [rounds]
    committed_tokens: Int32Array  # [rounds]
    verified_nodes: Int32Array  # [rounds]
    decided_nodes: Int32Array  # [rounds] those of them whose parent is on the path: the target chose among them
    growths: Int32Array  # [rounds] forward passes of the draft
    growth_offsets: Int64Array  # [rounds + 1] round r owns growth_tokens[growth_offsets[r] : growth_offsets[r + 1]]
    growth_tokens: Int32Array  # [growths in all] tokens that each pass ran, catch-up included
    policy_calls: Int32Array  # [rounds] expand and select
    fallback: BoolArray  # [rounds] the policy failed and its fallback finished the round
    digest: UInt64Array  # [rounds] of the tree's shape, admitted, grown and kept rows; equal for equal decisions
    prompt_id: TextArray  # [requests]
    task: TextArray  # [requests]
    policy_seconds: float  # measured time of the policy's calls

    def __len__(self) -> int:
        return len(self.request)

    @property
    def num_requests(self) -> int:
        """Requests replayed."""
        return len(self.prompt_id)

    def by_request(self, values: NDArray[Any]) -> Float64Array:
        """Sum of `values` [rounds] over the rounds of each request, [requests] float64."""
        return np.bincount(self.request, values, self.num_requests).astype(np.float64)


ROUND_COLUMNS = (
    *("round", "position", "accepted_length", "committed_tokens", "verified_nodes", "decided_nodes", "growths"),
    *("policy_calls", "fallback"),
)


@dataclass(slots=True)
class RequestRows:
    """The rounds of one request, as they are driven."""

    rounds: list[tuple[int, ...]] = field(default_factory=list)  # in the order of `ROUND_COLUMNS`
    digests: list[int] = field(default_factory=list)
    growth_tokens: list[int] = field(default_factory=list)

    def begins(self, other: RequestRows) -> bool:
        """Whether `other` begins with these rounds."""
        rounds, passes = len(self.rounds), len(self.growth_tokens)
        return (
            self.rounds == other.rounds[:rounds]
            and self.digests == other.digests[:rounds]
            and self.growth_tokens == other.growth_tokens[:passes]
        )


def result_of(prompts: Sequence[tuple[str, str]], rows: Sequence[RequestRows], policy_seconds: float) -> ReplayResult:
    """The result of requests of the `prompts`, each (id, task), whose rounds are `rows`, request by request."""
    table = [part for own in rows for part in own.rounds]
    values = np.asarray(table, dtype=np.int32).reshape(-1, len(ROUND_COLUMNS)).T
    columns = dict(zip(ROUND_COLUMNS, values.copy(), strict=True))
    fallback = columns.pop("fallback").astype(np.bool_)
    return ReplayResult(
        request=np.repeat(np.arange(len(rows), dtype=np.int32), [len(own.rounds) for own in rows]),
        **columns,
        growth_offsets=np.concatenate([[0], np.cumsum(columns["growths"], dtype=np.int64)]),
        growth_tokens=np.asarray([tokens for own in rows for tokens in own.growth_tokens], dtype=np.int32),
        fallback=fallback,
        digest=np.asarray([digest for own in rows for digest in own.digests], dtype=np.uint64),
        prompt_id=np.asarray([prompt_id for prompt_id, _ in prompts], dtype=np.str_),
        task=np.asarray([task for _, task in prompts], dtype=np.str_),
        policy_seconds=policy_seconds,
    )


def joined_results(parts: Sequence[ReplayResult]) -> ReplayResult:
    """The requests of all `parts`, at least one, in order."""
    if len(parts) == 1:
        return parts[0]
    before = np.cumsum([0, *(part.num_requests for part in parts[:-1])])
    shifted = [part.request + np.int32(first) for part, first in zip(parts, before.tolist(), strict=True)]
    growths = np.concatenate([part.growths for part in parts])
    whole: dict[str, NDArray[Any]] = {
        item.name: np.concatenate([getattr(part, item.name) for part in parts])
        for item in fields(ReplayResult)
        if item.name not in ("request", "growth_offsets", "policy_seconds")
    }
    return ReplayResult(
        request=np.concatenate(shifted),
        growth_offsets=np.concatenate([[0], np.cumsum(growths, dtype=np.int64)]),
        policy_seconds=sum(part.policy_seconds for part in parts),
        **whole,
    )


def grid_ms(grid: CostGrid, counts: NDArray[Any], capacities: NDArray[Any]) -> Float64Array:
    """Milliseconds of `counts` [n] at the cache `capacities` [n], as `CostGrid.at` has them. Returns [n]."""
    return grid.at_each(counts, capacities)


def modelled_ms(result: ReplayResult, deployment: Deployment, call_ms: float) -> Float64Array:
    """Milliseconds of every round under the deployment's cost profile, [rounds].

    `round_ms + verify(padded(1 + verified nodes)) + sum over growths of draft(tokens) + call_ms x policy calls +
    level_ms x levels after the opening one`, at a cache of `position` tokens: those before the root, as the profile
    was measured.
    """
    cost = deployment.cost
    capacity = result.position
    rows = 1 + result.verified_nodes
    if deployment.row_buckets:
        rows = np.asarray([deployment.padded_rows(count) for count in rows.tolist()], dtype=np.int32)
    growth_round = np.repeat(np.arange(len(result)), result.growths)
    draft = grid_ms(cost.draft, result.growth_tokens, capacity[growth_round])
    draft_ms = np.bincount(growth_round, weights=draft, minlength=len(result))
    verify_ms = grid_ms(cost.verify, rows, capacity)
    calls_ms = call_ms * result.policy_calls + cost.level_ms * np.maximum(result.policy_calls - 2, 0)
    return np.asarray(cost.round_ms + verify_ms + draft_ms + calls_ms, dtype=np.float64)


def plain_ms(request: LoggedRequest, cost: CostProfile) -> float:
    """Milliseconds of plain decoding of the request's text: a round per token, no policy."""
    positions = np.arange(request.first_position, request.end_position - 1)
    verify = grid_ms(cost.verify, np.ones(len(positions)), positions)
    return float(verify.sum() + cost.round_ms * len(positions))


def call_ms_of(policy: TreePolicy, cost: CostProfile) -> float:
    """What one call of the policy is charged: its own measurement where it has one, else the profile's."""
    return share_of_call(policy.call_ms, cost.requests) if isinstance(policy, TimedPolicy) else cost.policy_ms
