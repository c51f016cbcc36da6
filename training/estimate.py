"""An estimate for policies that did not write the log: live traces of pruned trees, and what others would have done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from treewise.data.cost import CostProfile
from treewise.data.errors import CoverageError, require
from treewise.policy.hook import TreePolicy
from treewise.training.ab import contenders_of, few_prompts, pair_differs, same_policy
from treewise.training.ab_report import ProfileOrigin
from treewise.training.completed_replay import CompletedReplayer, check_completable
from treewise.training.contest import Contender, WatchedDeployment
from treewise.training.donors import DraftDonors
from treewise.training.estimate_report import EstimateReport, EstimateRow
from treewise.training.logged import LoggedRequest
from treewise.training.logged_trace import LoggedTrace, check_distinct
from treewise.training.off_policy import DirectMethod, RatioOf, SelfNormalizedInversePropensity, estimated
from treewise.training.replay import Replayer, check_reach
from treewise.training.replay_result import Float64Array, ReplayResult, call_ms_of, modelled_ms, plain_ms
from treewise.training.statistics import RESAMPLES

IMPUTATIONS = 5
COUNTS = ("rounds", "nodes", "growths", "imputed")


@dataclass(frozen=True, slots=True)
class _Completed:
    """One contender under one profile, on completed logs."""

    ms: Float64Array  # [imputations, requests]
    counts: Float64Array  # [requests, counts] means over imputations, in the order of `COUNTS`


@dataclass(frozen=True, slots=True)
class _Decided:
    """One contender on the requests that it decided, under one profile."""

    weight: Float64Array  # [requests] 1 / propensity; 0 where another policy decided
    ms: Float64Array  # [requests] 1 where another policy decided
    counts: Float64Array  # [requests, counts]


@dataclass(frozen=True, slots=True)
class _Prompts:
    """The requests that are judged, and their prompts."""

    task: np.ndarray[tuple[int], np.dtype[np.str_]]  # [requests]
    prompt: np.ndarray[tuple[int], np.dtype[np.str_]]  # [requests]
    tokens: Float64Array  # [requests]

    def summed(self, values: Float64Array, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Float64Array:
        """Sums of `values` [..., requests] over the requests `rows` of each prompt, [..., prompts]."""
        names, place = np.unique(self.prompt[rows], return_inverse=True)
        return np.asarray(values[..., rows] @ np.eye(len(names))[place])


def is_estimate(traces: Sequence[LoggedTrace], policies: Sequence[str | TreePolicy | Contender]) -> bool:
    """Whether some of `policies` did not write the live `traces`, so that replay cannot answer for them."""
    live = [trace for trace in traces if trace.manifest.kind == "live"]
    names = [contender.name for contender in contenders_of(policies)]
    return any(not same_policy(name, trace.manifest.policy) for trace in live for name in names)


def estimate(
    traces: Sequence[LoggedTrace],
    costs: Sequence[CostProfile],
    policies: Sequence[str | TreePolicy | Contender],
    resamples: int = RESAMPLES,
    seed: int = 0,
    imputations: int = IMPUTATIONS,
    advance: Callable[[int], None] | None = None,
) -> EstimateReport:
    """What each policy would have done on the texts of live `traces`, by every estimator that applies to it.

    The direct method goes for all, the self-normalised inverse propensity for policies that were drawn to decide some
    of the requests. Nothing is exact, and nothing is judged. `advance` is told how many more of the requests x
    policies x profiles are done. Raises `CoverageError` where a trace is dense (replay is exact there), of another
    pair, or cannot be completed, and where a policy may ask for more than the envelope allows.
    """
    require(len(traces) > 0, "traces", "at least one", len(traces))
    require(len(costs) > 0, "costs", "at least one profile", len(costs))
    require(imputations >= 1, "imputations", ">= 1", imputations)
    contenders = contenders_of(policies)
    for trace in traces:
        if trace.manifest.kind != "live":
            raise CoverageError(
                f"traces must be live for an estimate, got {trace.name}; on a dense trace replay is exact"
            )
        if pair_differs(trace, traces[0]):
            raise CoverageError(f"traces must be of one pair, got {traces[0].name} and {trace.name} of others")
        check_completable(trace)
    check_distinct(traces)
    traces = [trace.in_memory() for trace in traces]
    for trace in traces:
        trace.check_priced_alone()
    requests = [request for trace in traces for request in trace.requests]
    prompts = _Prompts(
        np.asarray([request.task for request in requests], dtype=np.str_),
        np.asarray([request.prompt_id for request in requests], dtype=np.str_),
        np.asarray([request.num_tokens for request in requests], dtype=np.float64),
    )
    seeds = [seed * IMPUTATIONS + place for place in range(imputations)]
    donors = [[DraftDonors(trace, one) for one in seeds] for trace in traces]  # [traces, imputations]
    rows: list[EstimateRow] = []
    reused: dict[str, list[list[CompletedReplayer]]] = {}
    unanswered: list[str] = []
    for cost in costs:
        plain = np.asarray([plain_ms(request, cost) for request in requests])
        completed, decided = {}, {}
        for contender in contenders:
            if contender.name not in reused:
                found = [_complete(contender, trace, cost, own) for trace, own in zip(traces, donors, strict=True)]
                if not any(_read_cost(replayer) for part in found for replayer in part):
                    reused[contender.name] = found
            else:
                found = reused[contender.name]
            completed[contender.name] = _completed(found, contender, cost, traces)
            try:
                decided[contender.name] = _decided(contender, traces, cost)
            except CoverageError:
                decided[contender.name] = None
                unanswered.append(
                    f"{contender.name} reads prices, and asks under those of {cost.name} for more than it logged: no "
                    "estimate from the requests that it decided"
                )
            if advance is not None:
                advance(len(requests))
        for task in ["", *sorted(set(prompts.task.tolist()))]:
            rows.extend(_rows(cost, task, prompts, plain, completed, decided, resamples, seed))
    first = {row.task: row.prompts for row in rows if row.profile == costs[0].name and row.effective_prompts is None}
    return EstimateReport(
        acceptance=tuple(trace.origin for trace in traces),
        profiles=tuple(ProfileOrigin.of(cost) for cost in costs),
        policies=tuple(contender.name for contender in contenders),
        writers=tuple(sorted({writer_of(trace, request) for trace in traces for request in trace.requests})),
        rows=tuple(rows),
        resamples=resamples,
        seed=seed,
        imputations=imputations,
        warnings=(*few_prompts(first), *unanswered),
    )


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
) -> _Completed:
    call_ms = call_ms_of(contender.make(), cost)
    ms, counts = [], []
    for part, trace in zip(found, traces, strict=True):
        deployment = trace.deployment(cost)
        results = [replayer.result() for replayer in part]
        ms.append([result.by_request(modelled_ms(result, deployment, call_ms)) for result in results])
        counts.append(np.mean([_counts(one, other.imputed) for one, other in zip(results, part, strict=True)], axis=0))
    return _Completed(np.concatenate(ms, axis=1), np.concatenate(counts))


def _counts(result: ReplayResult, imputed: np.ndarray[tuple[int], np.dtype[np.bool_]] | None = None) -> Float64Array:
    """[requests, counts]"""
    lent = np.zeros(len(result)) if imputed is None else imputed
    columns = (np.ones(len(result)), result.verified_nodes, result.growths, lent)
    return np.stack([result.by_request(np.asarray(column)) for column in columns], axis=1)


def _decided(contender: Contender, traces: Sequence[LoggedTrace], cost: CostProfile) -> _Decided | None:
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
    return _Decided(whole, np.concatenate(ms), np.concatenate(counts)) if whole.any() else None


def _rows(
    cost: CostProfile,
    task: str,
    prompts: _Prompts,
    plain: Float64Array,
    completed: dict[str, _Completed],
    decided: dict[str, _Decided | None],
    resamples: int,
    seed: int,
) -> list[EstimateRow]:
    """The rows of every policy under one profile, over all requests or those of one task."""
    chosen = np.ones(len(prompts.task), dtype=np.bool_) if task == "" else np.asarray(prompts.task == task)
    tokens, slow = float(prompts.tokens[chosen].sum()), prompts.summed(plain, chosen)
    first = next(iter(completed))
    found = []
    direct = {name: prompts.summed(one.ms, chosen) for name, one in completed.items()}
    weighted = {name: _weighted(one, prompts, plain, chosen) for name, one in decided.items()}
    for name, one in completed.items():
        counts = one.counts[chosen].sum(axis=0)
        ratio = None if name == first else estimated(DirectMethod(direct[name], direct[first]), resamples, seed)
        whole = DirectMethod(direct[name], np.broadcast_to(slow, direct[name].shape))
        found.append(
            EstimateRow(
                cost.name, name, task, "direct method", len(slow), None, float(counts[3] / counts[0]),
                tokens / float(counts[0]), float(counts[1] / counts[0]), float(counts[2] / counts[0]),
                estimated(whole, resamples, seed), ratio,
            )
        )  # fmt: skip
        mine, against, own = weighted[name], weighted[first], decided[name]
        if mine is None or own is None:
            continue
        shares = own.weight[chosen]
        sums, said = shares @ own.counts[chosen], float(shares @ prompts.tokens[chosen])
        ratio = None if name == first or against is None else estimated(RatioOf(mine, against), resamples, seed)
        found.append(
            EstimateRow(
                cost.name, name, task, "inverse propensity", int((mine.weight > 0).sum()), mine.effective_prompts, None,
                said / float(sums[0]), float(sums[1] / sums[0]), float(sums[2] / sums[0]),
                estimated(mine, resamples, seed), ratio,
            )
        )  # fmt: skip
    return found


def _weighted(
    one: _Decided | None, prompts: _Prompts, plain: Float64Array, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> SelfNormalizedInversePropensity | None:
    """By prompt; a prompt's weight is that of its requests together. None where none of them was decided."""
    if one is None or not one.weight[chosen].any():
        return None
    weight = prompts.summed(one.weight, chosen)
    safe = np.where(weight > 0, weight, 1.0)
    ms = np.where(weight > 0, prompts.summed(one.weight * one.ms, chosen) / safe, 1.0)
    return SelfNormalizedInversePropensity(weight, ms, prompts.summed(one.weight * plain, chosen) / safe)
