"""What one process does of an estimate: some contenders on completed logs, under every cost profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from treewise.data.cost import CostProfile
from treewise.data.errors import CoverageError
from treewise.training.ab import same_policy
from treewise.training.completed_replay import CompletedReplayer
from treewise.training.contender import Contender, WatchedDeployment
from treewise.training.donors import DraftDonors
from treewise.training.logged import LoggedRequest
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay import Replayer, check_reach
from treewise.training.replay_result import Float64Array, ReplayResult, call_ms_of, modelled_ms
from treewise.training.workers import Advance

COUNTS = ("rounds", "nodes", "growths", "imputed")


@dataclass(frozen=True, slots=True)
class Completed:
    """One contender under one profile, on completed logs."""

    ms: Float64Array  # [imputations, requests]
    counts: Float64Array  # [requests, counts] means over imputations, in the order of `COUNTS`


@dataclass(frozen=True, slots=True)
class Decided:
    """One contender on the requests that it decided, under one profile."""

    weight: Float64Array  # [requests] 1 / propensity; 0 where another policy decided
    ms: Float64Array  # [requests] 1 where another policy decided
    counts: Float64Array  # [requests, counts]


@dataclass(frozen=True, slots=True)
class Estimated:
    """What is known of one contender under one profile."""

    completed: Completed
    decided: Decided | None  # None: it decided no request, or nobody drew that it should, or it is not answered
    is_answered: bool  # False: under these prices it asks for more than it logged


@dataclass(frozen=True, slots=True)
class EstimateJob:
    """An estimate, as every process that takes part is told of it."""

    traces: tuple[LoggedTrace, ...]
    costs: tuple[CostProfile, ...]
    contenders: tuple[Contender, ...]
    seeds: tuple[int, ...]  # of the donors, one an imputation

    @property
    def can_share(self) -> bool:
        """Whether other processes can read the traces and make the policies for themselves."""
        is_stored = all(trace.is_stored for trace in self.traces)
        return is_stored and all(contender.is_made_anywhere for contender in self.contenders)

    def __call__(self, advance: Advance) -> _Estimator:
        return _Estimator(self, advance)


class _Estimator:
    """Does contenders one by one, on traces and donors that are made once."""

    def __init__(self, job: EstimateJob, advance: Advance) -> None:
        self._job = job
        self._advance = advance
        self._traces = [trace.in_memory() for trace in job.traces]
        self._donors = [[DraftDonors(trace, seed) for seed in job.seeds] for trace in self._traces]

    def __call__(self, place: int) -> list[Estimated]:
        """What the contender at `place` did, under each profile."""
        contender, traces = self._job.contenders[place], self._traces
        found: list[list[CompletedReplayer]] = []
        answers = []
        for cost in self._job.costs:
            if not found or any(_read_cost(replayer) for part in found for replayer in part):
                made = zip(traces, self._donors, strict=True)
                found = [_complete(contender, trace, cost, donors) for trace, donors in made]
            completed, decided, is_answered = _completed(found, contender, cost, traces), None, True
            try:
                decided = _decided(contender, traces, cost)
            except CoverageError:
                is_answered = False
            answers.append(Estimated(completed, decided, is_answered))
            self._advance(sum(len(trace.requests) for trace in traces))
        return answers


def writer_of(trace: LoggedTrace, request: LoggedRequest) -> str:
    """The policy that decided `request`."""
    return request.explorer or trace.manifest.policy or ""


def _complete(
    contender: Contender, trace: LoggedTrace, cost: CostProfile, donors: Sequence[DraftDonors]
) -> list[CompletedReplayer]:
    """One replayer an imputation, after all requests of `trace`."""
    deployment = trace.deployment(cost)
    replayers = [CompletedReplayer(contender.make(), WatchedDeployment.of(deployment), one) for one in donors]
    check_reach(replayers[0].policy.policy, deployment, contender.name)
    first = replayers[0]
    for request in trace.requests:
        first.run(request)
        for replayer in replayers[1:]:
            if first.was_lent or first.policy.state == "session":
                replayer.run(request)
            else:
                replayer.repeat(first)
        request.release()
    return replayers


def _read_cost(replayer: CompletedReplayer) -> bool:
    return isinstance(replayer.deployment, WatchedDeployment) and replayer.deployment.cost_was_read


def _completed(
    found: Sequence[Sequence[CompletedReplayer]], contender: Contender, cost: CostProfile, traces: Sequence[LoggedTrace]
) -> Completed:
    call_ms = call_ms_of(contender.make(), cost)
    ms, counts = [], []
    for part, trace in zip(found, traces, strict=True):
        deployment = trace.deployment(cost)
        results = [replayer.result() for replayer in part]
        ms.append([result.by_request(modelled_ms(result, deployment, call_ms)) for result in results])
        counts.append(np.mean([_counts(one, other.imputed) for one, other in zip(results, part, strict=True)], axis=0))
    return Completed(np.concatenate(ms, axis=1), np.concatenate(counts))


def _counts(result: ReplayResult, imputed: np.ndarray[tuple[int], np.dtype[np.bool_]] | None = None) -> Float64Array:
    """[requests, counts]"""
    lent = np.zeros(len(result)) if imputed is None else imputed
    columns = (np.ones(len(result)), result.verified_nodes, result.growths, lent)
    return np.stack([result.by_request(np.asarray(column)) for column in columns], axis=1)


def _decided(contender: Contender, traces: Sequence[LoggedTrace], cost: CostProfile) -> Decided | None:
    """None where the policy decided no request, or where no draw said that it should: then nothing is known of it.

    Raises `CoverageError` where it asks under `cost` for what it did not ask for when it was logged.
    """
    weight, ms, counts = [], [], []
    for trace in traces:
        own = [same_policy(contender.name, writer_of(trace, request)) for request in trace.requests]
        is_drawn = any(request.propensity < 1.0 for request in trace.requests)
        chosen = [request for request, is_own in zip(trace.requests, own, strict=True) if is_own and is_drawn]
        rows = np.flatnonzero(own) if chosen else np.zeros(0, dtype=np.int64)
        total = np.zeros((len(own), len(COUNTS)))
        took, share = np.ones(len(own)), np.zeros(len(own))
        if chosen:
            deployment, policy = trace.deployment(cost), contender.make()
            replayer = Replayer(policy, deployment)
            replayer.run_all(chosen)
            result = replayer.result()
            took[rows] = result.by_request(modelled_ms(result, deployment, call_ms_of(policy, cost)))
            total[rows] = _counts(result)
            share[rows] = [1.0 / request.propensity for request in chosen]
        weight.append(share)
        ms.append(took)
        counts.append(total)
    whole = np.concatenate(weight)
    return Decided(whole, np.concatenate(ms), np.concatenate(counts)) if whole.any() else None
