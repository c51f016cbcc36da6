"""Findings on what a policy does with its time, by replay under a cost profile and, where it ran, live."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from treewise.data.cost import CostProfile
from treewise.policy.registry import parse_policy
from treewise.training.findings import Finding, Limits
from treewise.training.replay_result import call_ms_of
from treewise.training.tally import Tally


@dataclass(frozen=True, slots=True)
class LiveShares:
    """What a policy did live on a few prompts, beside plain decoding; shares of decode time, prefill left out."""

    policy: str  # spec string
    prompts: int
    tokens: int
    tokens_per_round: float
    speedup: float  # over plain decoding, ratio of totals
    advised_speedup: float  # that of the advised setting, which may be the policy itself
    draft_share: float  # the draft's passes and reading them
    policy_share: float
    outside_share: float  # outside the models' forward passes
    fallback_share: float  # of rounds, finished by a fallback or never given to the policy
    differing: int  # prompts whose text is not plain decoding's

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        return {name: round(value, 6) if isinstance(value, float) else value for name, value in asdict(self).items()}


def accepted_length(spec: str, tally: Tally, cost: CostProfile, limits: Limits) -> Finding:
    """Accepted tokens a round beside those at which the round's time is just paid for."""
    rounds, tokens = tally.columns["rounds"].sum(), tally.columns["tokens"].sum()
    plain = tally.plain_ms.sum() / tokens  # of a token
    factor = tally.columns["ms"].sum() / rounds / plain
    return Finding(
        "accepted length",
        float(tokens / rounds - 1.0),
        f"tokens accepted a round by {spec}, the bonus token left out; its rounds take {factor:.2f} plain passes, so "
        f"that {factor - 1.0:.2f} just pay for them ({cost.name})",
        "rounds cost more than they bring: smaller trees, fewer draft levels, or plain decoding",
        low=round(float(factor - 1.0), 9),  # plain decoding pays for itself, whatever its sums round to
    )


def draft_share(spec: str, tally: Tally, live: LiveShares | None, limits: Limits) -> Finding:
    """Share of a round's time that goes into the draft, of a setting that uses it."""
    share = float(tally.columns["draft_ms"].sum() / tally.columns["ms"].sum())
    words = f"share of {spec}'s modelled time, {tally.columns['growths'].sum() / tally.columns['rounds'].sum():.2f} "
    words += "growths a round"
    if live is not None and live.policy == spec:
        share, words = live.draft_share, f"share of {spec}'s time live, {share:.3f} modelled"
    return Finding(
        "draft share",
        share,
        words,
        "drafting takes much of the time: a smaller draft (fewer layers, a cut head: `treewise distill`), fewer "
        "levels, or the free sources first (sources=free)",
        high=limits.draft_share,
    )


def overhead(spec: str, tally: Tally, cost: CostProfile, live: LiveShares | None, limits: Limits) -> list[Finding]:
    """The policy's own time, and everything outside the models."""
    columns = {name: float(values.sum()) for name, values in tally.columns.items()}
    calls_ms = call_ms_of(parse_policy(spec), cost) * columns["calls"]
    levels = max(columns["calls"] - 2.0 * columns["rounds"], 0.0)  # every round opens, and selects
    rest_ms = cost.round_ms * columns["rounds"] + cost.level_ms * levels
    policy, outside = calls_ms / columns["ms"], (calls_ms + rest_ms) / columns["ms"]
    words = f"share of {spec}'s modelled time"
    priced: float | None = outside
    if live is not None and live.policy == spec:
        policy, priced, words = live.policy_share, live.outside_share, f"share of {spec}'s time live"
    elif cost.round_ms == 0.0 and cost.level_ms == 0.0:
        priced = None
    return [
        Finding(
            "policy time",
            policy,
            f"{words}, in the policy's calls",
            "the policy's calls take too long: a compiled or smaller bundle (`treewise bench-policy`), fewer levels, "
            "or a rule",
            high=limits.policy_time,
        ),
        Finding(
            "outside the models",
            priced,
            f"{words}, outside the models" if priced is not None else f"profile {cost.name} has no price for it",
            "the loop around the models takes too long: fewer copies between device and host, tree and mask built "
            "while the models run, fewer levels a round",
            high=limits.outside_models,
        ),
    ]


def live_findings(live: LiveShares | None, modelled: float, limits: Limits) -> tuple[Finding, ...]:
    """Fallbacks, texts and whether the model of time holds; `modelled` is the speed-up by replay of what ran live."""
    missing = "needs live decoding: run without --trace"
    ran = "" if live is None else f"of {live.policy}, live on {live.prompts} prompts"
    return (
        Finding(
            "fallbacks",
            None if live is None else live.fallback_share,
            f"share of rounds {ran}, that a fallback finished or the policy was suspended in" if live else missing,
            "the policy fails or is slow: TREEWISE_TRACEBACK=1, and a longer time limit",
            high=limits.fallbacks,
        ),
        Finding(
            "texts that differ",
            None if live is None else float(live.differing),
            f"prompts {ran}, whose text is not plain decoding's" if live else missing,
            "another text means another attention result: see the margins with `treewise decode --compare-plain`; in "
            "half precision near ties move, in full precision it is a fault",
            high=0.0,
        ),
        Finding(
            "model of time",
            None if live is None or np.isnan(modelled) else live.speedup / modelled,
            f"speed-up {ran}, over the modelled one of {modelled:.3f}" if live else missing,
            "the cost profile does not hold here: measure it again on an idle machine, at the lengths that are served "
            "(`treewise profile`)",
            low=1.0 - limits.model_error,
            high=1.0 + limits.model_error,
        ),
    )
