"""The torch noise is the numpy noise."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from treewise.data import noise as numpy_noise
from treewise.data.errors import ParameterError
from treewise.engine.noise import gumbel


@pytest.mark.parametrize(("seed", "position"), [(0, 0), (7, 1), (2**63 - 1, 4095), (-1, 2**31), (1 << 40, 131_072)])
def test_equals_numpy_bit_for_bit(seed: int, position: int) -> None:
    ids = torch.arange(200_000)
    ours = gumbel(seed, position, ids)
    assert ours.dtype == torch.float32
    theirs = numpy_noise.gumbel(seed, position, ids.numpy())
    assert np.array_equal(ours.numpy().view(np.int32), theirs.view(np.int32))


def test_largest_ids_do_not_overflow() -> None:
    ids = torch.tensor([[2**31 - 1, 2**32 - 1], [2**31, 0]])
    ours = gumbel(5, 6, ids)
    assert ours.shape == (2, 2)
    assert np.array_equal(ours.numpy(), numpy_noise.gumbel(5, 6, ids.numpy()))
    assert gumbel(5, 6, ids[1, 0]) == ours[1, 0] == numpy_noise.gumbel(5, 6, np.asarray(2**31))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_equals_numpy_on_the_gpu() -> None:
    ids = torch.arange(200_000, device="cuda")
    theirs = numpy_noise.gumbel(9, 77, np.arange(200_000))
    assert np.array_equal(gumbel(9, 77, ids).cpu().numpy().view(np.int32), theirs.view(np.int32))


def test_refuses_other_dtypes() -> None:
    with pytest.raises(ParameterError, match=r"tokens must be an int64 tensor, got torch\.int32"):
        gumbel(0, 0, torch.zeros(2, dtype=torch.int32))
