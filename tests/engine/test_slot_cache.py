"""Slots: written at places of their own, rolled back together, moved and widened."""

import pytest
import torch

from treewise.data.errors import ParameterError
from treewise.engine.slot_cache import SlotCache, Window

DEVICE = torch.device("cpu")


def rows(*values: int) -> torch.Tensor:
    """States [1, 1 head, rows, 1] that hold `values`."""
    return torch.tensor(values, dtype=torch.float64)[None, None, :, None]


def packed(first: int, count: int, width: int, parts: list[tuple[int, int]]) -> Window:
    """A window whose rows are written at (slot from `first`, place)."""
    slots, places = torch.tensor(parts).unbind(1)
    return Window(first, count, width, slots, places)


def held(cache: SlotCache, slot: int, length: int) -> list[int]:
    for layer in cache.slot_layers:
        assert torch.equal(layer.values[slot], -layer.keys[slot])
    return [int(value) for value in cache.slot_layers[-1].keys[slot, 0, :length, 0]]


@torch.inference_mode()
def write(cache: SlotCache, window: Window, states: torch.Tensor) -> torch.Tensor:
    cache.open(window)
    for layer in cache.slot_layers:
        keys, values = layer.update(states, -states)
    assert torch.equal(values, -keys)
    return keys


def test_each_slot_is_written_at_its_own_places() -> None:
    cache = SlotCache(num_layers=2, num_slots=3, capacity=4)
    write(cache, Window(0, 1, 2), rows(1, 2))
    write(cache, Window(2, 1, 3), rows(7, 8, 9))
    # two rows of slot 0, one of slot 2, in one pass; slot 1 lies between and is left alone
    seen = write(cache, packed(0, 3, 4, [(0, 2), (0, 3), (2, 3)]), rows(3, 4, 10))
    assert seen.shape == (3, 1, 4, 1)
    assert [held(cache, slot, 4) for slot in range(3)] == [[1, 2, 3, 4], [0, 0, 0, 0], [7, 8, 9, 10]]
    assert write(cache, packed(2, 1, 4, [(0, 3)]), rows(11)).flatten().tolist() == [7, 8, 9, 11]
    cache.check_integrity()


def test_rolling_back_moves_accepted_rows_up() -> None:
    cache = SlotCache(num_layers=2, num_slots=2, capacity=8)
    write(cache, Window(0, 1, 6), rows(0, 1, 2, 3, 4, 5))
    write(cache, Window(1, 1, 6), rows(10, 11, 12, 13, 14, 15))
    cache.keep([(0, 2, [2, 4, 5]), (1, 1, [1, 2])], DEVICE)
    assert held(cache, 0, 5) == [0, 1, 2, 4, 5]
    assert held(cache, 1, 3) == [10, 11, 12]
    cache.keep([(0, 1, [2, 3]), (1, 3, [])], DEVICE)
    assert held(cache, 0, 3) == [0, 2, 4]
    cache.take_over(0, 1, 3)
    assert held(cache, 0, 3) == [10, 11, 12]


def test_buffers_widen_and_keep_what_they_hold() -> None:
    cache = SlotCache(num_layers=1, num_slots=2, capacity=2)
    write(cache, Window(1, 1, 2), rows(1, 2))
    write(cache, packed(1, 1, 5, [(0, 2), (0, 4)]), rows(3, 5))
    assert cache.capacity >= 5
    assert held(cache, 1, 5) == [1, 2, 3, 0, 5]


@pytest.mark.parametrize("name", ["num_layers", "num_slots", "capacity"])
def test_empty_caches_are_refused(name: str) -> None:
    sizes = {"num_layers": 1, "num_slots": 1, "capacity": 1, name: 0}
    with pytest.raises(ParameterError, match=f"{name} must be >= 1"):
        SlotCache(**sizes)
