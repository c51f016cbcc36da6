"""An estimate for policies that did not write the log: live traces of pruned trees, and what others would have done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from treewise.data.cost import CostProfile
from treewise.data.errors import CoverageError, require
from treewise.policy.hook import TreePolicy
from treewise.training.ab import contenders_of, few_prompts, pair_differs, same_policy
from treewise.training.ab_report import ProfileOrigin
from treewise.training.completed_replay import check_completable
from treewise.training.contender import Contender
from treewise.training.estimate_report import EstimateReport, EstimateRow
from treewise.training.estimate_work import Completed, Decided, EstimateJob, writer_of
from treewise.training.logged_trace import LoggedTrace, check_distinct
from treewise.training.off_policy import DirectMethod, RatioOf, SelfNormalizedInversePropensity, estimated
from treewise.training.replay_result import Float64Array, plain_ms
from treewise.training.statistics import RESAMPLES
from treewise.training.workers import run_parts

IMPUTATIONS = 5


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
    workers: int = 1,
) -> EstimateReport:
    """What each policy would have done on the texts of live `traces`, by every estimator that applies to it.

    The direct method goes for all, the self-normalised inverse propensity for policies that were drawn to decide some
    of the requests. Nothing is exact, and nothing is judged. `advance` is told how many more of the requests x
    policies x profiles are done. `workers` processes share the policies of traces on disk; the result does not depend
    on how many. Raises `CoverageError` where a trace is dense (replay is exact there), of another
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
    seeds = tuple(seed * IMPUTATIONS + place for place in range(imputations))
    job = EstimateJob(tuple(traces), tuple(costs), tuple(contenders), seeds)
    count = workers if job.can_share else 1
    traces = [trace.in_memory() for trace in traces]
    for trace in traces:
        trace.check_priced_alone()
    if count == 1:
        job = replace(job, traces=tuple(traces))
    requests = [request for trace in traces for request in trace.requests]
    prompts = _Prompts(
        np.asarray([request.task for request in requests], dtype=np.str_),
        np.asarray([request.prompt_id for request in requests], dtype=np.str_),
        np.asarray([request.num_tokens for request in requests], dtype=np.float64),
    )
    answers = run_parts(job, range(len(contenders)), count, advance)
    rows: list[EstimateRow] = []
    unanswered: list[str] = []
    for place, cost in enumerate(costs):
        plain = np.asarray([plain_ms(request, cost) for request in requests])
        found = {contender.name: of[place] for contender, of in zip(contenders, answers, strict=True)}
        completed = {name: one.completed for name, one in found.items()}
        decided = {name: one.decided for name, one in found.items()}
        unanswered.extend(
            f"{name} reads prices, and asks under those of {cost.name} for more than it logged: no estimate from the "
            "requests that it decided"
            for name, one in found.items()
            if not one.is_answered
        )
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


def _rows(
    cost: CostProfile,
    task: str,
    prompts: _Prompts,
    plain: Float64Array,
    completed: dict[str, Completed],
    decided: dict[str, Decided | None],
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
    one: Decided | None, prompts: _Prompts, plain: Float64Array, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> SelfNormalizedInversePropensity | None:
    """By prompt; a prompt's weight is that of its requests together. None where none of them was decided."""
    if one is None or not one.weight[chosen].any():
        return None
    weight = prompts.summed(one.weight, chosen)
    safe = np.where(weight > 0, weight, 1.0)
    ms = np.where(weight > 0, prompts.summed(one.weight * one.ms, chosen) / safe, 1.0)
    return SelfNormalizedInversePropensity(weight, ms, prompts.summed(one.weight * plain, chosen) / safe)
