"""Replay of requests served side by side: each round is one pass and one call for all of them, and priced as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treewise.data.cost import CALL_GROWTH
from treewise.data.errors import CoverageError, require
from treewise.policy.hook import Deployment, Int32Array, RoundOutcome, TreePolicy
from treewise.policy.round import RoundTree
from treewise.training.batch_replay import BatchReplay
from treewise.training.flight import Flight
from treewise.training.logged import LoggedRequest
from treewise.training.replay_result import ReplayResult, RequestRows, TextArray, call_ms_of, grid_ms, result_of
from treewise.training.statistics import Totals, totals_by_prompt


@dataclass(frozen=True, slots=True)
class ServedRounds:
    """Rounds of a batch, in order."""

    requests: Int32Array  # [rounds] that took part
    rows: Int32Array  # [rounds] of the verify pass, roots included
    capacity: Int32Array  # [rounds] tokens of the longest cache
    committed_tokens: Int32Array  # [rounds] over the batch
    levels: Int32Array  # [rounds] calls of `expand`
    growths: Int32Array  # [rounds] forward passes of the draft
    growth_tokens: Int32Array  # [growths in all] of the whole batch, catch-up included
    members: Int32Array  # [requests of all rounds] places of the requests that took part, round by round
    member_tokens: Int32Array  # [requests of all rounds] that each of them committed

    def milliseconds(self, deployment: Deployment, call_ms: float) -> NDArray[np.float64]:
        """Modelled milliseconds of each round, [rounds].

        Verify and draft passes run the rows of the whole batch and cost what the profile says of so many; a policy
        call of one request, `call_ms`, grows by `CALL_GROWTH` with each further one; the rest is every request's own.
        """
        cost = deployment.cost
        require(cost.requests == 1, "deployment.cost", "a profile of whole passes", cost.name)
        rows = np.asarray([deployment.padded_rows(count) for count in self.rows.tolist()])
        in_round = np.repeat(np.arange(len(rows)), self.growths)
        draft = grid_ms(cost.draft, self.growth_tokens, self.capacity[in_round])
        total = grid_ms(cost.verify, rows, self.capacity) + np.bincount(in_round, draft, len(rows))
        total += call_ms * (1.0 + CALL_GROWTH * (self.requests - 1)) * (self.levels + 1)
        return np.asarray(total + self.requests * (cost.round_ms + cost.level_ms * (self.levels - 1)))


@dataclass(frozen=True, slots=True)
class ServedReplay:
    """What a policy did with requests side by side."""

    result: ReplayResult  # by request
    rounds: ServedRounds  # by batch
    round_ms: NDArray[np.float64]  # [rounds] modelled

    @property
    def total_ms(self) -> float:
        """Modelled milliseconds of all rounds."""
        return float(self.round_ms.sum())

    @property
    def tokens_per_ms(self) -> float:
        """Committed tokens of all requests over modelled time, the queue's end included."""
        return float(self.rounds.committed_tokens.sum()) / self.total_ms if self.total_ms else 0.0

    def totals(self, full_batch: int) -> Totals:
        """Tokens and milliseconds by prompt in the rounds of `full_batch` requests, each paying for its place in them.

        While a queue lasts every place is taken, so that these rounds are the steady state; at its end the slowest
        requests are left over in batches that shrink. A prompt that took no part in a full round is left out, which
        none is where the queue holds each of them twice over. Raises `ParameterError` where no round was full.
        """
        return totals_by_prompt(*self.places(full_batch))

    def places(self, full_batch: int) -> tuple[TextArray, Int32Array, NDArray[np.float64]]:
        """What `totals` sums: prompt, tokens and milliseconds of every place of the full rounds, [rounds x places]."""
        rounds = self.rounds
        is_full = rounds.requests == full_batch
        require(bool(is_full.any()), "full_batch", "the size of some round", full_batch)
        of_place = np.repeat(is_full, rounds.requests)
        ms = np.repeat(self.round_ms / rounds.requests, rounds.requests)[of_place]
        return self.result.prompt_id[rounds.members[of_place]], rounds.member_tokens[of_place], ms

    @property
    def tokens_per_request_round(self) -> float:
        """Committed tokens over rounds of single requests."""
        return float(self.rounds.committed_tokens.sum()) / max(int(self.rounds.requests.sum()), 1)

    @property
    def nodes_per_request_round(self) -> float:
        """Verified nodes over rounds of single requests."""
        taken = int(self.rounds.requests.sum())
        return (int(self.rounds.rows.sum()) - taken) / max(taken, 1)


def replay_served(
    policy: TreePolicy,
    requests: Sequence[LoggedRequest],
    deployment: Deployment,
    max_batch: int,
    advance: Callable[[], None] | None = None,
) -> ServedReplay:
    """Replay `requests` in order, up to `max_batch` side by side, each joining when one before it has left.

    The policy is told of the batch, as live, so one that shares its budget decides as `BatchEngine` would let it. A
    batch does not reach over the shards of a log (`LoggedTrace.in_memory` joins them), and a request may be named more
    than once. Failures of the policy are not contained. `advance` is called after
    each request. Raises `CoverageError` where the policy asks for what the log does not hold or fails, and what `bind`
    raises.
    """
    require(max_batch >= 1, "max_batch", ">= 1", max_batch)
    policy.bind(deployment)
    rounds: list[tuple[int, ...]] = []
    growth_tokens: list[int] = []
    members: list[tuple[int, int]] = []
    rows: list[RequestRows] = [RequestRows() for _ in requests]
    seconds = 0.0
    for numbered in _shards(requests):
        batch = _Recorded(policy, deployment, numbered, rounds, growth_tokens, members)
        for driven in batch.drive(numbered, max_batch):
            if driven.rows is None:
                raise CoverageError(
                    f"prompt {driven.request.prompt_id}: the log holds too little for this policy in a batch, was "
                    "written in one, or the policy failed"
                )
            rows[driven.number] = driven.rows
            driven.request.release()
            if advance is not None:
                advance()
        seconds += batch.seconds
    taken, passed, capacity, tokens, levels, growths = np.asarray(rounds, dtype=np.int32).reshape(-1, 6).T
    passes = np.asarray(growth_tokens, dtype=np.int32)
    who, brought = np.asarray(members, dtype=np.int32).reshape(-1, 2).T
    served = ServedRounds(taken, passed, capacity, tokens, levels, growths, passes, who, brought)
    ms = served.milliseconds(deployment, call_ms_of(policy, deployment.cost))
    prompts = [(request.prompt_id, request.task) for request in requests]
    return ServedReplay(result_of(prompts, rows, seconds), served, ms)


class _Recorded(BatchReplay):
    """Keeps what each round of the batch ran."""

    def __init__(
        self,
        policy: TreePolicy,
        deployment: Deployment,
        numbered: Sequence[tuple[int, LoggedRequest]],
        rounds: list[tuple[int, ...]],
        growth_tokens: list[int],
        members: list[tuple[int, int]],
    ) -> None:
        super().__init__(policy, deployment, numbered[0][1].columns, tells_size=True)
        self._rounds, self._growth_tokens, self._members = rounds, growth_tokens, members

    def _record(
        self, flight: Flight, tree: RoundTree, outcome: RoundOutcome, growths: Sequence[NDArray[np.intp]]
    ) -> None:
        super()._record(flight, tree, outcome, growths)
        totals = [int(own.sum()) for own in growths]
        self._growth_tokens.extend(totals)
        numbers = flight.column("number").tolist()
        self._members.extend(zip(numbers, outcome.committed_tokens.tolist(), strict=True))
        self._rounds.append(
            (
                len(flight),
                int(tree.kept.sum()),
                int(outcome.context.position.max()),
                int(outcome.committed_tokens.sum()),
                tree.policy_calls - 1,
                len(totals),
            )
        )


def _shards(requests: Sequence[LoggedRequest]) -> list[list[tuple[int, LoggedRequest]]]:
    """Numbered requests, those whose columns are shared together."""
    found: dict[int, list[tuple[int, LoggedRequest]]] = {}
    for number, request in enumerate(requests):
        found.setdefault(id(request.columns), []).append((number, request))
    return list(found.values())
