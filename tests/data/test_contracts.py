"""Errors, envelope and cost profiles: what they promise and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treewise.data import errors
from treewise.data.cost import BUILTIN, CostGrid, CostProfile
from treewise.data.envelope import Envelope, PriorTable
from treewise.data.errors import CostProfileError, MissingExtraError, ParameterError, SchemaVersionError, TreewiseError


def test_every_error_and_warning_is_in_its_tree_and_in_the_drawing() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(kinds) > 10
    for kind in kinds:
        assert issubclass(kind, errors.TreewiseWarning if issubclass(kind, Warning) else TreewiseError)
        assert kind.__name__ in (errors.__doc__ or "")


def test_a_missing_extra_names_its_cure() -> None:
    error = MissingExtraError("torch", "engine")
    assert str(error) == "torch is not installed; install it with `pip install treewise[engine]`"
    assert isinstance(error, ImportError)


GRID = CostGrid((1, 5, 9), (100, 200), ((1.0, 5.0, 13.0), (3.0, 7.0, 15.0)))
PROFILE = CostProfile("here", GRID, CostGrid((1,), (0,), ((2.0,),)), policy_ms=0.5, round_ms=0.25)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Envelope(max_depth=0), ParameterError, "max_depth must be between 1 and 64, got 0"),
        (lambda: Envelope(max_depth=65), ParameterError, "max_depth must be between 1 and 64, got 65"),
        (lambda: Envelope(draft_width=-1), ParameterError, "draft_width must be between 0 and 64, got -1"),
        (lambda: Envelope(lookup_width=65), ParameterError, "lookup_width must be between 0 and 64, got 65"),
        (lambda: Envelope(min_path_prior=0.0), ParameterError, "min_path_prior must be between 0 and 1, got 0.0"),
        (
            lambda: Envelope(min_path_prior=0.1, min_grow_prior=0.05),
            ParameterError,
            "min_grow_prior must be between min_path_prior (0.1) and 1, got 0.05",
        ),
        (lambda: Envelope.from_json({"max_depth": 3}), ParameterError, "envelope must hold the names"),
        (lambda: PriorTable((0.1,)), ParameterError, "by_match_length must be at least two entries, got (0.1,)"),
        (lambda: PriorTable((0.1, 1.5)), ParameterError, "by_match_length must be probabilities, got (0.1, 1.5)"),
        (lambda: CostGrid((), (0,), ((),)), ParameterError, "counts must be at least one count, got ()"),
        (lambda: CostGrid((-5, 1), (0,), ((1.0, 2.0),)), ParameterError, "counts must be >= 0, got (-5, 1)"),
        (lambda: CostGrid((2, 1), (0,), ((1.0, 2.0),)), ParameterError, "counts must be ascending, got (2, 1)"),
        (lambda: CostGrid((1,), (), ()), ParameterError, "capacities must be at least one capacity, got ()"),
        (lambda: CostGrid((1,), (5, 5), ((1.0,), (1.0,))), ParameterError, "capacities must be ascending, got (5, 5)"),
        (lambda: CostGrid((1, 2), (0,), ((1.0,),)), ParameterError, "ms must be 1 x 2 numbers, got ((1.0,),)"),
        (lambda: CostGrid((1,), (0,), ((-1.0,),)), ParameterError, "ms must be finite and not negative"),
        (lambda: CostGrid((1,), (0,), ((float("nan"),),)), ParameterError, "ms must be finite and not negative"),
        (lambda: CostProfile.load("no-such-profile"), CostProfileError, "cost must be a profile file or one of"),
        (
            lambda: CostProfile.from_json({"schema_version": 2}),
            SchemaVersionError,
            "cost profile has schema version 2, this treewise reads 1: measure it again with `treewise profile`",
        ),
        (
            lambda: CostProfile.from_json({"schema_version": 1, "name": "x"}),
            CostProfileError,
            "cost profile must hold the names",
        ),
        (
            lambda: CostProfile.from_json({**PROFILE.to_json(), "draft": {"counts": [1]}}),
            CostProfileError,
            "cost profile must hold two grids of numbers",
        ),
        (
            lambda: CostProfile.from_json({**PROFILE.to_json(), "policy_ms": float("nan")}),
            CostProfileError,
            "cost profile must hold two grids of numbers and its prices: policy_ms must be finite and >= 0, got nan",
        ),
    ],
)
def test_refuses(make: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        make()
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("content", "message"), [("{", "must be a JSON file"), ("[]", "must be one JSON object, got 'list'")]
)
def test_a_profile_file_that_is_none(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "cost.json"
    path.write_text(content)
    with pytest.raises(CostProfileError, match=message):
        CostProfile.load(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("name", None),
        ("verified", "no"),
        ("spread", "x"),
        ("verify", {"counts": [float("inf")], "capacities": [0], "ms": [[1.0]]}),
    ],
)
def test_a_profile_file_of_wrong_kinds(tmp_path: Path, name: str, value: object) -> None:
    stored = BUILTIN["example-a100-70b"].to_json()
    path = tmp_path / "cost.json"
    path.write_text(json.dumps({**stored, name: value}))
    with pytest.raises(CostProfileError, match="cost profile must hold"):
        CostProfile.load(path)


def test_envelope_round_trip_widening_and_cover() -> None:
    envelope = Envelope(max_depth=4, min_path_prior=0.02)
    assert Envelope.from_json(json.loads(json.dumps(envelope.to_json()))) == envelope
    assert envelope.widened(0.9).covers(envelope) == []
    assert envelope.covers(envelope.widened(0.5)) == ["min_path_prior 0.01 < 0.02", "min_grow_prior 0.015 < 0.03"]
    assert envelope.covers(Envelope(max_depth=5, draft_width=6, min_path_prior=0.02)) == [
        "max_depth 5 > 4",
        "draft_width 6 > 5",
    ]


def test_priors_use_the_last_entry_for_longer_matches_and_split_one_mass() -> None:
    table = PriorTable((0.0, 0.5, 0.8))
    assert table.prior(1, 1.0) == 0.5
    assert table.prior(40, 0.25) == pytest.approx(0.2)
    assert table.prior(0, 1.0) == 0.0


def test_a_grid_is_linear_between_and_beyond_its_counts() -> None:
    assert GRID.at([0, 1, 3, 5, 7, 9, 11], 100).tolist() == [0.0, 1.0, 3.0, 5.0, 9.0, 13.0, 17.0]
    assert GRID.at([1], 150).tolist() == [2.0]
    assert GRID.at([1], 0).tolist() == [1.0]
    assert GRID.at([1], 999).tolist() == [3.0]
    falling = CostGrid((1, 2), (0,), ((5.0, 4.0),))
    assert falling.at([9]).tolist() == [4.0]  # noise in a measurement never makes more rows cheaper without end


@pytest.mark.parametrize("counts", [(4,), (1, 8, 30)])
@pytest.mark.parametrize("capacities", [(0,), (16, 200, 4000)])
def test_many_counts_and_capacities_cost_what_each_alone_does(
    counts: tuple[int, ...], capacities: tuple[int, ...]
) -> None:
    ms = np.random.default_rng(3).random((len(capacities), len(counts)))
    grid = CostGrid(counts, capacities, tuple(map(tuple, ms.tolist())))
    asked = [(count, capacity) for count in (0, 1, 4, 5, 8, 29, 30, 70) for capacity in (0, 16, 17, 200, 3999, 9000)]
    each = grid.at_each(*zip(*asked, strict=True))
    assert each.tolist() == [pytest.approx(float(grid.at(*one)), rel=1e-12) for one in asked]
    assert grid.at_each([], []).shape == (0,)


def test_profile_round_trip(tmp_path: Path) -> None:
    PROFILE.save(tmp_path / "cost.json")
    assert CostProfile.load(tmp_path / "cost.json") == PROFILE
    assert PROFILE.plain_ms(100) == 1.25
    assert PROFILE.draft_ms([1, 50]).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("name", sorted(BUILTIN))
def test_built_in_profiles_are_marked_unverified(name: str) -> None:
    profile = CostProfile.load(name)
    assert profile.name == name
    assert not profile.verified
    assert "unverified" in profile.origin
    assert np.all(np.diff(profile.verify_ms([1, 5, 36, 120])) > 0)
