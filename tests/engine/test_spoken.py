"""What the target says behind every row, read in one copy: the tokens, signals and errors of reading row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from treewise.data.errors import ModelOutputError
from treewise.data.noise import gumbel as numpy_gumbel
from treewise.engine import host
from treewise.engine.noise import gumbel_rows
from treewise.engine.sampling import Sampling, entropy_and_margin, target_token
from treewise.engine.spoken import can_read_together, read_spoken
from treewise.engine.top_guesses import top_guesses


def scores(rows: int, size: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return (3.0 * torch.randn(rows, size, generator=torch.Generator().manual_seed(seed))).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [5, 300, 20000])
def test_every_row_says_what_it_says_alone(dtype: torch.dtype, size: int) -> None:
    logits = scores(9, size, dtype)
    samplings = (Sampling(), Sampling(0.8, seed=3), Sampling(1.3, seed=2**40 + 1))
    positions, owners = np.arange(50, 59, dtype=np.int32), np.asarray([0, 1, 2] * 3, dtype=np.int32)
    positions[4] = positions[1]  # two rows at one place of one request share their noise
    spoken = read_spoken(logits, positions, owners, samplings)
    for row in range(9):
        expected = target_token(logits[row], int(positions[row]), samplings[owners[row]])
        assert spoken.token_at(row, int(positions[row])) == expected
    entropy, margin = entropy_and_margin(logits)
    assert np.array_equal(spoken.entropy, entropy.numpy()) and np.array_equal(spoken.margin, margin.numpy())
    best = top_guesses(logits)
    part = spoken.top_at(np.asarray([7, 2]))
    assert np.array_equal(part.tokens, best.tokens[[7, 2]]) and np.array_equal(part.probs, best.probs[[7, 2]])
    assert part.tokens.dtype == np.int64 and part.tokens.shape == (2, min(8, size))


def test_it_takes_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[int] = []

    def counting(values: torch.Tensor, real: Any = host.to_host) -> NDArray[Any]:
        copies.append(values.numel())
        return np.asarray(real(values))

    monkeypatch.setattr(host, "to_host", counting)
    read_spoken(
        scores(4, 100, torch.float32), np.arange(4, dtype=np.int32), np.zeros(4, dtype=np.int32), [Sampling(1.0)]
    )
    assert copies == [4 * (4 + 8 + 8)]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_row_that_is_not_finite_is_an_error_where_it_is_asked(value: float) -> None:
    logits = scores(3, 50, torch.float32)
    logits[1, 7 if value != -float("inf") else slice(None)] = value
    spoken = read_spoken(logits, np.arange(3, dtype=np.int32), np.zeros(3, dtype=np.int32), [Sampling()])
    assert spoken.token_at(0, 0) == int(logits[0].argmax())
    with pytest.raises(ModelOutputError, match=r"target logits must be finite, got .* at position 12"):
        spoken.token_at(1, 12)


def test_a_token_that_is_never_said_is_no_error() -> None:
    logits = scores(1, 50, torch.float32)
    logits[0, 3] = -float("inf")
    spoken = read_spoken(logits, np.asarray([4], dtype=np.int32), np.zeros(1, dtype=np.int32), [Sampling(2.0, seed=1)])
    assert spoken.token_at(0, 4) == target_token(logits[0], 4, Sampling(2.0, seed=1)) != 3


def test_noise_of_several_places_is_that_of_each() -> None:
    tokens = torch.arange(5000)
    places = [(0, 0), (7, 31), (2**62 + 5, 1000), (7, 32)]
    made = gumbel_rows(places, tokens)
    for row, (seed, position) in zip(made, places, strict=True):
        assert np.array_equal(row.numpy(), numpy_gumbel(seed, position, tokens.numpy()))


def test_top_k_and_the_like_are_cut_on_the_host() -> None:
    assert can_read_together([Sampling(), Sampling(0.7, seed=9)])
    assert not can_read_together([Sampling(), Sampling(0.7, top_k=5)])
    assert not can_read_together([Sampling(0.7, top_p=0.9)])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_says_the_same() -> None:
    logits = scores(6, 50000, torch.float32)
    positions, owners = np.arange(6, dtype=np.int32), np.zeros(6, dtype=np.int32)
    for sampling in (Sampling(), Sampling(0.9, seed=5)):
        here, there = (read_spoken(part, positions, owners, [sampling]) for part in (logits, logits.cuda()))
        assert np.array_equal(here.tokens, there.tokens)
