"""A world of easy and hard stretches whose draft says how sure it is, and logs of it that a greedy policy pruned."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from tests.training.burst_world import BURST_COST, full_trees
from tests.training.pruned_logs import drawn, pruned
from tests.training.worlds import GrowAll
from treewise.policy.hook import DRAFT, Expansion, Level, Reach
from treewise.training.ab import ab
from treewise.training.logged_trace import LoggedTrace

GREEDY = "sure chain"
EXPLORER = "chain:4,sources=draft"
PROMPTS, TOKENS = 300, 16


class SureChain(GrowAll):
    """A path of the draft's first guesses that ends where the draft was not sure: the last guess is kept, not grown."""

    spec = GREEDY

    @property
    def reach(self) -> Reach:
        """As deep as the world's trees."""
        return Reach(4, 1)

    def expand(self, level: Level) -> Expansion:
        """Below the root always; below a first guess where it is likely."""
        candidates = level.candidates
        first = (candidates.depth == 0) | (candidates.draft_rank == 0)
        grows = first & ((candidates.depth == 0) | (candidates.draft_prob >= 0.8))
        return Expansion(first, np.where(grows, candidates.may_grow & DRAFT, 0).astype(np.uint8))


@dataclass(frozen=True, slots=True)
class StretchWorld:
    """A token's draft guess is right with a probability that its stretch has; the draft's confidence follows it."""

    stay: float = 0.9
    hit: tuple[float, float] = (0.97, 0.5)  # of the first guess in easy and hard stretches
    sure: tuple[float, float] = (0.92, 0.5)  # mean probability that the draft gives it
    spread: tuple[float, float] = (0.03, 0.08)

    def dense(self, seed: int, prompts: int, tokens: int) -> LoggedTrace:
        """A dense trace of `prompts` answers."""
        rng = np.random.default_rng(seed)
        answers, firsts = [], []
        for _ in range(prompts):
            moved = rng.random(tokens) > self.stay
            hard = (int(rng.random() < 0.5) + np.cumsum(moved)) % 2
            missed = rng.random(tokens) >= np.asarray(self.hit)[hard]
            answers.append((missed * rng.integers(1, 3, size=tokens)).astype(np.int64))
            sure = np.asarray(self.sure)[hard] + np.asarray(self.spread)[hard] * rng.standard_normal(tokens)
            firsts.append(np.clip(sure, 0.05, 0.98))
        return full_trees(answers, 2, 4, firsts, "length")


POLICIES = (SureChain(), EXPLORER, "static:2x2,sources=draft")


@cache
def pool() -> LoggedTrace:
    """Every prompt that tests draw from, densely logged."""
    return StretchWorld().dense(0, PROMPTS, TOKENS)


@cache
def truth() -> dict[str, float]:
    """Speed-up of each of `POLICIES` over plain decoding on all of them, by exact replay."""
    report = ab([pool()], [BURST_COST], POLICIES)
    return {row.policy: row.speedup.value for row in report.select(BURST_COST.name)}


@cache
def _log_of(name: str) -> LoggedTrace:
    return pruned(pool(), name, make={GREEDY: SureChain})


def greedy_log(seed: int, prompts: int, explored: float = 0.0) -> LoggedTrace:
    """What `GREEDY` logged of `prompts` drawn ones; a share `explored` of them was decided by `EXPLORER`."""
    chosen = _drawn_places(seed, prompts)
    return _log(chosen, drawn(seed, prompts, explored, [EXPLORER]) if explored else [("", 1.0)] * prompts)


def routed_log(seed: int, prompts: int, explored: float) -> LoggedTrace:
    """The same where `EXPLORER` did not get drawn prompts but those with most hits, under the same propensities."""
    chosen = _drawn_places(seed, prompts)
    hits = [int((pool().requests[place].text == 0).sum()) for place in chosen]
    easiest = set(np.argsort(hits)[prompts - round(explored * prompts) :].tolist())
    return _log(chosen, [(EXPLORER, explored) if at in easiest else ("", 1.0 - explored) for at in range(prompts)])


def _drawn_places(seed: int, prompts: int) -> list[int]:
    places: list[int] = np.random.default_rng([seed, 1]).choice(PROMPTS, prompts, replace=False).tolist()
    return places


def _log(chosen: Sequence[int], deciders: Sequence[tuple[str, float]]) -> LoggedTrace:
    requests = []
    for place, (explorer, propensity) in zip(chosen, deciders, strict=True):
        request = copy.copy(_log_of(explorer or GREEDY).requests[place])
        request.explorer, request.propensity = explorer, propensity
        requests.append(request)
    return replace(_log_of(GREEDY), requests=tuple(requests))
