"""Which cost profile a command uses, and what it says about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from treewise.data.cost import CostProfile, check_device
from treewise.data.errors import CostProfileError
from treewise.engine.pair import Pair
from treewise.profiles import find_cost, mismatch, quick_settings, store, stored_path

EXAMPLE = CostProfile.load("example-a100-70b")


def test_a_profile_of_another_device_or_pair_names_both() -> None:
    found = replace(EXAMPLE, name="mine", device="H200", pair="big+small")
    assert check_device(found, "H200", "big+small") is None
    line = check_device(found, "a laptop", "big+small")
    assert line is not None
    assert "measured on H200, this is a laptop" in line
    assert "pair" not in line
    line = check_device(found, "H200", "big+none")
    assert line == "cost profile mine is for another deployment: measured with pair big+small, this is big+none"


@pytest.mark.usefixtures("home", "quickly")
def test_without_a_profile_one_is_measured_and_kept(pair: Pair) -> None:
    warned: list[str] = []
    noted: list[str] = []
    first = find_cost(pair, "", warned.append, noted.append)
    assert stored_path(pair).is_file()
    assert "measuring a quick one" in noted[0]
    assert str(stored_path(pair)) in noted[1]
    assert mismatch(first, pair) is None
    assert find_cost(pair, "", warned.append, noted.append) == first
    assert len(noted) == 2
    assert warned == []


def test_a_stored_profile_of_another_device_is_told(home: Path, pair: Pair) -> None:
    path = stored_path(pair)
    assert path.parent == home / "profiles"
    store(replace(EXAMPLE, device="another machine", pair=pair.name), path)
    warned: list[str] = []
    assert find_cost(pair, "", warned.append, warned.append).device == "another machine"
    (line,) = warned
    assert "measured on another machine, this is" in line


def test_a_named_profile_must_be_there(pair: Pair, tmp_path: Path) -> None:
    with pytest.raises(CostProfileError, match="cost must be a file that exists"):
        find_cost(pair, tmp_path / "none.json")


def test_without_a_listener_it_is_a_python_warning(pair: Pair) -> None:
    with pytest.warns(UserWarning, match="measured on A100, 70B target"):
        assert find_cost(pair, "example-a100-70b") == EXAMPLE


def test_the_file_depends_on_the_draft(pair: Pair, home: Path) -> None:
    other = replace(pair, description=replace(pair.description, draft_sha256="0" * 64))
    assert stored_path(pair) != stored_path(other)
    assert stored_path(pair).is_relative_to(home)


def test_a_quick_measurement_is_smaller() -> None:
    quick, whole = quick_settings(), type(quick_settings())()
    cells = [len(each.capacities) * len(each.verify_rows) * each.repeats for each in (quick, whole)]
    assert cells[0] * 4 <= cells[1]
