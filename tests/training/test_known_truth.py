"""Replay against a world whose truth is known: its expectation, the coverage of its intervals, a wrong way to do it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tests.training.burst_world import (
    BURST_COST,
    LENGTHS,
    BurstWorld,
    Float64Array,
    all_texts,
    burst_trace,
    independent_rounds,
    round_ms,
)
from treewise.training.contest import Contender, contest
from treewise.training.statistics import (
    Estimator,
    SpeedRatio,
    Totals,
    bootstrap,
    interval,
    log_spread,
    prompts_needed,
)
from treewise.training.tally import Tally
from treewise.training.verdict import judge

WORLD = BurstWorld()
SHAPES = {"chain:3,sources=draft": (1, 3), "static:2x2,sources=draft": (2, 2), "plain": (1, 0)}
CHAIN, STATIC, PLAIN = SHAPES
SEEDS, PROMPTS = 100, 320


@dataclass(frozen=True, slots=True)
class PooledMarginals:
    """The wrong estimator: one match rate for all positions, survival its powers.

    Speed-up = plain ms / (rounds at rate sum hits / sum positions, tokens matching independently x ms of a round). By
    prompt: hits, positions. Wherever easy and hard tokens come in stretches, their matches are not independent.
    """

    hits: Float64Array  # [prompts]
    positions: Float64Array  # [prompts]
    width: int
    depth: int

    @property
    def by_prompt(self) -> Float64Array:
        """[prompts, 2]."""
        return np.stack([self.hits, self.positions], axis=1)

    def value(self, times: Float64Array) -> Float64Array:
        """[draws]."""
        sums = times @ self.by_prompt
        rounds = independent_rounds(sums[:, 0] / sums[:, 1], self.depth)
        plain = float(np.mean(LENGTHS)) * BURST_COST.plain_ms()
        return np.asarray(plain / (rounds * round_ms(self.width, self.depth)))


@pytest.fixture(scope="module")
def texts() -> list[tuple[int, ...]]:
    return all_texts()


@pytest.fixture(scope="module")
def chances(texts: list[tuple[int, ...]]) -> Float64Array:
    return np.asarray([WORLD.probability(text) for text in texts])


@pytest.fixture(scope="module")
def tallies(texts: list[tuple[int, ...]]) -> dict[str, Tally]:
    """Every text, replayed once by every policy; a prompt's replay depends on its own text alone."""
    found = contest(burst_trace(texts), [BURST_COST], [Contender.of(spec) for spec in SHAPES])
    return {spec: found[0, spec] for spec in SHAPES}


def totals(tally: Tally, drawn: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Totals:
    """The prompts `drawn`, by number of their text; the same text may be the answer to several."""
    return Totals(tally.columns["tokens"][drawn], tally.columns["ms"][drawn])


def test_the_world_is_one(texts: list[tuple[int, ...]], chances: Float64Array) -> None:
    assert chances.sum() == pytest.approx(1.0)
    assert [request.num_tokens for request in burst_trace(texts[8:10]).requests] == list(LENGTHS)


@pytest.mark.parametrize("spec", SHAPES)
def test_replay_expects_what_dynamic_programming_does(
    spec: str, tallies: dict[str, Tally], chances: Float64Array
) -> None:
    width, depth = SHAPES[spec]
    columns = tallies[spec].columns
    rounds, ms = float(chances @ columns["rounds"]), float(chances @ columns["ms"])
    assert rounds == pytest.approx(WORLD.expected_rounds(width, depth))
    assert float(chances @ tallies[spec].plain_ms) / ms == pytest.approx(WORLD.speedup(width, depth))


def coverage(tallies: dict[str, Tally], chances: Float64Array, texts: list[tuple[int, ...]]) -> dict[str, int]:
    """In how many of `SEEDS` drawn sets of prompts an interval holds the truth, by estimator."""
    hits = np.asarray([text.count(0) for text in texts])
    lengths = np.asarray([len(text) for text in texts])
    truth = {spec: WORLD.speedup(*SHAPES[spec]) for spec in SHAPES}
    found = dict.fromkeys(("chain", "static to chain", "pooled marginals"), 0)
    for seed in range(SEEDS):
        drawn = np.random.default_rng([17, seed]).choice(len(texts), size=PROMPTS, p=chances / chances.sum())
        chain, static, plain = (totals(tallies[spec], drawn) for spec in (CHAIN, STATIC, PLAIN))
        asked: dict[str, tuple[Estimator, float]] = {
            "chain": (SpeedRatio(chain, plain), truth[CHAIN]),
            "static to chain": (SpeedRatio(static, chain), truth[STATIC] / truth[CHAIN]),
            "pooled marginals": (PooledMarginals(hits[drawn], lengths[drawn], *SHAPES[CHAIN]), truth[CHAIN]),
        }
        for name, (estimator, value) in asked.items():
            bounds = interval(estimator, seed=seed)
            found[name] += bounds.low <= value <= bounds.high
    return found


@pytest.mark.slow
def test_intervals_of_replay_hold_the_truth_and_those_of_pooled_marginals_do_not(
    tallies: dict[str, Tally], chances: Float64Array, texts: list[tuple[int, ...]]
) -> None:
    found = coverage(tallies, chances, texts)
    assert found["chain"] >= 90 and found["static to chain"] >= 90, found
    assert found["pooled marginals"] < 50, found


def test_pooled_marginals_are_right_where_matches_are_independent() -> None:
    even = BurstWorld(stay=0.5)
    rate = even.hits(1).mean(keepdims=True)
    assert independent_rounds(rate, 3)[0] == pytest.approx(even.expected_rounds(1, 3))
    assert abs(independent_rounds(WORLD.hits(1).mean(keepdims=True), 3)[0] / WORLD.expected_rounds(1, 3) - 1.0) > 0.05


def test_a_family_of_verdicts_errs_seldom(
    tallies: dict[str, Tally], chances: Float64Array, texts: list[tuple[int, ...]]
) -> None:
    """Ten comparisons of equals at once: a policy is called better or worse than itself on other prompts.

    At 5 % a family, more than 9 of 60 errs with probability below 0.1 %.
    """
    errors = 0
    for seed in range(60):
        rng = np.random.default_rng([18, seed])
        drawn = rng.choice(len(texts), size=(11, 60), p=chances / chances.sum())
        first, *others = (totals(tallies[CHAIN], one) for one in drawn)
        kinds = {found.verdict.kind for found in judge([SpeedRatio(other, first) for other in others], seed=seed)}
        errors += bool(kinds & {"better", "worse"})
    assert errors <= 9


def test_the_planned_number_of_prompts_shows_the_difference_as_often_as_planned(
    tallies: dict[str, Tally], chances: Float64Array, texts: list[tuple[int, ...]]
) -> None:
    """200 experiments of the planned size at 80 % power; outside 140 to 180 has probability below 0.1 % at 80 %."""
    rng = np.random.default_rng(19)
    many = rng.choice(len(texts), size=400, p=chances / chances.sum())
    spread = log_spread(bootstrap(SpeedRatio(*(totals(tallies[one], many) for one in (STATIC, CHAIN)))), len(many))
    truth = WORLD.speedup(*SHAPES[STATIC]) / WORLD.speedup(*SHAPES[CHAIN])
    needed = prompts_needed(spread, truth - 1.0)
    shown = 0
    for seed in range(200):
        drawn = rng.choice(len(texts), size=needed, p=chances / chances.sum())
        bounds = interval(SpeedRatio(*(totals(tallies[one], drawn) for one in (STATIC, CHAIN))), seed=seed)
        shown += bounds.low > 1.0
    assert 140 <= shown <= 185, (needed, shown)
