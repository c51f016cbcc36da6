"""The verification rule: the law of its tokens, and agreement with a second implementation.

Every chi-square below is held against the quantile that a right implementation passes with probability 1 - 1e-6, so
the file as a whole raises a false alarm less than once in 50,000 changes of the noise; under fixed noise it never does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.engine.tiny import NARROW, example_cost, lax_settings, next_logits, say, tiny_pair
from treewise.data.errors import ModelOutputError, ParameterError
from treewise.data.noise import gumbel, mix, opening_word
from treewise.engine.decode import Engine
from treewise.engine.sampling import Sampling, entropy_and_margin, target_token, warp
from treewise.policy.everything import EverythingPolicy

LOGITS = torch.tensor([1.2, -0.3, 0.4, 2.0, -1.1], dtype=torch.float64)
SEEDS = 20_000


def chi_square_limit(degrees: int) -> float:
    """A bound that chi-square with `degrees` degrees of freedom exceeds with probability at most 1e-6.

    Laurent and Massart (2000), lemma 1: P(X >= d + 2 sqrt(d x) + 2 x) <= exp(-x).
    """
    x = float(np.log(1e6))
    return float(degrees + 2 * np.sqrt(degrees * x) + 2 * x)


def check_law(counts: NDArray[np.int64], probs: NDArray[np.float64]) -> None:
    """Assert that `counts` were drawn from `probs`; cells with probability 0 stay empty."""
    assert counts[probs == 0].sum() == 0
    expected = probs[probs > 0] * counts.sum()
    assert expected.min() >= 5  # the approximation holds
    found = float(((counts[probs > 0] - expected) ** 2 / expected).sum())
    assert found <= chi_square_limit(len(expected) - 1)


def law(logits: torch.Tensor, temperature: float, keep: Sequence[int]) -> NDArray[np.float64]:
    """Softmax at `temperature` over the tokens `keep`."""
    weights = np.zeros(len(logits))
    scaled = logits.numpy()[list(keep)] / temperature
    weights[list(keep)] = np.exp(scaled - scaled.max())
    return np.asarray(weights / weights.sum())


def fast_tokens(sampling: Sampling, seeds: Sequence[int], positions: Sequence[int]) -> NDArray[np.int64]:
    """`target_token` at every pair of seed and position, with one warp for all of them."""
    tokens, scores = warp(LOGITS, sampling)
    ids = tokens.numpy()
    said = ids[np.argmax(scores.to(torch.float32).numpy() + noise_of(seeds, positions, ids), axis=1)]
    for place in range(0, len(said), max(len(said) // 200, 1)):  # the short cut says what the rule says
        here = Sampling(sampling.temperature, sampling.top_k, sampling.top_p, seeds[place])
        assert target_token(LOGITS, positions[place], here) == said[place]
    return np.asarray(said)


def noise_of(seeds: Sequence[int], positions: Sequence[int], tokens: NDArray[np.int64]) -> NDArray[np.float32]:
    """Gumbel noise [pairs of seed and position, tokens] in one go."""
    words = np.asarray([opening_word(*pair) for pair in zip(seeds, positions, strict=True)], dtype=np.uint64)
    uniform = (mix(words[:, None], tokens.astype(np.uint64)[None]).astype(np.float64) + 0.5) * 2.0**-32
    return np.asarray(-np.log(-np.log(uniform)), dtype=np.float32)


@pytest.mark.parametrize(
    ("sampling", "keep"),
    [
        (Sampling(1.0), range(5)),
        (Sampling(0.6), range(5)),
        (Sampling(1.7), range(5)),
        (Sampling(1.0, top_k=3), (0, 2, 3)),
        (Sampling(1.0, top_p=0.7), (0, 3)),
        (Sampling(2.0, top_k=4, top_p=0.8), (0, 2, 3)),
        (Sampling(1.0, top_k=1), (3,)),
    ],
)
def test_tokens_follow_the_law_along_seeds(sampling: Sampling, keep: Sequence[int]) -> None:
    said = fast_tokens(sampling, range(SEEDS), [17] * SEEDS)
    check_law(np.bincount(said, minlength=5), law(LOGITS, sampling.temperature, keep))


def test_tokens_follow_the_law_along_positions() -> None:
    said = fast_tokens(Sampling(1.0, seed=5), [5] * SEEDS, range(SEEDS))
    check_law(np.bincount(said, minlength=5), law(LOGITS, 1.0, range(5)))
    # Neighbours in position share nothing: pairs follow the product law.
    pairs = np.bincount(said[0::2] * 5 + said[1::2], minlength=25)
    one = law(LOGITS, 1.0, range(5))
    check_law(pairs, np.outer(one, one).reshape(-1))


def test_neighbouring_seeds_share_nothing() -> None:
    said = fast_tokens(Sampling(1.0), range(SEEDS), [3] * SEEDS)
    one = law(LOGITS, 1.0, range(5))
    check_law(np.bincount(said[0::2] * 5 + said[1::2], minlength=25), np.outer(one, one).reshape(-1))


def test_noise_is_even_along_tokens() -> None:
    """Over equal logits every token of a large vocabulary is said equally often."""
    said = np.argmax(noise_of(range(SEEDS), [9] * SEEDS, np.arange(50)), axis=1)
    check_law(np.bincount(said, minlength=50), np.full(50, 1 / 50))


def test_two_tokens_through_a_tree_follow_the_joint_law() -> None:
    """Whole requests of two tokens, decoded with a tree, against the product of the target's own softmaxes."""
    pair = tiny_pair("none", seed=6, vocab_size=5)
    prompt, seeds = [1, 4, 2, 1, 4, 3, 1, 4], 1_500  # the lookup offers 2 and 3, a branch each
    first = torch.from_numpy(next_logits(pair.target, prompt)).numpy() / 1.3
    joint = np.zeros((5, 5))
    for token in range(5):
        second = next_logits(pair.target, [*prompt, token]) / 1.3
        joint[token] = np.exp(second) / np.exp(second).sum() * (np.exp(first) / np.exp(first).sum())[token]
    engine = Engine(pair, EverythingPolicy(), example_cost(), lax_settings(envelope=NARROW))
    counts: Counter[tuple[int, ...]] = Counter()
    accepted = nodes = 0
    for seed in range(seeds):
        completion = engine.generate(prompt, 2, Sampling(1.3, seed=seed))
        counts[completion.tokens] += 1
        accepted += completion.num_rounds == 1
        nodes += completion.verified_nodes[0]
    assert 0 < accepted < seeds  # both ways of committing the second token were taken
    assert nodes == 2 * seeds
    found = np.asarray([counts[(one, two)] for one in range(5) for two in range(5)])
    probs = joint.reshape(-1)
    rare = probs * seeds < 5  # pooled into one cell
    if rare.any():
        found = np.append(found[~rare], found[rare].sum())
        probs = np.append(probs[~rare], probs[rare].sum())
        if probs[-1] * seeds < 5:
            assert found[-1] <= 40  # Poisson of mean below 5: one in 1e20
            found, probs = found[:-1], probs[:-1] / probs[:-1].sum()
    check_law(found, probs)


@given(
    st.lists(st.floats(-8, 8, width=32), min_size=2, max_size=12, unique=True),
    st.sampled_from([0.5, 1.0, 1.5]),
    st.integers(0, 14),
    st.sampled_from([1.0, 0.9, 0.4]),
    st.integers(0, 2**63 - 1),
    st.integers(0, 100_000),
)
def test_both_implementations_say_the_same(
    logits: list[float], temperature: float, top_k: int, top_p: float, seed: int, position: int
) -> None:
    sampling = Sampling(temperature, top_k, top_p, seed)
    values = np.asarray(logits, dtype=np.float64)
    tokens, scores = warp(torch.from_numpy(values), sampling)
    noisy = np.sort(scores.numpy() + gumbel(seed, position, tokens.numpy()))
    mass = np.cumsum(np.sort(np.exp(values / temperature))[::-1])
    edge = np.abs(mass / mass[-1] - top_p).min() < 1e-5 or (len(noisy) > 1 and noisy[-1] - noisy[-2] < 1e-5)
    tied = np.diff(np.sort(values)).min() < 1e-5
    # A token within rounding of the nucleus' edge, or of its neighbour in rank, may fall on either side.
    if not (tied or (edge and top_p < 1.0)):
        assert target_token(torch.from_numpy(values), position, sampling) == say(values, position, sampling)
    greedy = target_token(torch.from_numpy(values), position, Sampling())
    assert greedy == say(values, position, Sampling()) == int(values.argmax())


def direct(logits: NDArray[np.float32], position: int, sampling: Sampling) -> int:
    """The rule word by word: every token's noise, every token's sum, the lowest id among equals."""
    noisy = logits / np.float32(sampling.temperature) + gumbel(sampling.seed, position, np.arange(len(logits)))
    return int(np.argmax(noisy))


LEVELS = [0.0, 0.5, 3.0, -3.0, 30.0, 1e6, 1.00001e6, -1e6, 1e30, -np.inf]


@given(
    st.lists(st.sampled_from(LEVELS), min_size=1, max_size=6),
    st.integers(600, 3000),
    st.sampled_from([1e-6, 0.3, 1.0, 5.0, 1e5]),
    st.integers(0, 2**63 - 1),
    st.integers(0, 100_000),
)
def test_the_fast_search_says_what_the_formula_says(
    levels: list[float], size: int, temperature: float, seed: int, position: int
) -> None:
    """Few levels, so that many scores tie, before or after the noise is rounded away."""
    logits = np.asarray(levels, dtype=np.float32)[np.arange(size) * 7919 % len(levels)]
    logits[size // 2] = max(levels[0], -1.0)  # one at least is finite
    sampling = Sampling(temperature, seed=seed)
    with np.errstate(over="ignore"):
        expected = direct(logits, position, sampling)
    assert target_token(torch.from_numpy(logits), position, sampling) == expected


@pytest.mark.parametrize("spread", [0.0, 1e-3, 1.0, 4.0, 40.0])
def test_the_fast_search_over_a_whole_vocabulary(spread: float) -> None:
    draw = np.random.default_rng(3)
    for position in range(12):
        logits = (draw.normal(size=49_152) * spread).astype(np.float32)
        for temperature in (0.2, 1.0, 1.7):
            sampling = Sampling(temperature, seed=position)
            found = target_token(torch.from_numpy(logits), position, sampling)
            assert found == direct(logits, position, sampling)


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_every_float_type_is_read(kind: torch.dtype) -> None:
    logits = torch.randn(900, generator=torch.Generator().manual_seed(2)).to(kind)
    single = logits.to(torch.float32).numpy()
    assert target_token(logits, 4, Sampling()) == int(logits.to(torch.float64).numpy().argmax())
    assert target_token(logits, 4, Sampling(0.9, seed=3)) == direct(single, 4, Sampling(0.9, seed=3))


def test_warp_keeps_tokens_in_rising_order() -> None:
    tokens, scores = warp(LOGITS, Sampling(2.0, top_k=3))
    assert tokens.tolist() == [0, 2, 3]
    assert scores.tolist() == pytest.approx([0.6, 0.2, 1.0])
    assert warp(LOGITS, Sampling(1.0, top_k=99))[0].tolist() == [0, 1, 2, 3, 4]
    assert warp(LOGITS, Sampling(1.0, top_p=1e-9))[0].tolist() == [3]  # the first always stays


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0), Sampling(1.0, top_k=1), Sampling(1.0, 3, 0.6)])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nan_and_infinity_are_errors(sampling: Sampling, bad: float) -> None:
    logits = LOGITS.clone()
    logits[1] = bad
    with pytest.raises(ModelOutputError, match=r"target logits must be finite, got .* at position 12"):
        target_token(logits, 12, sampling)
    with pytest.raises(ModelOutputError, match="must be finite, got -inf"):
        target_token(torch.full((4,), -float("inf")), 12, sampling)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0), Sampling(1.0, top_k=2), Sampling(1.0, 4, 0.9)])
def test_minus_infinity_is_never_said(sampling: Sampling) -> None:
    logits = torch.full((6,), -float("inf"))
    logits[4] = 0.5
    assert {target_token(logits, position, sampling) for position in range(20)} == {4}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": -1.0}, "temperature must be finite and >= 0, got -1.0"),
        ({"temperature": float("nan")}, "temperature must be finite and >= 0, got nan"),
        ({"temperature": float("inf")}, "temperature must be finite and >= 0, got inf"),
        ({"temperature": 1e-40}, "temperature must be 0 or at least 1e-06, got 1e-40"),
        ({"top_k": -2}, "top_k must be >= 0"),
        ({"top_k": 2.5}, "top_k must be a whole number, got 2.5"),
        ({"seed": 1.5}, "seed must be a whole number, got 1.5"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1, got 0.0"),
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1, got 1.5"),
        ({"min_p": -0.1}, "min_p must be between 0 and 1, got -0.1"),
        ({"min_p": float("nan")}, "min_p must be between 0 and 1, got nan"),
        ({"typical_p": 0.0}, "typical_p must be above 0 and at most 1, got 0.0"),
        ({"seed": -1}, "seed must be between 0 and"),
        ({"seed": 2**63}, "seed must be between 0 and"),
    ],
)
def test_settings_out_of_range(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ParameterError, match=message.replace("*", r"\*")):
        Sampling(**arguments)  # type: ignore[arg-type]


def test_a_share_below_float32_leaves_the_best() -> None:
    logits = torch.tensor([0.0, 3.0, 1.0])
    sampling = Sampling(temperature=1.0, top_p=1e-300, seed=4)
    assert warp(logits, sampling)[0].tolist() == [1]
    assert target_token(logits, 7, sampling) == 1


def test_the_lowest_temperature_is_greedy() -> None:
    logits = torch.tensor([900.0, 1000.0, 999.0])
    assert {target_token(logits, place, Sampling(temperature=1e-6)) for place in range(50)} == {1}


def test_entropy_and_margin() -> None:
    rows = torch.tensor([[0.0, 0.0, 0.0, 0.0], [50.0, 0.0, -50.0, -100.0], [1.0, 1.0, -float("inf"), -float("inf")]])
    entropy, margin = entropy_and_margin(rows)
    assert entropy.tolist() == pytest.approx([2.0, 0.0, 1.0], abs=1e-6)
    assert margin.tolist() == pytest.approx([0.0, 1.0, 0.0], abs=1e-6)
    entropy, margin = entropy_and_margin(torch.tensor([[float("nan"), 0.0, 1.0]]))
    assert entropy.isnan().all() and margin.isnan().all()
    assert entropy_and_margin(torch.zeros(1, 1))[1].tolist() == [1.0]
