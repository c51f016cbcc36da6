"""Is tree speculation worth it here, how should it be set, and what is the ceiling?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from treewise.data.cost import CostProfile
from treewise.data.errors import TraceError
from treewise.policy.hook import DRAFT
from treewise.policy.plain import PlainPolicy
from treewise.training.ab_report import ProfileOrigin, speed_totals
from treewise.training.attribution import attribute
from treewise.training.contest import Contender, contest, oracle_tally
from treewise.training.cost_findings import cost_findings
from treewise.training.crossed_choice import Choices
from treewise.training.diagnosis import Diagnosis, Tried
from treewise.training.draft_findings import context_acceptance, draft_findings
from treewise.training.findings import Finding, Limits
from treewise.training.logged_trace import LoggedTrace
from treewise.training.policy_findings import LiveShares, accepted_length, draft_share, live_findings, overhead
from treewise.training.positions import positions_of
from treewise.training.statistics import RESAMPLES, speed_ratio, totals_by_prompt
from treewise.training.tally import Tally
from treewise.training.tune import reachable_specs

PLAIN = PlainPolicy.name
FAMILIES = ("chain", "topn", "frontier")
# Settings of `treewise.training.tune` that are tried: enough to say whether trees pay; `treewise tune` tries them all.
SMALL_GRID = frozenset(
    (
        *(f"chain:{length},sources={sources}" for length in (1, 2, 4, 8) for sources in ("all", "free")),
        *(f"topn:{nodes}x{depth},sources=all" for nodes in (8, 16, 32) for depth in (1, 2, 4)),
        *(f"topn:{nodes}x1,sources={sources}" for nodes in (8, 16, 32) for sources in ("all", "free")),
        *("topn:8x2,sources=draft", "topn:24x3,sources=draft"),
        *("frontier:sources=all", "frontier:sources=free", "frontier"),
    )
)


@dataclass(frozen=True, slots=True)
class Trial:
    """The small grid, replayed on one trace under one profile."""

    trace: LoggedTrace
    cost: CostProfile
    tallies: dict[str, Tally]  # by spec, the policy that was asked about among them
    choices: Choices  # of the grid alone, plain decoding included
    policy: str  # asked about; empty: none

    @property
    def advised(self) -> str:
        """The fastest setting of the grid, plain decoding among them."""
        return self.choices.best

    @property
    def looked_at(self) -> str:
        """The setting in use, else the fastest that guesses."""
        return self.policy or self.choices.only(tuple(spec for spec in self.choices.specs if spec != PLAIN)).best


def grid_of(trace: LoggedTrace, cost: CostProfile) -> tuple[str, ...]:
    """The settings of the small grid that `trace` can answer for, and plain decoding."""
    known, _ = reachable_specs([trace], cost, FAMILIES)
    return (*(spec for spec in known if spec in SMALL_GRID or not trace.sources & DRAFT), PLAIN)


def try_grid(
    trace: LoggedTrace, cost: CostProfile, policy: str = "", advance: Callable[[int], None] | None = None
) -> Trial:
    """Replay the small grid, and `policy` where one is named. `advance` is told how many more replays are done.

    Raises `TraceError` on a live trace, `CoverageError` and `PolicySpecError` on a policy that the trace cannot answer
    for.
    """
    if trace.manifest.kind != "dense":
        raise TraceError(f"trace {trace.name} must be dense, got a {trace.manifest.kind} one: `treewise collect`")
    specs = grid_of(trace, cost)
    contenders = [Contender.of(spec) for spec in dict.fromkeys((*specs, *([policy] if policy else [])))]
    found = contest(trace, [cost], contenders, advance=advance)
    tallies = {contender.name: found[0, contender.name] for contender in contenders}
    return Trial(trace, cost, tallies, Choices.of({spec: tallies[spec] for spec in specs}), policy)


def diagnose(
    trial: Trial,
    live: LiveShares | None = None,
    limits: Limits | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Diagnosis:
    """What `trial` and, where models ran, `live` say.

    Speed-ups are modelled: acceptance from the trace, milliseconds from the profile. The one that decides comes from
    leaving each prompt out of the choice of its setting, so that the choice does not flatter it; its interval is by
    prompt. With one prompt nothing is worth it: nobody could tell.
    """
    limits = limits or Limits()
    trace, cost, choices = trial.trace, trial.cost, trial.choices
    policy = trial.looked_at
    tally = trial.tallies[policy]
    found = positions_of([trace])
    has_draft = bool(trace.sources & DRAFT)
    drafting = [spec for spec in choices.specs if trial.tallies[spec].columns["growths"].sum() > 0]
    free = tuple(spec for spec in choices.specs if spec not in drafting)
    middle = int(np.median(found.context_tokens))
    findings = [accepted_length(policy, tally, cost, limits)]
    if drafting:
        asked = policy if tally.columns["growths"].sum() > 0 else choices.only(tuple(drafting)).best
        findings.append(draft_share(asked, trial.tallies[asked], live, limits))
        if free:
            findings.append(_draft_gain(choices, tuple(drafting), free, resamples, seed))
    findings += draft_findings(found, limits) if has_draft else ()
    findings += cost_findings(cost, middle, has_draft, limits)
    findings.append(context_acceptance(found, limits))
    findings.append(_task_spread(policy, tally, choices, limits))
    findings += overhead(policy, tally, cost, live, limits)
    findings += live_findings(live, _modelled(trial, live), limits)
    oracle = oracle_tally(trace, cost)
    return Diagnosis(
        acceptance=trace.origin,
        profile=ProfileOrigin.of(cost),
        prompts=len(choices.task),
        tokens=int(choices.tokens.sum()),
        tried=tuple(
            sorted((Tried.of(spec, trial.tallies[spec]) for spec in choices.specs), key=lambda row: -row.speedup)
        ),
        policy=policy,
        speedup=choices.unseen_speedup(resamples, seed),
        ceiling=speed_ratio(
            speed_totals(oracle),
            totals_by_prompt(oracle.prompt_id, oracle.columns["tokens"], oracle.plain_ms),
            resamples,
            seed,
        ),
        findings=tuple(findings),
        attribution=attribute([trace], resamples=resamples, seed=seed) if has_draft else None,
        live=live,
    )


def _modelled(trial: Trial, live: LiveShares | None) -> float:
    """Modelled speed-up of the policy that ran live; NaN where it was not replayed."""
    if live is None or live.policy not in trial.tallies:
        return float("nan")
    return Tried.of(live.policy, trial.tallies[live.policy]).speedup


def _draft_gain(
    choices: Choices, drafting: tuple[str, ...], free: tuple[str, ...], resamples: int, seed: int
) -> Finding:
    with_draft, without = choices.only(drafting), choices.only(free)
    gain = speed_ratio(with_draft.unseen_totals, without.unseen_totals, resamples, seed)
    return Finding(
        "draft gain",
        gain.value,
        f"speed of the best setting that drafts, {with_draft.best}, over that of the best that does not, "
        f"{without.best}: {gain}, each prompt under what the others choose",
        "the draft costs more than it brings beside the free sources: leave it out (`--draft none`, sources=free), or "
        "take a better or cheaper one",
        low=1.0,
    )


def _task_spread(policy: str, tally: Tally, choices: Choices, limits: Limits) -> Finding:
    tasks = sorted(set(tally.task.tolist()))
    per_round = {}
    for task in tasks:
        part = tally.of(np.asarray(tally.task == task)).columns
        per_round[task] = float(part["tokens"].sum() / part["rounds"].sum())
    most, fewest = (pick(tasks, key=per_round.__getitem__) for pick in (max, min))
    words = f"the texts are of one task, {most}"
    if len(tasks) > 1:
        words = (
            f"tokens a round of {policy}: {per_round[most]:.2f} on {most} over {per_round[fewest]:.2f} on {fewest}; a "
            f"setting for each task would be {choices.own_setting_gain():.3f} times as fast as one for all"
        )
    return Finding(
        "mix of tasks",
        per_round[most] / per_round[fewest] if len(tasks) > 1 else None,
        words,
        "acceptance depends on the kind of request: a policy that decides token by token (`treewise train`, then "
        "learned:DIR), or a setting for each kind (`treewise tune --task`)",
        high=limits.task_spread,
    )
