"""The cache that trees are written into and rolled back from."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.tiny import tiny_model
from treewise.data.errors import ParameterError
from treewise.engine.cache import TreeCache, TreeLayer, cache_argument


def states(count: int, start: int = 0, heads: int = 2, width: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values [1, heads, count, width] that name their place."""
    places = torch.arange(start, start + count, dtype=torch.float64)
    keys = places[None, None, :, None].expand(1, heads, count, width).clone()
    return keys, -keys


@given(
    base=st.integers(0, 6),
    rows=st.integers(0, 12),
    data=st.data(),
    capacity=st.integers(1, 8),
)
def test_keep_holds_the_base_and_the_slots_in_order(base: int, rows: int, data: st.DataObject, capacity: int) -> None:
    cache = TreeCache(2, capacity)
    for layer in cache.tree_layers:
        layer.update(*states(base + rows))
    slots = sorted(data.draw(st.sets(st.integers(base, base + rows - 1)) if rows else st.just(set())))
    cache.keep(base, slots)
    cache.check_integrity()
    assert cache.length == base + len(slots)
    for layer in cache.tree_layers:
        keys, values = layer.update(*states(1, 99))
        assert keys[0, 1, :, 0].tolist() == [*range(base), *slots, 99]
        assert (values == -keys).all()
        assert layer.get_seq_length() == base + len(slots) + 1
        assert layer.get_mask_sizes(4) == (base + len(slots) + 5, 0)
        assert layer.get_max_length() == -1


def test_buffers_widen_and_keep_what_they_held() -> None:
    layer = TreeLayer(2)
    for start in range(0, 9, 3):
        keys, _ = layer.update(*states(3, start))
    assert keys[0, 0, :, 2].tolist() == list(range(9))
    assert layer.capacity >= 9
    before = layer.keys.data_ptr()
    layer.keep(4, None, 0)
    layer.update(*states(2))
    assert layer.keys.data_ptr() == before  # what fits moves nothing


def test_integrity_is_checked() -> None:
    cache = TreeCache(2, 4)
    cache.tree_layers[0].update(*states(2))
    with pytest.raises(AssertionError):
        cache.check_integrity()


@pytest.mark.parametrize(("layers", "capacity", "message"), [(0, 4, "num_layers must be >= 1"), (1, 0, "capacity")])
def test_sizes_out_of_range(layers: int, capacity: int, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        TreeCache(layers, capacity)


def test_the_cache_goes_in_under_the_models_own_name() -> None:
    assert cache_argument(tiny_model()) in ("cache", "past_key_values")
